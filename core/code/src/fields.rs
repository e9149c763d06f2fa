// SPDX-License-Identifier: MIT
//! Which field of a type an offset falls into: `workers[2].state`.

use gimli::AttributeValue;

use crate::debug::{Debug, Entry, Slice, TypeId, Unit};
use crate::wrappers::is_inner;

/// Types nested deeper than this are damaged DWARF.
const DEPTH_LIMIT: usize = 64;

impl Debug {
    pub fn size(&self, id: TypeId) -> Option<u64> {
        self.size_within(id, DEPTH_LIMIT)
    }

    fn size_within(&self, id: TypeId, depth: usize) -> Option<u64> {
        let depth = depth.checked_sub(1)?;
        let next = self.with_entry(id, |unit, entry| {
            if let Some(size) = number(entry, gimli::DW_AT_byte_size) {
                return Some(Ok(size));
            }
            match entry.tag() {
                gimli::DW_TAG_pointer_type
                | gimli::DW_TAG_reference_type
                | gimli::DW_TAG_rvalue_reference_type
                | gimli::DW_TAG_ptr_to_member_type => Some(Ok(8)),
                gimli::DW_TAG_array_type => {
                    let element = self.target(unit, entry, id)?;
                    let counts = counts(unit, entry)?;
                    let count = counts.iter().try_fold(1u64, |a, &b| a.checked_mul(b))?;
                    let size = self.size_within(element, depth)?;
                    Some(Ok(size.checked_mul(count)?))
                }
                _ => Some(Err(self.target(unit, entry, id)?)),
            }
        })?;
        match next {
            Ok(size) => Some(size),
            Err(inner) => self.size_within(inner, depth),
        }
    }

    fn target(&self, unit: &Unit, entry: &Entry<'_>, from: TypeId) -> Option<TypeId> {
        self.reference(unit, entry, gimli::DW_AT_type, from.supplementary)
    }

    pub fn pointee(&self, id: TypeId) -> Option<TypeId> {
        let mut id = id;
        for _ in 0..DEPTH_LIMIT {
            let (target, done) = self.with_entry(id, |unit, entry| {
                let pointer = matches!(
                    entry.tag(),
                    gimli::DW_TAG_pointer_type
                        | gimli::DW_TAG_reference_type
                        | gimli::DW_TAG_rvalue_reference_type
                );
                if !pointer && !is_alias(entry.tag()) {
                    return None;
                }
                Some((self.target(unit, entry, id)?, pointer))
            })?;
            if done {
                return Some(target);
            }
            id = target;
        }
        None
    }

    /// The type behind typedefs and qualifiers.
    fn plain(&self, id: TypeId) -> Option<TypeId> {
        let mut id = id;
        for _ in 0..DEPTH_LIMIT {
            let next = self.with_entry(id, |unit, entry| {
                Some(if is_alias(entry.tag()) {
                    Some(self.target(unit, entry, id)?)
                } else {
                    None
                })
            })?;
            match next {
                Some(inner) => id = inner,
                None => return Some(id),
            }
        }
        None
    }

    /// The type of an array's elements, and how many each dimension has.
    pub fn array(&self, id: TypeId) -> Option<(TypeId, Vec<u64>)> {
        let id = self.plain(id)?;
        self.with_entry(id, |unit, entry| {
            if entry.tag() != gimli::DW_TAG_array_type {
                return None;
            }
            Some((self.target(unit, entry, id)?, counts(unit, entry)?))
        })
    }

    /// Offset and type of a member, also of base classes and nameless members.
    pub fn member_named(&self, id: TypeId, name: &str) -> Option<(u64, TypeId)> {
        self.member_within(id, name, DEPTH_LIMIT)
    }

    fn member_within(&self, id: TypeId, name: &str, depth: usize) -> Option<(u64, TypeId)> {
        let depth = depth.checked_sub(1)?;
        let id = self.plain(id)?;
        self.with_entry(id, |unit, _| {
            let mut tree = unit.entries_tree(Some(id.entry)).ok()?;
            let mut children = tree.root().ok()?.children();
            while let Ok(Some(child)) = children.next() {
                let entry = child.entry();
                if entry.tag() != gimli::DW_TAG_member && entry.tag() != gimli::DW_TAG_inheritance {
                    continue;
                }
                let Some(kind) = self.target(unit, entry, id) else {
                    continue;
                };
                let start = number(entry, gimli::DW_AT_data_member_location).unwrap_or(0);
                match self.own_name(unit, entry, id.supplementary) {
                    Some(own) if entry.tag() == gimli::DW_TAG_member => {
                        if own == name {
                            return Some((start, kind));
                        }
                    }
                    _ => {
                        if let Some((inner, kind)) = self.member_within(kind, name, depth) {
                            return Some((start.checked_add(inner)?, kind));
                        }
                    }
                }
            }
            None
        })
    }

