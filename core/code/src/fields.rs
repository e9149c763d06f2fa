//! Which field of a type an offset falls into: `workers[2].state`.

use gimli::AttributeValue;

use crate::debug::{Debug, Entry, TypeId, Unit};

/// Types nested deeper than this are damaged DWARF.
const DEPTH_LIMIT: usize = 64;

impl Debug {
    /// Bytes of a type.
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

    /// What a pointer type points to.
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

    /// The path from a variable of type `id` to its byte `offset`, to be appended to
    /// the variable's name: `[2].state`, or empty for a plain variable. `None`: the
    /// offset is outside, or in padding.
    pub fn field(&self, id: TypeId, offset: u64) -> Option<String> {
        let mut path = String::new();
        self.walk(id, offset, &mut path, DEPTH_LIMIT)?;
        Some(path)
    }

    fn walk(&self, id: TypeId, offset: u64, path: &mut String, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        if offset >= self.size(id)?.max(1) {
            return None;
        }
        self.with_entry(id, |unit, entry| match entry.tag() {
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                self.member(unit, id, offset, path, depth)
            }
            gimli::DW_TAG_array_type => {
                let element = self.target(unit, entry, id)?;
                let size = self.size(element)?.max(1);
                let mut index = offset / size;
                let counts = counts(unit, entry)?;
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
            _ => {
                if offset > 0 {
                    path.push_str(&format!("+{offset:#x}"));
                }
                Some(())
            }
        })
    }

    fn member(
        &self,
        unit: &Unit,
        id: TypeId,
        offset: u64,
        path: &mut String,
        depth: usize,
    ) -> Option<()> {
        let mut tree = unit.entries_tree(Some(id.entry)).ok()?;
        let mut children = tree.root().ok()?.children();
        let mut bits: Vec<String> = Vec::new();
        while let Ok(Some(child)) = children.next() {
            let entry = child.entry();
            if entry.tag() != gimli::DW_TAG_member && entry.tag() != gimli::DW_TAG_inheritance {
                continue;
            }
            if entry.attr(gimli::DW_AT_external).is_ok_and(|a| a.is_some()) {
                // A static member lives elsewhere.
                continue;
            }
            let Some(kind) = self.target(unit, entry, id) else {
                continue;
            };
            let name = self.own_name(unit, entry, id.supplementary);
            if let Some(width) = number(entry, gimli::DW_AT_bit_size) {
                let first = number(entry, gimli::DW_AT_data_bit_offset)
                    .or_else(|| self.old_bit_offset(entry, kind, width));
                if first.is_some_and(|bit| {
                    let end = bit.saturating_add(width);
                    bit / 8 <= offset && offset < end.div_ceil(8)
                }) {
                    bits.extend(name);
                }
                continue;
            }
            let start = number(entry, gimli::DW_AT_data_member_location).unwrap_or(0);
            let Some(inner) = offset.checked_sub(start) else {
                continue;
            };
            let mark = path.len();
            if entry.tag() == gimli::DW_TAG_member {
                if let Some(name) = name {
                    path.push('.');
                    path.push_str(&name);
                }
            }
            if self.walk(kind, inner, path, depth).is_some() {
                return Some(());
            }
            path.truncate(mark);
        }
        match &bits[..] {
            [] => None,
            [one] => {
                path.push_str(&format!(".{one}"));
                Some(())
            }
            several => {
                path.push_str(&format!(".{{{}}}", several.join(",")));
                Some(())
            }
        }
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
