// SPDX-License-Identifier: MIT
//! By which pointers does the loop come to a word?
//!
//! In: a step that reads the word. Out: the pointers to the object that holds it, to the object
//! that holds that pointer, and so on, as far as the loop loads them. A number that only helps to
//! find a place within an object (an index, a hash) is no pointer to it. Blind spot: a pointer that
//! was loaded before the window.

use std::collections::VecDeque;

use flagfinder_machine::Window;
use rustc_hash::FxHashSet;

use crate::dependence::{Dependence, Input};

/// A word farther behind the place that a pointer names belongs to another object.
const OBJECT: u64 = 4096;
/// Most steps that are followed for one word.
const STEPS: usize = 256;

/// A pointer, and where it was loaded from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// Address of the pointer.
    pub at: u64,
    /// Address of the object that it points to.
    pub object: u64,
    /// How many pointers lead from it to the word, with itself.
    pub hops: u32,
}

/// The pointers that lead to what the step reads at `address`; the last comes first.
pub(crate) fn way(
    window: &Window,
    dependence: &Dependence,
    step: u32,
    address: u64,
) -> Vec<Pointer> {
    let mut found = Vec::new();
    let mut seen: FxHashSet<(u32, u64)> = FxHashSet::default();
    let makers = |step: u32, address: u64, hops: u32| {
        let inputs = dependence.inputs(step).iter();
        let inputs = inputs.filter(|edge| edge.input == Input::Address);
        inputs.map(move |edge| (edge.from, address, hops))
    };
    let mut work: VecDeque<(u32, u64, u32)> = makers(step, address, 1).collect();
    for _ in 0..STEPS {
        let Some((step, address, hops)) = work.pop_front() else {
            break;
        };
        if !seen.insert((step, address)) {
            continue;
        }
        // A value that the loop itself saved there (a register) is followed to where it came from.
        let inputs = dependence.inputs(step).iter();
        let handed_on = inputs.filter(|edge| edge.input != Input::Address);
        work.extend(handed_on.map(|edge| (edge.from, address, hops)));
        let mut reads = window.accesses(step).iter();
        let read = reads.find(|access| !access.write && access.bytes == 8);
        let pointer = read.and_then(|read| {
            let (at, object) = (read.address?, read.value.get(64)?);
            Some(Pointer { at, object, hops })
        });
        let leads = |pointer: &Pointer| {
            let distance = address.checked_sub(pointer.object);
            distance.is_some_and(|distance| distance < OBJECT)
        };
        if let Some(pointer) = pointer.filter(leads) {
            if !found.contains(&pointer) {
                found.push(pointer);
            }
            work.extend(makers(step, pointer.at, hops + 1));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use flagfinder_machine::evaluator::Access;
    use flagfinder_machine::value::Value;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    /// The way to the last word that these instructions read, each at its address and with this
    /// value there.
    fn way_of(codes: &[(&[u8], u64, u64)]) -> Vec<Pointer> {
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        for (number, &(code, address, value)) in codes.iter().enumerate() {
            let pc = 0x1000 + 0x10 * number as u64;
            let mut decoder = Decoder::with_ip(64, code, pc, DecoderOptions::NONE);
            let index = window.intern(&decoder.decode(), 0, &mut factory);
            window.push(index, Value::of(0x7000));
            window.push_access(Access {
                address: Some(address),
                bytes: 8,
                write: false,
                value: Value::of(value),
            });
        }
        let last = codes.len() as u32 - 1;
        let dependence = Dependence::new(&window);
        way(&window, &dependence, last, codes[last as usize].1)
    }

    #[test]
    fn pointers_to_objects_are_followed_and_indexes_are_not() {
        // mov rax, [rbx]; mov rcx, [rax+16]; mov rdx, [rsi]; mov rdx, [rcx+rdx*8]
        let to_table: (&[u8], u64, u64) = (&[0x48, 0x8b, 0x03], 0x9000, 0x20000);
        let to_slots: (&[u8], u64, u64) = (&[0x48, 0x8b, 0x48, 16], 0x20010, 0x30000);
        let index: (&[u8], u64, u64) = (&[0x48, 0x8b, 0x16], 0x8000, 4);
        let slot: (&[u8], u64, u64) = (&[0x48, 0x8b, 0x14, 0xd1], 0x30020, 0);
        let pointer = |at, object, hops| Pointer { at, object, hops };
        assert_eq!(
            way_of(&[to_table, to_slots, index, slot]),
            [pointer(0x20010, 0x30000, 1), pointer(0x9000, 0x20000, 2)]
        );
        let far = (to_slots.0, to_slots.1, 0x10000);
        assert_eq!(way_of(&[to_table, far, index, slot]), [], "another object");
    }
}
