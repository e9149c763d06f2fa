// SPDX-License-Identifier: MIT
//! The kernel's own type information, as far as loading does not read it: where per-CPU variables
//! are, and what tracepoints hand to programs.

use std::fs;

use crate::error::{unavailable, Result};

const PATH: &str = "/sys/kernel/btf/vmlinux";
const HEADER_BYTES: usize = 24;

// Kinds of types, linux/btf.h.
const INT: u32 = 1;
const POINTER: u32 = 2;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNCTION_PROTOTYPE: u32 = 13;
const VARIABLE: u32 = 14;
const DATASEC: u32 = 15;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

/// Most modifiers in a row that are followed: more are damage.
const MODIFIERS: usize = 16;
/// And most structs within each other.
const NESTED: usize = 4;

/// What a tracepoint hands over, in the order of a program's context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// An integer or an enum.
    Number,
    /// To a struct of this name.
    Pointer(String),
    /// Anything else, and what the type information does not tell.
    Other,
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// Bytes behind a type's first 12 (linux/btf.h), by its kind and length.
fn tail(kind: u32, length: usize) -> usize {
    match kind {
        INT | VARIABLE | 17 => 4,
        3 => 12,
        STRUCT | UNION | DATASEC | ENUM64 => 12 * length,
        ENUM | FUNCTION_PROTOTYPE => 8 * length,
        _ => 0,
    }
}

/// The offset of a per-CPU variable, or of a `member` of it, from its CPU's area. `None`: this
/// kernel does not tell.
pub fn per_cpu_offset(name: &str, member: Option<&str>) -> Option<u64> {
    let bytes = fs::read(PATH).ok()?;
    let types = Types::read(&bytes)?;
    match member {
        None => types.offset(name),
        Some(member) => types.offset_of(name, member),
    }
}

/// What the kernel's tracepoint of this name hands over.
///
/// # Errors
/// When the kernel has no type information, or no such tracepoint in it.
pub fn tracepoint_arguments(name: &str) -> Result<Vec<Argument>> {
    let what = format!("The tracepoint {name} can't be used");
    let fix =
        "Use a kernel with this tracepoint and with type information (CONFIG_DEBUG_INFO_BTF).";
    let bytes =
        fs::read(PATH).map_err(|error| unavailable(&*what, format!("{PATH}: {error}"), fix))?;
    let found = Types::read(&bytes).and_then(|types| types.arguments(name));
    found.ok_or_else(|| {
        let found = format!("{PATH} does not tell what it hands over");
        unavailable(what, found, fix)
    })
}

/// All types, by id - 1: the offset of each, its kind and length.
struct Types<'b> {
    bytes: &'b [u8],
    strings: &'b [u8],
    at: Vec<(usize, u32, usize)>,
}

impl<'b> Types<'b> {
    fn read(btf: &'b [u8]) -> Option<Types<'b>> {
        let header = number(btf, 4)? as usize;
        debug_assert!(header >= HEADER_BYTES);
        let part = |at: usize| {
            let start = header.checked_add(number(btf, at)? as usize)?;
            btf.get(start..start.checked_add(number(btf, at + 4)? as usize)?)
        };
        let (bytes, strings) = (part(8)?, part(16)?);
        let mut types = Types {
            bytes,
            strings,
            at: Vec::new(),
        };
        let mut at = 0;
        while at < bytes.len() {
            let info = number(bytes, at + 4)?;
            let (kind, length) = (info >> 24 & 0x1f, info as usize & 0xffff);
            types.at.push((at, kind, length));
            at += 12 + tail(kind, length);
        }
        Some(types)
    }

    /// Offset, kind and length of the type with this id.
    fn get(&self, id: u32) -> Option<(usize, u32, usize)> {
        self.at.get((id as usize).checked_sub(1)?).copied()
    }

    fn name(&self, at: usize) -> Option<&'b [u8]> {
        let text = self.strings.get(number(self.bytes, at)? as usize..)?;
        text.split(|&byte| byte == 0).next()
    }

    /// The type that one of this kind refers to.
    fn referred(&self, at: usize) -> Option<u32> {
        number(self.bytes, at + 8)
    }

    /// Of a member of a per-CPU variable.
    fn offset_of(&self, variable: &str, member: &str) -> Option<u64> {
        let is_it = |&&(at, kind, _): &&(usize, u32, usize)| {
            kind == VARIABLE && self.name(at) == Some(variable.as_bytes())
        };
        let &(at, ..) = self.at.iter().find(is_it)?;
        Some(self.offset(variable)? + self.member(self.referred(at)?, member, NESTED)?)
    }

