// SPDX-License-Identifier: MIT
//! Which instruction made an access, and what it did: a debug register reports the address *behind*
//! it, and not whether it read.
//!
//! The instruction is found from the start of its function where that is known, else among the byte
//! sequences that end there; in both cases it must access memory, and its operand's address, as far
//! as its registers still hold it, must be the watched word's. Blind spot: after `jmp [word]` and
//! `ret` the reported address is the target; such accesses stay unclassified.

use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register,
    UsedMemory,
};

use crate::protocol::{NO_REGISTER, REGISTERS};

/// The longest x86 instruction.
const LONGEST: u64 = 15;

/// What an access does to the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Read,
    Write,
    /// Reads, computes, writes.
    Update,
}

impl Effect {
    pub fn name(self) -> &'static str {
        match self {
            Effect::Read => "read",
            Effect::Write => "write",
            Effect::Update => "update",
        }
    }
}

/// The instruction behind an access.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub instruction: Instruction,
    /// The accessed memory, as the instruction names it.
    pub memory: UsedMemory,
    pub effect: Effect,
}

/// Registers as the hit saved them (rax rcx rdx rbx rsp rbp rsi rdi r8..r15), after the
/// instruction.
pub(crate) type Registers = [u64; REGISTERS];

/// Number of a general register in machine code; `None` for others.
pub(crate) fn number_of(register: Register) -> Option<usize> {
    let full = register.full_register();
    full.is_gpr64().then(|| full.number())
}

/// Decodes one instruction; `None` if the bytes are none.
pub(crate) fn decode(bytes: &[u8], ip: u64) -> Option<Instruction> {
    let mut decoder = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE);
    let instruction = decoder.decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// Memory operands with their effects.
pub(crate) fn memory_uses(instruction: &Instruction) -> Vec<(UsedMemory, Effect)> {
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(instruction);
    let uses = info.used_memory().iter().filter_map(|memory| {
        let effect = match memory.access() {
            OpAccess::Read | OpAccess::CondRead => Effect::Read,
            OpAccess::Write | OpAccess::CondWrite => Effect::Write,
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => Effect::Update,
            _ => return None,
        };
        Some((*memory, effect))
    });
    uses.collect()
}

fn changes(instruction: &Instruction, register: Register) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(instruction);
    info.used_registers().iter().any(|used| {
        let writes = !matches!(
            used.access(),
            OpAccess::Read | OpAccess::CondRead | OpAccess::None
        );
        writes && used.register().full_register() == register.full_register()
    })
}

/// Address of a memory operand, from registers as they are after the instruction; `None` when it
/// changed one of them in a way that can't be undone, or uses fs or gs.
pub(crate) fn address_after(
    instruction: &Instruction,
    memory: &UsedMemory,
    registers: &Registers,
) -> Option<u64> {
    if matches!(memory.segment(), Register::FS | Register::GS) {
        return None;
    }
    let value = |register: Register| -> Option<u64> {
        if register == Register::None {
            return Some(0);
        }
        let now = registers[number_of(register)?];
        if register.full_register() == Register::RSP {
            let moved = i64::from(instruction.stack_pointer_increment());
            return Some(now.wrapping_sub(moved as u64));
        }
        if instruction.is_string_instruction() {
            // The direction flag is clear whenever compiled code runs.
            let step = memory.memory_size().size() as u64;
            return Some(now.wrapping_sub(step));
        }
        (!changes(instruction, register)).then_some(now)
    };
    let base = value(memory.base())?;
    let index = value(memory.index())?;
    let scaled = index.wrapping_mul(memory.scale() as u64);
    Some(
        base.wrapping_add(scaled)
            .wrapping_add(memory.displacement()),
    )
}

/// Whether an access is one to the word: `None` when its address is not known.
pub(crate) fn covers(access: &Access, registers: &Registers, word: (u64, u32)) -> Option<bool> {
    let start = address_after(&access.instruction, &access.memory, registers)?;
    let size = (access.memory.memory_size().size() as u64).max(1);
    Some(start < word.0 + u64::from(word.1) && word.0 < start.wrapping_add(size))
}

/// The access of `instruction` to the word, and whether the address proves it.
fn access_of(
    instruction: Instruction,
    registers: &Registers,
    word: (u64, u32),
) -> Option<(Access, bool)> {
    let mut unproven = None;
    for (memory, effect) in memory_uses(&instruction) {
        let access = Access {
            instruction,
            memory,
            effect,
        };
        match covers(&access, registers, word) {
            Some(true) => return Some((access, true)),
            Some(false) => {}
            None => unproven = Some((access, false)),
        }
    }
    unproven
}

