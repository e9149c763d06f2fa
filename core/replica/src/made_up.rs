// SPDX-License-Identifier: MIT
//! Copies of threads that never lived.

use std::time::Duration;

use crate::answer::Halt;
use crate::descriptors::Descriptors;
use crate::pages::Pages;
use crate::replica::Replica;
use crate::source::{Identity, Region, Source, ThreadState, PAGE};
use crate::window::go_round;

const CODE: u64 = 0x40_0000;
const LARGE: u64 = 0x10_0000_0000;

/// Code, and memory without an end in which each page begins with its address.
struct Endless {
    regions: Vec<Region>,
    code: &'static [u8],
}

impl Source for Endless {
    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn read_page(&self, address: u64, page: &mut [u8; PAGE as usize]) -> bool {
        page.fill(0);
        match address {
            CODE => page[..self.code.len()].copy_from_slice(self.code),
            _ => page[..8].copy_from_slice(&address.to_le_bytes()),
        }
        true
    }

    fn descriptors(&self) -> Option<&Descriptors> {
        None
    }
}

fn region(start: u64, bytes: u64, protection: i32) -> Region {
    Region {
        start,
        end: start + bytes,
        protection,
        fresh: false,
        anonymous: false,
    }
}

/// Why the copy of a thread halts within `most` instructions that executes this at 0x40_0000, with
/// memory behind `rbx` and a stack.
pub(crate) fn halt(code: &'static [u8], in_software: bool, most: u32) -> Option<Halt> {
    let source = Endless {
        regions: vec![
            region(CODE, PAGE, libc::PROT_READ | libc::PROT_EXEC),
            region(LARGE, 1 << 45, libc::PROT_READ | libc::PROT_WRITE),
        ],
        code,
    };
    // SAFETY: plain data.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    (registers.rip, registers.rbx, registers.rsp) = (CODE, LARGE, LARGE + PAGE / 2);
    (registers.cs, registers.ss, registers.eflags) = (0x33, 0x2b, 0x202);
    let state = ThreadState {
        registers,
        extended: Vec::new(),
        stack: Vec::new(),
        recalled: Default::default(),
        identity: Identity::default(),
    };
    let pages = Pages::new(&source);
    let mut copy = Replica::start(&pages, &state).expect("a copy");
    if !in_software {
        copy.without_software();
    }
    let round = go_round(&mut copy, most, Duration::from_secs(600), |_| false);
    round.expect("it goes on").halt
}

mod tests {
    use super::*;

    /// push 0x23; push 0x400020; retf; there: jmp to itself
    const TO_32_BITS: &[u8] = b"\x6a\x23\x68\x20\x00\x40\x00\x48\xcb\x90\x90\x90\x90\x90\x90\x90\
          \x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\xeb\xfe";
    /// mov eax,13; int 0x80: time, and rt_sigaction by the numbers of 64-bit programs
    const CALLS_AS_32_BITS: &[u8] = b"\xb8\x0d\x00\x00\x00\xcd\x80\xeb\xf7";
    /// xor edi,edi; mov rax,0xffffffffff600400; call rax; test rax,rax; je to ud2; jmp back; ud2
    const ASKS_AS_OLD_PROGRAMS: &[u8] = b"\x31\xff\x48\xc7\xc0\x00\x04\x60\xff\xff\xd0\
        \x48\x85\xc0\x74\x02\xeb\xee\x0f\x0b";

    #[test]
    fn code_and_calls_of_32_bit_programs_are_not_taken_for_others() {
        for in_software in [true, false] {
            assert_eq!(halt(TO_32_BITS, in_software, 1000), Some(Halt::Short));
            assert_eq!(halt(CALLS_AS_32_BITS, in_software, 1000), Some(Halt::Short));
        }
    }

    #[test]
    fn old_programs_get_the_time_as_any_other() {
        let has_page = std::fs::read_to_string("/proc/self/maps").expect("maps");
        let faults = !has_page.contains("[vsyscall]");
        for in_software in [true, false] {
            let halted = halt(ASKS_AS_OLD_PROGRAMS, in_software, 1000);
            match faults {
                true => assert!(matches!(halted, Some(Halt::Fault { .. })), "{halted:?}"),
                false => assert_eq!(halted, None),
            }
        }
    }
}
