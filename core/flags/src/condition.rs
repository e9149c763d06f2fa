//! What a branch tests, as an expression over what was loaded.
//!
//! Built by walking back from the branch: copies, extensions, masks, shifts, additions.
//! What it does not understand stays a number that is simply there.

use iced_x86::{ConditionCode, Mnemonic as M};

use crate::decoded::{general, Decoded, Operand, Resources};
use crate::expression::{Expression, Operator};
use crate::value::mask;
use crate::window::Window;

/// A branch's test: `left OP right`, for the direction it took.
#[derive(Clone, Debug)]
pub struct Condition {
    pub left: Expression,
    pub right: Expression,
    /// What must hold for the branch to go the other way.
    pub leaves: Relation,
    pub bits: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Below,
    BelowOrEqual,
    Above,
    AboveOrEqual,
}

impl Relation {
    fn holds(self, a: u64, b: u64, bits: u32) -> bool {
        let (a, b) = (a & mask(bits), b & mask(bits));
        let (s, t) = (
            crate::decoded::sign_extend(a, bits),
            crate::decoded::sign_extend(b, bits),
        );
        match self {
            Relation::Equal => a == b,
            Relation::NotEqual => a != b,
            Relation::Less => s < t,
            Relation::LessOrEqual => s <= t,
            Relation::Greater => s > t,
            Relation::GreaterOrEqual => s >= t,
            Relation::Below => a < b,
            Relation::BelowOrEqual => a <= b,
            Relation::Above => a > b,
            Relation::AboveOrEqual => a >= b,
        }
    }

    fn of(condition: ConditionCode) -> Option<Relation> {
        use ConditionCode as C;
        Some(match condition {
            C::e => Relation::Equal,
            C::ne => Relation::NotEqual,
            C::l => Relation::Less,
            C::le => Relation::LessOrEqual,
            C::g => Relation::Greater,
            C::ge => Relation::GreaterOrEqual,
            C::b => Relation::Below,
            C::be => Relation::BelowOrEqual,
            C::a => Relation::Above,
            C::ae => Relation::AboveOrEqual,
            C::s => Relation::Less,
            C::ns => Relation::GreaterOrEqual,
            _ => return None,
        })
    }

    fn inverse(self) -> Relation {
        match self {
            Relation::Equal => Relation::NotEqual,
            Relation::NotEqual => Relation::Equal,
            Relation::Less => Relation::GreaterOrEqual,
            Relation::LessOrEqual => Relation::Greater,
            Relation::Greater => Relation::LessOrEqual,
            Relation::GreaterOrEqual => Relation::Less,
            Relation::Below => Relation::AboveOrEqual,
            Relation::BelowOrEqual => Relation::Above,
            Relation::Above => Relation::BelowOrEqual,
            Relation::AboveOrEqual => Relation::Below,
        }
    }

    /// With its sides exchanged.
    fn mirrored(self) -> Relation {
        match self {
            Relation::Equal => Relation::Equal,
            Relation::NotEqual => Relation::NotEqual,
            Relation::Less => Relation::Greater,
            Relation::LessOrEqual => Relation::GreaterOrEqual,
            Relation::Greater => Relation::Less,
            Relation::GreaterOrEqual => Relation::LessOrEqual,
            Relation::Below => Relation::Above,
            Relation::BelowOrEqual => Relation::AboveOrEqual,
            Relation::Above => Relation::Below,
            Relation::AboveOrEqual => Relation::BelowOrEqual,
        }
    }

    fn is_signed(self) -> bool {
        matches!(
            self,
            Relation::Less | Relation::LessOrEqual | Relation::Greater | Relation::GreaterOrEqual
        )
    }

    fn text(self) -> &'static str {
        match self {
            Relation::Equal => "==",
            Relation::NotEqual => "!=",
            Relation::Less | Relation::Below => "<",
            Relation::LessOrEqual | Relation::BelowOrEqual => "<=",
            Relation::Greater | Relation::Above => ">",
            Relation::GreaterOrEqual | Relation::AboveOrEqual => ">=",
        }
    }
}

