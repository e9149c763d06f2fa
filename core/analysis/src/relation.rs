// SPDX-License-Identifier: MIT
//! How two numbers compare, with and without sign.

use std::cmp::Ordering;

use flagfinder_machine::decoded::sign_extend;
use flagfinder_machine::value::mask;
use iced_x86::ConditionCode;

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
    /// Does it hold between the lowest `bits` of these?
    pub fn holds(self, a: u64, b: u64, bits: u32) -> bool {
        let (a, b) = (a & mask(bits), b & mask(bits));
        let (s, t) = (sign_extend(a, bits), sign_extend(b, bits));
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

    /// How two numbers may compare.
    pub(crate) const ORDERS: [Ordering; 3] = [Ordering::Less, Ordering::Equal, Ordering::Greater];

    /// Does it hold between numbers in this order?
    pub(crate) fn allows(self, order: Ordering) -> bool {
        use Relation::{Above, AboveOrEqual, Below, BelowOrEqual};
        use Relation::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
        match self {
            Equal => order.is_eq(),
            NotEqual => order.is_ne(),
            Less | Below => order.is_lt(),
            LessOrEqual | BelowOrEqual => order.is_le(),
            Greater | Above => order.is_gt(),
            GreaterOrEqual | AboveOrEqual => order.is_ge(),
        }
    }

    /// The one that holds in just these orders; none: it would hold always, or never.
    pub(crate) fn of_orders(
        less: bool,
        equal: bool,
        greater: bool,
        is_signed: bool,
    ) -> Option<Relation> {
        Some(match (less, equal, greater, is_signed) {
            (false, true, false, _) => Relation::Equal,
            (true, false, true, _) => Relation::NotEqual,
            (true, false, false, true) => Relation::Less,
            (true, true, false, true) => Relation::LessOrEqual,
            (false, false, true, true) => Relation::Greater,
            (false, true, true, true) => Relation::GreaterOrEqual,
            (true, false, false, false) => Relation::Below,
            (true, true, false, false) => Relation::BelowOrEqual,
            (false, false, true, false) => Relation::Above,
            (false, true, true, false) => Relation::AboveOrEqual,
            (true, true, true, _) | (false, false, false, _) => return None,
        })
    }

    pub(crate) fn of(condition: ConditionCode) -> Option<Relation> {
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

    pub(crate) fn inverse(self) -> Relation {
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

    /// The relation that holds when left and right are exchanged.
    pub(crate) fn mirrored(self) -> Relation {
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

    pub(crate) fn is_signed(self) -> bool {
        matches!(
            self,
            Relation::Less | Relation::LessOrEqual | Relation::Greater | Relation::GreaterOrEqual
        )
    }

    /// Whether the numbers are taken with a sign; equality does not tell.
    pub(crate) fn sign(self) -> Option<bool> {
        let is_equality = matches!(self, Relation::Equal | Relation::NotEqual);
        (!is_equality).then(|| self.is_signed())
    }

    /// As the report writes it.
    pub fn text(self) -> &'static str {
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