/// The instruction that accessed `word` (address, size) and ended at `ip`. `code` reads code bytes
/// (address, count; may give fewer), `function` is where the function that holds the instruction
/// starts, if known.
pub(crate) fn find(
    ip: u64,
    registers: &Registers,
    word: (u64, u32),
    function: Option<u64>,
    code: impl Fn(u64, usize) -> Vec<u8>,
) -> Option<Access> {
    let by_flow = function.and_then(|start| {
        let bytes = code(start, ip.checked_sub(start)? as usize);
        let mut decoder = Decoder::with_ip(64, &bytes, start, DecoderOptions::NONE);
        let mut last = None;
        while decoder.can_decode() {
            last = Some(decoder.decode());
        }
        last.filter(|last| !last.is_invalid() && last.next_ip() == ip)
    });
    if let Some((access, _)) = by_flow.and_then(|last| access_of(last, registers, word)) {
        return Some(access);
    }
    let start = ip.saturating_sub(LONGEST);
    let before = code(start, LONGEST as usize);
    let mut unproven = None;
    // Longest first: `lock cmpxchg` must not be taken for the `cmpxchg` inside it.
    for length in (1..=before.len()).rev() {
        let at = ip - length as u64;
        let ends_here = decode(&before[before.len() - length..], at).filter(|i| i.len() == length);
        match ends_here.and_then(|i| access_of(i, registers, word)) {
            Some((access, true)) => return Some(access),
            Some((access, false)) => unproven = unproven.or(Some(access)),
            None => {}
        }
    }
    // A repeated string instruction is still at itself until its last round.
    let here = decode(&code(ip, LONGEST as usize), ip);
    let here = here.filter(|i| i.has_rep_prefix() || i.has_repne_prefix());
    if let Some((access, true)) = here.and_then(|i| access_of(i, registers, word)) {
        return Some(access);
    }
    unproven
}

/// An instruction's operand as `ff_watch_site` describes it: displacement, base, index, scale,
/// size; `None` for fs, gs and vector indices.
pub(crate) fn operand(memory: &UsedMemory) -> Option<(u64, u8, u8, u8, u8)> {
    if matches!(memory.segment(), Register::FS | Register::GS) {
        return None;
    }
    let number = |register: Register| match register {
        Register::None => Some(NO_REGISTER),
        _ => number_of(register).map(|n| n as u8),
    };
    let size = u8::try_from(memory.memory_size().size()).ok()?;
    Some((
        memory.displacement(),
        number(memory.base())?,
        number(memory.index())?,
        memory.scale() as u8,
        size,
    ))
}

/// A compare-and-exchange that found another value wrote nothing.
pub(crate) fn failed_exchange(instruction: &Instruction, rflags: u64) -> bool {
    const ZERO_FLAG: u64 = 1 << 6;
    instruction.mnemonic() == Mnemonic::Cmpxchg && rflags & ZERO_FLAG == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAX: usize = 0;
    const RBX: usize = 3;

    /// Finds the access in `code`, which ends where the debug register reported.
    fn found(code: &[u8], registers: &Registers, word: (u64, u32)) -> Option<(Mnemonic, Effect)> {
        let start = 0x1000;
        let read = |at: u64, count: usize| {
            let skip = at.saturating_sub(start) as usize;
            let bytes = code.get(skip..).unwrap_or(&[]);
            bytes[..bytes
                .len()
                .min(count - (start.saturating_sub(at) as usize).min(count))]
                .to_vec()
        };
        let ip = start + code.len() as u64;
        find(ip, registers, word, None, read).map(|a| (a.instruction.mnemonic(), a.effect))
    }

    #[test]
    fn the_instruction_before_is_found_by_its_operand_s_address() {
        let mut registers = [0; REGISTERS];
        registers[RBX] = 0x5000;
        // add rsp, 8; lock cmpxchg [rbx+0x10], ecx
        let code = [0x48, 0x83, 0xc4, 0x08, 0xf0, 0x0f, 0xb1, 0x4b, 0x10];
        assert_eq!(
            found(&code, &registers, (0x5010, 4)),
            Some((Mnemonic::Cmpxchg, Effect::Update))
        );
        // mov eax, [rbx+0x10]
        let code = [0x90, 0x8b, 0x43, 0x10];
        assert_eq!(
            found(&code, &registers, (0x5010, 4)),
            Some((Mnemonic::Mov, Effect::Read))
        );
        // mov dword [rbx+0x10], 1
        let code = [0x90, 0xc7, 0x43, 0x10, 1, 0, 0, 0];
        assert_eq!(
            found(&code, &registers, (0x5010, 4)),
            Some((Mnemonic::Mov, Effect::Write))
        );
        assert_eq!(found(&[0x90, 0x31, 0xc0], &registers, (0x5010, 4)), None);
    }

    #[test]
    fn a_pointer_overwritten_by_its_own_load_is_no_obstacle() {
        let mut registers = [0; REGISTERS];
        registers[RAX] = 7;
        // mov eax, [rax]
        assert_eq!(
            found(&[0x90, 0x8b, 0x00], &registers, (0x5010, 4)),
            Some((Mnemonic::Mov, Effect::Read))
        );
    }

    #[test]
    fn pushes_write_below_the_stack_pointer_they_found() {
        let mut registers = [0; REGISTERS];
        registers[4] = 0x7ff8;
        // push rax: rsp was 0x8000
        assert_eq!(
            found(&[0x90, 0x50], &registers, (0x7ff8, 8)),
            Some((Mnemonic::Push, Effect::Write))
        );
    }
}
