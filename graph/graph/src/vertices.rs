// SPDX-License-Identifier: MIT
//! The graph's largest table. Building a graph mostly waits for fresh memory, above all on a
//! virtual machine that has to ask its host for each page. So a vertex takes half of the room that
//! it takes in a file: times count from a near one, and calls are numbers of a table. The few
//! vertices that do not fit stand whole in a table of their own.

use std::sync::OnceLock;

use bytemuck::cast_slice;
use rustc_hash::FxHashMap;

use crate::edge::EdgeKind;
use crate::vertex::{Details, Vertex};

/// Rows whose times count from the same one. Four seconds often hold so many.
const NEAR: usize = 256;
/// `Row::dur` of a vertex that stands in `Vertices::far`.
const FAR: u32 = u32::MAX;
/// Vertices that are handed out at once in the layout of a file.
pub(crate) const PIECE: usize = 4096;
const CPU_BITS: u32 = 11;
const CAUSE_BITS: u32 = 4;

/// A vertex in short.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    /// ns since the time of its neighbours.
    start: u32,
    dur: u32,
    run: u32,
    from: u32,
    /// Place in `Vertices::calls`.
    call: u32,
    /// Thread, CPU, cause, and whether it blocks, from the highest bit to the lowest.
    rest: u32,
}

impl Row {
    const FAR: Row = Row {
        start: 0,
        dur: FAR,
        run: 0,
        from: 0,
        call: 0,
        rest: 0,
    };

    /// `None`: it does not fit.
    #[inline(always)]
    fn of(vertex: &Vertex, base: u64, call: u32) -> Option<Row> {
        let start = vertex.start.wrapping_sub(base);
        let dur = vertex.end.wrapping_sub(vertex.start);
        let (cpu, cause) = (u32::from(vertex.cpu), u32::from(vertex.cause));
        let fits = (start | vertex.run) >> 32 == 0
            && dur < u64::from(FAR)
            && vertex.thread >> 16 == 0
            && cpu >> CPU_BITS == 0
            && cause >> CAUSE_BITS == 0
            && vertex.blocks < 2;
        let head = vertex.thread << CPU_BITS | cpu;
        fits.then_some(Row {
            start: start as u32,
            dur: dur as u32,
            run: vertex.run as u32,
            from: vertex.from,
            call,
            rest: (head << CAUSE_BITS | cause) << 1 | u32::from(vertex.blocks),
        })
    }

    /// Puts a value into so many bits of `rest`, above so many others.
    #[inline(always)]
    fn set(&mut self, bits: u32, above: u32, value: u32) {
        let mask = ((1 << bits) - 1) << above;
        self.rest = self.rest & !mask | value << above;
    }

    #[inline(always)]
    fn thread(self) -> u32 {
        self.rest >> (CPU_BITS + CAUSE_BITS + 1)
    }
}

/// Numbers of vertices by thread; those of one thread in order of time.
struct ByThread {
    /// Where each thread's begin.
    firsts: Vec<usize>,
    numbers: Vec<u32>,
}

/// All vertices.
pub struct Vertices {
    pub(crate) rows: Vec<Row>,
    /// The time that rows count from, for each [`NEAR`] of them.
    bases: Vec<u64>,
    /// The latest start so far.
    latest: u64,
    /// Calls that vertices end in, packed as in events. The first is none.
    calls: Vec<u64>,
    call_numbers: FxHashMap<u64, u32>,
    far: FxHashMap<u32, Vertex>,
    /// The first stands for those that have none.
    pub(crate) details: Vec<Details>,
    /// Where the details of each vertex are, as far as any has some.
    details_of: Vec<u32>,
    /// Made when somebody asks.
    by_thread: OnceLock<ByThread>,
}

impl Default for Vertices {
    fn default() -> Vertices {
        Vertices::of_details(vec![Details::default()])
    }
}

