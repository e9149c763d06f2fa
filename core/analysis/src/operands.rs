// SPDX-License-Identifier: MIT
//! Values of operands, and what branches test, as expressions over what was loaded.
//!
//! Built by walking back: copies, extensions, masks, shifts, additions, outcomes of tests. What is
//! not understood stays a number without an explanation.

use std::cell::Cell;

use flagfinder_machine::decoded::{general, Decoded, Operand, Resources, ALL_FLAGS};
use flagfinder_machine::value::mask;
use flagfinder_machine::Window;
use iced_x86::{ConditionCode, FlowControl, Mnemonic as M, Register};

use crate::condition::Condition;
use crate::expression::{Expression, Operator};
use crate::relation::Relation;

/// Most definitions that are followed, one behind the other.
pub const DEPTH: u32 = 24;
/// Most definitions that are followed for one test: both sides of `x ^ x >> 7` lead to the same
/// ones again and again.
const BUDGET: u32 = 200;
/// Most steps back in search of a definition.
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
            // ah, bh, ch or dh.
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
        let load = Expression::Load {
            address,
            bits,
            value,
        };
        self.stored(step, &load, depth).unwrap_or(load)
    }

    /// The value that was saved at an address and is read back, or the part of it that is read (a
    /// member of a union). A word that the same instruction has read since does not count: another
    /// thread may have written it by then.
    fn stored(&self, step: u32, load: &Expression, depth: u32) -> Option<Expression> {
        let &Expression::Load {
            address,
            bits,
            value,
        } = load
        else {
            return None;
        };
        let depth = depth.checked_sub(1)?;
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
        // An interpreter pushes its operands.
        let source = match code.mnemonic {
            M::Mov => 1,
            M::Push => 0,
            _ if covers && is_whole_copy(code) => {
                let from = self.copied_from(store)?.checked_add(address - start)?;
                let load = Expression::Load {
                    address: from,
                    bits,
                    value,
                };
                return Some(self.stored(store, &load, depth).unwrap_or(load));
            }
            _ => return None,
        };
        if !covers || u64::from(code.bits(0)) != bytes * 8 {
            return None;
        }
        let whole = self.operand(store, code, source, depth);
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

    /// Where the vector register was read as a whole that the step stores. (A value and its type
    /// may be copied together.)
    fn copied_from(&self, store: u32) -> Option<u64> {
        let code = self.window.code(store);
        let to = code.memory.iter().fold(0, |all, m| all | m.resources());
        let held = code.reads & !to;
        let definition = last_writer(self.window, store, held).filter(|_| held != 0)?;
        let is_copy = is_whole_copy(self.window.code(definition));
        let mut reads = self.window.accesses(definition).iter().filter(|a| !a.write);
        reads.next().filter(|_| is_copy)?.address
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
            M::Neg => binary(Operator::Sub, Expression::Number(0), operand(0)),
            M::Not => binary(Operator::Xor, operand(0), Expression::Number(u64::MAX)),
            M::Lea => self.sum(step, code, depth),
            M::Shl => binary(Operator::ShiftLeft, operand(0), operand(1)),
            M::Shr => binary(Operator::ShiftRight, operand(0), operand(1)),
            M::Xchg | M::Xadd | M::Cmpxchg if code.memory.iter().any(|m| m.read) => {
                self.memory(step, 0)
            }
            M::Sbb => self
                .three_way(step, operand(0), operand(1), depth)
                .unwrap_or(Expression::Opaque(known)),
            _ if is_set_by_flags(code) => self.outcome(step, depth),
            _ if is_conditional_move(code) => match self.moves(step, depth) {
                Some(moves) => operand(usize::from(moves)),
                None => Expression::Opaque(known),
            },
            _ => Expression::Opaque(known),
        }
    }

    /// What `lea` computes.
    fn sum(&self, step: u32, code: &Decoded, depth: u32) -> Expression {
        let instruction = &code.instruction;
        let term = |register| match general_number(register) {
            Some(number) => self.register(step, number, depth),
            None => Expression::Number(0),
        };
        let index = match instruction.memory_index_scale() {
            1 => term(instruction.memory_index()),
            scale => {
                let by = Box::new(Expression::Number(scale.trailing_zeros().into()));
                let index = Box::new(term(instruction.memory_index()));
                Expression::Binary(Operator::ShiftLeft, index, by)
            }
        };
        // Relative to the instruction's own address it is a number.
        let distance = Expression::Number(instruction.memory_displacement64());
        let sum = term(instruction.memory_base()).plus(index).plus(distance);
        sum.low(code.bits(0))
    }

    /// Did the `cmovcc` at `step` take its second operand over?
    fn moves(&self, step: u32, depth: u32) -> Option<bool> {
        Condition::after(self, step, false, depth)?.leaves_with(u64::MAX, 0)
    }

    /// `a > b` less `a < b`, as compilers order two numbers: a test's outcome less the carry of the
    /// same comparison.
    fn three_way(
        &self,
        step: u32,
        from: Expression,
        less: Expression,
        depth: u32,
    ) -> Option<Expression> {
        let binary = |operator, a: Expression, b: Expression| {
            Expression::Binary(operator, Box::new(a), Box::new(b))
        };
        let subtracts = self.window.code(step);
        let compares = last_writer(self.window, step, subtracts.reads & ALL_FLAGS)?;
        let code = self.window.code(compares);
        let is_plain = code.mnemonic == M::Cmp && less == Expression::Number(0);
        let (sides, bits, _) = from.tested().filter(|_| is_plain)?;
        let own = [0, 1].map(|index| self.operand(compares, code, index, depth));
        let is_same = [&sides.0, &sides.1] == [&own[0], &own[1]];
        // GCC compares once more, the other way round.
        let is_mirrored = [&sides.1, &sides.0] == [&own[0], &own[1]];
        let relation = match (is_same, is_mirrored) {
            (true, _) => Relation::Below,
            (_, true) => Relation::Above,
            _ => return None,
        };
        let is_below = Expression::Test(relation, bits, Box::new(sides.clone()));
        let order = binary(Operator::Sub, from, is_below);
        let whole = Expression::Number(mask(subtracts.bits(0)));
        Some(binary(Operator::And, order, whole))
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

    /// `(x == 2) != 0` is `x == 2`, and so is `2 * (x == 2) + 1 != 1`; `(x > y) - (x < y) == 0` is
    /// `x == y`.
    pub(crate) fn without_outcome(self) -> Condition {
        let holds = |order| {
            let left = self.left.with_order(order)?;
            Some(self.leaves.holds(left, self.right.number()?, self.bits))
        };
        let plain = self.left.tested().and_then(|(sides, bits, is_signed)| {
            let [less, equal, greater] = Relation::ORDERS.map(holds);
            let leaves = Relation::of_orders(less?, equal?, greater?, is_signed == Some(true))?;
            Some(Condition {
                left: sides.0.clone(),
                right: sides.1.clone(),
                leaves,
                bits,
            })
        });
        plain.unwrap_or(self)
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

/// Its number in x86 numbering, if it is a general register of 32 or 64 bits.
fn general_number(register: Register) -> Option<u8> {
    let is_whole = register.is_gpr32() || register.is_gpr64();
    is_whole.then(|| register.number() as u8)
}

/// Does it move 16 bytes between memory and a register as they are?
fn is_whole_copy(code: &Decoded) -> bool {
    matches!(
        code.mnemonic,
        M::Movups | M::Movaps | M::Movdqu | M::Movdqa | M::Movupd | M::Movapd
    )
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
#[path = "operands_tests.rs"]
mod tests;
