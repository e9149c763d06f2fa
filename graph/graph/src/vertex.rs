// SPDX-License-Identifier: MIT
//! The graph's largest table. What most recordings do not tell of a vertex, or of few vertices,
//! stands in a table of its own: memory is what building a graph waits for.

use bytemuck::{cast_slice, Pod, Zeroable};
use flagfinder_events::Call;
use rustc_hash::FxHashMap;

use crate::edge::{EdgeKind, NOBODY};

/// `Details::result` where the call's result was not recorded.
pub const NO_RESULT: i64 = i64::MIN;

/// What a thread did from one wake to the next wait, or one item of what it did.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Vertex {
    /// CLOCK_MONOTONIC, ns: when it became runnable, and when it blocked.
    pub start: u64,
    pub end: u64,
    /// ns on a CPU.
    pub run: u64,
    /// The call that it blocks in at the end, packed as in events; 0: unknown, or it does not
    /// block.
    pub call: u64,
    /// Index into `Meta::threads`.
    pub thread: u32,
    /// The vertex that made it begin, or [`NOBODY`].
    pub from: u32,
    /// Where its [`Details`] are; 0: there are none.
    pub details: u32,
    /// The CPU that it ran on last.
    pub cpu: u16,
    /// [`EdgeKind`] as a number: why it began. Weak: only what the thread did before is known.
    pub cause: u8,
    /// 1: it ends by blocking; 0: by a split, the recording's end, or the thread's.
    pub blocks: u8,
}

impl Default for Vertex {
    fn default() -> Vertex {
        Vertex {
            from: NOBODY,
            cause: EdgeKind::Weak as u8,
            ..Vertex::zeroed()
        }
    }
}

impl Vertex {
    pub fn call(&self) -> Option<Call> {
        Call::unpack(self.call)
    }

    pub fn cause(&self) -> EdgeKind {
        EdgeKind::from_number(self.cause.into())
    }
}

/// What is known of a vertex where calls or stacks were recorded, threads yielded or flags were
/// watched.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct Details {
    /// What the call returned that it blocks in, or [`NO_RESULT`].
    pub result: i64,
    /// Over the numbers of its calls in order, when all were recorded, and the place it blocks at
    /// when stacks were.
    pub semantics: u64,
    pub yields: u32,
    /// Data flag events inside.
    pub flags: u32,
    /// Where it blocks, and where its waker was, see `Graph::stack`.
    pub stack: u32,
    pub waker_stack: u32,
    /// The kernel's, of the thread and of a less urgent one that woke it; 0: no such one did.
    pub priority: u32,
    pub waker_priority: u32,
}

impl Default for Details {
    fn default() -> Details {
        Details {
            result: NO_RESULT,
            ..Details::zeroed()
        }
    }
}

/// All vertices; those of one thread in order of time.
pub struct Vertices {
    pub(crate) rows: Vec<Vertex>,
    /// The first stands for those that have none.
    pub(crate) details: Vec<Details>,
    /// By thread.
    of_thread: Vec<Vec<u32>>,
}

impl Default for Vertices {
    fn default() -> Vertices {
        Vertices {
            rows: Vec::new(),
            details: vec![Details::default()],
            of_thread: Vec::new(),
        }
    }
}

impl Vertices {
    /// `rows` of threads below `threads`, with the `details` that they name.
    pub(crate) fn new(rows: Vec<Vertex>, details: Vec<Details>, threads: usize) -> Vertices {
        let mut of_thread = vec![Vec::new(); threads];
        for (row, number) in rows.iter().zip(0u32..) {
            of_thread[row.thread as usize].push(number);
        }
        Vertices {
            rows,
            details,
            of_thread,
        }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Vertices and details as bytes, in the layout of [`Vertex`] and [`Details`].
    pub fn records(&self) -> (&[u8], &[u8]) {
        (cast_slice(&self.rows), cast_slice(&self.details))
    }

    // In place: a row that is made elsewhere and copied by wider words than it was written in
    // stalls the processor.
    #[inline(always)]
    pub(crate) fn push(&mut self, vertex: Vertex) -> u32 {
        let number = self.rows.len() as u32;
        let thread = vertex.thread as usize;
        if thread >= self.of_thread.len() {
            self.of_thread.resize_with(thread + 1, Vec::new);
        }
        self.of_thread[thread].push(number);
        self.rows.push(vertex);
        number
    }

    /// Those of a thread, by its index, in order of time.
    pub(crate) fn of(&self, thread: u32) -> &[u32] {
        self.of_thread
            .get(thread as usize)
            .map_or(&[], |list| list.as_slice())
    }

    pub(crate) fn details(&self, vertex: u32) -> &Details {
        &self.details[self[vertex].details as usize]
    }

    pub(crate) fn details_mut(&mut self, vertex: u32) -> &mut Details {
        let row = &mut self.rows[vertex as usize];
        if row.details == 0 {
            row.details = self.details.len() as u32;
            self.details.push(Details::default());
        }
        &mut self.details[row.details as usize]
    }

    /// Vertices of which the same is known share it: a thread that waits at one place a million
    /// times. Nothing may be changed afterwards.
    pub(crate) fn share_details(&mut self) {
        let mut places: FxHashMap<Details, u32> = FxHashMap::default();
        let mut kept = Vec::new();
        let all = std::mem::take(&mut self.details);
        let mut place = |details: Details| {
            *places.entry(details).or_insert_with(|| {
                kept.push(details);
                kept.len() as u32 - 1
            })
        };
        place(Details::default());
        for row in self.rows.iter_mut().filter(|row| row.details != 0) {
            row.details = place(all[row.details as usize]);
        }
        self.details = kept;
    }
}

impl std::ops::Index<u32> for Vertices {
    type Output = Vertex;

    fn index(&self, vertex: u32) -> &Vertex {
        &self.rows[vertex as usize]
    }
}

impl std::ops::IndexMut<u32> for Vertices {
    fn index_mut(&mut self, vertex: u32) -> &mut Vertex {
        &mut self.rows[vertex as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_kept_of_those_that_have_any() {
        let mut vertices = Vertices::default();
        let all = [0, 1, 2].map(|_| vertices.push(Vertex::default()));
        vertices.details_mut(1).yields += 1;
        vertices.details_mut(1).yields += 1;
        assert_eq!(all.map(|vertex| vertices.details(vertex).yields), [0, 2, 0]);
        assert_eq!(vertices.details(2).result, NO_RESULT);
        assert_eq!(vertices.details.len(), 2);
    }

    #[test]
    fn vertices_of_which_the_same_is_known_share_it() {
        let mut vertices = Vertices::default();
        for turn in 0..1000 {
            let vertex = vertices.push(Vertex::default());
            if turn % 4 > 0 {
                vertices.details_mut(vertex).stack = turn % 4;
            }
        }
        vertices.share_details();
        let stacks: Vec<u32> = (0..8).map(|v| vertices.details(v).stack).collect();
        assert_eq!(stacks, [0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!(vertices.details.len(), 4);
    }

    #[test]
    fn those_of_a_thread_are_found_however_the_table_was_made() {
        let mut pushed = Vertices::default();
        for thread in [2, 0, 2, 2, 0] {
            pushed.push(Vertex {
                thread,
                ..Vertex::default()
            });
        }
        let read = Vertices::new(pushed.rows.clone(), pushed.details.clone(), 4);
        for vertices in [pushed, read] {
            let lists = [0, 1, 2, 3].map(|thread| vertices.of(thread));
            assert_eq!(lists, [&[1, 4][..], &[], &[0, 2, 3], &[]]);
        }
    }
}