impl Condition {
    /// The test of the branch at `step`, which did (not) jump; `None`: not understood.
    pub fn of(window: &Window, step: u32, taken: bool) -> Option<Condition> {
        let branch = window.code(step);
        let relation = Relation::of(branch.instruction.condition_code())?;
        let condition_code = branch.instruction.condition_code();
        let leaves = if taken { relation.inverse() } else { relation };
        let flags = branch.reads;
        let test = last_writer(window, step, flags)?;
        let code = window.code(test);
        let bits = code.bits(0);
        if bits == 0 {
            return None;
        }
        let builder = Builder { window };
        let carry = matches!(condition_code, ConditionCode::b | ConditionCode::ae);
        let signs = matches!(condition_code, ConditionCode::s | ConditionCode::ns);
        let operand = |index| builder.operand(test, code, index, DEPTH);
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
            M::Cmpxchg => (operand(0), builder.register(test, 0, DEPTH)),
            M::Or | M::Xor | M::Add | M::Shl | M::Shr | M::Dec | M::Inc | M::Neg => {
                (builder.result(test, code, DEPTH), Expression::Number(0))
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
        Some(condition)
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

    pub fn mentions(&self, address: u64, bytes: u32) -> bool {
        self.left.mentions(address, bytes) || self.right.mentions(address, bytes)
    }

    /// Would the branch go the other way if `value` were read at `address`?
    pub fn leaves_with(&self, address: u64, value: u64) -> Option<bool> {
        let left = self.left.evaluate(address, value)?;
        let right = self.right.evaluate(address, value)?;
        Some(self.leaves.holds(left, right, self.bits))
    }

    /// Some value at `address` that would make it leave; the nearest to what is usual.
    pub fn leaving_value(&self, address: u64, bits: u32, now: u64) -> Option<u64> {
        let m = mask(bits);
        let others = [&self.left, &self.right]
            .into_iter()
            .filter_map(|side| side.evaluate(address, now));
        let near = others.flat_map(|v| [v, v.wrapping_add(1), v.wrapping_sub(1)]);
        let bitwise = (0..bits).map(|bit| now ^ 1 << bit);
        [0, 1]
            .into_iter()
            .chain(near)
            .chain([now | m])
            .chain(bitwise)
            .map(|value| value & m)
            .find(|&value| value != now & m && self.leaves_with(address, value) == Some(true))
    }

    /// `x == 0x1`, `x > 0xb (signed)`; `name` names the loads. What was loaded stands on
    /// the left.
    pub fn text(&self, name: &dyn Fn(u64) -> String) -> String {
        let plain = self.without_difference();
        let (left, relation, right) = match plain {
            Some((left, right)) => (left, self.leaves, right),
            None => (&self.left, self.leaves, &self.right),
        };
        let backwards = !left.is_loaded() && right.is_loaded();
        let (left, relation, right) = if backwards {
            (right, relation.mirrored(), left)
        } else {
            (left, relation, right)
        };
        let mut text = String::new();
        left.render(name, &mut text);
        text.push(' ');
        text.push_str(relation.text());
        text.push(' ');
        right.render(name, &mut text);
        if relation.is_signed() {
            text.push_str(" (signed)");
        }
        text
    }

    /// `x - y == 0` and `x ^ y == 0` compare x with y.
    fn without_difference(&self) -> Option<(&Expression, &Expression)> {
        let equality = matches!(self.leaves, Relation::Equal | Relation::NotEqual);
        match (&self.left, &self.right) {
            (Expression::Binary(Operator::Sub | Operator::Xor, a, b), Expression::Number(0))
                if equality =>
            {
                Some((a, b))
            }
            _ => None,
        }
    }
}

const DEPTH: u32 = 10;
/// Steps back in search of a definition.
const REACH: u32 = 4000;

fn last_writer(window: &Window, before: u32, resources: Resources) -> Option<u32> {
    (before.saturating_sub(REACH)..before).rev().find(|&step| {
        window.code(step).writes & resources != 0
            || window.syscall_at(step).is_some() && resources & general(0) != 0
    })
}

struct Builder<'w> {
    window: &'w Window,
}

impl Builder<'_> {
    fn operand(&self, step: u32, code: &Decoded, index: usize, depth: u32) -> Expression {
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
        // A spill on the own stack: go on with what was stored.
        if depth > 0 {
            let from = step.saturating_sub(REACH);
            let stored = (from..step).rev().find(|&s| {
                let mut stores = self.window.accesses(s).iter().filter(|a| a.write);
                stores.any(|a| a.address == Some(address))
            });
            if let Some(store) = stored {
                let code = self.window.code(store);
                if code.mnemonic == M::Mov && code.bits(0) == bits {
                    return self.operand(store, code, 1, depth - 1);
                }
            }
        }
        Expression::Load {
            address,
            bits,
            value,
        }
    }