impl Vertices {
    /// No vertices yet, and the details that they will name.
    pub(crate) fn of_details(details: Vec<Details>) -> Vertices {
        Vertices {
            rows: Vec::new(),
            bases: Vec::new(),
            latest: 0,
            calls: vec![0],
            call_numbers: FxHashMap::from_iter([(0, 0)]),
            far: FxHashMap::default(),
            details,
            details_of: Vec::new(),
            by_thread: OnceLock::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    #[inline(always)]
    pub(crate) fn get(&self, vertex: u32) -> Vertex {
        let row = self.rows[vertex as usize];
        let details = self.details_of.get(vertex as usize);
        let details = details.copied().unwrap_or(0);
        if row.dur == FAR {
            let whole = self.far[&vertex];
            return Vertex { details, ..whole };
        }
        let start = self.bases[vertex as usize / NEAR] + u64::from(row.start);
        let causes = row.rest >> 1;
        Vertex {
            start,
            end: start + u64::from(row.dur),
            run: row.run.into(),
            call: self.calls[row.call as usize],
            thread: row.thread(),
            from: row.from,
            details,
            cpu: (causes >> CAUSE_BITS & ((1 << CPU_BITS) - 1)) as u16,
            cause: (causes & ((1 << CAUSE_BITS) - 1)) as u8,
            blocks: (row.rest & 1) as u8,
        }
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, vertex: Vertex) -> u32 {
        let number = self.rows.len() as u32;
        if self.by_thread.get().is_some() {
            self.by_thread = OnceLock::new();
        }
        self.latest = self.latest.max(vertex.start);
        if self.rows.len() % NEAR == 0 {
            self.bases.push(self.latest);
        }
        let call = self.call_number(vertex.call);
        let short = Row::of(&vertex, self.bases[number as usize / NEAR], call);
        if short.is_none() {
            self.far.insert(number, vertex);
        }
        self.rows.push(short.unwrap_or(Row::FAR));
        if vertex.details != 0 {
            *self.details_place(number) = vertex.details;
        }
        number
    }

    /// The thread runs on this CPU. This and the next three write into the row itself, where
    /// [`Vertices::change`] would unpack and pack it: a build calls hardly anything else.
    #[inline(always)]
    pub(crate) fn runs_on(&mut self, vertex: u32, cpu: u16) {
        let row = &mut self.rows[vertex as usize];
        if row.dur == FAR || u32::from(cpu) >> CPU_BITS != 0 {
            return self.change(vertex, |whole| whole.cpu = cpu);
        }
        row.set(CPU_BITS, CAUSE_BITS + 1, cpu.into());
    }

    /// Says what made a vertex begin.
    #[inline(always)]
    pub(crate) fn caused(&mut self, vertex: u32, kind: EdgeKind, from: u32) {
        let row = &mut self.rows[vertex as usize];
        if row.dur == FAR {
            return self.change(vertex, |whole| {
                (whole.cause, whole.from) = (kind as u8, from);
            });
        }
        row.set(CAUSE_BITS, 1, kind as u32);
        row.from = from;
    }

    /// What a vertex did lasts to `ts`, with so many further ns on a CPU.
    #[inline(always)]
    pub(crate) fn lasts(&mut self, vertex: u32, ts: u64, ran: u64) {
        let row = &mut self.rows[vertex as usize];
        let start = self.bases[vertex as usize / NEAR] + u64::from(row.start);
        let (dur, run) = (ts.wrapping_sub(start), ran.saturating_add(row.run.into()));
        if row.dur == FAR || dur.max(run) >= u64::from(FAR) {
            return self.change(vertex, |whole| {
                (whole.end, whole.run) = (ts, whole.run + ran);
            });
        }
        (row.dur, row.run) = (dur as u32, run as u32);
    }

    /// It ends in a call, packed as in events.
    #[inline(always)]
    pub(crate) fn ends_in(&mut self, vertex: u32, call: u64, blocks: bool) {
        let number = self.call_number(call);
        let row = &mut self.rows[vertex as usize];
        if row.dur == FAR {
            return self.change(vertex, |whole| {
                (whole.call, whole.blocks) = (call, blocks.into());
            });
        }
        row.call = number;
        row.set(1, 0, blocks.into());
    }

    /// Changes a vertex, but for its details.
    pub(crate) fn change(&mut self, vertex: u32, change: impl FnOnce(&mut Vertex)) {
        let mut whole = self.get(vertex);
        change(&mut whole);
        self.put(vertex, &whole);
    }

    fn put(&mut self, vertex: u32, whole: &Vertex) {
        let call = self.call_number(whole.call);
        let short = Row::of(whole, self.bases[vertex as usize / NEAR], call);
        let row = &mut self.rows[vertex as usize];
        let was_far = std::mem::replace(row, short.unwrap_or(Row::FAR)).dur == FAR;
        if short.is_none() {
            self.far.insert(vertex, *whole);
        } else if was_far {
            self.far.remove(&vertex);
        }
    }

    #[inline(always)]
    fn call_number(&mut self, call: u64) -> u32 {
        if call == 0 {
            return 0;
        }
        let next = self.calls.len() as u32;
        let number = *self.call_numbers.entry(call).or_insert(next);
        if number == next {
            self.calls.push(call);
        }
        number
    }

    /// All vertices as bytes, in the layout of [`Vertex`], piece by piece.
    pub fn records<E>(&self, mut take: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut piece = Vec::with_capacity(PIECE);
        let mut all = self.iter();
        loop {
            piece.clear();
            piece.extend(all.by_ref().take(PIECE));
            if piece.is_empty() {
                return Ok(());
            }
            take(cast_slice(&piece))?;
        }
    }

    /// The table of what is known of some, in the layout of [`Details`].
    pub fn details_records(&self) -> &[u8] {
        cast_slice(&self.details)
    }

    /// All of them, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = Vertex> + '_ {
        (0..self.rows.len() as u32).map(|vertex| self.get(vertex))
    }

    fn by_thread(&self) -> &ByThread {
        self.by_thread.get_or_init(|| {
            let threads = || self.iter().map(|vertex| vertex.thread as usize);
            let mut firsts = vec![0; threads().max().map_or(0, |most| most + 1) + 1];
            threads().for_each(|thread| firsts[thread + 1] += 1);
            for thread in 1..firsts.len() {
                firsts[thread] += firsts[thread - 1];
            }
            let mut next = firsts.clone();
            let mut numbers = vec![0; self.rows.len()];
            for (thread, number) in threads().zip(0..) {
                numbers[next[thread]] = number;
                next[thread] += 1;
            }
            ByThread { firsts, numbers }
        })
    }

    /// Those of a thread, by its index, in order of time.
    pub(crate) fn of(&self, thread: u32) -> &[u32] {
        let all = self.by_thread();
        let ends = all.firsts.get(thread as usize..thread as usize + 2);
        ends.map_or(&[], |ends| &all.numbers[ends[0]..ends[1]])
    }

    fn details_place(&mut self, vertex: u32) -> &mut u32 {
        if self.details_of.len() <= vertex as usize {
            self.details_of.resize(self.rows.len(), 0);
        }
        &mut self.details_of[vertex as usize]
    }

    pub(crate) fn details(&self, vertex: u32) -> &Details {
        let place = self.details_of.get(vertex as usize);
        &self.details[place.copied().unwrap_or(0) as usize]
    }

    pub(crate) fn details_mut(&mut self, vertex: u32) -> &mut Details {
        let next = self.details.len() as u32;
        let place = self.details_place(vertex);
        if *place == 0 {
            *place = next;
            self.details.push(Details::default());
        }
        let place = self.details_of[vertex as usize];
        &mut self.details[place as usize]
    }

    /// Vertices with the same facts share them: a thread may wait at one place a million times.
    /// Nothing may be changed afterwards.
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
        for own in self.details_of.iter_mut().filter(|own| **own != 0) {
            *own = place(all[*own as usize]);
        }
        self.details = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vertex::NO_RESULT;

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
    fn those_of_a_thread_are_found_also_when_more_have_come() {
        let mut vertices = Vertices::default();
        let mut lists = Vec::new();
        for threads in [&[2, 0, 2][..], &[2, 0]] {
            for &thread in threads {
                vertices.push(Vertex {
                    thread,
                    ..Vertex::default()
                });
            }
            lists.push([0, 1, 2, 3].map(|thread| vertices.of(thread).to_vec()));
        }
        let none = Vec::new;
        assert_eq!(lists[0], [vec![1], none(), vec![0, 2], none()]);
        assert_eq!(lists[1], [vec![1, 4], none(), vec![0, 2, 3], none()]);
    }

    /// Numbers at the borders of what a row holds.
    fn border(turn: u64, bits: u32) -> u64 {
        let most = 1u64.checked_shl(bits).map_or(u64::MAX, |above| above - 1);
        [0, 1, most - 1, most, most.wrapping_add(1), most >> 1][turn as usize % 6]
    }

    #[test]
    fn a_vertex_comes_out_as_it_went_in_whether_it_fits_a_row_or_not() {
        let made = |turn: u64, now: u64| Vertex {
            start: now,
            end: now + border(turn, 32),
            run: border(turn / 36, 32),
            call: [0, 5 << 48, turn << 48][turn as usize % 3],
            thread: border(turn / 5, 16) as u32,
            from: border(turn, 32) as u32,
            details: (turn % 4) as u32,
            cpu: border(turn / 11, CPU_BITS) as u16,
            cause: border(turn / 13, CAUSE_BITS) as u8,
            blocks: (turn % 2) as u8,
        };
        let mut vertices = Vertices::of_details(vec![Details::default(); 4]);
        // Some begin long before, and the last of some neighbours more than four seconds later.
        let time = |turn: u64| turn * 20_000_000 / if turn % 10 == 9 { 2 } else { 1 };
        let first: Vec<Vertex> = (0..3000).map(|turn| made(turn, time(turn))).collect();
        for vertex in &first {
            vertices.push(*vertex);
        }
        assert!(first.iter().copied().eq(vertices.iter()));
        let far = vertices.far.len();
        assert!((100..2900).contains(&far), "both sorts: {far}");
        // Each becomes another, and back.
        let second = |turn: u64| Vertex {
            details: first[turn as usize].details,
            ..made(turn + 1, time(turn))
        };
        for turn in 0..3000 {
            vertices.change(turn as u32, |vertex| *vertex = second(turn));
        }
        assert!((0..3000).map(second).eq(vertices.iter()));
        for turn in 0..3000 {
            vertices.change(turn as u32, |vertex| *vertex = first[turn as usize]);
        }
        assert!(first.iter().copied().eq(vertices.iter()));
        // The same in the rows themselves.
        let third = |turn: u64| Vertex {
            end: time(turn) + border(turn / 4, 32),
            run: first[turn as usize].run + border(turn / 5, 32),
            call: (turn % 7) << 48,
            from: turn as u32,
            cpu: border(turn / 6, CPU_BITS) as u16,
            cause: (turn % 13) as u8,
            blocks: (turn / 3 % 2) as u8,
            ..first[turn as usize]
        };
        for turn in 0..3000 {
            let (number, wanted) = (turn as u32, third(turn));
            vertices.runs_on(number, wanted.cpu);
            vertices.caused(number, wanted.cause(), wanted.from);
            vertices.lasts(number, wanted.end, wanted.run - first[turn as usize].run);
            vertices.ends_in(number, wanted.call, wanted.blocks == 1);
        }
        assert!((0..3000).map(third).eq(vertices.iter()));
        let far = vertices.rows.iter().filter(|row| row.dur == FAR).count();
        assert_eq!(vertices.far.len(), far);
    }
}
