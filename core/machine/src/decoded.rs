// SPDX-License-Identifier: MIT
//! One static instruction in the form the evaluator and the slicer work on:
//! operands, memory references in slot order, and what it reads and writes.

use iced_x86::{
    Code, CodeSize, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use crate::value::{mask, Machine};

/// Index of rsp among the general registers.
pub const RSP: u8 = 4;

/// Sets of registers and flags, for dependence. Bits 0..64: general registers in
/// four parts each (bits 0-7, 8-15, 16-31, 32-63); 64..96: vector registers;
/// 96..103: CF PF AF ZF SF OF DF; 104..: mask and x87 registers.
pub type Resources = u128;
const VECTOR: u32 = 64;
const FLAGS: u32 = 96;
const OTHER: u32 = 104;

/// Every part of general register `number`.
pub const fn general(number: u8) -> Resources {
    0xf << (number as u32 * 4)
}

/// CF PF AF ZF SF OF DF.
pub const ALL_FLAGS: Resources = 0x7f << FLAGS;

/// What an instruction works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The instruction has no more of them.
    None,
    /// A general register or a part of it.
    Register {
        /// 0 to 15, in x86 numbering.
        number: u8,
        /// 8 for the second byte (`ah`), else 0.
        shift: u8,
        /// 8, 16, 32 or 64.
        bits: u8,
    },
    /// Index into [`Decoded::memory`].
    Memory {
        /// 0 for its first reference.
        index: u8,
        /// Of the value; 0 when it depends on the state.
        bits: u16,
    },
    /// A number in the code, extended as the instruction does; branch targets too.
    Immediate(u64),
    /// Vector, mask, segment, .. registers.
    Other,
}

/// Which segment's base an address counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Its base is 0.
    Flat,
    /// The base is fs_base, the thread pointer.
    Fs,
    /// The base is gs_base.
    Gs,
}

/// A memory operand; registers in x86 numbers.
#[derive(Clone, Copy, Debug)]
pub struct MemoryReference {
    /// A general register whose value is added.
    pub base: Option<u8>,
    /// A general register whose value is added `scale` times.
    pub index: Option<u8>,
    /// 1, 2, 4 or 8.
    pub scale: u8,
    /// Displacement; of a rip-relative operand the address itself.
    pub displacement: u64,
    /// The segment whose base is added.
    pub segment: Segment,
    /// Addresses wrap at 4 GiB (address-size prefix).
    pub short: bool,
    /// A vector register is part of the address (gather).
    pub gather: bool,
    /// Bytes; 0 when it depends on the state (xsave, ..).
    pub bytes: u16,
    /// The instruction reads there.
    pub read: bool,
    /// The instruction writes there.
    pub write: bool,
}

impl MemoryReference {
    /// The address in this state.
    #[inline]
    pub fn address(&self, machine: &Machine) -> Option<u64> {
        if self.gather {
            return None;
        }
        let mut address = self.displacement;
        if let Some(base) = self.base {
            address = address.wrapping_add(machine.registers[base as usize].get(64)?);
        }
        if let Some(index) = self.index {
            let index = machine.registers[index as usize].get(64)?;
            address = address.wrapping_add(index.wrapping_mul(u64::from(self.scale)));
        }
        if self.short {
            address &= mask(32);
        }
        Some(match self.segment {
            Segment::Flat => address,
            Segment::Fs => address.wrapping_add(machine.fs_base?),
            Segment::Gs => address.wrapping_add(machine.gs_base?),
        })
    }

    /// The registers that its address is computed from.
    pub fn resources(&self) -> Resources {
        let one = |register: Option<u8>| register.map_or(0, general);
        one(self.base) | one(self.index)
    }
}

