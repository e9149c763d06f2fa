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
    /// The side that is compared.
    pub left: Expression,
    /// What it is compared with.
    pub right: Expression,
    /// What must hold for the branch to go the other way.
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

    /// Does it ask for some bits of a word, or whether a number is below that word? So a virtual
    /// machine asks what an object is, and how long it is; what it reads as one number or reference
    /// it compares whole, and numbers with their sign. What lies above the bits that say what an
    /// object is, is its length: a number has a mark of fewer bits, or of half a word.
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

    /// Does it stay for as long as two words are as far apart as they are: `x == y`, or
    /// `x - y == 64`? (Where the words have to become equal, one may be a ticket and the other the
    /// number that is served.)
    pub fn stays_at_a_distance(&self) -> bool {
        self.leaves == Relation::NotEqual
            && (self.compares_two_words() || self.is_of_a_difference())
    }

    /// Is it about how far two words are apart?
    fn is_of_a_difference(&self) -> bool {
        match self.left.unmasked(self.bits) {
            Expression::Binary(Operator::Sub, a, b) => a.is_loaded() && b.is_loaded(),
            _ => false,
        }
    }

    /// Is it certain that no value at `address` alone makes it leave? (One of several words of a
    /// sum, whose others keep it as it is.)
    pub fn is_held_by_others(&self, address: u64, bits: u32, now: u64) -> bool {
        let takes_part = self.left.loads(address, bits) || self.right.loads(address, bits);
        takes_part
            && self.leaves_with(address, now) == Some(false)
            && self.leaving_value(address, bits, now).is_none()
    }

    /// Would a word of several, zero now, have to become negative? (One of the counts whose sum is
    /// not zero.)
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

    /// Does the loop go on as long as the word is not zero?
    pub fn leaves_at_zero(&self) -> bool {
        let is_word = matches!(self.left, Expression::Load { .. });
        self.leaves == Relation::Equal && is_word && self.tests_for_zero()
    }

    /// Some value at `address` that would make it leave; the nearest to what is usual.
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
        // Of two words that are compared each may be a position, which is moved by one.
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

    /// `x == 0x1`, `x > 0xb (signed)`; `name` names the loads. What was loaded stands on
    /// the left.
    pub fn text(&self, name: &dyn Fn(u64) -> String) -> String {
        if let Some(cases) = self.text_of_cases(name) {
            return cases;
        }
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
        let mut left = String::new();
        of.render(name, &mut left);
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
    fn of_two_positions_the_next_one_is_tried_before_others() {
        let at = |address| Expression::Load {
            address,
            bits: 32,
            value: 10,
        };
        let of = |right: Expression, leaves| Condition {
            left: at(0x1000),
            right,
            leaves,
            bits: 32,
        };
        let next = of(at(0x2000), Relation::NotEqual);
        assert_eq!(next.leaving_value(0x1000, 32, 10), Some(11));
        assert_eq!(next.leaving_value(0x2000, 32, 10), Some(11));
        let apart = Condition {
            left: Expression::Binary(Operator::Sub, Box::new(at(0x1000)), Box::new(at(0x2000))),
            ..of(Expression::Number(64), Relation::NotEqual)
        };
        assert_eq!(apart.leaving_value(0x2000, 32, 10), Some(11));
        assert!(next.stays_at_a_distance() && apart.stays_at_a_distance());
        let ticket = of(at(0x2000), Relation::Equal);
        assert!(
            !ticket.stays_at_a_distance(),
            "its turn comes when they are equal"
        );
        let below = of(at(0x2000), Relation::Below);
        assert_eq!(below.leaving_value(0x1000, 32, 10), Some(0));
        let number = of(Expression::Number(10), Relation::NotEqual);
        assert_eq!(number.leaving_value(0x1000, 32, 10), Some(0));
        assert!(!number.stays_at_a_distance());
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
    fn of_counts_those_that_are_zero_owe_nothing() {
        let word = |address, value| {
            let bits = 32;
            Box::new(Expression::Load {
                address,
                bits,
                value,
            })
        };
        let sum = Expression::Binary(Operator::Add, word(0x1000, 0), word(0x1004, 1));
        let condition = Condition {
            left: sum,
            right: Expression::Number(0),
            leaves: Relation::Equal,
            bits: 32,
        };
        assert!(condition.is_owed_by_others(0x1000, 32, 0));
        assert!(!condition.is_owed_by_others(0x1004, 32, 1));
        let less = Condition {
            left: load(32),
            right: Expression::Number(0),
            leaves: Relation::Less,
            bits: 32,
        };
        assert!(!less.is_owed_by_others(0x1000, 32, 0), "an error code");
    }

    #[test]
    fn a_mask_is_not_compared_with_its_bits() {
        let word = |address| Expression::Load {
            address,
            bits: 32,
            value: 3,
        };
        let compares = |left| {
            let condition = Condition {
                left,
                right: word(0x2000),
                leaves: Relation::Equal,
                bits: 32,
            };
            condition.compares_two_words()
        };
        assert!(compares(word(0x1000)));
        let (mask, bits) = (Box::new(word(0x2000)), Box::new(word(0x1000)));
        assert!(!compares(Expression::Binary(Operator::And, mask, bits)));
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
    fn a_difference_of_fewer_bits_than_are_tested_can_vanish() {
        let three = Box::new(Expression::Number(3));
        let difference = Expression::Binary(Operator::Sub, Box::new(load(32)), three);
        let condition = Condition {
            left: difference.clone().low(16),
            right: Expression::Number(0),
            leaves: Relation::Equal,
            bits: 64,
        };
        assert_eq!(condition.leaving_value(0x1000, 32, 0), Some(3));
        assert!(!condition.is_held_by_others(0x1000, 32, 0));
    }

    #[test]
    fn a_tag_is_a_check() {
        let goes_on_with = |left: Expression, value| {
            let condition = Condition {
                left,
                right: Expression::Number(value),
                leaves: Relation::NotEqual,
                bits: 32,
            };
            condition.checks_for_one_value()
        };
        assert!(goes_on_with(load(32).low(8), 0x17));
        assert!(goes_on_with(load(32), 0x17));
        assert!(!goes_on_with(load(32).low(8), 0), "a flag");
    }

    #[test]
    fn bits_and_bounds_are_asked_for_otherwise_than_values() {
        let asks = |left: Expression, leaves| {
            let condition = Condition {
                left,
                right: Expression::Number(0),
                leaves,
                bits: 32,
            };
            condition.asks_for_bits_or_bounds()
        };
        let part = |mask| {
            let mask = Box::new(Expression::Number(mask));
            Expression::Binary(Operator::And, Box::new(load(32)), mask)
        };
        assert!(asks(part(0x20), Relation::NotEqual));
        assert!(asks(part(1), Relation::NotEqual));
        assert!(asks(part(0x7f), Relation::NotEqual), "a tag");
        assert!(!asks(part(0xff), Relation::NotEqual), "a byte");
        assert!(!asks(load(32), Relation::NotEqual));
        assert!(asks(load(32), Relation::BelowOrEqual));
        assert!(!asks(load(32), Relation::Less), "with its sign");
        let above = |bits| {
            let bits = Box::new(Expression::Number(bits));
            Expression::Binary(Operator::ShiftRight, Box::new(load(64)), bits)
        };
        assert!(asks(above(8), Relation::LessOrEqual), "a length");
        assert!(!asks(above(8), Relation::Equal) && !asks(above(1), Relation::Less));
        assert!(
            !asks(above(32), Relation::Less),
            "a number in the upper half"
        );
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

    /// A word that some sum counts as not yet 2.
    fn not_two(address: u64, value: u64) -> Expression {
        let word = Expression::Load {
            address,
            bits: 32,
            value,
        };
        let sides = Box::new((word, Expression::Number(2)));
        Expression::Test(Relation::NotEqual, 32, sides)
    }

    #[test]
    fn of_a_sum_the_word_that_keeps_it_is_found() {
        let condition = Condition {
            left: Expression::Binary(
                Operator::Add,
                Box::new(not_two(0x1000, 2)),
                Box::new(not_two(0x2000, 0)),
            ),
            right: Expression::Number(0),
            leaves: Relation::Equal,
            bits: 32,
        };
        assert!(condition.is_held_by_others(0x1000, 32, 2));
        assert!(!condition.is_held_by_others(0x2000, 32, 0));
        assert_eq!(condition.leaving_value(0x2000, 32, 0), Some(2));
        assert!(!condition.is_held_by_others(0x3000, 32, 0), "not in it");
    }

    #[test]
    fn what_is_compared_in_the_upper_half_is_a_number_of_the_lower() {
        let shifted = |of| {
            Expression::Binary(
                Operator::ShiftLeft,
                Box::new(of),
                Box::new(Expression::Number(32)),
            )
        };
        let condition = Condition {
            left: shifted(load(32)),
            right: shifted(Expression::Number(7)),
            leaves: Relation::Equal,
            bits: 64,
        };
        assert_eq!(condition.leaving_value(0x1000, 32, 0), Some(7));
    }

    #[test]
    fn the_outcome_of_a_test_is_that_test() {
        let condition = |leaves| {
            let found = Condition {
                left: not_two(0x1000, 0),
                right: Expression::Number(0),
                leaves,
                bits: 8,
            };
            found.without_outcome().text(&|_| "value".into())
        };
        assert_eq!(condition(Relation::Equal), "value == 0x2");
        assert_eq!(condition(Relation::NotEqual), "value != 0x2");
    }

    #[test]
    fn a_version_is_checked_and_a_zero_is_waited_on() {
        let checks = |leaves, right| {
            let condition = Condition {
                left: load(32),
                right: Expression::Number(right),
                leaves,
                bits: 32,
            };
            condition.checks_for_one_value()
        };
        assert!(checks(Relation::NotEqual, 3));
        assert!(!checks(Relation::NotEqual, 0));
        assert!(!checks(Relation::Equal, 3));
    }

    #[test]
    fn of_an_address_only_that_it_is_none_is_tested() {
        let condition = |left, value| Condition {
            left,
            right: Expression::Number(value),
            leaves: Relation::Equal,
            bits: 64,
        };
        let null = condition(load(64), 0);
        assert_eq!(null.lets_go(0x1000, 8, 0x7000), Some(false));
        assert_eq!(null.lets_go(0x1000, 8, 0), Some(true));
        let sum = Expression::Binary(
            Operator::Add,
            Box::new(load(64)),
            Box::new(Expression::Opaque(Some(1))),
        );
        assert_eq!(condition(sum, 0).lets_go(0x1000, 8, 0x7000), None);
        let end_of_list = condition(load(64), 0x5555_5555_8010);
        assert_eq!(
            end_of_list.lets_go(0x1000, 8, 0x7000),
            None,
            "its own in each run"
        );
    }
}
