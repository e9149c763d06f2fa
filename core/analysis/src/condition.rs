// SPDX-License-Identifier: MIT
//! What a branch tests, as an expression over what was loaded.
//!
//! Made in `operands.rs`, by walking back from the branch.

use flagfinder_machine::value::mask;

use crate::expression::{Expression, Operator};
use crate::relation::Relation;

/// A branch's test: `left OP right`, for the direction it took.
#[derive(Clone, Debug)]
pub struct Condition {
    /// The compared side.
    pub left: Expression,
    /// The side that it is compared with.
    pub right: Expression,
    /// The relation that must hold for the branch to go the other way.
    pub(crate) leaves: Relation,
    pub(crate) bits: u32,
}

impl Condition {
    /// Is the word a part of either side?
    pub fn mentions(&self, address: u64, bytes: u32) -> bool {
        self.left.mentions(address, bytes) || self.right.mentions(address, bytes)
    }

    /// Would the branch go the other way if `value` were read at `address`?
    pub fn leaves_with(&self, address: u64, value: u64) -> Option<bool> {
        let left = self.left.evaluate(address, value)?;
        let right = self.right.evaluate(address, value)?;
        Some(self.leaves.holds(left, right, self.bits))
    }

    /// The same where nothing but this one word and numbers is tested.
    pub fn lets_go(&self, address: u64, bytes: u32, value: u64) -> Option<bool> {
        let alone = self.left.is_only_of(address) && self.right.is_only_of(address);
        let alone = alone && self.mentions(address, bytes);
        alone.then(|| self.leaves_with(address, value)).flatten()
    }

    /// Does the loop go on only as long as the word, or a part of it, has one value other than
    /// zero? A version, a magic number, the tag of a type.
    pub fn checks_for_one_value(&self) -> bool {
        let is_word = |side: &Expression| match side {
            Expression::Binary(Operator::And, word, part) => {
                matches!(**word, Expression::Load { .. }) && matches!(**part, Expression::Number(_))
            }
            side => matches!(side, Expression::Load { .. }),
        };
        let is_set = |side: &Expression| matches!(side, Expression::Number(n) if *n != 0);
        let (left, right) = self
            .without_difference()
            .unwrap_or((&self.left, &self.right));
        self.leaves == Relation::NotEqual
            && (is_word(left) && is_set(right) || is_set(left) && is_word(right))
    }

    /// Does it test bits of a word, or whether a number is below that word? A virtual machine tests
    /// in this way what kind an object has, and how long it is. A word that it reads as one number
    /// or reference it compares as a whole, and numbers with their sign. The bits above those of
    /// the kind hold the object's length: the mark of a number has fewer bits, or half a word.
    pub fn asks_for_bits_or_bounds(&self) -> bool {
        const BYTE: u64 = 0xff;
        let is_run = |mask: u64| mask & mask.wrapping_add(1) == 0;
        let asks_for_bits = |side: &Expression| {
            let Expression::Binary(Operator::And, word, part) = side else {
                return false;
            };
            matches!(**part, Expression::Number(mask) if !is_run(mask) || mask < BYTE)
                && word.is_loaded()
        };
        let is_bound = matches!(
            self.leaves,
            Relation::Below | Relation::BelowOrEqual | Relation::Above | Relation::AboveOrEqual
        );
        let is_order = matches!(
            self.leaves,
            Relation::Less | Relation::LessOrEqual | Relation::Greater | Relation::GreaterOrEqual
        );
        let asks_for_length = is_order && (self.left.is_above_bits() || self.right.is_above_bits());
        is_bound || asks_for_length || asks_for_bits(&self.left) || asks_for_bits(&self.right)
    }

    /// Is something in memory compared with something else there? (Not a mask with some of its
    /// bits.)
    pub fn compares_two_words(&self) -> bool {
        let (left, right) = self
            .without_difference()
            .unwrap_or((&self.left, &self.right));
        let on_the_right = |address| right.count_loads(&|other| other == address) > 0;
        left.is_loaded() && right.is_loaded() && left.count_loads(&on_the_right) == 0
    }

