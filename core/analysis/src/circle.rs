// SPDX-License-Identifier: MIT
//! A walk over a list that comes to no end, as the list's links form a circle.
//!
//! Two threads that change a list at once, or an entry that is put in twice, leave such links. The
//! loop tests each link for the list's end (null, or its head), and no link of the circle is that.
//! Its other tests look for an entry: another value there would end the loop, but nobody is to
//! write it. Blind spots: links that are no plain addresses, and a head that the loop reads anew.

use flagfinder_machine::Window;
use rustc_hash::FxHashMap;

use crate::condition::Condition;
use crate::dependence::{Dependence, Input};
use crate::exit::{Exit, Source, Transfer};
use crate::spin_loop::SpinLoop;

/// Fewer steps from link to link may be a part of a longer list.
const STEPS: usize = 8;
/// Most instructions from a link to the read of the next one.
const MOVES: usize = 12;

/// The addresses of the links, in the order of the walk; `None` if the loop is no such walk.
pub(crate) fn links(
    window: &Window,
    dependence: &Dependence,
    spin: &SpinLoop,
    exits: &[Exit],
    conditions: &[Option<Condition>],
) -> Option<Vec<u64>> {
    exits.iter().zip(conditions).find_map(|(exit, condition)| {
        let is_end = condition
            .as_ref()
            .is_some_and(Condition::leaves_at_a_number);
        if !is_end || exit.transfer != Transfer::Branch {
            return None;
        }
        let loads = exit.sources.iter().filter_map(|source| match *source {
            Source::Load {
                step,
                address_only: false,
                ..
            } => Some(step),
            _ => None,
        });
        loads
            .map(|step| closed(window, dependence, spin, step))
            .find_map(|found| found)
    })
}

/// The circle of links that the instruction at `step` goes round.
fn closed(
    window: &Window,
    dependence: &Dependence,
    spin: &SpinLoop,
    step: u32,
) -> Option<Vec<u64>> {
    let place = |step: u32| (window.code_index(step), window.rsp(step));
    let here = place(step);
    let steps = (spin.first_step()..spin.end).filter(|&other| place(other) == here);
    let mut order: Vec<u64> = Vec::new();
    let mut known: FxHashMap<u64, (u64, usize)> = FxHashMap::default();
    let (mut count, mut before) = (0, None);
    for at in steps {
        let mut reads = window.accesses(at).iter().filter(|access| !access.write);
        let read = reads.next().filter(|read| read.bytes == 8)?;
        let (address, value) = (read.address?, read.value.get(64)?);
        if before.is_some_and(|before| !leads(window, dependence, before, at)) {
            return None;
        }
        let link = known.entry(address).or_insert_with(|| {
            order.push(address);
            (value, 0)
        });
        if link.0 != value {
            return None;
        }
        link.1 += 1;
        (count, before) = (count + 1, Some(at));
    }
    let is_closed = known.values().all(|(_, times)| *times > 1);
    (count >= STEPS && is_closed).then_some(order)
}

/// Does the address that is read at `to` come from the word read at `from`?
fn leads(window: &Window, dependence: &Dependence, from: u32, to: u32) -> bool {
    let addresses = dependence.inputs(to).iter();
    let addresses = addresses.filter(|edge| edge.input == Input::Address);
    let mut left: Vec<u32> = addresses.map(|edge| edge.from).collect();
    for _ in 0..MOVES {
        match left.pop() {
            Some(step) if step == from => return true,
            Some(step) if step > from => {
                let is_load = window.accesses(step).iter().any(|access| !access.write);
                // A value that was stored is loaded again.
                let goes_on = |input: Input| match is_load {
                    true => matches!(input, Input::Memory(_)),
                    false => input == Input::Value,
                };
                let inputs = dependence.inputs(step).iter();
                left.extend(inputs.filter(|edge| goes_on(edge.input)).map(|e| e.from));
            }
            Some(_) => {}
            None => return false,
        }
    }
    false
}
