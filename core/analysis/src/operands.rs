// SPDX-License-Identifier: MIT
//! Values of operands, and what branches test, as expressions over what was loaded.
//!
//! Built by walking back: copies, extensions, masks, shifts, additions, outcomes of tests. What is
//! not understood stays a number that is simply there.

use std::cell::Cell;

use flagfinder_machine::decoded::{general, Decoded, Operand, Resources, ALL_FLAGS};
use flagfinder_machine::value::mask;
use flagfinder_machine::Window;
use iced_x86::{ConditionCode, FlowControl, Mnemonic as M};

use crate::condition::Condition;
use crate::expression::{Expression, Operator};
use crate::relation::Relation;

/// Definitions followed, one behind the other.
pub const DEPTH: u32 = 24;
/// Definitions followed for one test: both sides of `x ^ x >> 7` lead to the same ones, again and
/// again.
const BUDGET: u32 = 200;
/// Steps back in search of a definition.
const REACH: u32 = 4000;

/// The last step before `before` that writes any of these.
pub fn last_writer(window: &Window, before: u32, resources: Resources) -> Option<u32> {
    (before.saturating_sub(REACH)..before).rev().find(|&step| {
        window.code(step).writes & resources != 0
            || window.syscall_at(step).is_some() && resources & general(0) != 0
    })
}

pub struct Builder<'w> {
    window: &'w Window,
    left: Cell<u32>,
}

impl<'w> Builder<'w> {
    pub fn new(window: &'w Window) -> Self {
        let left = Cell::new(BUDGET);
        Builder { window, left }
    }