    /// Where a member is in a struct, also in structs and unions without a name within it.
    fn member(&self, id: u32, wanted: &str, depth: usize) -> Option<u64> {
        let (at, STRUCT | UNION) = self.plain(id)? else {
            return None;
        };
        let info = number(self.bytes, at + 4)?;
        // With bit fields the upper byte is their size.
        let bits = if info >> 31 == 1 { 0xff_ffff } else { u32::MAX };
        (0..info as usize & 0xffff).find_map(|index| {
            let entry = at + 12 + 12 * index;
            let offset = u64::from(number(self.bytes, entry + 8)? & bits) / 8;
            let inner = match self.name(entry)? {
                name if name == wanted.as_bytes() => 0,
                [] if depth > 0 => {
                    self.member(number(self.bytes, entry + 4)?, wanted, depth - 1)?
                }
                _ => return None,
            };
            Some(offset + inner)
        })
    }

    fn offset(&self, wanted: &str) -> Option<u64> {
        let is_wanted = |&(&(at, kind, _), _): &(&(usize, u32, usize), u32)| {
            kind == VARIABLE && self.name(at) == Some(wanted.as_bytes())
        };
        let variables = self.at.iter().zip(1..).filter(is_wanted);
        let variables: Vec<u32> = variables.map(|(_, id)| id).collect();
        let sections = self.at.iter().filter(|(_, kind, _)| *kind == DATASEC);
        let mut entries = sections
            .filter_map(|&(at, kind, length)| self.bytes.get(at + 12..at + 12 + tail(kind, length)))
            .flat_map(|section| section.chunks_exact(12));
        let entry =
            entries.find(|entry| number(entry, 0).is_some_and(|id| variables.contains(&id)))?;
        number(entry, 4).map(u64::from)
    }

    fn arguments(&self, tracepoint: &str) -> Option<Vec<Argument>> {
        let name = format!("btf_trace_{tracepoint}");
        let mut types = self.at.iter();
        let &(at, ..) = types
            .find(|&&(at, kind, _)| kind == TYPEDEF && self.name(at) == Some(name.as_bytes()))?;
        let (pointer, POINTER, _) = self.get(self.referred(at)?)? else {
            return None;
        };
        let (function, FUNCTION_PROTOTYPE, length) = self.get(self.referred(pointer)?)? else {
            return None;
        };
        // The first is the tracepoint's own and not in a program's context.
        let handed = (1..length).map(|index| number(self.bytes, function + 12 + 8 * index + 4));
        handed.map(|id| Some(self.argument(id?))).collect()
    }

    /// The type itself, behind typedefs, const and the like.
    fn plain(&self, mut id: u32) -> Option<(usize, u32)> {
        for _ in 0..MODIFIERS {
            let (at, kind, _) = self.get(id)?;
            match kind {
                TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => id = self.referred(at)?,
                _ => return Some((at, kind)),
            }
        }
        None
    }