/// One static instruction; see the module.
#[derive(Clone, Debug)]
pub struct Decoded {
    /// As iced-x86 decodes it.
    pub instruction: Instruction,
    /// Its mnemonic, taken out because it is asked for most.
    pub mnemonic: Mnemonic,
    /// Its operands; `None` behind the last.
    pub operands: [Operand; 4],
    /// Reads in slot order.
    pub memory: Box<[MemoryReference]>,
    /// Values of registers and flags it reads (address registers apart).
    pub reads: Resources,
    /// Registers and flags whose values it sets, or may set.
    pub writes: Resources,
    /// General registers it may write, by number.
    pub registers_written: u16,
    /// rflags bits.
    pub flags_written: u64,
    /// rflags bits that it leaves undefined.
    pub flags_undefined: u64,
    /// It has a rep prefix.
    pub repeated: bool,
}

impl Decoded {
    /// `factory` serves any number of instructions.
    pub fn new(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> Decoded {
        let info = factory.info(instruction);
        let mut memory: Vec<MemoryReference> = Vec::new();
        // Explicit operands first, in operand order; then the implicit ones.
        let mut implicit: Vec<MemoryReference> = Vec::new();
        let explicit =
            (0..instruction.op_count()).any(|i| instruction.op_kind(i) == OpKind::Memory);
        for used in info.used_memory() {
            let (read, write) = access(used.access());
            if !read && !write {
                continue;
            }
            let (base, base_other) = general_number(used.base());
            let (index, index_other) = general_number(used.index());
            let rip = matches!(used.base(), Register::RIP | Register::EIP);
            let reference = MemoryReference {
                base,
                index,
                scale: used.scale() as u8,
                displacement: used.displacement(),
                segment: match used.segment() {
                    Register::FS => Segment::Fs,
                    Register::GS => Segment::Gs,
                    _ => Segment::Flat,
                },
                short: used.address_size() == CodeSize::Code32,
                gather: (base_other && !rip) || (index_other && used.index() != Register::None),
                bytes: used.memory_size().size() as u16,
                read,
                write,
            };
            let named = explicit
                && used.base() == memory_base(instruction)
                && used.index() == instruction.memory_index()
                && used.displacement() == instruction.memory_displacement64();
            if named && memory.is_empty() {
                memory.push(reference);
            } else {
                implicit.push(reference);
            }
        }
        if instruction.mnemonic() == Mnemonic::Lea {
            memory.push(named_address(instruction));
        }
        memory.append(&mut implicit);
        if instruction.is_string_instruction() {
            // Slot order is operand order: source before destination only where the
            // manual writes it so.
            let source_first = matches!(
                instruction.mnemonic(),
                Mnemonic::Cmpsb | Mnemonic::Cmpsw | Mnemonic::Cmpsd | Mnemonic::Cmpsq
            );
            memory.sort_by_key(|m| (m.base == Some(7)) == source_first);
        }
        let has_memory_operand = !memory.is_empty() && explicit_memory(instruction);
        let operands = std::array::from_fn(|i| operand(instruction, i as u32, has_memory_operand));
        let (reads, writes, registers_written) = resources(instruction, info, &memory);
        Decoded {
            instruction: *instruction,
            mnemonic: instruction.mnemonic(),
            operands,
            memory: memory.into(),
            reads,
            writes,
            registers_written,
            flags_written: status_bits(instruction.rflags_modified()),
            flags_undefined: status_bits(instruction.rflags_undefined()),
            repeated: instruction.has_rep_prefix() || instruction.has_repne_prefix(),
        }
    }

    /// Run-time address of its first byte.
    #[inline]
    pub fn pc(&self) -> u64 {
        self.instruction.ip()
    }

    /// Bits of operand `index`; 0 when it is no integer.
    #[inline]
    pub fn bits(&self, index: usize) -> u32 {
        match self.operands[index] {
            Operand::Register { bits, .. } => u32::from(bits),
            Operand::Memory { bits, .. } if bits <= 64 => u32::from(bits),
            _ => 0,
        }
    }

    /// Reads or writes more than general registers, flags and memory.
    pub fn touches_others(&self) -> bool {
        const GENERAL: Resources = (1 << VECTOR) - 1;
        (self.reads | self.writes) & !(GENERAL | ALL_FLAGS) != 0
    }

    /// Reads and writes its memory operand in one indivisible step.
    pub fn is_atomic(&self) -> bool {
        let rmw = self.memory.first().is_some_and(|m| m.read && m.write);
        rmw && (self.instruction.has_lock_prefix() || self.mnemonic == Mnemonic::Xchg)
    }
}

fn memory_base(instruction: &Instruction) -> Register {
    match instruction.memory_base() {
        // `used_memory` gives rip-relative operands as absolute.
        Register::RIP | Register::EIP => Register::None,
        base => base,
    }
}

/// The address that `lea` computes; nothing is accessed there.
fn named_address(instruction: &Instruction) -> MemoryReference {
    let rip = instruction.is_ip_rel_memory_operand();
    let number = |register: Register| general_number(register).0;
    MemoryReference {
        base: if rip {
            None
        } else {
            number(instruction.memory_base())
        },
        index: number(instruction.memory_index()),
        scale: instruction.memory_index_scale() as u8,
        displacement: instruction.memory_displacement64(),
        segment: Segment::Flat,
        short: instruction.memory_base().size() == 4 || instruction.memory_index().size() == 4,
        gather: false,
        bytes: 0,
        read: false,
        write: false,
    }
}

fn explicit_memory(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|i| instruction.op_kind(i) == OpKind::Memory)
}