    /// Is it asked whether two words, each as a whole, are the same?
    pub fn asks_for_same_words(&self) -> bool {
        let sides = self.left.tested().map(|(sides, ..)| (&sides.0, &sides.1));
        let (left, right) = sides
            .or_else(|| self.without_difference())
            .unwrap_or((&self.left, &self.right));
        let is_word = |side: &Expression| matches!(side, Expression::Load { .. });
        let is_same = matches!(self.leaves, Relation::Equal | Relation::NotEqual);
        is_same && is_word(left) && is_word(right)
    }

    /// Is the word, as a whole, compared with what the loop made anew: a call's result, or a word
    /// that the loop's own thread writes (`is_own`, by address)?
    pub fn compares_with_something_new(
        &self,
        address: u64,
        bytes: u32,
        is_own: &dyn Fn(u64) -> bool,
    ) -> bool {
        let whole = |side: &Expression| match side {
            Expression::Signed { of, .. } => (**of).clone(),
            side => side.clone(),
        };
        let (left, right) = self
            .without_difference()
            .unwrap_or((&self.left, &self.right));
        let (left, right) = (whole(left), whole(right));
        let is_word = |side: &Expression| {
            matches!(side, Expression::Load { .. }) && side.mentions(address, bytes)
        };
        let is_new = |side: &Expression| match side {
            Expression::Opaque(_) => true,
            Expression::Load { address, .. } => is_own(*address),
            _ => false,
        };
        is_word(&left) && is_new(&right) || is_new(&left) && is_word(&right)
    }

    /// Does the loop go on as long as two words keep their distance: `x == y`, or `x - y == 64`?
    /// (If the words have to become equal, one may be a ticket and the other the number that is
    /// served.)
    pub fn stays_at_a_distance(&self) -> bool {
        self.leaves == Relation::NotEqual
            && (self.compares_two_words() || self.is_of_a_difference())
    }

    /// Is it a test of the distance of two words?
    fn is_of_a_difference(&self) -> bool {
        match self.left.unmasked(self.bits) {
            Expression::Binary(Operator::Sub, a, b) => a.is_loaded() && b.is_loaded(),
            _ => false,
        }
    }

    /// Is it certain that no value at `address` alone makes the loop end? (Another word of the same
    /// sum keeps the sum as it is.)
    pub fn is_held_by_others(&self, address: u64, bits: u32, now: u64) -> bool {
        let takes_part = self.left.loads(address, bits) || self.right.loads(address, bits);
        takes_part
            && self.leaves_with(address, now) == Some(false)
            && self.leaving_value(address, bits, now).is_none()
    }

    /// Would one of several words, which is zero now, have to become negative? (It is a count in a
    /// sum that is not zero.)
    pub fn is_owed_by_others(&self, address: u64, bits: u32, now: u64) -> bool {
        let negative = |value: u64| bits > 1 && value >> (bits - 1) & 1 == 1;
        now & mask(bits) == 0
            && self.other_loads(address) > 0
            && (self.left.loads(address, bits) || self.right.loads(address, bits))
            && self.leaving_value(address, bits, now).is_some_and(negative)
    }

    fn other_loads(&self, address: u64) -> usize {
        let loads = |side: &Expression| side.count_loads(&|at| at != address);
        loads(&self.left) + loads(&self.right)
    }

    /// Is it a test of being zero?
    pub fn tests_for_zero(&self) -> bool {
        self.right == Expression::Number(0) && self.without_difference().is_none()
    }

    /// Does the loop go on until a word has one value that is known?
    pub(crate) fn leaves_at_a_number(&self) -> bool {
        let sides = (&self.left, &self.right);
        let sides = matches!(
            sides,
            (Expression::Load { .. }, Expression::Number(_))
                | (Expression::Number(_), Expression::Load { .. })
        );
        self.leaves == Relation::Equal && sides
    }

    /// Does the loop go on as long as the word is not zero?
    pub fn leaves_at_zero(&self) -> bool {
        let is_word = matches!(self.left, Expression::Load { .. });
        self.leaves == Relation::Equal && is_word && self.tests_for_zero()
    }

