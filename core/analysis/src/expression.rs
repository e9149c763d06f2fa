// SPDX-License-Identifier: MIT
//! Values in terms of what was loaded.

use std::cmp::Ordering;

use flagfinder_machine::decoded::sign_extend;
use flagfinder_machine::value::mask;

use crate::relation::Relation;

/// A value in terms of loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// A number that the code holds.
    Number(u64),
    /// What was read at an address.
    Load {
        /// Run-time address.
        address: u64,
        /// How many were read.
        bits: u32,
        /// What was read, at the last time.
        value: u64,
    },
    /// Computed from two values.
    Binary(Operator, Box<Expression>, Box<Expression>),
    /// 1 if the relation holds for so many bits, else 0.
    Test(Relation, u32, Box<(Expression, Expression)>),
    /// So many low bits of a value with their sign, extended to `to` bits.
    Signed {
        /// The value.
        of: Box<Expression>,
        /// How many of its low bits count.
        bits: u32,
        /// In bits.
        to: u32,
    },
    /// Where a jump by a table of addresses leads: to one of `targets`, by this number of the case.
    /// A part of the table that is not known is [`ELSEWHERE`].
    Case {
        /// The number of the case.
        of: Box<Expression>,
        /// Number of a case, and the run-time address of its code.
        targets: Vec<(u64, u64)>,
    },
    /// Not understood; its value then, if known.
    Opaque(Option<u64>),
}

/// No code lies there.
pub const ELSEWHERE: u64 = 0;

/// How two values are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// Bit by bit.
    And,
    /// Bit by bit.
    Or,
    /// Bit by bit.
    Xor,
    /// Modulo 2^64.
    Add,
    /// Modulo 2^64.
    Sub,
    /// By the second value; 0 from 64 bits on.
    ShiftLeft,
    /// Without sign, by the second value; 0 from 64 bits on.
    ShiftRight,
}

