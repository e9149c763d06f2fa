// SPDX-License-Identifier: MIT
//! What the open calls of a goroutine refer to, a few steps on.
//!
//! In: goroutines with their stacks. Out: for a word, which open calls have it: among what they
//! still use of the stack, in what that points to, and further on. An object's words are its own:
//! the heap's spans tell where it ends, of static data the symbols. Blind spot: of an array of
//! structures each element refers to what another one holds.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use flagfinder_code::{AddressSpace, Names};
use rustc_hash::FxHashMap;

use super::goroutine::Goroutine;
use super::runtime::Data;
use super::slots::Slots;
use super::spans::Spans;

/// Bytes of an object that are read, and of one whose end is not known.
const LARGEST: u64 = 2048;
const NEAR: u64 = 512;
/// Objects that are read for all goroutines.
const MOST_OBJECTS: usize = 100_000;
/// How far on is looked: on the stack, in what it points to, and so on.
pub const STEPS: usize = 4;
/// No pointer leads into the first page.
const PAGE: u64 = 4096;

/// Open calls, by their bits: the innermost is the lowest.
pub type Calls = u64;

/// Words, and which open calls lead there: of each step those that the steps before have not.
pub type Steps = [FxHashMap<u64, Calls>; STEPS];

pub struct AtHand<'a> {
    memory: &'a dyn AddressSpace,
    names: &'a Names,
    spans: Option<Spans>,
    slots: Option<Slots>,
    /// Where the program's data lie.
    data: Vec<Range<u64>>,
    /// Pointers in an object, by an address that leads there.
    held: RefCell<FxHashMap<u64, Rc<Vec<u64>>>>,
    steps: RefCell<FxHashMap<usize, Rc<Steps>>>,
    objects: Cell<usize>,
}

impl<'a> AtHand<'a> {
    pub fn new(
        all: &[Goroutine],
        memory: &'a dyn AddressSpace,
        names: &'a Names,
        data: &Data,
    ) -> AtHand<'a> {
        let known: Vec<u64> = all.iter().map(|one| one.kept.address).collect();
        AtHand {
            memory,
            names,
            spans: Spans::find(memory, data, &known),
            slots: Slots::find(memory, data),
            data: names.go_data().unwrap_or_default(),
            held: RefCell::default(),
            steps: RefCell::default(),
            objects: Cell::default(),
        }
    }

    /// Of this goroutine.
    pub fn steps(&self, index: usize, one: &Goroutine) -> Rc<Steps> {
        if let Some(known) = self.steps.borrow().get(&index) {
            return known.clone();
        }
        let found = Rc::new(self.look(one));
        self.steps.borrow_mut().insert(index, found.clone());
        found
    }

    fn look(&self, one: &Goroutine) -> Steps {
        let mut steps = Steps::default();
        for (word, calls) in self
            .in_use(one)
            .into_iter()
            .filter(|(word, _)| *word > PAGE)
        {
            *steps[0].entry(word).or_default() |= calls;
        }
        for step in 1..STEPS {
            let mut next = FxHashMap::default();
            for (word, calls) in &steps[step - 1] {
                for held in self.held(*word).iter() {
                    let known = steps[..step].iter().filter_map(|before| before.get(held));
                    let new = known.fold(*calls, |new, known| new & !known);
                    if new != 0 {
                        *next.entry(*held).or_default() |= new;
                    }
                }
            }
            steps[step] = next;
        }
        steps
    }

    /// The words that its open calls use. Of a call that has no maps, all words of its frame are.
    fn in_use(&self, one: &Goroutine) -> Vec<(u64, Calls)> {
        let calls = one.frames.iter().zip(&one.bounds).take(64);
        let (mut found, mut without) = (Vec::new(), 0);
        for (call, (pc, end)) in calls.enumerate() {
            let slots = self.slots.as_ref();
            match slots.and_then(|slots| slots.of(self.memory, *pc, *end)) {
                Some(places) => found.extend(places.into_iter().filter_map(|place| {
                    let at = place.checked_sub(one.kept.stack.start)? / 8;
                    Some((*one.stack.get(usize::try_from(at).ok()?)?, 1 << call))
                })),
                None => without |= 1 << call,
            }
        }
        let outermost = one.frames.len().clamp(1, 64) - 1;
        found.extend(one.closures.iter().map(|at| (*at, 1 << outermost)));
        for (at, word) in one.stack.iter().enumerate() {
            let calls = one.calls_with(at).filter(|call| *call < 64);
            let calls = calls.fold(0, |all, call| all | 1 << call) & without;
            if calls != 0 {
                found.push((*word, calls));
            }
        }
        found
    }

    /// What the object holds to which the word leads.
    fn held(&self, word: u64) -> Rc<Vec<u64>> {
        if let Some(known) = self.held.borrow().get(&word) {
            return known.clone();
        }
        let read = || {
            let extent = self.extent(word)?;
            let start = extent
                .start
                .max(word.saturating_sub(LARGEST))
                .next_multiple_of(8);
            let size = extent.end.saturating_sub(start).min(LARGEST);
            (self.objects.get() < MOST_OBJECTS)
                .then(|| self.objects.set(self.objects.get() + 1))?;
            let mut bytes = vec![0; size as usize];
            let got = self.memory.read(start, &mut bytes);
            let words = bytes[..got].chunks_exact(8);
            let words = words.map(|eight| eight.try_into().map_or(0, u64::from_le_bytes));
            Some(words.filter(|held| *held > PAGE).collect())
        };
        let found: Rc<Vec<u64>> = Rc::new(read().unwrap_or_default());
        self.held.borrow_mut().insert(word, found.clone());
        found
    }

    /// Of the object that may hold pointers to which the word leads.
    fn extent(&self, word: u64) -> Option<Range<u64>> {
        if self.is_static(word) {
            return self.variable(word);
        }
        match &self.spans {
            Some(spans) => {
                let object = spans.object(self.memory, word)?;
                object.points.then_some(object.extent)
            }
            None => (word % 8 == 0).then(|| word..word.saturating_add(NEAR)),
        }
    }

    /// Where the object may begin that holds this place, if it is larger than that.
    pub fn begin(&self, place: u64) -> Option<u64> {
        let lowest = place.saturating_sub(LARGEST);
        if self.is_static(place) {
            return Some(self.variable(place)?.start.max(lowest));
        }
        match &self.spans {
            Some(spans) => spans
                .object(self.memory, place)
                .map(|object| object.extent.start.max(lowest)),
            None => Some(lowest),
        }
    }

    fn is_static(&self, place: u64) -> bool {
        self.data.iter().any(|extent| extent.contains(&place))
    }

    /// The variable that holds the place, as far as it has a symbol.
    fn variable(&self, place: u64) -> Option<Range<u64>> {
        let symbol = self.names.data(place).symbol?;
        let all = self.names.resolve(None, &symbol).into_iter();
        let mut extents = all.map(|(start, size)| start..start.saturating_add(size));
        extents.find(|extent| extent.contains(&place))
    }
}
