// SPDX-License-Identifier: MIT
//! Machine code that is put into compiled blocks. It leaves every register and flag as it was.

use iced_x86::{
    Encoder, FlowControl, Instruction, InstructionInfoFactory, MemoryOperand, Register, UsedMemory,
};

use crate::handlers;
use crate::slots::{Capture, Source};
use crate::stub::{ff_stub, Handler};
use crate::thread::{self, Thread};

#[derive(Default)]
pub struct Code(pub Vec<u8>);

impl Code {
    pub fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn word(&mut self, value: u64) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    /// A short jump whose target is set by `land`.
    fn jump(&mut self, opcode: &[u8]) -> usize {
        self.put(opcode).put(&[0]);
        self.0.len()
    }

    fn land(&mut self, from: usize) {
        self.0[from - 1] = (self.0.len() - from) as u8;
    }

    /// mov [thread.rax], rax; rax = thread
    pub fn borrow_rax(&mut self, thread: *mut Thread) -> &mut Self {
        self.put(&[0x48, 0xa3])
            .word(thread as u64 + u64::from(thread::RAX));
        self.put(&[0x48, 0xb8]).word(thread as u64)
    }

    pub fn give_back_rax(&mut self, thread: *mut Thread) -> &mut Self {
        self.put(&[0x48, 0xa1])
            .word(thread as u64 + u64::from(thread::RAX))
    }

    /// Calls a handler through the stub.
    pub fn call(&mut self, handler: Handler, data: u64) -> &mut Self {
        self.put(&[0x48, 0x8d, 0x64, 0x24, 0x80, 0x50]); // lea rsp, [rsp-128]; push rax
        self.put(&[0x48, 0xb8]).word(data).put(&[0x50]);
        self.put(&[0x48, 0xb8])
            .word(handler as usize as u64)
            .put(&[0x50]);
        self.put(&[0x48, 0xb8])
            .word(ff_stub as *const () as u64)
            .put(&[0xff, 0xd0]);
        self.put(&[0x48, 0x8d, 0x64, 0x24, 0x10, 0x58]); // lea rsp, [rsp+16]; pop rax
        self.put(&[0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0])
    }

    /// The system call that ends a block. A child goes its own way: registers that the call
    /// overwrites anyway (rcx, r11) are all that is used.
    pub fn system_call(&mut self, thread: *mut Thread) -> &mut Self {
        self.put(&[0x48, 0xb9])
            .word(thread as u64 + thread::CLONES as u64);
        self.put(&[0x8b, 0x09]); // mov ecx, [rcx]
        let plain = self.jump(&[0xe3]); // jrcxz
        self.put(&[0x0f, 0x05, 0x48, 0x89, 0xc1]); // syscall; mov rcx, rax
        let child = self.jump(&[0xe3]);
        let done = self.jump(&[0xeb]);
        self.land(child);
        self.put(&[0x48, 0xb9])
            .word(handlers::ff_child as *const () as u64)
            .put(&[0xff, 0xe1]);
        self.land(plain);
        self.put(&[0x0f, 0x05]);
        self.land(done);
        self
    }
}

/// Where in a block's top its number stands, to be filled in once the block is known.
pub struct Holes {
    unit: usize,
    step: usize,
    second_look: usize,
}

/// A block's top: writes its unit of flow.
pub fn flow_top(code: &mut Code, thread: *mut Thread, full: Handler) -> Holes {
    use thread::{FLOW_AT, RCX};
    code.borrow_rax(thread);
    code.put(&[0x48, 0x89, 0x48, RCX]); // mov [rax+RCX], rcx
    code.put(&[0x48, 0x8b, 0x48, FLOW_AT]); // mov rcx, [rax+FLOW_AT]
    code.put(&[0xc7, 0x01, 0, 0, 0, 0]); // mov dword [rcx], unit
    let unit = code.0.len() - 4;
    code.put(&[0x48, 0x8d, 0x49, 2]); // lea rcx, [rcx+step]
    let step = code.0.len() - 1;
    code.put(&[0x48, 0x89, 0x48, FLOW_AT]);
    let first = code.jump(&[0x67, 0xe3]); // jecxz: the chunk is full
    let second_look = code.0.len();
    code.put(&[0x48, 0x8d, 0x49, 0xfe]); // lea rcx, [rcx-2]: by a half unit too much
    let second = code.jump(&[0x67, 0xe3]);
    let done = code.jump(&[0xeb]);
    code.land(first);
    code.land(second);
    code.put(&[0x48, 0x8b, 0x48, RCX]);
    code.give_back_rax(thread);
    code.call(full, thread as u64);
    code.borrow_rax(thread);
    code.land(done);
    code.put(&[0x48, 0x8b, 0x48, RCX]);
    code.give_back_rax(thread);
    Holes {
        unit,
        step,
        second_look,
    }
}

