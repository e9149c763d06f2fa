// SPDX-License-Identifier: MIT
//! Where the fields of tracepoints stand in their records, as the kernel that recorded them
//! describes it (`events/*/*/format` of tracefs).

use std::collections::HashMap;

/// A field: its offset and size in bytes.
type Place = (usize, usize);

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Format {
    pub name: String,
    fields: HashMap<String, Place>,
}

impl Format {
    /// A field's bytes; `None`: there is none of this name, or the record is cut.
    pub fn bytes<'r>(&self, record: &'r [u8], field: &str) -> Option<&'r [u8]> {
        let (offset, size) = *self.fields.get(field)?;
        record.get(offset..offset.checked_add(size)?)
    }

    /// A field of at most eight bytes, without a sign; of a longer one the first eight.
    pub fn number(&self, record: &[u8], field: &str) -> Option<u64> {
        let bytes = self.bytes(record, field)?;
        let mut value = [0; 8];
        let size = bytes.len().min(8);
        value[..size].copy_from_slice(&bytes[..size]);
        Some(u64::from_le_bytes(value))
    }
}

/// Tracepoints by id, from the part of a perf.data file that holds their descriptions: texts
/// between lengths, of which only the texts matter.
pub(crate) fn parse(section: &[u8]) -> HashMap<u64, Format> {
    let text = String::from_utf8_lossy(section);
    let described = text.split("name: ").skip(1);
    described.filter_map(one).collect()
}

fn one(text: &str) -> Option<(u64, Format)> {
    let mut lines = text.lines();
    let name = lines.next()?.to_owned();
    let id = lines.next()?.strip_prefix("ID: ")?.parse().ok()?;
    let fields = lines
        .take_while(|line| !line.starts_with("print fmt"))
        .filter_map(field)
        .collect();
    Some((id, Format { name, fields }))
}

/// `field:char comm[16]; offset:8; size:16; signed:0;`, with tabs.
fn field(line: &str) -> Option<(String, Place)> {
    let mut parts = line.trim().split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix("field:")?;
    let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
    let size = parts.next()?.strip_prefix("size:")?.parse().ok()?;
    let name = declaration.rsplit([' ', '*']).next()?;
    let name = name.split('[').next()?.to_owned();
    Some((name, (offset, size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTION: &[u8] = b"\
        \x17\x08\x44tracing0.6\0\x01\x08sched\0\x01\0\0\0\xff\xff\0\0\
        name: sched_waking\nID: 315\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\n\
        \tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n\n\
        print fmt: \"comm=%s field:x; offset:1; size:1;\", REC->comm\n\xfe\xfe";

    #[test]
    fn fields_are_found_by_name() {
        let formats = parse(SECTION);
        let waking = &formats[&315];
        assert_eq!(waking.name, "sched_waking");
        let record: Vec<u8> = (0..28).collect();
        assert_eq!(waking.number(&record, "common_flags"), Some(2));
        assert_eq!(waking.bytes(&record, "comm"), Some(&record[8..24]));
        assert_eq!(waking.number(&record, "pid"), Some(0x1b1a_1918));
        assert_eq!(waking.number(&record[..26], "pid"), None);
        assert_eq!(waking.number(&record, "x"), None);
    }
}