fn access(access: OpAccess) -> (bool, bool) {
    match access {
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        OpAccess::None | OpAccess::NoMemAccess => (false, false),
    }
}

/// Number of the 64-bit register behind `register`, and whether it is some other
/// kind of register.
fn general_number(register: Register) -> (Option<u8>, bool) {
    if register.is_gpr() {
        let full = register.full_register();
        (Some(full.number() as u8), false)
    } else {
        (None, register != Register::None)
    }
}

fn operand(instruction: &Instruction, index: u32, has_memory: bool) -> Operand {
    if index >= instruction.op_count() {
        return Operand::None;
    }
    match instruction.op_kind(index) {
        OpKind::Register => {
            let register = instruction.op_register(index);
            match general_number(register) {
                (Some(number), _) => {
                    let high = matches!(
                        register,
                        Register::AH | Register::BH | Register::CH | Register::DH
                    );
                    Operand::Register {
                        number,
                        shift: if high { 8 } else { 0 },
                        bits: (register.size() * 8) as u8,
                    }
                }
                _ => Operand::Other,
            }
        }
        OpKind::Memory => {
            let bits = (instruction.memory_size().size() * 8) as u16;
            if has_memory {
                Operand::Memory { index: 0, bits }
            } else {
                Operand::Other
            }
        }
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
            Operand::Immediate(instruction.near_branch_target())
        }
        OpKind::Immediate8
        | OpKind::Immediate8_2nd
        | OpKind::Immediate16
        | OpKind::Immediate32
        | OpKind::Immediate64
        | OpKind::Immediate8to16
        | OpKind::Immediate8to32
        | OpKind::Immediate8to64
        | OpKind::Immediate32to64 => Operand::Immediate(instruction.immediate(index)),
        _ => Operand::Other,
    }
}

fn status_bits(flags: u32) -> u64 {
    use crate::value::{AF, CF, DF, OF, PF, SF, ZF};
    use iced_x86::RflagsBits as R;
    let pairs = [
        (R::CF, CF),
        (R::PF, PF),
        (R::AF, AF),
        (R::ZF, ZF),
        (R::SF, SF),
        (R::OF, OF),
        (R::DF, DF),
    ];
    pairs
        .iter()
        .filter(|(bit, _)| flags & bit != 0)
        .fold(0, |all, (_, bit)| all | bit)
}