/// A block's share of VALUES: the pointer moves on by all of it. `high`: the upper half of the
/// window's end.
pub struct ValuesTop {
    bytes: usize,
    end: usize,
}

pub fn values_top(
    code: &mut Code,
    thread: *mut Thread,
    high: u32,
    full: Handler,
    share: u64,
) -> ValuesTop {
    use thread::{BLOCK_AT, RCX, VALUES_AT};
    code.borrow_rax(thread);
    code.put(&[0x48, 0x89, 0x48, RCX]);
    code.put(&[0x48, 0x8b, 0x48, VALUES_AT]);
    code.put(&[0x48, 0x89, 0x48, BLOCK_AT]);
    code.put(&[0x48, 0x8d, 0x89, 0, 0, 0, 0]); // lea rcx, [rcx+bytes]
    let bytes = code.0.len() - 4;
    code.put(&[0x48, 0x89, 0x48, VALUES_AT]);
    code.put(&[0x8b, 0x48, VALUES_AT + 4]); // mov ecx, [rax+VALUES_AT+4]
    code.put(&[0x8d, 0x89])
        .put(&high.wrapping_neg().to_le_bytes()); // lea ecx, [rcx-high]
    let full_here = code.jump(&[0x67, 0xe3]);
    let done = code.jump(&[0xeb]);
    code.land(full_here);
    code.put(&[0x48, 0x8b, 0x48, RCX]);
    code.give_back_rax(thread);
    code.call(full, share);
    code.borrow_rax(thread);
    code.land(done);
    code.put(&[0x48, 0x8b, 0x48, RCX]);
    code.give_back_rax(thread);
    ValuesTop {
        bytes,
        end: code.0.len(),
    }
}

impl ValuesTop {
    /// Puts the size in; 0: jumps over it all.
    ///
    /// # Safety
    /// As for [`Holes::fill`].
    pub unsafe fn fill(&self, code: *mut u8, bytes: usize) {
        if bytes == 0 {
            code.write(0xe9);
            (code.add(1) as *mut u32).write_unaligned(self.end as u32 - 5);
        } else {
            (code.add(self.bytes) as *mut u32).write_unaligned(bytes as u32);
        }
    }
}

/// The instruction with its operand's address in a register, in place of rip plus a displacement
/// that would no longer reach it. Gum does this too, but with registers that the instruction uses
/// without naming them (rdx of `idiv`), and on the program's stack. `None`: it has no such operand,
/// or is Gum's alone.
pub fn without_rip(
    instruction: &Instruction,
    factory: &mut InstructionInfoFactory,
    thread: *mut Thread,
) -> Option<Code> {
    use thread::STAND_IN;
    if instruction.memory_base() != Register::RIP || instruction.flow_control() != FlowControl::Next
    {
        return None;
    }
    let info = factory.info(instruction);
    let is_used = |register: Register| {
        let mut used = info.used_registers().iter();
        used.any(|one| one.register().full_register() == register)
    };
    let candidates = [
        Register::RBX,
        Register::RSI,
        Register::RDI,
        Register::RDX,
        Register::RCX,
    ];
    let register = candidates
        .into_iter()
        .find(|register| !is_used(*register))?;
    let number = register.number() as u8;
    let mut changed = *instruction;
    changed.set_memory_base(register);
    changed.set_memory_displacement64(0);
    changed.set_memory_displ_size(0);
    let mut encoder = Encoder::new(64);
    encoder.encode(&changed, 0).ok()?;
    let mut code = Code::default();
    code.borrow_rax(thread);
    code.put(&[0x48, 0x89, 0x40 | number << 3, STAND_IN]); // mov [rax+STAND_IN], register
    code.put(&[0x48, 0xb8 | number])
        .word(instruction.memory_displacement64());
    code.give_back_rax(thread);
    code.put(&encoder.take_buffer());
    code.borrow_rax(thread);
    code.put(&[0x48, 0x8b, 0x40 | number << 3, STAND_IN]);
    code.give_back_rax(thread);
    Some(code)
}

