//! The kernel's own type information, as far as loading does not read it: where per-CPU variables are.

use std::fs;

const PATH: &str = "/sys/kernel/btf/vmlinux";
const HEADER_BYTES: usize = 24;
const DATASEC: u32 = 15;

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// Bytes behind a type's first 12 (linux/btf.h), by its kind and length.
fn tail(kind: u32, length: usize) -> usize {
    match kind {
        1 | 14 | 17 => 4,
        3 => 12,
        4 | 5 | DATASEC | 19 => 12 * length,
        6 | 13 => 8 * length,
        _ => 0,
    }
}

/// The offset of a per-CPU variable from its CPU's area. `None`: this kernel does not tell.
pub fn per_cpu_offset(name: &str) -> Option<u64> {
    offset_in(&fs::read(PATH).ok()?, name)
}

fn offset_in(btf: &[u8], wanted: &str) -> Option<u64> {
    let header = number(btf, 4)? as usize;
    let part = |at: usize| {
        Some((
            header + number(btf, at)? as usize,
            number(btf, at + 4)? as usize,
        ))
    };
    let (types, types_bytes) = part(8)?;
    let (strings, strings_bytes) = part(16)?;
    debug_assert!(header >= HEADER_BYTES);
    let types = btf.get(types..types + types_bytes)?;
    let strings = btf.get(strings..strings + strings_bytes)?;
    let is_wanted = |at: u32| {
        let text = strings.get(at as usize..).unwrap_or_default();
        text.strip_prefix(wanted.as_bytes())
            .is_some_and(|rest| rest.first() == Some(&0))
    };
    let mut variables = Vec::new();
    let mut sections: Vec<&[u8]> = Vec::new();
    let (mut at, mut id) = (0, 1u32);
    while at < types.len() {
        let info = number(types, at + 4)?;
        let (kind, length) = (info >> 24 & 0x1f, info as usize & 0xffff);
        let bytes = tail(kind, length);
        if kind == 14 && is_wanted(number(types, at)?) {
            variables.push(id);
        }
        if kind == DATASEC {
            sections.push(types.get(at + 12..at + 12 + bytes)?);
        }
        at += 12 + bytes;
        id += 1;
    }
    let mut entries = sections.iter().flat_map(|section| section.chunks_exact(12));
    let entry = entries.find(|entry| number(entry, 0).is_some_and(|id| variables.contains(&id)))?;
    number(entry, 4).map(u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_s_offset_is_found_behind_other_types() {
        // int | struct of two members | var "b" | section with "a" at 16 and "b" at 48.
        let strings = b"\0a\0b\0";
        let mut types: Vec<u32> = vec![1, 1 << 24, 4, 32];
        types.extend([1, 4 << 24 | 2, 8, 0, 1, 0, 0, 1, 32]);
        types.extend([1, 14 << 24, 1, 0]);
        types.extend([3, 14 << 24, 1, 0]);
        types.extend([0, 15 << 24 | 2, 64, 3, 16, 4, 4, 48, 4]);
        let bytes: Vec<u8> = types.iter().flat_map(|n| n.to_le_bytes()).collect();
        let mut btf = vec![0x9f, 0xeb, 1, 0];
        let parts = [24, 0, bytes.len(), bytes.len(), strings.len()];
        parts
            .iter()
            .for_each(|&n| btf.extend((n as u32).to_le_bytes()));
        btf.extend(bytes);
        btf.extend(strings);
        assert_eq!(offset_in(&btf, "b"), Some(48));
        assert_eq!(offset_in(&btf, "c"), None);
        assert_eq!(offset_in(&btf[..40], "b"), None);
    }
}
