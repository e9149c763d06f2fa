// SPDX-License-Identifier: MIT
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
fn the_next_position_of_two_is_tried_before_others() {
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
fn a_programs_comparison_is_told_from_a_machines_checks() {
    let other = || Expression::Load {
        address: 0x2000,
        bits: 32,
        value: 7,
    };
    let is_same = |left: Expression, leaves, right: Expression| {
        let bits = 32;
        let condition = Condition {
            left,
            right,
            leaves,
            bits,
        };
        condition.asks_for_same_words()
    };
    assert!(is_same(load(32), Relation::Equal, other()));
    assert!(!is_same(load(32), Relation::Below, other()), "a bound");
    assert!(!is_same(load(32), Relation::Equal, Expression::Number(7)));
    let tag = Expression::Number(0x3f);
    let masked = Expression::Binary(Operator::And, Box::new(other()), Box::new(tag));
    assert!(
        !is_same(load(32), Relation::Equal, masked.clone()),
        "a type"
    );
    // The outcome is compared with a bit of the program's instruction.
    let outcome = Expression::Test(Relation::Equal, 32, Box::new((load(32), other())));
    assert!(is_same(outcome, Relation::Equal, masked));
}

#[test]
fn a_constant_is_compared_with_what_the_loop_made_anew() {
    let is_new = |left: Expression, right: Expression| {
        let condition = Condition {
            left,
            right,
            leaves: Relation::NotEqual,
            bits: 32,
        };
        condition.compares_with_something_new(0x1000, 4, &|address| address == 0x2000)
    };
    let result = || Expression::Signed {
        of: Box::new(Expression::Opaque(Some(0))),
        bits: 32,
        to: 64,
    };
    assert!(is_new(load(32), result()) && is_new(result(), load(32)));
    let at = |address| Expression::Load {
        address,
        bits: 32,
        value: 0,
    };
    assert!(is_new(load(32), at(0x2000)), "the thread writes it itself");
    assert!(!is_new(load(32), at(0x3000)));
    assert!(!is_new(load(32), Expression::Number(7)));
    assert!(!is_new(Expression::Number(0), result()));
}

#[test]
fn the_loaded_value_stands_on_the_left() {
    let zero = Expression::Number(0);
    let text_of = |leaves| text(zero.clone(), leaves, load(32));
    assert_eq!(text_of(Relation::NotEqual), "value != 0x0");
    assert_eq!(text_of(Relation::Less), "value > 0x0 (signed)");
    assert_eq!(text_of(Relation::BelowOrEqual), "value >= 0x0");
}

#[test]
fn a_zero_count_of_a_sum_owes_nothing() {
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
fn tests_of_bits_and_bounds_differ_from_tests_of_values() {
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
    let expected = "(value & 0xff) != 0x0";
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
fn the_word_that_keeps_a_sum_as_it_is_is_found() {
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
fn an_address_is_only_tested_for_null() {
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