impl Expression {
    /// Its value with `new` read at `address` instead.
    pub fn evaluate(&self, address: u64, new: u64) -> Option<u64> {
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
            Expression::Signed { of, bits, to } => {
                let low = of.evaluate(address, new)? & mask(*bits);
                sign_extend(low, *bits) as u64 & mask(*to)
            }
            Expression::Opaque(value) => (*value)?,
            Expression::Case { of, targets } => {
                let number = of.evaluate(address, new)?;
                let mut targets = targets.iter();
                let known = targets.find(|(case, _)| *case == number);
                known.map_or(ELSEWHERE, |(_, target)| *target)
            }
            Expression::Test(relation, bits, sides) => {
                let (a, b) = (
                    sides.0.evaluate(address, new)?,
                    sides.1.evaluate(address, new)?,
                );
                u64::from(relation.holds(a, b, *bits))
            }
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

    /// The number that it is, if it is one.
    pub fn number(&self) -> Option<u64> {
        match self {
            Expression::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The two numbers that all tests in it compare, if it is computed from these and numbers
    /// alone; their bits, and whether they have a sign, where a test tells.
    pub(crate) fn tested(&self) -> Option<(&(Expression, Expression), u32, Option<bool>)> {
        match self {
            Expression::Test(relation, bits, sides) => Some((sides, *bits, relation.sign())),
            Expression::Signed { of, .. } => of.tested(),
            Expression::Binary(_, a, b) => match (a.number(), b.number()) {
                (None, Some(_)) => a.tested(),
                (Some(_), None) => b.tested(),
                (None, None) => {
                    let (one, other) = (a.tested()?, b.tested()?);
                    let is_same = (one.0, one.1) == (other.0, other.1)
                        && (one.2.is_none() || other.2.is_none() || one.2 == other.2);
                    is_same.then_some((one.0, one.1, one.2.or(other.2)))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Its value where the two numbers that its tests compare are in this order.
    pub(crate) fn with_order(&self, order: Ordering) -> Option<u64> {
        let settled = |side: &Expression| {
            let value = side.with_order(order)?;
            Some(Box::new(Expression::Number(value)))
        };
        let known = match self {
            Expression::Test(relation, ..) => Expression::Number(relation.allows(order).into()),
            Expression::Signed { of, bits, to } => Expression::Signed {
                of: settled(of)?,
                bits: *bits,
                to: *to,
            },
            Expression::Binary(operator, a, b) => {
                Expression::Binary(*operator, settled(a)?, settled(b)?)
            }
            other => other.clone(),
        };
        known.evaluate(u64::MAX, 0)
    }

    /// Is the word a part of it?
    pub fn mentions(&self, address: u64, bytes: u32) -> bool {
        match self {
            Expression::Load {
                address: at, bits, ..
            } => *at < address + u64::from(bytes) && address < *at + u64::from(bits / 8),
            Expression::Signed { of, .. } | Expression::Case { of, .. } => {
                of.mentions(address, bytes)
            }
            Expression::Binary(_, a, b) => a.mentions(address, bytes) || b.mentions(address, bytes),
            Expression::Test(_, _, sides) => {
                sides.0.mentions(address, bytes) || sides.1.mentions(address, bytes)
            }
            _ => false,
        }
    }

    /// Their sum. Constants are added up, so that a counter's many steps are read as one.
    pub fn plus(self, other: Expression) -> Expression {
        use Expression::{Binary, Number};
        match (self, other) {
            (Number(0), sum) | (sum, Number(0)) => sum,
            (Binary(Operator::Add, rest, step), Number(n)) => match *step {
                Number(before) => rest.plus(Number(before.wrapping_add(n))),
                step => Binary(
                    Operator::Add,
                    Box::new(rest.plus(step)),
                    Box::new(Number(n)),
                ),
            },
            (a, b) => Binary(Operator::Add, Box::new(a), Box::new(b)),
        }
    }

    /// The expression without a mask that changes none of its lowest `bits` bits.
    pub fn unmasked(&self, bits: u32) -> &Expression {
        match self {
            Expression::Binary(Operator::And, whole, low)
                if **low == Expression::Number(mask(bits)) =>
            {
                whole
            }
            other => other,
        }
    }

    /// The values in it that are compared with each other, with `now` read at `address`.
    pub fn compared(&self, address: u64, now: u64, found: &mut Vec<u64>) {
        match self {
            Expression::Binary(operator, a, b) => {
                // Where the difference is tested for zero.
                if matches!(operator, Operator::Sub | Operator::Xor) {
                    let sides = [a, b].into_iter();
                    found.extend(sides.filter_map(|side| side.evaluate(address, now)));
                }
                a.compared(address, now, found);
                b.compared(address, now, found);
            }
            Expression::Signed { of, .. } => of.compared(address, now, found),
            Expression::Case { targets, .. } => found.extend(targets.iter().map(|(case, _)| *case)),
            Expression::Test(_, _, sides) => {
                for side in [&sides.0, &sides.1] {
                    found.extend(side.evaluate(address, now));
                    side.compared(address, now, found);
                }
            }
            _ => {}
        }
    }

    /// Is just this word, in its whole width, part of it?
    pub fn loads(&self, address: u64, bits: u32) -> bool {
        match self {
            Expression::Load {
                address: at,
                bits: wide,
                ..
            } => *at == address && *wide == bits,
            Expression::Signed { of, .. } | Expression::Case { of, .. } => of.loads(address, bits),
            Expression::Binary(_, a, b) => a.loads(address, bits) || b.loads(address, bits),
            Expression::Test(_, _, sides) => {
                sides.0.loads(address, bits) || sides.1.loads(address, bits)
            }
            _ => false,
        }
    }

    /// How many loads of such addresses take part.
    pub fn count_loads(&self, meant: &dyn Fn(u64) -> bool) -> usize {
        match self {
            Expression::Load { address, .. } => usize::from(meant(*address)),
            Expression::Signed { of, .. } | Expression::Case { of, .. } => of.count_loads(meant),
            Expression::Binary(_, a, b) => a.count_loads(meant) + b.count_loads(meant),
            Expression::Test(_, _, sides) => {
                sides.0.count_loads(meant) + sides.1.count_loads(meant)
            }
            _ => 0,
        }
    }

    /// Is it computed only from this word and numbers that are no addresses? Addresses differ from
    /// run to run.
    pub fn is_only_of(&self, address: u64) -> bool {
        const SMALL: u64 = 1 << 16;
        match self {
            Expression::Number(n) => *n < SMALL || !*n < SMALL || (n & n.wrapping_add(1)) == 0,
            Expression::Load { address: at, .. } => *at == address,
            Expression::Signed { of, .. } | Expression::Case { of, .. } => of.is_only_of(address),
            Expression::Binary(_, a, b) => a.is_only_of(address) && b.is_only_of(address),
            Expression::Test(_, _, sides) => {
                sides.0.is_only_of(address) && sides.1.is_only_of(address)
            }
            Expression::Opaque(_) => false,
        }
    }

    /// Loads of these words become the numbers that they read.
    pub fn settle(&mut self, is_settled: &dyn Fn(u64) -> bool) {
        match self {
            Expression::Load { address, value, .. } if is_settled(*address) => {
                *self = Expression::Number(*value);
            }
            Expression::Signed { of, .. } | Expression::Case { of, .. } => of.settle(is_settled),
            Expression::Binary(_, a, b) => {
                a.settle(is_settled);
                b.settle(is_settled);
            }
            Expression::Test(_, _, sides) => {
                sides.0.settle(is_settled);
                sides.1.settle(is_settled);
            }
            _ => {}
        }
    }

    /// Bits that its value can have, as far as loads and masks show.
    pub fn width(&self) -> u32 {
        match self {
            Expression::Number(number) => 64 - number.leading_zeros(),
            Expression::Load { bits, .. } => *bits,
            // Cut to its width where it was read.
            Expression::Opaque(_) => 0,
            Expression::Test(..) => 1,
            Expression::Case { .. } => 64,
            Expression::Signed { to, .. } => *to,
            Expression::Binary(Operator::And, a, b) => a.width().min(b.width()),
            Expression::Binary(Operator::ShiftRight, a, _) => a.width(),
            Expression::Binary(_, a, b) => a.width().max(b.width()),
        }
    }

    /// Its low bits: `x & 0xff` where more of `x` was loaded.
    pub fn low(self, bits: u32) -> Expression {
        if bits == 0 || self.width() <= bits {
            return self;
        }
        let whole = match self {
            // The sign was never in these bits.
            Expression::Signed { of, bits: own, .. } if bits <= own => return of.low(bits),
            whole => whole,
        };
        let low = Box::new(Expression::Number(mask(bits)));
        Expression::Binary(Operator::And, Box::new(whole), low)
    }

    /// Is it a word from memory without some of its low bits: at least four, and fewer than half?
    pub fn is_above_bits(&self) -> bool {
        match self {
            Expression::Signed { of, .. } => of.is_above_bits(),
            Expression::Binary(Operator::ShiftRight, word, by) => {
                matches!(**by, Expression::Number(4..=31)) && word.is_loaded()
            }
            Expression::Binary(_, a, b) => a.is_above_bits() || b.is_above_bits(),
            _ => false,
        }
    }

    /// Does memory take part in it?
    pub fn is_loaded(&self) -> bool {
        match self {
            Expression::Load { .. } => true,
            Expression::Signed { of, .. } | Expression::Case { of, .. } => of.is_loaded(),
            Expression::Binary(_, a, b) => a.is_loaded() || b.is_loaded(),
            Expression::Test(_, _, sides) => sides.0.is_loaded() || sides.1.is_loaded(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_is_kept_and_cut_off_again() {
        let load = || Expression::Load {
            address: 0x1000,
            bits: 32,
            value: 5,
        };
        let wide = || Expression::Signed {
            of: Box::new(load()),
            bits: 32,
            to: 64,
        };
        assert_eq!(wide().evaluate(0x1000, 0xffff_ffff), Some(u64::MAX));
        assert_eq!(wide().evaluate(0x1000, 7), Some(7));
        assert_eq!(wide().low(32), load(), "tested as it was read");
        assert!(wide().mentions(0x1000, 4));
    }

    #[test]
    fn steps_of_a_counter_add_up() {
        let start = || Expression::Load {
            address: 0x1000,
            bits: 64,
            value: 5,
        };
        let one = || Expression::Number(1);
        let three = start().plus(one()).plus(one()).plus(one());
        assert_eq!(three, start().plus(Expression::Number(3)));
        assert_eq!(three.evaluate(0x1000, 7), Some(10));
        let back = three.plus(Expression::Number(3u64.wrapping_neg()));
        assert_eq!(back, start());
        let known = Expression::Opaque(Some(4)).plus(one()).plus(one());
        assert_eq!(known.evaluate(0, 0), Some(6));
        let two = start().plus(start()).plus(one()).plus(one());
        assert_eq!(two.evaluate(0x1000, 2), Some(6));
    }
}
