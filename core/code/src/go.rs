// SPDX-License-Identifier: MIT
//! Go's own function table (`.gopclntab`), which stripping leaves in place.
//!
//! Layout: Go's `internal/abi` and `runtime/symtab.go`, versions 1.18 and 1.20 up.
//! Everything is an offset from the table's start; addresses are offsets from the
//! text start.

const MAGIC_1_18: u32 = 0xffff_fff0;
const MAGIC_1_20: u32 = 0xffff_fff1;
/// Where a 64-bit Go program begins.
const ENTRY: &str = "_rt0_amd64_linux";

#[derive(Debug)]
pub(crate) struct GoFunctions {
    table: Vec<u8>,
    count: usize,
    text: u64,
    names: usize,
    units: usize,
    files: usize,
    values: usize,
    functions: usize,
}

/// A function of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GoFunction {
    pub name: String,
    /// ELF virtual addresses.
    pub start: u64,
    pub end: u64,
    offset: usize,
}

impl GoFunctions {
    /// `None` when the bytes are no such table. `entry` is the ELF entry point, `text`
    /// the address of `.text`: newer tables do not hold the text start themselves.
    pub fn parse(table: &[u8], entry: u64, text: u64) -> Option<Self> {
        let magic = read32(table, 0)?;
        let word = |index: usize| read64(table, 8 + index * 8);
        let offset = |index: usize| word(index).and_then(|v| usize::try_from(v).ok());
        if !matches!(magic, MAGIC_1_18 | MAGIC_1_20) || table.get(7) != Some(&8) {
            return None;
        }
        let mut go = GoFunctions {
            count: offset(0)?.min(table.len() / 8),
            text: word(2)?,
            names: offset(3)?,
            units: offset(4)?,
            files: offset(5)?,
            values: offset(6)?,
            functions: offset(7)?,
            table: table.to_vec(),
        };
        if go.text == 0 {
            let entry_function = (0..go.count).find(|&i| go.name(i).as_deref() == Some(ENTRY));
            go.text = match entry_function.and_then(|i| go.start(i)) {
                Some(start) if start <= entry => entry - start,
                _ => text,
            };
        }
        Some(go)
    }

    fn start(&self, index: usize) -> Option<u64> {
        read32(&self.table, self.functions.checked_add(index * 8)?).map(u64::from)
    }

    fn record(&self, index: usize) -> Option<usize> {
        let offset = read32(&self.table, self.functions.checked_add(index * 8 + 4)?)?;
        self.functions.checked_add(offset as usize)
    }

    fn name(&self, index: usize) -> Option<String> {
        let offset = read32(&self.table, self.record(index)?.checked_add(4)?)?;
        text(&self.table, self.names.checked_add(offset as usize)?)
    }

    /// Where a function begins, as an ELF virtual address.
    pub fn named(&self, name: &str) -> Option<u64> {
        let is_it = |index: &usize| {
            let at = self.record(*index).and_then(|at| {
                let offset = read32(&self.table, at.checked_add(4)?)?;
                self.names.checked_add(offset as usize)
            });
            let rest = at.and_then(|at| self.table.get(at..));
            let rest = rest.and_then(|rest| rest.strip_prefix(name.as_bytes()));
            rest.is_some_and(|rest| rest.first() == Some(&0))
        };
        let index = (0..self.count).find(is_it)?;
        Some(self.text.wrapping_add(self.start(index)?))
    }

    /// The function that holds an ELF virtual address.
    pub fn function(&self, address: u64) -> Option<GoFunction> {
        let wanted = address.checked_sub(self.text)?;
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = (low + high) / 2;
            if self.start(middle)? <= wanted {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let index = low.checked_sub(1)?;
        // One entry behind the last gives its end.
        let end = self.start(index + 1)?;
        let name = self.name(index)?;
        (wanted < end && !name.is_empty()).then_some(GoFunction {
            name,
            start: self.text.wrapping_add(self.start(index)?),
            end: self.text.wrapping_add(end),
            offset: self.record(index)?,
        })
    }

    /// `file.go:12` for an address in the function.
    pub fn source(&self, function: &GoFunction, address: u64) -> Option<String> {
        let (path, line) = self.line(function, address)?;
        let name = path.rsplit('/').next().unwrap_or(&path);
        Some(format!("{name}:{line}"))
    }

    /// The path of the source as the compiler had it, and the line, of an address in the function.
    pub fn line(&self, function: &GoFunction, address: u64) -> Option<(String, u32)> {
        let field = |n: usize| read32(&self.table, function.offset.checked_add(n * 4)?);
        let (files, lines) = (field(5)?, field(6)?);
        // What was inlined has another file, most of the time. The call stands in front of it.
        let own = self.value(files, function.start, function.start)?;
        let mut address = address;
        let mut file = self.value(files, function.start, address)?;
        if file != own {
            let runs = self.runs(files, function.start);
            let before = runs
                .iter()
                .rev()
                .find(|(end, value)| *end <= address && *value == own);
            if let Some((end, _)) = before {
                (address, file) = (end - 1, own);
            }
        }
        let line = self.value(lines, function.start, address)?;
        let unit = self.units.checked_add(field(8)? as usize * 4)?;
        let name = read32(
            &self.table,
            unit.checked_add(usize::try_from(file).ok()? * 4)?,
        )?;
        let path = text(&self.table, self.files.checked_add(name as usize)?)?;
        Some((path, u32::try_from(line).ok()?))
    }

    /// All stretches of such a table: where each ends, and its value.
    fn runs(&self, offset: u32, start: u64) -> Vec<(u64, i64)> {
        if offset == 0 {
            return Vec::new();
        }
        let mut found: Vec<(u64, i64)> = Vec::new();
        let mut at = self.values.saturating_add(offset as usize);
        let (mut pc, mut value) = (start, -1i64);
        while let Some(delta) = varint(&self.table, &mut at) {
            if delta == 0 && pc != start {
                break;
            }
            value = value.wrapping_add(i64::from(delta >> 1) ^ -i64::from(delta & 1));
            let Some(length) = varint(&self.table, &mut at) else {
                break;
            };
            pc = pc.saturating_add(u64::from(length));
            found.push((pc, value));
        }
        found
    }

    /// Value of a table of (value delta, pc delta) pairs at an address.
    fn value(&self, offset: u32, start: u64, address: u64) -> Option<i64> {
        let mut runs = self.runs(offset, start).into_iter();
        let (_, value) = runs.find(|(end, _)| address < *end)?;
        Some(value)
    }
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u32> {
    let mut value = 0u32;
    for shift in (0..35).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u32::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn read32(bytes: &[u8], at: usize) -> Option<u32> {
    let slice = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(slice.try_into().ok()?))
}

fn read64(bytes: &[u8], at: usize) -> Option<u64> {
    let slice = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(slice.try_into().ok()?))
}

fn text(bytes: &[u8], at: usize) -> Option<String> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().position(|&b| b == 0)?;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}
