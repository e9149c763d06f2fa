// SPDX-License-Identifier: MIT
//! What the instructions on a way that was never taken leave behind, and whether anybody uses it.
//!
//! ```c
//!     int steal() {
//!         int found = back > front;
//!         if (handles == 0)       // the other way comes back, with nothing that is used later
//!             finalize();
//!         return found;
//!     }
//! ```

use flagfinder_machine::decoded::{
    general, Decoded, MemoryReference, Operand, Resources, ALL_FLAGS, RSP,
};
use flagfinder_machine::Window;
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};

/// Are these registers written anew, from this step on, before anything uses them?
pub fn is_dead(window: &Window, from: u32, mut written: Resources) -> bool {
    for step in from..window.len().min(from + REACH) {
        if written == 0 {
            return true;
        }
        let code = window.code(step);
        let used = code
            .memory
            .iter()
            .fold(code.reads, |all, m| all | m.resources());
        if used & written != 0 || window.syscall_at(step).is_some() {
            return false;
        }
        written &= !code.writes;
    }
    false
}

/// Most steps in which a use is looked for.
pub const REACH: u32 = 2000;

/// x86 number of the register that holds a function's result.
pub const RAX: u8 = 0;
const RDX: u8 = 2;
/// Registers in which a function may return something.
pub const RESULT: Resources = general(RAX) | general(RDX);

/// What a called function must leave as it was: rbx, rbp, r12 to r15.
pub const KEPT: Resources =
    general(3) | general(5) | general(12) | general(13) | general(14) | general(15);

/// What an instruction leaves behind it.
pub struct Effect {
    pub writes: Resources,
    /// A store to memory that is neither passed to a function nor on the own stack.
    pub stores: bool,
    /// It leaves the function: a return, or a jump to another function.
    pub returns: bool,
    /// It leaves it for another function, which returns in its place.
    pub hands_over: bool,
    /// The number that it sets the register of a function's result to.
    pub sets_result: Option<u64>,
    /// The registers from which and to which it copies.
    pub copies: Option<(u8, u8)>,
}

impl Effect {
    /// Of one instruction. `inside`: where it jumps to, if it does, lies in the function.
    pub fn of(
        instruction: &Instruction,
        inside: bool,
        factory: &mut InstructionInfoFactory,
    ) -> Effect {
        let flow = instruction.flow_control();
        let calls = matches!(flow, FlowControl::Call | FlowControl::IndirectCall);
        let decoded = Decoded::new(instruction, factory);
        let on_stack = |memory: &MemoryReference| memory.base == Some(RSP);
        let copies = match decoded.operands {
            [Operand::Register {
                number: to, bits, ..
            }, Operand::Register { number: from, .. }, ..]
                if instruction.mnemonic() == Mnemonic::Mov && bits >= 32 =>
            {
                Some((to, from))
            }
            _ => None,
        };
        let hands_over = flow == FlowControl::UnconditionalBranch && !inside;
        let mut memory = decoded.memory.iter();
        Effect {
            // Of a call: its result. Compilers rely on nothing else that it leaves.
            writes: match calls {
                true => RESULT,
                false => decoded.writes & !ALL_FLAGS & !general(RSP),
            },
            stores: !calls && memory.any(|memory| memory.write && !on_stack(memory)),
            returns: flow == FlowControl::Return || hands_over,
            hands_over,
            sets_result: sets_result(instruction),
            copies,
        }
    }
}

/// `xor eax, eax` and `mov eax, 1`.
fn sets_result(instruction: &Instruction) -> Option<u64> {
    let is_result = instruction.op_count() == 2
        && instruction.op0_kind() == OpKind::Register
        && matches!(instruction.op0_register(), Register::EAX | Register::RAX);
    match instruction.mnemonic() {
        _ if !is_result => None,
        Mnemonic::Xor if instruction.op1_register() == instruction.op0_register() => Some(0),
        Mnemonic::Mov => instruction.try_immediate(1).ok(),
        _ => None,
    }
}

/// Which registers hold what they held where a way began.
pub struct Kept {
    /// By register: the register whose old value it holds, if any.
    holds: [Option<u8>; 16],
    written: Resources,
    /// On a way without branches it is known what was saved for a call and restored.
    pub is_straight: bool,
}

impl Default for Kept {
    fn default() -> Kept {
        let mut holds = [None; 16];
        for (number, held) in (0..).zip(&mut holds) {
            *held = Some(number);
        }
        Kept {
            holds,
            written: 0,
            is_straight: true,
        }
    }
}

impl Kept {
    /// Goes on by one instruction.
    pub fn follow(&mut self, effect: &Effect) {
        self.written |= effect.writes;
        match effect.copies {
            Some((to, from)) => self.holds[usize::from(to)] = self.holds[usize::from(from)],
            None => {
                for number in 0..16 {
                    if effect.writes & general(number) != 0 {
                        self.holds[usize::from(number)] = None;
                    }
                }
            }
        }
    }

    /// The register whose value is in that of the result.
    pub fn result(&self) -> Option<u8> {
        self.holds[usize::from(RAX)]
    }

    /// Registers and flags that the way has written.
    pub fn written(&self) -> Resources {
        let is_back = |number: &u8| self.holds[usize::from(*number)] == Some(*number);
        let back = (0..16).filter(is_back).fold(0, |all, n| all | general(n));
        match self.is_straight {
            true => self.written & !back,
            false => self.written,
        }
    }
}