    /// The window that it walks back in.
    pub fn window(&self) -> &'w Window {
        self.window
    }

    /// Operand `index` of the instruction at `step`, before it.
    pub fn operand(&self, step: u32, code: &Decoded, index: usize, depth: u32) -> Expression {
        match code.operands[index] {
            Operand::Immediate(value) => {
                let bits = code.bits(0);
                Expression::Number(if bits == 0 { value } else { value & mask(bits) })
            }
            Operand::Register {
                number,
                shift: 0,
                bits,
            } => match self.register(step, number, depth) {
                Expression::Opaque(value) => {
                    Expression::Opaque(value.map(|v| v & mask(u32::from(bits))))
                }
                known => known.low(u32::from(bits)),
            },
            // ah and its like.
            Operand::Register {
                number,
                shift,
                bits,
            } => {
                let whole = Box::new(self.register(step, number, depth));
                let by = Box::new(Expression::Number(u64::from(shift)));
                Expression::Binary(Operator::ShiftRight, whole, by).low(u32::from(bits))
            }
            Operand::Memory { .. } => self.memory(step, depth),
            _ => Expression::Opaque(None),
        }
    }

    fn memory(&self, step: u32, depth: u32) -> Expression {
        let Some(access) = self.window.accesses(step).iter().find(|a| !a.write) else {
            return Expression::Opaque(None);
        };
        let bits = access.bytes * 8;
        let value = access.value.get(bits.min(64));
        let Some((address, value)) = access.address.zip(value) else {
            return Expression::Opaque(value);
        };
        let stored = (depth > 0).then(|| self.stored(step, address, bits, depth));
        if let Some(stored) = stored.flatten() {
            return stored;
        }
        Expression::Load {
            address,
            bits,
            value,
        }
    }

    /// What a spill holds, or the part of it that is read (a member of a union): what was stored. A
    /// word that the same instruction has read since is none: it may be another thread's to write
    /// by then.
    fn stored(&self, step: u32, address: u64, bits: u32, depth: u32) -> Option<Expression> {
        let end = address.checked_add(u64::from(bits / 8))?;
        let from = step.saturating_sub(REACH);
        let is_again = |before: u32| {
            self.window.code_index(before) == self.window.code_index(step) && {
                let mut reads = self.window.accesses(before).iter().filter(|a| !a.write);
                reads.any(|read| read.address == Some(address))
            }
        };
        let mut since = (from..step).rev().take_while(|&before| !is_again(before));
        let (store, start, bytes) = since.find_map(|before| {
            let writes = self.window.accesses(before).iter().filter(|a| a.write);
            let mut spans = writes.filter_map(|a| Some((before, a.address?, u64::from(a.bytes))));
            spans.find(|&(_, start, bytes)| start < end && address < start.saturating_add(bytes))
        })?;
        let code = self.window.code(store);
        let covers = start <= address && start.saturating_add(bytes) >= end;
        // An interpreter's operands are pushed.
        let source = match code.mnemonic {
            M::Mov => 1,
            M::Push => 0,
            _ => return None,
        };
        if !covers || u64::from(code.bits(0)) != bytes * 8 {
            return None;
        }
        let whole = self.operand(store, code, source, depth - 1);
        if bytes * 8 == u64::from(bits) {
            return Some(whole);
        }
        let shift = (address - start) * 8;
        Some(match whole {
            Expression::Opaque(value) => {
                Expression::Opaque(value.map(|value| value >> shift & mask(bits)))
            }
            whole if shift == 0 => whole.low(bits),
            whole => {
                let by = Box::new(Expression::Number(shift));
                Expression::Binary(Operator::ShiftRight, Box::new(whole), by).low(bits)
            }
        })
    }

    pub fn register(&self, step: u32, number: u8, depth: u32) -> Expression {
        let Some(definition) = last_writer(self.window, step, general(number)) else {
            return Expression::Opaque(self.window.kept(number));
        };
        let known = self.window.result(definition, number).get(64);
        let left = self.left.get();
        if depth == 0 || left == 0 || self.window.syscall_at(definition).is_some() {
            return Expression::Opaque(known);
        }
        self.left.set(left - 1);
        match self.result(definition, self.window.code(definition), depth - 1) {
            Expression::Opaque(None) => Expression::Opaque(known),
            found => found,
        }
    }

    /// What the instruction at `step` computes into its first operand.
    pub fn result(&self, step: u32, code: &Decoded, depth: u32) -> Expression {
        let known = match code.operands[0] {
            Operand::Register { number, .. } => self.window.result(step, number).get(64),
            _ => None,
        };
        let binary = |operator, a: Expression, b: Expression| {
            Expression::Binary(operator, Box::new(a), Box::new(b))
        };
        let operand = |index| self.operand(step, code, index, depth);
        match code.mnemonic {
            M::Mov | M::Movzx => operand(1),
            M::Pop => self.memory(step, depth),
            M::Movsx | M::Movsxd => Expression::Signed {
                of: Box::new(operand(1)),
                bits: code.bits(1),
                to: code.bits(0),
            },
            M::And => binary(Operator::And, operand(0), operand(1)),
            M::Or => binary(Operator::Or, operand(0), operand(1)),
            M::Xor if code.operands[0] == code.operands[1] => Expression::Number(0),
            M::Xor => binary(Operator::Xor, operand(0), operand(1)),
            M::Add => operand(0).plus(operand(1)),
            M::Sub => binary(Operator::Sub, operand(0), operand(1)),
            M::Inc => operand(0).plus(Expression::Number(1)),
            M::Dec => binary(Operator::Sub, operand(0), Expression::Number(1)),
            M::Shl => binary(Operator::ShiftLeft, operand(0), operand(1)),
            M::Shr => binary(Operator::ShiftRight, operand(0), operand(1)),
            M::Xchg | M::Xadd | M::Cmpxchg if code.memory.iter().any(|m| m.read) => {
                self.memory(step, 0)
            }
            _ if is_set_by_flags(code) => self.outcome(step, depth),
            _ if is_conditional_move(code) => match self.moves(step, depth) {
                Some(moves) => operand(usize::from(moves)),
                None => Expression::Opaque(known),
            },
            _ => Expression::Opaque(known),
        }
    }

    /// Did the `cmovcc` at `step` take its second operand over?
    fn moves(&self, step: u32, depth: u32) -> Option<bool> {
        Condition::after(self, step, false, depth)?.leaves_with(u64::MAX, 0)
    }

    /// 1 or 0, as the test before the `setcc` at `step` came out.
    fn outcome(&self, step: u32, depth: u32) -> Expression {
        match Condition::after(self, step, false, depth) {
            Some(test) => {
                Expression::Test(test.leaves, test.bits, Box::new((test.left, test.right)))
            }
            None => Expression::Opaque(None),
        }
    }
}

impl Condition {
    /// The test of the branch at `step`, which did (not) jump; `None`: not understood.
    pub fn of(window: &Window, step: u32, taken: bool) -> Option<Condition> {
        Condition::after(&Builder::new(window), step, taken, DEPTH)
    }

