//! What a branch tests, as an expression over what was loaded.
//!
//! Built by walking back from the branch: copies, extensions, masks, shifts, additions.
//! What it does not understand stays a number that is simply there.

use std::fmt;

use iced_x86::{ConditionCode, Mnemonic as M};

use crate::decoded::{general, Decoded, Operand, Resources};
use crate::value::mask;
use crate::window::Window;

/// A value in terms of loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    Number(u64),
    /// What was read at an address.
    Load {
        address: u64,
        bits: u32,
        value: u64,
    },
    Binary(Operator, Box<Expression>, Box<Expression>),
    /// Not understood; its value then, if known.
    Opaque(Option<u64>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    And,
    Or,
    Xor,
    Add,
    Sub,
    ShiftLeft,
    ShiftRight,
}

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

impl Expression {
    /// Its value with `new` read at `address` instead.
    fn evaluate(&self, address: u64, new: u64) -> Option<u64> {
        Some(match self {
            Expression::Number(number) => *number,
            Expression::Load {
                address: at,
                bits,
                value,
            } => {
                if *at == address {
                    new & mask(*bits)
                } else {
                    *value
                }
            }
            Expression::Opaque(value) => (*value)?,
            Expression::Binary(operator, a, b) => {
                let (a, b) = (a.evaluate(address, new)?, b.evaluate(address, new)?);
                match operator {
                    Operator::And => a & b,
                    Operator::Or => a | b,
                    Operator::Xor => a ^ b,
                    Operator::Add => a.wrapping_add(b),
                    Operator::Sub => a.wrapping_sub(b),
                    Operator::ShiftLeft => a.checked_shl(b as u32).unwrap_or(0),
                    Operator::ShiftRight => a.checked_shr(b as u32).unwrap_or(0),
                }
            }
        })
    }

    pub fn mentions(&self, address: u64, bytes: u32) -> bool {
        match self {
            Expression::Load {
                address: at, bits, ..
            } => *at < address + u64::from(bytes) && address < *at + u64::from(bits / 8),
            Expression::Binary(_, a, b) => a.mentions(address, bytes) || b.mentions(address, bytes),
            _ => false,
        }
    }

    fn render(&self, name: &dyn Fn(u64) -> String, out: &mut String) {
        use fmt::Write;
        match self {
            Expression::Number(number) => {
                let _ = write!(out, "{number:#x}");
            }
            Expression::Load { address, .. } => out.push_str(&name(*address)),
            Expression::Opaque(Some(value)) => {
                let _ = write!(out, "{value:#x}");
            }
            Expression::Opaque(None) => out.push('?'),
            Expression::Binary(operator, a, b) => {
                out.push('(');
                a.render(name, out);
                out.push_str(match operator {
                    Operator::And => " & ",
                    Operator::Or => " | ",
                    Operator::Xor => " ^ ",
                    Operator::Add => " + ",
                    Operator::Sub => " - ",
                    Operator::ShiftLeft => " << ",
                    Operator::ShiftRight => " >> ",
                });
                b.render(name, out);
                out.push(')');
            }
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

    /// `x == 0x1`, `x > 0xb (signed)`; `name` names the loads.
    pub fn text(&self, name: &dyn Fn(u64) -> String) -> String {
        let mut text = String::new();
        self.left.render(name, &mut text);
        text.push(' ');
        text.push_str(self.leaves.text());
        text.push(' ');
        self.right.render(name, &mut text);
        if self.leaves.is_signed() {
            text.push_str(" (signed)");
        }
        text
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
                known => known,
            },
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
            return Expression::Opaque(None);
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
        let narrow = |expression: Expression| {
            let bits = code.bits(1);
            match (&expression, bits) {
                (Expression::Load { bits: b, .. }, bits) if *b <= bits => expression,
                (Expression::Number(_) | Expression::Opaque(_), _) | (_, 0 | 64 | 32) => expression,
                _ => Expression::Binary(
                    Operator::And,
                    Box::new(expression),
                    Box::new(Expression::Number(mask(bits))),
                ),
            }
        };
        let binary = |operator, a: Expression, b: Expression| {
            Expression::Binary(operator, Box::new(a), Box::new(b))
        };
        let operand = |index| self.operand(step, code, index, depth);
        match code.mnemonic {
            M::Mov | M::Movzx => narrow(operand(1)),
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