    /// The path from a variable of type `id` to its byte `offset`, to be appended to
    /// the variable's name: `[2].state`, or empty for a plain variable. `None`: the
    /// offset is outside, or in padding.
    pub fn field(&self, id: TypeId, offset: u64) -> Option<String> {
        Some(self.word(id, offset)?.0)
    }

    /// The path to byte `offset`, and the type of the word there.
    pub fn word(&self, id: TypeId, offset: u64) -> Option<(String, TypeId)> {
        let mut path = String::new();
        let kind = self.walk(id, offset, &mut path, DEPTH_LIMIT)?;
        Some((path, kind))
    }

    fn walk(&self, id: TypeId, offset: u64, path: &mut String, depth: usize) -> Option<TypeId> {
        let depth = depth.checked_sub(1)?;
        self.with_entry(id, |unit, entry| match entry.tag() {
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                let name = self.own_name(unit, entry, id.supplementary);
                let inside = Inside {
                    id,
                    name: name.unwrap_or_default(),
                    offset,
                };
                let mut tree = unit.entries_tree(Some(id.entry)).ok()?;
                self.member(unit, &inside, tree.root().ok()?, path, depth)
            }
            gimli::DW_TAG_array_type => {
                let element = self.target(unit, entry, id)?;
                let size = self.size(element)?.max(1);
                let mut index = offset / size;
                let counts = counts(unit, entry)?;
                // A count of 0 is C's flexible array: it ends where the object does.
                if counts[..].first().is_some_and(|&count| count > 0) && index >= product(&counts) {
                    return None;
                }
                let mut indices = Vec::new();
                for &count in counts.iter().skip(1).rev() {
                    indices.push(index % count.max(1));
                    index /= count.max(1);
                }
                indices.push(index);
                for index in indices.iter().rev() {
                    path.push_str(&format!("[{index}]"));
                }
                self.walk(element, offset % size, path, depth)
            }
            tag if is_alias(tag) => self.walk(self.target(unit, entry, id)?, offset, path, depth),
            _ if offset >= self.size(id)? => None,
            _ => {
                if offset > 0 {
                    path.push_str(&format!("+{offset:#x}"));
                }
                Some(id)
            }
        })
    }

    /// Looks through the children of a struct, or of a variant of it.
    fn member(
        &self,
        unit: &Unit,
        inside: &Inside,
        node: gimli::EntriesTreeNode<'_, '_, '_, Slice>,
        path: &mut String,
        depth: usize,
    ) -> Option<TypeId> {
        let mut children = node.children();
        let mut bits: Vec<(String, TypeId)> = Vec::new();
        while let Ok(Some(child)) = children.next() {
            let entry = child.entry();
            let tag = entry.tag();
            if tag == gimli::DW_TAG_variant_part {
                if let Some(kind) = self.variant(unit, inside, child, path, depth) {
                    return Some(kind);
                }
                continue;
            }
            if tag != gimli::DW_TAG_member && tag != gimli::DW_TAG_inheritance {
                continue;
            }
            if entry.attr(gimli::DW_AT_external).is_ok_and(|a| a.is_some()) {
                // A static member lives elsewhere.
                continue;
            }
            let Some(kind) = self.target(unit, entry, inside.id) else {
                continue;
            };
            let name = self.own_name(unit, entry, inside.id.supplementary);
            if let Some(width) = number(entry, gimli::DW_AT_bit_size) {
                let first = number(entry, gimli::DW_AT_data_bit_offset)
                    .or_else(|| self.old_bit_offset(entry, kind, width));
                if first.is_some_and(|bit| {
                    let end = bit.saturating_add(width);
                    bit / 8 <= inside.offset && inside.offset < end.div_ceil(8)
                }) {
                    bits.extend(name.map(|name| (name, kind)));
                }
                continue;
            }
            let start = number(entry, gimli::DW_AT_data_member_location).unwrap_or(0);
            let Some(inner) = inside.offset.checked_sub(start) else {
                continue;
            };
            let mark = path.len();
            if let Some(name) = name.filter(|_| tag == gimli::DW_TAG_member) {
                if !is_inner(&inside.name, &name) {
                    path.push('.');
                    path.push_str(tuple_index(&name));
                }
            }
            if let Some(kind) = self.walk(kind, inner, path, depth) {
                return Some(kind);
            }
            path.truncate(mark);
        }
        let (_, kind) = bits.first()?;
        let names: Vec<&str> = bits.iter().map(|(name, _)| name.as_str()).collect();
        match &names[..] {
            [one] => path.push_str(&format!(".{one}")),
            several => path.push_str(&format!(".{{{}}}", several.join(","))),
        }
        Some(*kind)
    }

    /// An enum that carries data (Rust): the variant whose member is there, if only one
    /// has any; else, or where none has, the discriminant.
    fn variant(
        &self,
        unit: &Unit,
        inside: &Inside,
        part: gimli::EntriesTreeNode<'_, '_, '_, Slice>,
        path: &mut String,
        depth: usize,
    ) -> Option<TypeId> {
        let mark = path.len();
        let mut children = part.children();
        let mut found: Vec<(String, TypeId)> = Vec::new();
        let mut discriminant = None;
        while let Ok(Some(child)) = children.next() {
            let entry = child.entry();
            match entry.tag() {
                gimli::DW_TAG_member => {
                    let start = number(entry, gimli::DW_AT_data_member_location).unwrap_or(0);
                    let kind = self.target(unit, entry, inside.id);
                    discriminant = kind.filter(|kind| {
                        let size = self.size(*kind).unwrap_or(0);
                        (start..start.saturating_add(size)).contains(&inside.offset)
                    });
                }
                gimli::DW_TAG_variant => {
                    let kind = self.member(unit, inside, child, path, depth);
                    found.extend(kind.map(|kind| (path[mark..].to_owned(), kind)));
                    path.truncate(mark);
                }
                _ => {}
            }
        }
        if let [(variant, kind)] = &found[..] {
            path.push_str(variant);
            return Some(*kind);
        }
        discriminant
    }

    /// DWARF 3: bits counted from the top of the storage unit.
    fn old_bit_offset(&self, entry: &Entry<'_>, kind: TypeId, width: u64) -> Option<u64> {
        let start = number(entry, gimli::DW_AT_data_member_location)?;
        let storage = number(entry, gimli::DW_AT_byte_size).or_else(|| self.size(kind))?;
        let from_top = number(entry, gimli::DW_AT_bit_offset)?;
        let bits = start.checked_add(storage)?.checked_mul(8)?;
        bits.checked_sub(from_top)?.checked_sub(width)
    }
}

