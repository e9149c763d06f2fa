// SPDX-License-Identifier: MIT
//! The variables that are visible at an instruction, and where their values are there.
//!
//! In: DWARF's scopes and location lists. Out: words (a variable may lie in pieces) with
//! their places. Blind spots: values that an expression computes in other ways than
//! register + constant, and values at a function's entry that lie nowhere any more.

use std::sync::Arc;

use gimli::{AttributeValue, Expression, Operation, UnitOffset};

use crate::debug::{Debug, Entry, Functions, Slice, TypeId, Unit};
use crate::register;

/// Where a value is; registers in x86 numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValuePlace {
    /// The value is the register's, plus `add`.
    Register {
        /// 0 to 15.
        register: u8,
        /// In bytes.
        add: i64,
    },
    /// It lies in memory at the register's value plus `add`.
    Memory {
        /// 0 to 15.
        register: u8,
        /// In bytes.
        add: i64,
    },
    /// It lies in memory `add` bytes from the canonical frame address.
    Frame {
        /// In bytes; negative: in the frame.
        add: i64,
    },
}

/// A type in the debug information of one module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeRef {
    pub(crate) module: usize,
    pub(crate) id: TypeId,
}

/// A variable that is visible at an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// As the source has it.
    pub name: String,
    /// The whole variable's type.
    pub kind: TypeRef,
    /// The piece of it that is at `place`, in bytes from its start.
    pub part: u64,
    /// Where that piece lies.
    pub place: ValuePlace,
}

/// A variable (or a piece of one) that is visible at an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Visible {
    pub name: String,
    /// Type of the whole variable.
    pub kind: TypeId,
    /// Where the piece begins in the variable.
    pub part: u64,
    pub place: ValuePlace,
}

type Operations = gimli::OperationIter<Slice>;

impl Debug {
    /// Variables and parameters of the scopes that hold `pc`, those of the innermost
    /// (inlined functions included) first.
    pub fn visible(&self, pc: u64) -> Vec<Visible> {
        let found = self.unit_at(pc).and_then(|unit| {
            let function = self.function_at(&unit, pc)?;
            let mut tree = unit.entries_tree(Some(function)).ok()?;
            let root = tree.root().ok()?;
            let base = frame_base(&unit, root.entry());
            let mut visible = Vec::new();
            self.scope(&unit, root, pc, base, 0, &mut visible);
            // Stable: in one scope the order of declaration stays.
            visible.sort_by_key(|(depth, _)| std::cmp::Reverse(*depth));
            Some(visible.into_iter().map(|(_, variable)| variable).collect())
        });
        found.unwrap_or_default()
    }

    fn scope(
        &self,
        unit: &Unit,
        node: gimli::EntriesTreeNode<'_, '_, '_, Slice>,
        pc: u64,
        base: Option<ValuePlace>,
        depth: u32,
        found: &mut Vec<(u32, Visible)>,
    ) {
        let mut children = node.children();
        while let Ok(Some(child)) = children.next() {
            let entry = child.entry();
            match entry.tag() {
                gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter => {
                    for (part, place) in self.places(unit, entry, pc, base) {
                        let named = self.name(unit, entry).zip(self.type_of(unit, entry));
                        if let Some((name, kind)) = named {
                            let variable = Visible {
                                name,
                                kind,
                                part,
                                place,
                            };
                            found.push((depth, variable));
                        }
                    }
                }
                gimli::DW_TAG_lexical_block | gimli::DW_TAG_inlined_subroutine
                    if depth < 64 && self.holds(unit, entry, pc) =>
                {
                    self.scope(unit, child, pc, base, depth + 1, found);
                }
                _ => {}
            }
        }
    }

    /// The innermost concrete function that holds the address.
    fn function_at(&self, unit: &Unit, pc: u64) -> Option<UnitOffset> {
        let functions = self.functions_of(unit)?;
        let holding = functions.iter().filter(|(range, _)| range.contains(&pc));
        let inner = holding.min_by_key(|(range, _)| range.end - range.start);
        inner.map(|(_, offset)| *offset)
    }

    fn functions_of(&self, unit: &Unit) -> Option<Functions> {
        let key = unit.header.offset().as_debug_info_offset()?;
        let mut known = self.functions.lock().ok()?;
        let functions = known.entry(key).or_insert_with(|| {
            let mut list = Vec::new();
            let mut entries = unit.entries();
            while let Ok(Some((_, entry))) = entries.next_dfs() {
                if entry.tag() != gimli::DW_TAG_subprogram {
                    continue;
                }
                let Ok(mut ranges) = self.own_dwarf().die_ranges(unit, entry) else {
                    continue;
                };
                while let Ok(Some(range)) = ranges.next() {
                    list.push((range.begin..range.end, entry.offset()));
                }
            }
            Arc::new(list)
        });
        Some(Arc::clone(functions))
    }

