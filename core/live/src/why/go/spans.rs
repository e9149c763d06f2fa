// SPDX-License-Identifier: MIT
//! Which object of Go's heap an address lies in, and where that begins and ends.
//!
//! In: the writable data of the program, and an object of the heap that is known. Out: the
//! runtime's table of arenas, each with the spans of its pages; a span holds objects of one size.
//! Nothing of it is told by a name: the table is the word of the data by which a known object's
//! span is found. Source: Go's `runtime/mheap.go`, versions 1.18 to 1.26. Blind spots: static data
//! and stacks, which lie in no such span.

use std::ops::Range;

use flagfinder_code::AddressSpace;

use super::runtime::Data;

/// Where the addresses begin that arenas count, and how large an arena and its pages are.
const FIRST: u64 = 0xffff_8000_0000_0000;
const ARENA: u64 = 64 << 20;
const PAGE: u64 = 8 << 10;
/// Where an arena keeps its spans: from Go 1.22 on, in 1.20, and before.
const SPANS: [u64; 3] = [0, (1 << 20) + (16 << 10), 2 << 20];
/// Where a span keeps its first address and the number of its pages.
const START: u64 = 24;
const PAGES: u64 = 32;
/// Where it may keep the size of its objects, with the end of the last one behind that.
const SIZES: Range<u64> = 64..160;
/// Such a part of a span may be left behind its last object.
const MARKS: u64 = 32;
/// What lies in front of the size: whether the objects hold no pointers, and the state, which says
/// that the span is one of the heap.
const CLASS: u64 = 6;
const STATE: u64 = 5;
const IN_USE: u64 = 1;

pub struct Spans {
    /// Where the table of arenas begins.
    arenas: u64,
    spans: u64,
    size: u64,
}

/// An object, or the free place of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub extent: Range<u64>,
    /// It may hold pointers.
    pub points: bool,
}

impl Spans {
    /// `known`: addresses of objects of the heap, as those of goroutines.
    pub fn find(memory: &dyn AddressSpace, data: &Data, known: &[u64]) -> Option<Spans> {
        let first = *known.first()?;
        let words = data.all().map(|(_, word)| word);
        let mut tables = words.filter(|word| *word != 0 && word % 4096 == 0);
        tables.find_map(|arenas| {
            let spans = SPANS.into_iter().find(|spans| {
                let span = span(memory, arenas, *spans, first);
                span.is_some_and(|span| extent(memory, span).is_some_and(|e| e.contains(&first)))
            })?;
            let of_known = known
                .iter()
                .filter_map(|at| span(memory, arenas, spans, *at));
            let all: Vec<u64> = of_known.collect();
            let is_size = |size: &u64| all.iter().all(|span| is_size(memory, *span, *size));
            let size = SIZES.step_by(8).find(is_size)?;
            Some(Spans {
                arenas,
                spans,
                size,
            })
        })
    }

    /// `None`: the address is none of the heap.
    pub fn object(&self, memory: &dyn AddressSpace, address: u64) -> Option<Object> {
        let span = span(memory, self.arenas, self.spans, address)?;
        let within = extent(memory, span).filter(|extent| extent.contains(&address))?;
        let field = |at: u64, bytes: usize| memory.number(span.checked_add(at)?, bytes);
        let size = field(self.size, 8).filter(|size| *size > 0)?;
        if field(self.size - STATE, 1)? != IN_USE {
            return None;
        }
        let begin = within.start + (address - within.start) / size * size;
        let end = begin.checked_add(size)?;
        (end <= within.end).then_some(Object {
            extent: begin..end,
            points: field(self.size - CLASS, 1)? & 1 == 0,
        })
    }
}

/// The span of the page that holds the address.
fn span(memory: &dyn AddressSpace, arenas: u64, spans: u64, address: u64) -> Option<u64> {
    let at = address.wrapping_sub(FIRST);
    // Addresses have 48 bits.
    let arena = (at < 1 << 48).then(|| memory.word(arenas.checked_add(at / ARENA * 8)?))??;
    let page = at % ARENA / PAGE;
    let span = memory.word(arena.checked_add(spans + page * 8)?);
    span.filter(|span| arena != 0 && *span != 0 && span % 8 == 0)
}

fn extent(memory: &dyn AddressSpace, span: u64) -> Option<Range<u64>> {
    let start = memory.word(span.checked_add(START)?)?;
    let pages = memory.word(span.checked_add(PAGES)?)?;
    let is_one = start != 0 && start % PAGE == 0 && (1..1 << 32).contains(&pages);
    is_one.then(|| start.checked_add(pages * PAGE).map(|end| start..end))?
}

/// Does a span of the heap keep the size of its objects there?
fn is_size(memory: &dyn AddressSpace, span: u64, at: u64) -> bool {
    let field = |at: u64| memory.word(span.checked_add(at)?);
    let (Some(extent), Some(size), Some(limit)) = (extent(memory, span), field(at), field(at + 8))
    else {
        return false;
    };
    let room = extent.end - extent.start;
    let used = limit
        .checked_sub(extent.start)
        .filter(|used| (1..=room).contains(used));
    // Which objects hold pointers may be noted behind the last one.
    let fits = |used: u64| used % size == 0 && room - used < size + room / MARKS;
    (8..=room).contains(&size) && used.is_some_and(fits)
}

#[cfg(test)]
mod tests {
    use super::super::tests::Words;
    use super::*;

    const ARENAS: u64 = 0x10000;
    const AN_ARENA: u64 = 0x7f00_0000_0000;
    const HEAP: u64 = 0xc0_0000_0000;
    const SPAN: u64 = 0x20000;

    /// An arena whose third page holds objects of 24 bytes; `state`: of its span.
    fn program(spans: u64, size: u64, state: u64) -> (Words, Data) {
        let arena = HEAP.wrapping_sub(FIRST) / ARENA * 8;
        let start = HEAP + 2 * PAGE;
        let empty = (0..32).map(|at| (SPAN + at * 8, 0));
        let words = [
            (0x2000, 0x3000),
            (0x2008, ARENAS),
            (ARENAS + arena, AN_ARENA),
            (AN_ARENA + spans + 16, SPAN),
            (SPAN + START, start),
            (SPAN + PAGES, 1),
            (SPAN + size - 8, state << 24),
            (SPAN + size, 24),
            (SPAN + size + 8, start + 341 * 24),
        ];
        let memory = Words::from_iter(empty.chain(words));
        let data = Data::read(&memory, std::slice::from_ref(&(0x2000..0x2010)));
        (memory, data)
    }

    #[test]
    fn an_object_is_found_by_its_span_in_each_version() {
        for spans in SPANS {
            for size in [96, 104, 112] {
                let (memory, data) = program(spans, size, IN_USE);
                let at = HEAP + 2 * PAGE + 7 * 24;
                let found = Spans::find(&memory, &data, &[at + 8, at + 48]).expect("spans");
                for inner in [0, 8, 23] {
                    let object = found.object(&memory, at + inner).expect("an object");
                    assert_eq!(object.extent, at..at + 24, "{spans} {size} {inner}");
                    assert!(object.points);
                }
                assert_eq!(found.object(&memory, HEAP), None, "no span");
                assert_eq!(found.object(&memory, 0x2000), None, "no arena");
            }
        }
    }

    #[test]
    fn a_stack_is_no_object() {
        let (memory, data) = program(0, 104, 2);
        let at = HEAP + 2 * PAGE;
        let found = Spans::find(&memory, &data, &[at]).expect("spans");
        assert_eq!(found.object(&memory, at), None);
    }
}