/// A struct that is being looked into.
struct Inside {
    id: TypeId,
    name: String,
    offset: u64,
}

/// Rust's `__0` is written `0`.
fn tuple_index(member: &str) -> &str {
    let digits = member.strip_prefix("__").unwrap_or(member);
    let is_index = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if is_index {
        digits
    } else {
        member
    }
}

fn product(counts: &[u64]) -> u64 {
    counts
        .iter()
        .fold(1, |all, &count| all.saturating_mul(count))
}

/// Types that are another type by a further name.
fn is_alias(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_typedef
            | gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_atomic_type
            | gimli::DW_TAG_restrict_type
            | gimli::DW_TAG_template_alias
    )
}

fn number(entry: &Entry<'_>, attribute: gimli::DwAt) -> Option<u64> {
    let value: AttributeValue<_> = entry.attr_value(attribute).ok()??;
    value.udata_value()
}

/// Elements per dimension of an array.
fn counts(unit: &Unit, array: &Entry<'_>) -> Option<Vec<u64>> {
    let mut tree = unit.entries_tree(Some(array.offset())).ok()?;
    let mut children = tree.root().ok()?.children();
    let mut counts = Vec::new();
    while let Ok(Some(child)) = children.next() {
        let entry = child.entry();
        if entry.tag() == gimli::DW_TAG_subrange_type {
            let count = number(entry, gimli::DW_AT_count).or_else(|| {
                number(entry, gimli::DW_AT_upper_bound).and_then(|last| last.checked_add(1))
            });
            counts.push(count.unwrap_or(0));
        }
    }
    Some(counts)
}