    fn argument(&self, id: u32) -> Argument {
        let pointed = |at: usize| {
            let (at, kind) = self.plain(self.referred(at)?)?;
            let name = self.name(at).filter(|_| kind == STRUCT)?;
            Some(Argument::Pointer(String::from_utf8_lossy(name).into()))
        };
        match self.plain(id) {
            Some((_, INT | ENUM | ENUM64)) => Argument::Number,
            Some((at, POINTER)) => pointed(at).unwrap_or(Argument::Other),
            _ => Argument::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BTF of these types (their words) and strings.
    fn btf(types: &[u32], strings: &[u8]) -> Vec<u8> {
        let bytes: Vec<u8> = types.iter().flat_map(|n| n.to_le_bytes()).collect();
        let mut btf = vec![0x9f, 0xeb, 1, 0];
        let parts = [24, 0, bytes.len(), bytes.len(), strings.len()];
        parts
            .iter()
            .for_each(|&n| btf.extend((n as u32).to_le_bytes()));
        btf.extend(bytes);
        btf.extend(strings);
        btf
    }

    fn offset_in(btf: &[u8], name: &str) -> Option<u64> {
        Types::read(btf)?.offset(name)
    }

    #[test]
    fn a_variable_s_offset_is_found_behind_other_types() {
        // int | struct of two members | var "b" | section with "a" at 16 and "b" at 48.
        let mut types: Vec<u32> = vec![1, 1 << 24, 4, 32];
        types.extend([1, 4 << 24 | 2, 8, 0, 1, 0, 0, 1, 32]);
        types.extend([1, 14 << 24, 1, 0]);
        types.extend([3, 14 << 24, 1, 0]);
        types.extend([0, 15 << 24 | 2, 64, 3, 16, 4, 4, 48, 4]);
        let btf = btf(&types, b"\0a\0b\0");
        assert_eq!(offset_in(&btf, "b"), Some(48));
        assert_eq!(offset_in(&btf, "c"), None);
        assert_eq!(offset_in(&btf[..40], "b"), None);
    }

    #[test]
    fn a_member_of_a_variable_is_found_in_structs_without_a_name() {
        // 1 int | 2 struct { int at bit 0; int "m" at bit 64 } | 3 union { struct 2 } | 4 struct {
        // int "a"; union 3 at bit 128 } | 5 var "v" of 4 | section with "v" at 48.
        let mut types: Vec<u32> = vec![0, INT << 24, 4, 32];
        types.extend([0, STRUCT << 24 | 2, 16, 7, 1, 0, 1, 1, 64]);
        types.extend([0, UNION << 24 | 1, 16, 0, 2, 0]);
        types.extend([0, STRUCT << 24 | 2, 32, 3, 1, 0, 0, 3, 128]);
        types.extend([5, VARIABLE << 24, 4, 0]);
        types.extend([0, DATASEC << 24 | 1, 96, 5, 48, 32]);
        let btf = btf(&types, b"\0m\0a\0v\0x\0");
        let types = Types::read(&btf).unwrap();
        assert_eq!(types.offset_of("v", "m"), Some(48 + 16 + 8));
        assert_eq!(types.offset_of("v", "a"), Some(48));
        assert_eq!(types.offset_of("v", "y"), None);
        assert_eq!(types.offset_of("w", "m"), None);
    }

    const STRINGS: &[u8] = b"\0int\0task_struct\0btf_trace_x\0bool\0";

    /// 1 int, 2 struct task_struct, 3 pointer to it, 4 void pointer, 5 typedef bool, 6 the
    /// function, 7 pointer to it, 8 the tracepoint's typedef, 9 const task_struct, 10 pointer to
    /// that, 11 pointer to int.
    fn tracepoint(arguments: &[u32]) -> Vec<u8> {
        let mut types: Vec<u32> = vec![1, INT << 24, 4, 32];
        types.extend([5, STRUCT << 24, 64]);
        types.extend([0, POINTER << 24, 2]);
        types.extend([0, POINTER << 24, 0]);
        types.extend([29, TYPEDEF << 24, 1]);
        types.extend([
            0,
            FUNCTION_PROTOTYPE << 24 | (arguments.len() as u32 + 1),
            0,
        ]);
        types.extend([0, 4]);
        arguments.iter().for_each(|&id| types.extend([0, id]));
        types.extend([0, POINTER << 24, 6]);
        types.extend([17, TYPEDEF << 24, 7]);
        types.extend([0, CONST << 24, 2]);
        types.extend([0, POINTER << 24, 9]);
        types.extend([0, POINTER << 24, 1]);
        btf(&types, STRINGS)
    }

    #[test]
    fn a_tracepoint_s_arguments_are_told_without_its_own() {
        let arguments = |ids: &[u32]| Types::read(&tracepoint(ids)).unwrap().arguments("x");
        let task = || Argument::Pointer("task_struct".into());
        let number = Argument::Number;
        assert_eq!(arguments(&[]), Some(vec![]));
        assert_eq!(
            arguments(&[5, 3, 10, 1]),
            Some(vec![number.clone(), task(), task(), number])
        );
        assert_eq!(
            arguments(&[4, 11, 99]),
            Some(vec![Argument::Other, Argument::Other, Argument::Other])
        );
        let whole = tracepoint(&[3]);
        assert_eq!(Types::read(&whole).unwrap().arguments("y"), None);
        assert!(Types::read(&whole[..60]).is_none());
    }

    #[test]
    fn a_type_that_refers_to_itself_is_no_argument() {
        let types = [17, TYPEDEF << 24, 2, 0, POINTER << 24, 3];
        let mut types = types.to_vec();
        types.extend([0, FUNCTION_PROTOTYPE << 24 | 2, 0, 0, 0, 0, 4]);
        types.extend([0, CONST << 24, 4]);
        let btf = btf(&types, STRINGS);
        let found = Types::read(&btf).unwrap().arguments("x");
        assert_eq!(found, Some(vec![Argument::Other]));
    }

    #[test]
    fn this_kernel_tells_of_sched_switch() {
        if let Ok(found) = tracepoint_arguments("sched_switch") {
            assert!(found.contains(&Argument::Pointer("task_struct".into())));
        }
        assert!(tracepoint_arguments("no_such_tracepoint").is_err());
    }
}