    /// As [`Condition::of`], of any instruction that goes by the flags; `depth` definitions are
    /// followed.
    pub fn after(builder: &Builder, step: u32, taken: bool, depth: u32) -> Option<Condition> {
        let window = builder.window();
        let branch = window.code(step);
        let relation = Relation::of(branch.instruction.condition_code())?;
        let condition_code = branch.instruction.condition_code();
        let leaves = if taken { relation.inverse() } else { relation };
        let flags = branch.reads & ALL_FLAGS;
        let test = last_writer(window, step, flags)?;
        let code = window.code(test);
        let bits = code.bits(0);
        if bits == 0 {
            return None;
        }
        let carry = matches!(condition_code, ConditionCode::b | ConditionCode::ae);
        let signs = matches!(condition_code, ConditionCode::s | ConditionCode::ns);
        let operand = |index| builder.operand(test, code, index, depth);
        let (left, right) = match code.mnemonic {
            M::Cmp if !signs => (operand(0), operand(1)),
            M::Cmp | M::Sub if signs => (
                Expression::Binary(Operator::Sub, Box::new(operand(0)), Box::new(operand(1))),
                Expression::Number(0),
            ),
            M::Sub => (operand(0), operand(1)),
            M::Test | M::And => {
                let same = code.operands[0] == code.operands[1];
                let left = if same {
                    operand(0)
                } else {
                    let (a, b) = (Box::new(operand(0)), Box::new(operand(1)));
                    Expression::Binary(Operator::And, a, b)
                };
                (left, Expression::Number(0))
            }
            M::Bt | M::Bts | M::Btr | M::Btc if carry => {
                let shift = (Box::new(operand(0)), Box::new(operand(1)));
                let bit = Expression::Binary(Operator::ShiftRight, shift.0, shift.1);
                let bit = Expression::Binary(
                    Operator::And,
                    Box::new(bit),
                    Box::new(Expression::Number(1)),
                );
                let leaves = if (condition_code == ConditionCode::b) != taken {
                    Relation::NotEqual
                } else {
                    Relation::Equal
                };
                return Some(Condition {
                    left: bit,
                    right: Expression::Number(0),
                    leaves,
                    bits: 64,
                });
            }
            M::Cmpxchg => (operand(0), builder.register(test, 0, depth)),
            M::Or | M::Xor | M::Add | M::Shl | M::Shr | M::Dec | M::Inc | M::Neg => {
                (builder.result(test, code, depth), Expression::Number(0))
            }
            _ => return None,
        };
        let mut condition = Condition {
            left,
            right,
            leaves,
            bits,
        };
        condition.complete();
        Some(condition.without_outcome())
    }

    /// `(x == 2) != 0` is `x == 2`.
    pub(crate) fn without_outcome(self) -> Condition {
        let is_zero = self.right == Expression::Number(0);
        match (self.leaves, self.left) {
            (Relation::NotEqual | Relation::Equal, Expression::Test(relation, bits, sides))
                if is_zero =>
            {
                let holds = self.leaves == Relation::NotEqual;
                Condition {
                    left: sides.0,
                    right: sides.1,
                    leaves: if holds { relation } else { relation.inverse() },
                    bits,
                }
            }
            (_, left) => Condition { left, ..self },
        }
    }

    /// A side that was computed before the window, of a test for equality that held:
    /// it equals the other.
    fn complete(&mut self) {
        if self.leaves != Relation::NotEqual {
            return;
        }
        let now = |side: &Expression| side.evaluate(u64::MAX, 0).map(|v| v & mask(self.bits));
        let (left, right) = (now(&self.left), now(&self.right));
        if self.left == Expression::Opaque(None) {
            self.left = Expression::Opaque(right);
        }
        if self.right == Expression::Opaque(None) {
            self.right = Expression::Opaque(left);
        }
    }
}

fn is_conditional_move(code: &Decoded) -> bool {
    let instruction = &code.instruction;
    instruction.op_count() == 2
        && instruction.flow_control() == FlowControl::Next
        && instruction.condition_code() != ConditionCode::None
}

fn is_set_by_flags(code: &Decoded) -> bool {
    let instruction = &code.instruction;
    instruction.op_count() == 1
        && instruction.flow_control() == FlowControl::Next
        && instruction.condition_code() != ConditionCode::None
}

