// SPDX-License-Identifier: MIT
//! What of an instruction goes into VALUES: the rules of `pintools/client/ff_slots.c`, for iced's
//! instructions.
//!
//! A load into a general register is taken from the register afterwards, as another thread may
//! change the memory in between; other loads from memory before. Registers are recorded whole where
//! an evaluator cannot compute them.

use flagfinder_trace::computed::is_computed;
use flagfinder_trace::protocol::{SlotRecord, SLOT_LOAD, SLOT_REGISTER};
use iced_x86::{
    CodeSize, CpuidFeature, FlowControl, Instruction, InstructionInfoFactory, Mnemonic as M,
    OpAccess, OpKind, Register, UsedMemory,
};

pub enum Source {
    /// Before the instruction.
    Memory(UsedMemory),
    /// After it: a general register's number.
    Register(u8),
}

pub struct Capture {
    pub slot: SlotRecord,
    pub source: Source,
}

/// What is to be captured of an instruction, memory first. `index`: its place in the block.
pub fn captures(
    instruction: &Instruction,
    index: u8,
    factory: &mut InstructionInfoFactory,
) -> Vec<Capture> {
    let info = factory.info(instruction);
    let mut found = Vec::new();
    let repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    let repeats_itself = repeated && instruction.is_string_instruction();
    if !repeats_itself && !has_no_load_slot(instruction) {
        let loaded = loaded_register(instruction);
        for (detail, used) in reads(instruction, info.used_memory())
            .iter()
            .take(2)
            .enumerate()
        {
            let size = used.memory_size().size();
            let plain = used.address_size() == CodeSize::Code64 && is_plain(used);
            if !matches!(size, 1 | 2 | 4 | 8) || !(plain || loaded.is_some()) {
                continue;
            }
            let slot = SlotRecord {
                instruction: index,
                kind: SLOT_LOAD,
                size: size as u8,
                detail: detail as u8,
            };
            let source = loaded.map_or(Source::Memory(*used), Source::Register);
            found.push(Capture { slot, source });
        }
    }
    let from_segment = instruction.op_count() > 1
        && instruction.op_kind(1) == OpKind::Register
        && instruction.op_register(1).is_segment_register();
    if is_computed(&format!("{:?}", instruction.mnemonic())) && !repeated && !from_segment {
        return found;
    }
    let mut seen = 0u32;
    for used in info.used_registers() {
        let written = !matches!(
            used.access(),
            OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
        );
        let register = used.register();
        if !written || !register.is_gpr() || found.len() >= 6 {
            continue;
        }
        let number = register.full_register().number() as u8;
        if seen >> number & 1 == 1 {
            continue;
        }
        seen |= 1 << number;
        let slot = SlotRecord {
            instruction: index,
            kind: SLOT_REGISTER,
            size: 8,
            detail: number,
        };
        let source = Source::Register(number);
        found.push(Capture { slot, source });
    }
    found
}

/// Memory that is read, in slot order: the operand that is written out, then the implied ones.
fn reads(instruction: &Instruction, used: &[UsedMemory]) -> Vec<UsedMemory> {
    let is_read = |access| {
        !matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::NoMemAccess | OpAccess::None
        )
    };
    let base = match instruction.memory_base() {
        Register::RIP | Register::EIP => Register::None,
        base => base,
    };
    let explicit = (0..instruction.op_count()).any(|i| instruction.op_kind(i) == OpKind::Memory);
    let is_named = |one: &UsedMemory| {
        explicit
            && one.base() == base
            && one.index() == instruction.memory_index()
            && one.displacement() == instruction.memory_displacement64()
    };
    let mut reads: Vec<UsedMemory> = used
        .iter()
        .filter(|one| is_read(one.access()))
        .copied()
        .collect();
    if let Some(first) = reads.iter().position(is_named) {
        reads[..=first].rotate_right(1);
    }
    if instruction.is_string_instruction() {
        // Operand order: source before destination only where the manual writes it so.
        let source_first = matches!(
            instruction.mnemonic(),
            M::Cmpsb | M::Cmpsw | M::Cmpsd | M::Cmpsq
        );
        reads.sort_by_key(|one| (one.base() == Register::RDI) == source_first);
    }
    reads
}

fn is_plain(used: &UsedMemory) -> bool {
    let general = |register: Register| register == Register::None || register.is_gpr64();
    general(used.base()) && general(used.index())
}

fn has_no_load_slot(instruction: &Instruction) -> bool {
    let register_index =
        || instruction.op_count() > 1 && instruction.op_kind(1) == OpKind::Register;
    match instruction.mnemonic() {
        M::Popf | M::Popfd | M::Popfq | M::Enter | M::Cmpxchg8b => true,
        M::Bt | M::Bts | M::Btr | M::Btc => register_index(),
        _ => {
            instruction.flow_control() == FlowControl::Return
                || instruction.cpuid_features().contains(&CpuidFeature::FPU)
                || instruction.is_vsib()
        }
    }
}

/// The register that holds what the instruction loaded.
fn loaded_register(instruction: &Instruction) -> Option<u8> {
    let operand = |index: u32| {
        let is_register =
            instruction.op_count() > index && instruction.op_kind(index) == OpKind::Register;
        is_register.then(|| instruction.op_register(index))
    };
    let register = match instruction.mnemonic() {
        M::Mov | M::Movzx | M::Movsx | M::Movsxd | M::Pop => operand(0)?,
        M::Xchg | M::Xadd => operand(0).or_else(|| operand(1))?,
        M::Cmpxchg | M::Lodsb | M::Lodsw | M::Lodsd | M::Lodsq | M::Xlatb => Register::RAX,
        M::Leave => Register::RBP,
        _ => return None,
    };
    let high = matches!(
        register,
        Register::AH | Register::BH | Register::CH | Register::DH
    );
    let usable = register.is_gpr() && !high && register.full_register() != Register::RSP;
    usable.then(|| register.full_register().number() as u8)
}