    /// The register's value just before `step`.
    fn register(&self, step: u32, number: u8, depth: u32) -> Expression {
        let Some(definition) = last_writer(self.window, step, general(number)) else {
            return Expression::Opaque(self.window.kept(number));
        };
        let known = self.window.result(definition, number).get(64);
        if depth == 0 || self.window.syscall_at(definition).is_some() {
            return Expression::Opaque(known);
        }
        match self.result(definition, self.window.code(definition), depth - 1) {
            Expression::Opaque(None) => Expression::Opaque(known),
            found => found,
        }
    }

    /// What the instruction at `step` computes into its first operand.
    fn result(&self, step: u32, code: &Decoded, depth: u32) -> Expression {
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
            M::And => binary(Operator::And, operand(0), operand(1)),
            M::Or => binary(Operator::Or, operand(0), operand(1)),
            M::Xor if code.operands[0] == code.operands[1] => Expression::Number(0),
            M::Xor => binary(Operator::Xor, operand(0), operand(1)),
            M::Add => binary(Operator::Add, operand(0), operand(1)),
            M::Sub => binary(Operator::Sub, operand(0), operand(1)),
            M::Inc => binary(Operator::Add, operand(0), Expression::Number(1)),
            M::Dec => binary(Operator::Sub, operand(0), Expression::Number(1)),
            M::Shl => binary(Operator::ShiftLeft, operand(0), operand(1)),
            M::Shr => binary(Operator::ShiftRight, operand(0), operand(1)),
            M::Xchg | M::Xadd | M::Cmpxchg if code.memory.iter().any(|m| m.read) => {
                self.memory(step, 0)
            }
            _ => Expression::Opaque(known),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(bits: u32) -> Expression {
        Expression::Load {
            address: 0x1000,
            bits,
            value: 0,
        }
    }

    fn text(left: Expression, leaves: Relation, right: Expression) -> String {
        let condition = Condition {
            left,
            right,
            leaves,
            bits: 32,
        };
        condition.text(&|_| "value".into())
    }

    #[test]
    fn what_was_loaded_stands_on_the_left() {
        let zero = Expression::Number(0);
        let text_of = |leaves| text(zero.clone(), leaves, load(32));
        assert_eq!(text_of(Relation::NotEqual), "value != 0x0");
        assert_eq!(text_of(Relation::Less), "value > 0x0 (signed)");
        assert_eq!(text_of(Relation::BelowOrEqual), "value >= 0x0");
    }

    #[test]
    fn a_difference_is_a_comparison() {
        let two = Box::new(Expression::Number(2));
        let difference = Expression::Binary(Operator::Sub, Box::new(load(32)), two);
        let zero = Expression::Number(0);
        let equal = text(difference.clone(), Relation::Equal, zero.clone());
        assert_eq!(equal, "value == 0x2");
        // Not so for an order: the difference may overflow.
        let less = text(difference, Relation::Less, zero);
        assert_eq!(less, "(value - 0x2) < 0x0 (signed)");
    }

    #[test]
    fn a_part_of_what_was_loaded_says_which() {
        let part = text(load(32).low(8), Relation::Equal, Expression::Number(4));
        assert_eq!(part, "(value & 0xff) == 0x4");
        let whole = text(load(8).low(8), Relation::Equal, Expression::Number(4));
        assert_eq!(whole, "value == 0x4");
        let twice = load(64).low(16).low(8).low(32);
        let expected = "((value & 0xffff) & 0xff) != 0x0";
        assert_eq!(
            text(twice, Relation::NotEqual, Expression::Number(0)),
            expected
        );
    }
}
