// SPDX-License-Identifier: MIT
//! Whether a thread left its loop and came back between two looks.
//!
//! In: a thread's registers and the top of its stack at several moments, and what its copies did.
//! Out: a register, or a word of its stack, that no copy writes and that is new at each moment. The
//! loop did not change it, so the thread was elsewhere meanwhile: it got a contended lock, say, and
//! its work. What only grows or only falls is no sign: a wait may count its tries in an outer loop.
//! Nor is what stays within a small range: a wait may look at one slot after the other. Blind
//! spots: work that leaves no trace there.

use flagfinder_machine::Window;
use flagfinder_replica::{ThreadState, PAGE};
use rustc_hash::{FxHashMap, FxHashSet};

/// With fewer moments nothing is told.
const LEAST: usize = 4;
/// Bytes of the stack that are compared, from the loop's frame on.
const COMPARED: u64 = 512;
/// Values that lie nearer to each other may be of one table.
const FAR: u64 = 1 << 16;
/// The number of the stack pointer.
const RSP: u8 = 4;
const NAMES: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

/// The moments at which it was looked at.
#[derive(Default)]
pub struct Moments {
    looks: Vec<Look>,
}

struct Look {
    pc: u64,
    registers: [u64; 16],
    /// Words of the stack from the stack pointer on, by address.
    stack: FxHashMap<u64, u64>,
}

impl Moments {
    pub fn add(&mut self, state: &ThreadState) {
        let r = &state.registers;
        let registers = [
            r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11,
            r.r12, r.r13, r.r14, r.r15,
        ];
        let first = r.rsp.next_multiple_of(8);
        let words = state.stack.iter().flat_map(|(page, bytes)| {
            let words = bytes.chunks_exact(8).zip((*page..page + PAGE).step_by(8));
            words.map(|(word, at)| (at, word.try_into().map_or(0, u64::from_le_bytes)))
        });
        let stack = words.filter(|(at, _)| (first..first + 2 * COMPARED).contains(at));
        self.looks.push(Look {
            pc: r.rip,
            registers,
            stack: stack.collect(),
        });
    }

    /// What says that it left the loop that these copies show.
    pub fn left(&self, windows: &[Window]) -> Option<String> {
        self.left_loop(&Seen::of(windows))
    }

    fn left_loop(&self, seen: &Seen) -> Option<String> {
        let in_loop = |look: &&Look| seen.places.contains(&(look.pc, look.registers[4]));
        let looks: Vec<&Look> = self.looks.iter().filter(in_loop).collect();
        if looks.len() < LEAST {
            return None;
        }
        let mut free = (0..16u8).filter(|register| !seen.registers.contains(register));
        let register = free.find(|register| {
            let values = looks
                .iter()
                .map(|look| look.registers[usize::from(*register)]);
            *register != RSP && are_new(&values.collect::<Vec<u64>>())
        });
        let top = looks.iter().map(|look| look.registers[4]).max()?;
        let mut words = (top.next_multiple_of(8)..top + COMPARED).step_by(8);
        let mut word = || {
            words.find(|at| {
                let values = looks.iter().map_while(|look| look.stack.get(at).copied());
                !seen.written.contains(at) && are_new(&values.collect::<Vec<u64>>())
            })
        };
        let what = match register {
            Some(register) => NAMES[usize::from(register)].to_owned(),
            None => format!("the word at {:#x} of its stack", word()?),
        };
        Some(format!(
            "{what}, which its loop does not change, was another again and again at {} looks: it \
             left the loop in between",
            looks.len()
        ))
    }
}

/// What copies executed, and what they wrote.
struct Seen {
    /// Program counters with the stack pointer there.
    places: FxHashSet<(u64, u64)>,
    registers: FxHashSet<u8>,
    /// Addresses of the words of 8 bytes that were written.
    written: FxHashSet<u64>,
}

impl Seen {
    fn of(windows: &[Window]) -> Seen {
        let mut seen = Seen {
            places: FxHashSet::default(),
            registers: FxHashSet::default(),
            written: FxHashSet::default(),
        };
        for window in windows {
            for step in 0..window.len() {
                seen.places.insert((window.pc(step), window.rsp(step)));
                seen.registers
                    .extend(window.results(step).iter().map(|(register, _)| *register));
                let writes = window.accesses(step).iter().filter(|access| access.write);
                for (address, bytes) in writes.filter_map(|one| Some((one.address?, one.bytes))) {
                    let last = address.saturating_add(u64::from(bytes.max(1)) - 1);
                    seen.written.extend((address & !7..=last).step_by(8));
                }
            }
        }
        seen
    }
}

/// Is no value there again after another, and do they lie far apart, now above and now below the
/// one before?
fn are_new(values: &[u64]) -> bool {
    let mut values = values.to_vec();
    values.dedup();
    let distinct: FxHashSet<&u64> = values.iter().collect();
    let rises = values.windows(2).filter(|pair| pair[0] < pair[1]).count();
    let range = values.iter().max().zip(values.iter().min());
    values.len() >= LEAST
        && distinct.len() == values.len()
        && (1..values.len() - 1).contains(&rises)
        && range.is_some_and(|(most, least)| most - least >= FAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: u64 = 0x7000;
    const RBX: u8 = 3;

    /// A loop of one instruction that leaves its count in rcx.
    fn seen() -> Seen {
        Seen {
            places: [(0x1000, STACK)].into_iter().collect(),
            registers: [1].into_iter().collect(),
            written: FxHashSet::default(),
        }
    }

    fn moments(rbx: &[u64], on_stack: &[u64]) -> Moments {
        let looks = rbx.iter().zip(on_stack).map(|(rbx, word)| {
            let mut registers = [0; 16];
            (registers[usize::from(RBX)], registers[4]) = (*rbx, STACK);
            Look {
                pc: 0x1000,
                registers,
                stack: [(STACK + 8, *word)].into_iter().collect(),
            }
        });
        Moments {
            looks: looks.collect(),
        }
    }

    const SAME: [u64; 4] = [7; 4];
    const WORK: [u64; 4] = [0x7000_0000, 0x2000_0000, 0x9000_0000, 0x3000_0000];

    #[test]
    fn what_the_loop_does_not_write_is_another_where_the_thread_was_elsewhere() {
        let left = |rbx: [u64; 4], word: [u64; 4]| moments(&rbx, &word).left_loop(&seen());
        assert!(left(WORK, SAME).is_some_and(|why| why.starts_with("rbx, which")));
        assert!(left(SAME, WORK).is_some_and(|why| why.contains("0x7008 of its stack")));
        assert!(left(SAME, SAME).is_none());
        let stays = [WORK[0], WORK[0], WORK[1], WORK[1], WORK[2], WORK[3]];
        assert!(moments(&stays, &[7; 6]).left_loop(&seen()).is_some());
    }

    #[test]
    fn counts_and_slots_of_a_table_are_no_work() {
        let left = |rbx: [u64; 4]| moments(&rbx, &SAME).left_loop(&seen()).is_some();
        assert!(
            !left([0x10_0000, 0x20_0000, 0x30_0000, 0x90_0000]),
            "a count"
        );
        assert!(!left([0x1000, 0x1040, 0x1020, 0x1060]), "slots of a table");
        assert!(
            !left([0x7000_0000, 0x2000_0000, 0x7000_0000, 0x3000_0000]),
            "comes again"
        );
    }

    #[test]
    fn looks_elsewhere_do_not_count() {
        let mut moments = moments(&WORK, &SAME);
        moments.looks[0].pc = 0x5000;
        assert!(moments.left_loop(&seen()).is_none());
    }
}