#[cfg(test)]
mod tests {
    use flagfinder_machine::evaluator::Access;
    use flagfinder_machine::value::Value;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    const WORD: u64 = 0x5000;

    /// What eax holds behind `mov eax, [rbx]; test eax, eax; mov edx, 0; cmovs eax, edx`.
    fn maximum(word: u32) -> Expression {
        const CODE: [(u8, &[u8]); 4] = [
            (0, &[0x8b, 0x03]),
            (0, &[0x85, 0xc0]),
            (2, &[0xba, 0, 0, 0, 0]),
            (0, &[0x0f, 0x48, 0xc2]),
        ];
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        for (pc, (register, bytes)) in (0x1000..).step_by(8).zip(CODE) {
            let mut decoder = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE);
            let index = window.intern(&decoder.decode(), 0, &mut factory);
            window.push(index, Value::of(0x7000));
            match pc {
                0x1000 => window.push_access(Access {
                    address: Some(WORD),
                    bytes: 4,
                    write: false,
                    value: Value::of(u64::from(word)),
                }),
                0x1008 => continue,
                _ => {}
            }
            let value = if register == 0 { word } else { 0 };
            window.push_result(register, Value::of(u64::from(value)));
        }
        Builder::new(&window).register(window.len(), 0, DEPTH)
    }

    #[test]
    fn a_maximum_is_what_was_moved() {
        assert!(matches!(maximum(3), Expression::Load { address: WORD, .. }));
        assert_eq!(maximum(-3i32 as u32), Expression::Number(0));
    }

    /// What `movzx eax, word ptr [rsp+at]` finds behind `mov eax, [rbx]; mov [rsp], eax`.
    fn part(at: u8) -> Expression {
        const STACK: u64 = 0x7000;
        let codes: [&[u8]; 3] = [
            &[0x8b, 0x03],
            &[0x89, 0x04, 0x24],
            &[0x0f, 0xb7, 0x44, 0x24, at],
        ];
        let accesses = [
            (WORD, 4, false, 0x1_0002),
            (STACK, 4, true, 0x1_0002),
            (STACK + u64::from(at), 2, false, 0x1_0002 >> (8 * at)),
        ];
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        for (code, (address, bytes, write, value)) in codes.into_iter().zip(accesses) {
            let pc = 0x1000 + 8 * u64::from(window.len());
            let mut decoder = Decoder::with_ip(64, code, pc, DecoderOptions::NONE);
            let index = window.intern(&decoder.decode(), 0, &mut factory);
            window.push(index, Value::of(STACK));
            window.push_access(Access {
                address: Some(address),
                bytes,
                write,
                value: Value::of(value),
            });
            if !write {
                window.push_result(0, Value::of(value));
            }
        }
        Builder::new(&window).register(window.len(), 0, DEPTH)
    }

    #[test]
    fn a_part_of_what_was_stored_is_a_part_of_what_was_loaded() {
        for (at, value, other) in [(0, 2, 3), (2, 1, 7)] {
            assert!(part(at).mentions(WORD, 4));
            assert_eq!(part(at).evaluate(WORD, 0x1_0002), Some(value));
            assert_eq!(part(at).evaluate(WORD, 0x7_0003), Some(other));
        }
    }

    /// What the last of so many `mov eax, [rbx]` finds behind `mov dword ptr [rbx], 2`.
    fn read_again(times: usize) -> Expression {
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        let store: (u64, &[u8]) = (0x1000, &[0xc7, 0x03, 2, 0, 0, 0]);
        let load: (u64, &[u8]) = (0x1008, &[0x8b, 0x03]);
        for (pc, code) in std::iter::once(store).chain([load].repeat(times)) {
            let mut decoder = Decoder::with_ip(64, code, pc, DecoderOptions::NONE);
            let index = window.intern(&decoder.decode(), 0, &mut factory);
            window.push(index, Value::of(0x7000));
            window.push_access(Access {
                address: Some(WORD),
                bytes: 4,
                write: pc == store.0,
                value: Value::of(2),
            });
        }
        let last = window.len() - 1;
        Builder::new(&window).operand(last, window.code(last), 1, DEPTH)
    }

    #[test]
    fn a_word_that_is_read_again_and_again_is_no_spill() {
        assert_eq!(read_again(1), Expression::Number(2));
        assert!(matches!(
            read_again(2),
            Expression::Load { address: WORD, .. }
        ));
    }
}
