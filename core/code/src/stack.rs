// SPDX-License-Identifier: MIT
//! Call stacks out of raw stack words: programs without frame pointers have nothing better while
//! they run.
//!
//! A word is a return address if it points behind a call instruction. Old ones lie between the live
//! ones, so a caller that is seen to call the inner function directly is preferred to those before
//! it, and one that calls a known other function is passed over. Blind spots: more than the copied
//! words (512 bytes) deep; a tail call's caller may be missing; an old word may remain.

use rustc_hash::FxHashMap;

use iced_x86::{Decoder, DecoderOptions, FlowControl, OpKind};

use crate::names::Names;

const SHORTEST_CALL: usize = 2;
const LONGEST_CALL: usize = 7;
/// A proven caller farther away than this belongs to another frame.
const LOOK_AHEAD: usize = 4;

/// What lies in front of a return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CallSite {
    return_address: u64,
    /// Where a direct call goes.
    target: Option<u64>,
}

/// Remembers which addresses follow a call.
#[derive(Debug, Default)]
pub struct CallSites {
    known: FxHashMap<u64, Option<CallSite>>,
}

fn is_executable(names: &Names, address: u64) -> bool {
    let modules = names.input().modules.iter();
    let mut segments = modules.flat_map(|module| &module.segments);
    segments.any(|s| s.prot & 4 != 0 && (s.start..s.end).contains(&address))
}

impl CallSites {
    fn before(
        &mut self,
        names: &Names,
        address: u64,
        code: &impl Fn(u64, usize) -> Vec<u8>,
    ) -> Option<CallSite> {
        *self.known.entry(address).or_insert_with(|| {
            if !is_executable(names, address) {
                return None;
            }
            let bytes = code(address - LONGEST_CALL as u64, LONGEST_CALL);
            // The longest first, as the end of a call may look like a shorter one.
            (SHORTEST_CALL..=bytes.len()).rev().find_map(|length| {
                let start = address - length as u64;
                let tail = &bytes[bytes.len() - length..];
                let call = Decoder::with_ip(64, tail, start, DecoderOptions::NONE).decode();
                let is_call = matches!(
                    call.flow_control(),
                    FlowControl::Call | FlowControl::IndirectCall
                );
                let direct = call.op0_kind() == OpKind::NearBranch64;
                (is_call && call.len() == length).then(|| CallSite {
                    return_address: address,
                    target: direct.then(|| call.near_branch_target()),
                })
            })
        })
    }

    /// Adds those of `words` that are return addresses, live or old.
    pub fn candidates(
        &mut self,
        names: &Names,
        words: &[u64],
        code: impl Fn(u64, usize) -> Vec<u8>,
        found: &mut Vec<u64>,
    ) {
        let words = words.iter().copied();
        found.extend(words.filter(|&word| self.before(names, word, &code).is_some()));
    }

    /// The live ones of `candidates`, innermost first, for code at `ip`.
    pub fn callers(&self, names: &Names, ip: u64, candidates: &[u64]) -> Vec<u64> {
        let known = candidates.iter();
        let sites: Vec<CallSite> = known.filter_map(|word| *self.known.get(word)?).collect();
        let function = |address: u64| names.function(address).map(|(start, _)| start);
        chain(&sites, function(ip), &function)
    }
}

/// The live ones of `sites`. `function` gives the start of the function that holds an address.
fn chain(
    sites: &[CallSite],
    mut inner: Option<u64>,
    function: &impl Fn(u64) -> Option<u64>,
) -> Vec<u64> {
    let mut callers = Vec::new();
    let mut rest = sites;
    while !rest.is_empty() {
        let calls_inner = |site: &CallSite| inner.is_some() && site.target == inner;
        let calls_other = |site: &CallSite| {
            let target = site.target.filter(|_| inner.is_some());
            target.is_some_and(|target| Some(target) != inner && function(target) == Some(target))
        };
        let proven = rest.iter().take(LOOK_AHEAD).position(calls_inner);
        let Some(index) = proven.or_else(|| rest.iter().position(|site| !calls_other(site))) else {
            break;
        };
        callers.push(rest[index].return_address);
        inner = function(rest[index].return_address - 1);
        rest = &rest[index + 1..];
    }
    callers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(return_address: u64, target: Option<u64>) -> CallSite {
        CallSite {
            return_address,
            target,
        }
    }

    /// Functions of 0x100 bytes.
    fn function(address: u64) -> Option<u64> {
        Some(address & !0xff)
    }

    #[test]
    fn callers_that_call_the_inner_function_come_before_old_words() {
        // 0x100 runs, called from 0x200, called through a pointer from 0x300; 0x700 is old.
        let sites = [
            site(0x710, Some(0x600)),
            site(0x210, Some(0x100)),
            site(0x320, None),
        ];
        assert_eq!(chain(&sites, Some(0x100), &function), [0x210, 0x320]);
    }

    #[test]
    fn without_functions_every_return_address_counts() {
        let sites = [site(0x710, Some(0x600)), site(0x210, Some(0x100))];
        assert_eq!(chain(&sites, None, &|_| None), [0x710, 0x210]);
    }
}
