// SPDX-License-Identifier: MIT
//! Instructions that take the flags from the stack: `popf` and `iret`.
//!
//! They must not be stepped. The kernel remembers that it was the tracer who set the trap flag, but
//! forgets it with the request to step an instruction that may set that flag itself
//! (`enable_single_step` in arch/x86/kernel/step.c says so), and never learns it again. The flag
//! then stays set when the tracer lets go, and the program dies of SIGTRAP. Go preempts goroutines
//! with such code. So it is carried out here.

use iced_x86::{Instruction, Mnemonic};

use crate::error::Result;
use crate::ptrace::Tracee;

/// Flags that a tracer may set: CF, PF, AF, ZF, SF, TF, DF, OF, AC.
const SETTABLE: u64 = 0x4_0dd5;
/// Flags that the program can set and a tracer can't: NT, ID.
const OUT_OF_REACH: u64 = 0x20_4000;

/// Is it one of them?
pub fn takes_flags(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    matches!(
        instruction.mnemonic(),
        M::Popf | M::Popfd | M::Popfq | M::Iret | M::Iretd | M::Iretq
    )
}

/// Does what the instruction would do; returns the registers after it. `None`, and nothing is done,
/// if only the processor can do it: other segments, half-size forms, flags that no tracer may set.
pub fn carry_out(
    tracee: &Tracee,
    before: &libc::user_regs_struct,
    instruction: &Instruction,
) -> Result<Option<libc::user_regs_struct>> {
    let mut after = *before;
    let flags = match instruction.mnemonic() {
        Mnemonic::Popfq => {
            let Some([flags]) = words(tracee, before.rsp) else {
                return Ok(None);
            };
            after.rip = instruction.next_ip();
            after.rsp = before.rsp.wrapping_add(8);
            flags
        }
        Mnemonic::Iretq => {
            let Some([rip, cs, flags, rsp, ss]) = words(tracee, before.rsp) else {
                return Ok(None);
            };
            if (cs, ss) != (before.cs, before.ss) {
                return Ok(None);
            }
            (after.rip, after.rsp) = (rip, rsp);
            flags
        }
        _ => return Ok(None),
    };
    if (flags ^ before.eflags) & OUT_OF_REACH != 0 {
        return Ok(None);
    }
    after.eflags = before.eflags & !SETTABLE | flags & SETTABLE;
    tracee.set_registers(&after)?;
    Ok(Some(after))
}

fn words<const N: usize>(tracee: &Tracee, rsp: u64) -> Option<[u64; N]> {
    let mut bytes = [0u8; 40];
    let bytes = &mut bytes[..N * 8];
    let whole = tracee.read(rsp, bytes) == bytes.len();
    let mut words = bytes.chunks_exact(8).map(|word| word.try_into().ok());
    whole.then(|| std::array::from_fn(|_| words.next().flatten().map_or(0, u64::from_le_bytes)))
}