    fn holds(&self, unit: &Unit, entry: &Entry<'_>, pc: u64) -> bool {
        let Ok(mut ranges) = self.own_dwarf().die_ranges(unit, entry) else {
            return false;
        };
        while let Ok(Some(range)) = ranges.next() {
            if (range.begin..range.end).contains(&pc) {
                return true;
            }
        }
        false
    }

    /// Where the variable's pieces are at `pc`: (start of the piece, place).
    fn places(
        &self,
        unit: &Unit,
        entry: &Entry<'_>,
        pc: u64,
        base: Option<ValuePlace>,
    ) -> Vec<(u64, ValuePlace)> {
        let Ok(Some(location)) = entry.attr_value(gimli::DW_AT_location) else {
            return Vec::new();
        };
        if let AttributeValue::Exprloc(expression) = location {
            return pieces(unit, expression, base);
        }
        let Ok(Some(mut list)) = self.own_dwarf().attr_locations(unit, location) else {
            return Vec::new();
        };
        while let Ok(Some(part)) = list.next() {
            if (part.range.begin..part.range.end).contains(&pc) {
                return pieces(unit, part.data, base);
            }
        }
        Vec::new()
    }
}

fn pieces(
    unit: &Unit,
    expression: Expression<Slice>,
    base: Option<ValuePlace>,
) -> Vec<(u64, ValuePlace)> {
    let mut operations = expression.operations(unit.encoding());
    let mut found = Vec::new();
    let mut part = 0;
    loop {
        let (place, bits) = place(&mut operations, base);
        found.extend(place.map(|place| (part, place)));
        match bits {
            Some(bits) => part += bits / 8,
            None => return found,
        }
    }
}

/// The next piece's place, and its size in bits; `None`: there is no further piece.
fn place(
    operations: &mut Operations,
    base: Option<ValuePlace>,
) -> (Option<ValuePlace>, Option<u64>) {
    let mut current: Option<ValuePlace> = None;
    // What is not understood spoils this piece only.
    let mut spoilt = false;
    let add_to = |place: Option<ValuePlace>, more: i64| match place? {
        ValuePlace::Register { register, add } => Some(ValuePlace::Register {
            register,
            add: add.checked_add(more)?,
        }),
        ValuePlace::Memory { register, add } => Some(ValuePlace::Memory {
            register,
            add: add.checked_add(more)?,
        }),
        ValuePlace::Frame { add } => Some(ValuePlace::Frame {
            add: add.checked_add(more)?,
        }),
    };
    while let Ok(Some(operation)) = operations.next() {
        let first = current.is_none();
        current = match operation {
            Operation::Register { register } if first => register::from_dwarf(register)
                .map(|register| ValuePlace::Register { register, add: 0 }),
            Operation::RegisterOffset {
                register, offset, ..
            } if first => register::from_dwarf(register).map(|register| ValuePlace::Memory {
                register,
                add: offset,
            }),
            Operation::FrameOffset { offset } if first => add_to(base, offset),
            Operation::CallFrameCFA if first => Some(ValuePlace::Frame { add: 0 }),
            Operation::PlusConstant { value } => i64::try_from(value)
                .ok()
                .and_then(|more| add_to(current, more)),
            // The address was the value.
            Operation::StackValue => match current {
                Some(ValuePlace::Memory { register, add }) => {
                    Some(ValuePlace::Register { register, add })
                }
                _ => None,
            },
            Operation::Piece { size_in_bits, .. } => {
                return (current.filter(|_| !spoilt), Some(size_in_bits));
            }
            Operation::Nop => current,
            _ => None,
        };
        spoilt |= current.is_none();
    }
    (current.filter(|_| !spoilt), None)
}

/// A function's frame base: where `DW_OP_fbreg` counts from.
fn frame_base(unit: &Unit, function: &Entry<'_>) -> Option<ValuePlace> {
    let AttributeValue::Exprloc(expression) =
        function.attr_value(gimli::DW_AT_frame_base).ok()??
    else {
        return None;
    };
    match expression.operations(unit.encoding()).next().ok()?? {
        Operation::CallFrameCFA => Some(ValuePlace::Frame { add: 0 }),
        Operation::Register { register } => Some(ValuePlace::Memory {
            register: register::from_dwarf(register)?,
            add: 0,
        }),
        Operation::RegisterOffset {
            register, offset, ..
        } => Some(ValuePlace::Memory {
            register: register::from_dwarf(register)?,
            add: offset,
        }),
        _ => None,
    }
}