    /// A value at `address` with which the branch would leave; the nearest to usual values.
    pub fn leaving_value(&self, address: u64, bits: u32, now: u64) -> Option<u64> {
        let m = mask(bits);
        let sides = [&self.left, &self.right].into_iter();
        let mut others: Vec<u64> = sides
            .clone()
            .filter_map(|side| side.evaluate(address, now))
            .collect();
        sides
            .clone()
            .for_each(|side| side.compared(address, now, &mut others));
        // A virtual machine may compare numbers in the upper half of a word.
        let shifts = sides.filter_map(|side| match side {
            Expression::Binary(Operator::ShiftLeft, _, by) => by.evaluate(address, now),
            _ => None,
        });
        let shifts: Vec<u64> = shifts.filter(|&by| by < 64).collect();
        let shifted = shifts
            .iter()
            .flat_map(|by| others.iter().map(move |v| v >> by));
        let shifted: Vec<u64> = shifted.collect();
        others.extend(shifted);
        let near = others
            .into_iter()
            .flat_map(|v| [v, v.wrapping_add(1), v.saturating_sub(1)]);
        let bitwise = (0..bits).map(|bit| now ^ 1 << bit);
        // Of two words that are compared, each may be a position, which moves by one.
        let are_positions = self.compares_two_words() || self.is_of_a_difference();
        let next = are_positions.then_some(now.wrapping_add(1));
        next.into_iter()
            .chain([0, 1])
            .chain(near)
            .chain(bitwise)
            .chain([now | m])
            .map(|value| value & m)
            .find(|&value| value != now & m && self.leaves_with(address, value) == Some(true))
    }

    /// `x == 0x1`, `x > 0xb (signed)`; `name` names the loads. A load stands on the left.
    pub fn text(&self, name: &dyn Fn(u64) -> String) -> String {
        if let Some(cases) = self.text_of_cases(name) {
            return cases;
        }
        let (left, relation, right) = self.sides();
        let sign = if relation.is_signed() {
            " (signed)"
        } else {
            ""
        };
        let (left, right) = (left.text(name), right.text(name));
        format!("{left} {} {right}{sign}", relation.text())
    }

    /// How the sides of [`Self::text`] are compared: `==`. `None` of a jump by a table.
    pub fn operator(&self) -> Option<&'static str> {
        let is_table = self.text_of_cases(&|_| String::new()).is_some();
        (!is_table).then(|| self.sides().1.text())
    }

    /// Both sides, a load on the left, and how they stand to each other where the loop is left.
    fn sides(&self) -> (&Expression, Relation, &Expression) {
        let (left, right) = self
            .without_difference()
            .unwrap_or((&self.left, &self.right));
        match !left.is_loaded() && right.is_loaded() {
            true => (right, self.leaves.mirrored(), left),
            false => (left, self.leaves, right),
        }
    }

    /// Of a jump by a table: the cases that stay, or those that leave, whichever are fewer.
    fn text_of_cases(&self, name: &dyn Fn(u64) -> String) -> Option<String> {
        let Expression::Case { of, targets } = &self.left else {
            return None;
        };
        let round = self.right.evaluate(u64::MAX, 0)?;
        let (stay, leave): (Vec<_>, Vec<_>) = targets.iter().partition(|case| case.1 == round);
        let (cases, relation, between) = match stay.len() <= leave.len() || leave.is_empty() {
            true => (stay, Relation::NotEqual, " and "),
            false => (leave, Relation::Equal, " or "),
        };
        let left = of.text(name);
        let one = |case: &&(u64, u64)| format!("{left} {} {:#x}", relation.text(), case.0);
        Some(cases.iter().map(one).collect::<Vec<_>>().join(between))
    }

    /// `x - y == 0` and `x ^ y == 0` compare x with y.
    fn without_difference(&self) -> Option<(&Expression, &Expression)> {
        let equality = matches!(self.leaves, Relation::Equal | Relation::NotEqual);
        match (self.left.unmasked(self.bits), &self.right) {
            (Expression::Binary(Operator::Sub | Operator::Xor, a, b), Expression::Number(0))
                if equality =>
            {
                Some((a, b))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "condition_tests.rs"]
mod tests;