/// Copies a value to `offset` in the block's share.
pub fn capture(code: &mut Code, thread: *mut Thread, capture: &Capture, offset: u32) {
    use thread::{BLOCK_AT, RCX, VALUE};
    let place = thread as u64 + u64::from(VALUE);
    code.put(&[0x48, 0xa3])
        .word(thread as u64 + u64::from(thread::RAX));
    match &capture.source {
        Source::Register(number) => {
            code.put(&[0x48 | (number >> 3 << 2), 0x89, 0xc0 | (number & 7) << 3]);
            // mov rax, r
        }
        Source::Memory(used) => load(code, used, capture.slot.size),
    }
    code.put(&[0x48, 0xa3]).word(place);
    code.put(&[0x48, 0xb8]).word(thread as u64);
    code.put(&[0x48, 0x89, 0x48, RCX]);
    code.put(&[0x48, 0x8b, 0x48, BLOCK_AT]);
    code.put(&[0x48, 0x8b, 0x40, VALUE]); // mov rax, [rax+VALUE]
    match capture.slot.size {
        1 => code.put(&[0x88, 0x81]),
        2 => code.put(&[0x66, 0x89, 0x81]),
        4 => code.put(&[0x89, 0x81]),
        _ => code.put(&[0x48, 0x89, 0x81]),
    };
    code.put(&offset.to_le_bytes()); // mov [rcx+offset], rax
    code.put(&[0x48, 0xb8]).word(thread as u64);
    code.put(&[0x48, 0x8b, 0x48, RCX]);
    code.give_back_rax(thread);
}

/// rax = what the operand holds, from the program's own registers.
fn load(code: &mut Code, used: &UsedMemory, size: u8) {
    let nothing = Register::None;
    if used.base() == nothing && used.index() == nothing {
        match used.segment() {
            Register::FS => code.put(&[0x64]),
            Register::GS => code.put(&[0x65]),
            _ => code,
        };
        let (prefix, opcode): (&[u8], u8) = match size {
            1 => (&[], 0xa0),
            2 => (&[0x66], 0xa1),
            4 => (&[], 0xa1),
            _ => (&[0x48], 0xa1),
        };
        code.put(prefix).put(&[opcode]).word(used.displacement());
        return;
    }
    let (form, register) = match size {
        1 => (iced_x86::Code::Mov_r8_rm8, Register::AL),
        2 => (iced_x86::Code::Mov_r16_rm16, Register::AX),
        4 => (iced_x86::Code::Mov_r32_rm32, Register::EAX),
        _ => (iced_x86::Code::Mov_r64_rm64, Register::RAX),
    };
    let memory = MemoryOperand::new(
        used.base(),
        used.index(),
        used.scale(),
        used.displacement() as i64,
        8,
        false,
        used.segment(),
    );
    let encoded = Instruction::with2(form, register, memory).and_then(|instruction| {
        let mut encoder = Encoder::new(64);
        encoder
            .encode(&instruction, 0)
            .map(|_| encoder.take_buffer())
    });
    // Refused: what stands in rax is recorded. Not reached with operands that were decoded.
    if let Ok(bytes) = encoded {
        code.put(&bytes);
    }
}

impl Holes {
    /// Puts the block's number in. `code`: where the top was written. Returns the bytes of its
    /// unit.
    ///
    /// # Safety
    /// `code` points to the bytes that `flow_top` made, writable and not yet executed.
    pub unsafe fn fill(&self, code: *mut u8, id: u32) -> usize {
        const SHORT_IDS: u32 = flagfinder_trace::protocol::FLOW_LONG as u32;
        let unit = if id < SHORT_IDS {
            // Seven bytes that do nothing, in place of lea and jecxz.
            let nothing = [0x0f, 0x1f, 0x80, 0, 0, 0, 0];
            std::ptr::copy_nonoverlapping(
                nothing.as_ptr(),
                code.add(self.second_look),
                nothing.len(),
            );
            id
        } else {
            code.add(self.step).write(4);
            (SHORT_IDS + (id >> 16)) | id << 16
        };
        (code.add(self.unit) as *mut u32).write_unaligned(unit);
        if id < SHORT_IDS {
            2
        } else {
            4
        }
    }
}