fn flag_resources(bits: u64) -> Resources {
    use crate::value::{AF, CF, DF, OF, PF, SF, ZF};
    let order = [CF, PF, AF, ZF, SF, OF, DF];
    let mut set = 0;
    for (i, flag) in order.iter().enumerate() {
        if bits & flag != 0 {
            set |= 1 << (FLAGS + i as u32);
        }
    }
    set
}

fn register_resources(register: Register, writing: bool) -> Resources {
    if let (Some(number), _) = general_number(register) {
        let parts = match register.size() {
            8 => 0xf,
            // A 32-bit write clears the upper half; a read leaves it alone.
            4 if writing => 0xf,
            4 => 0x7,
            2 => 0x3,
            _ if matches!(
                register,
                Register::AH | Register::BH | Register::CH | Register::DH
            ) =>
            {
                0x2
            }
            _ => 0x1,
        };
        parts << (u32::from(number) * 4)
    } else if register.is_vector_register() {
        1 << (VECTOR + register.full_register().number() as u32 % 32)
    } else if register.is_k() {
        1 << (OTHER + register.number() as u32 % 8)
    } else if register.is_mm() || register.is_st() {
        1 << (OTHER + 8)
    } else {
        0
    }
}

fn resources(
    instruction: &Instruction,
    info: &iced_x86::InstructionInfo,
    memory: &[MemoryReference],
) -> (Resources, Resources, u16) {
    let address: Resources = memory.iter().fold(0, |all, m| all | m.resources());
    let (mut reads, mut writes, mut written) = (0, 0, 0u16);
    for used in info.used_registers() {
        let (read, write) = access(used.access());
        let conditional = matches!(used.access(), OpAccess::CondWrite);
        if read || conditional {
            reads |= register_resources(used.register(), false);
        }
        if write {
            writes |= register_resources(used.register(), true);
            if let (Some(number), _) = general_number(used.register()) {
                written |= 1 << number;
            }
        }
    }
    if instruction.mnemonic() != Mnemonic::Lea {
        // A register that only forms the address is no value; operands that do both count.
        let mut named = 0;
        for i in 0..instruction.op_count() {
            if instruction.op_kind(i) == OpKind::Register && access(info.op_access(i)).0 {
                named |= register_resources(instruction.op_register(i), false);
            }
        }
        reads = reads & !address | named;
    }
    // The changes of the stack pointer say nothing about data.
    reads &= !general(RSP);
    let mut flags = flag_resources(status_bits(instruction.rflags_read()));
    if instruction.is_string_instruction() {
        // The direction flag and the steps of the pointers are no data either.
        flags = 0;
        writes &= !(general(6) | general(7));
    }
    let clears = matches!(instruction.mnemonic(), Mnemonic::Xor | Mnemonic::Sub)
        && instruction.op_count() == 2
        && instruction.op0_kind() == OpKind::Register
        && instruction.op1_kind() == OpKind::Register
        && instruction.op0_register() == instruction.op1_register();
    if clears {
        reads = 0;
    }
    let changed = status_bits(instruction.rflags_modified());
    (reads | flags, writes | flag_resources(changed), written)
}

/// Sign extension of the low `bits` bits.
#[inline]
pub fn sign_extend(value: u64, bits: u32) -> i64 {
    if bits == 0 || bits >= 64 {
        value as i64
    } else {
        (value << (64 - bits)) as i64 >> (64 - bits)
    }
}

/// Is this `syscall`, `sysenter` or `int 0x80`?
pub fn is_syscall(instruction: &Instruction) -> bool {
    matches!(instruction.code(), Code::Syscall | Code::Sysenter)
        || (instruction.code() == Code::Int_imm8 && instruction.immediate8() == 0x80)
}

/// An fs- or gs-relative operand that is not simply loaded into a register: a tracer that reads it
/// before the instruction may do so with its own segment base instead of the program's.
pub(crate) fn reads_segment_unsafely(code: &Decoded) -> bool {
    let loads = matches!(
        code.mnemonic,
        Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd
    );
    let first = code.memory.first();
    !loads && first.is_some_and(|memory| memory.segment != Segment::Flat)
}
