// SPDX-License-Identifier: MIT
//! Conditions as people read them.
//!
//! In: an expression as the instructions compute it. Out: text without what changes nothing: sums
//! of constants, zeros that are added, masks within masks. One that stays too long to be read is
//! told by the words that it is computed from.

use std::fmt::Write;

use flagfinder_machine::value::mask;

use crate::expression::{Expression, Operator};

/// A longer text tells nobody anything.
const LONGEST: usize = 120;

impl Expression {
    /// Its text, with `name` for the words.
    pub fn text(&self, name: &dyn Fn(u64) -> String) -> String {
        let mut text = String::new();
        self.simplified().render(name, &mut text);
        if text.len() <= LONGEST {
            return text;
        }
        let mut names = Vec::new();
        self.names(name, &mut names);
        match names.is_empty() {
            true => text,
            false => format!("(computed from {})", names.join(", ")),
        }
    }

    /// The same value, without what changes nothing.
    fn simplified(&self) -> Expression {
        use Expression::{Binary, Number, Opaque};
        match self {
            Opaque(Some(value)) => Number(*value),
            Expression::Signed { of, .. } => of.simplified(),
            Expression::Test(relation, bits, sides) => {
                let sides = (sides.0.simplified(), sides.1.simplified());
                Expression::Test(*relation, *bits, Box::new(sides))
            }
            Expression::Case { of, targets } => Expression::Case {
                of: Box::new(of.simplified()),
                targets: targets.clone(),
            },
            Binary(operator, a, b) => joined(*operator, a.simplified(), b.simplified()),
            other => other.clone(),
        }
    }

    /// The names of the words in it, each once.
    fn names(&self, name: &dyn Fn(u64) -> String, found: &mut Vec<String>) {
        match self {
            Expression::Load { address, .. } => {
                let name = name(*address);
                if !found.contains(&name) {
                    found.push(name);
                }
            }
            Expression::Signed { of, .. } | Expression::Case { of, .. } => of.names(name, found),
            Expression::Binary(_, a, b) => {
                a.names(name, found);
                b.names(name, found);
            }
            Expression::Test(_, _, sides) => {
                sides.0.names(name, found);
                sides.1.names(name, found);
            }
            Expression::Number(_) | Expression::Opaque(_) => {}
        }
    }

    /// Writes it out, with `name` for the words.
    fn render(&self, name: &dyn Fn(u64) -> String, out: &mut String) {
        match self {
            Expression::Number(number) => {
                let _ = write!(out, "{number:#x}");
            }
            Expression::Load { address, .. } => out.push_str(&name(*address)),
            Expression::Opaque(Some(value)) => {
                let _ = write!(out, "{value:#x}");
            }
            Expression::Signed { of, .. } | Expression::Case { of, .. } => of.render(name, out),
            Expression::Opaque(None) => out.push('?'),
            Expression::Test(relation, _, sides) => {
                out.push('(');
                sides.0.render(name, out);
                let _ = write!(out, " {} ", relation.text());
                sides.1.render(name, out);
                out.push(')');
            }
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

/// Two simple values joined.
fn joined(operator: Operator, a: Expression, b: Expression) -> Expression {
    use Expression::{Binary, Number};
    let binary = |a, b| Binary(operator, Box::new(a), Box::new(b));
    match (operator, a, b) {
        (_, Number(a), Number(b)) => {
            let folded = binary(Number(a), Number(b)).evaluate(u64::MAX, 0);
            folded.map_or(binary(Number(a), Number(b)), Number)
        }
        (Operator::And, Binary(Operator::And, whole, before), Number(low)) => match *before {
            Number(before) => joined(operator, *whole, Number(before & low)),
            before => binary(Binary(operator, whole, Box::new(before)), Number(low)),
        },
        (Operator::And, whole, Number(low)) if low == mask(whole.width().max(1)) => whole,
        (Operator::And, whole, low) => binary(whole, low),
        (_, whole, Number(0)) => whole,
        (Operator::Add | Operator::Or | Operator::Xor, Number(0), whole) => whole,
        (_, a, b) => binary(a, b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(address: u64, bits: u32) -> Expression {
        let value = 1;
        Expression::Load {
            address,
            bits,
            value,
        }
    }

    fn number(value: u64) -> Expression {
        Expression::Number(value)
    }

    fn of(operator: Operator, a: Expression, b: Expression) -> Expression {
        Expression::Binary(operator, Box::new(a), Box::new(b))
    }

    fn text(expression: &Expression) -> String {
        expression.text(&|address| match address {
            0x1000 => "value".into(),
            other => format!("[{other:#x}]"),
        })
    }

    #[test]
    fn masks_within_masks_are_one() {
        let low = of(Operator::And, word(0x1000, 64), number(0xff));
        let bit = of(Operator::And, low, number(8));
        assert_eq!(text(&bit), "(value & 0x8)");
        let all = of(Operator::And, word(0x1000, 8), number(0xff));
        assert_eq!(text(&all), "value");
    }

    #[test]
    fn zeros_and_sums_of_constants_are_not_told() {
        let zero = of(Operator::Sub, number(0x46), Expression::Opaque(Some(0x46)));
        let sum = of(Operator::Add, word(0x1000, 32), zero);
        assert_eq!(text(&sum), "value");
        let moved = of(Operator::Sub, word(0x1000, 32), number(3));
        assert_eq!(text(&moved), "(value - 0x3)");
    }

    #[test]
    fn what_is_too_long_to_read_is_told_by_its_words() {
        let one = of(Operator::Xor, word(0x1000, 64), word(0x2000, 64));
        let long = (0..8).fold(one.clone(), |sum, _| of(Operator::Sub, sum, one.clone()));
        assert_eq!(text(&long), "(computed from value, [0x2000])");
    }
}
