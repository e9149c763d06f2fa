// SPDX-License-Identifier: MIT
//! One sorted symbol table: which symbol holds an address, and which is near it.

use std::ops::Range;

use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SymbolFlags};

/// The walk back over nested symbols ends after so many.
const NESTED_LIMIT: usize = 32;

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u64,
    /// 0: unknown; reaches to the next symbol.
    size: u64,
    name_start: u32,
    name_bytes: u32,
    /// Lower is the better name among aliases.
    rank: u32,
}

/// Symbols of one kind; addresses are ELF virtual addresses (TLS: offsets in the block).
#[derive(Debug, Default)]
pub(crate) struct SymbolTable {
    names: String,
    entries: Vec<Entry>,
    /// Largest end among the entries up to each one.
    reach: Vec<u64>,
}

/// A symbol found for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found<'a> {
    /// As in the file (mangled).
    pub name: &'a str,
    pub start: u64,
    /// Bytes; 0 when the file does not say.
    pub size: u64,
}

/// The tables of one file, each still to be sealed.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    pub code: SymbolTable,
    pub data: SymbolTable,
    pub tls: SymbolTable,
}

impl Symbols {
    /// Takes in `.symtab` and `.dynsym` of a file.
    pub fn add_file(&mut self, file: &object::File<'_>) {
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            let Ok(name) = symbol.name() else { continue };
            if symbol.is_undefined() || name.is_empty() {
                continue;
            }
            let kind = match symbol.flags() {
                SymbolFlags::Elf { st_info, .. } => st_info & 0xf,
                _ => continue,
            };
            let is_code = symbol
                .section_index()
                .and_then(|index| file.section_by_index(index).ok())
                .is_some_and(|section| is_executable(&section));
            let table = match kind {
                object::elf::STT_FUNC | object::elf::STT_GNU_IFUNC => &mut self.code,
                object::elf::STT_TLS => &mut self.tls,
                object::elf::STT_OBJECT | object::elf::STT_COMMON => &mut self.data,
                // Assembly labels. Among data they are the linker's marks (`_edata`), which name
                // nothing.
                object::elf::STT_NOTYPE if is_code => &mut self.code,
                _ => continue,
            };
            let untyped = kind == object::elf::STT_NOTYPE;
            let name = name.split('@').next().unwrap_or(name);
            table.add(
                symbol.address(),
                symbol.size(),
                name,
                untyped,
                symbol.is_local(),
            );
        }
    }

    pub fn seal(&mut self) {
        self.code.seal();
        self.data.seal();
        self.tls.seal();
    }
}

/// By its flags: in a file of debug information the section has no contents.
fn is_executable<'d>(section: &impl ObjectSection<'d>) -> bool {
    match section.flags() {
        SectionFlags::Elf { sh_flags } => sh_flags & u64::from(object::elf::SHF_EXECINSTR) != 0,
        _ => false,
    }
}

impl SymbolTable {
    fn add(&mut self, start: u64, size: u64, name: &str, untyped: bool, local: bool) {
        let underscores = name.bytes().take_while(|&b| b == b'_').count();
        // The underscores at the start of mangled names say nothing.
        let underscores = if name.starts_with("_Z") || name.starts_with("_R") {
            0
        } else {
            underscores.min(9)
        };
        let length = name.len().min(999);
        let rank = u32::from(untyped) * 100_000
            + underscores as u32 * 10_000
            + u32::from(local) * 1_000
            + length as u32;
        let name_start = self.names.len() as u32;
        self.names.push_str(name);
        self.entries.push(Entry {
            start,
            size,
            name_start,
            name_bytes: name.len() as u32,
            rank,
        });
    }

    fn seal(&mut self) {
        // Per address the widest first, then the best name.
        self.entries
            .sort_by_key(|e| (e.start, std::cmp::Reverse(e.size), e.rank));
        self.entries.dedup_by_key(|e| (e.start, e.size));
        let mut reach = 0;
        for entry in &self.entries {
            reach = reach.max(entry.start.saturating_add(entry.size));
            self.reach.push(reach);
        }
    }

    fn found(&self, entry: &Entry) -> Found<'_> {
        let name = entry.name_start as usize..(entry.name_start + entry.name_bytes) as usize;
        Found {
            name: &self.names[name],
            start: entry.start,
            size: entry.size,
        }
    }

    /// The innermost symbol whose bytes include the address; else the last symbol
    /// without a size that starts in `open` and before the address.
    pub fn covering(&self, address: u64, open: &Range<u64>) -> Option<Found<'_>> {
        let after = self.entries.partition_point(|e| e.start <= address);
        for index in (0..after).rev().take(NESTED_LIMIT) {
            let entry = &self.entries[index];
            if address - entry.start < entry.size {
                return Some(self.found(entry));
            }
            if self.reach[index] <= address {
                break;
            }
        }
        let last = self.entries[..after].last()?;
        let reaches = last.size == 0 && open.contains(&last.start);
        reaches.then(|| self.found(last))
    }

    /// The symbol within `range` that starts closest at or before the address.
    pub fn before(&self, address: u64, range: &Range<u64>) -> Option<Found<'_>> {
        let after = self.entries.partition_point(|e| e.start <= address);
        let start = self.entries[..after].last()?.start;
        let first = self.entries.partition_point(|e| e.start < start);
        range
            .contains(&start)
            .then(|| self.found(&self.entries[first]))
    }

    pub fn by_name(&self, name: &str) -> impl Iterator<Item = Found<'_>> + '_ {
        let (name, word) = (name.to_owned(), last_word(name).map(str::to_owned));
        let all = self.entries.iter().map(|entry| self.found(entry));
        // Demangling is slow, and a mangled name holds the last word of its demangled one.
        let may_be = move |found: &str| {
            let is_mangled = found.starts_with("_Z") || found.starts_with("_R");
            is_mangled && word.as_ref().is_none_or(|word| found.contains(&**word))
        };
        all.filter(move |found| {
            found.name == name || may_be(found.name) && demangle(found.name) == name
        })
    }
}

/// `size` of `std::string::size() const`; `None` of an operator, which is mangled otherwise.
fn last_word(name: &str) -> Option<&str> {
    let path = name.split(['(', '<']).next()?;
    let mut words = path.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let word = words.find(|word| !word.is_empty())?;
    (!name.contains("operator")).then_some(word)
}

/// The name as its language writes it, without Rust's hash.
pub(crate) fn demangle(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    if name.starts_with("_Z") {
        if let Ok(symbol) = cpp_demangle::Symbol::new(name) {
            if let Ok(text) = symbol.demangle(&cpp_demangle::DemangleOptions::default()) {
                return text;
            }
        }
    }
    name.to_owned()
}

/// `std::make_unique` of a demangled name with its result, template arguments and
/// parameters.
pub(crate) fn without_arguments(name: &str) -> String {
    let mut depth = 0;
    let mut kept = String::new();
    for c in name.chars() {
        match c {
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth -= 1,
            ' ' if depth == 0 => kept.clear(),
            _ if depth == 0 => kept.push(c),
            _ => {}
        }
    }
    if kept.is_empty() {
        name.to_owned()
    } else {
        kept
    }
}

/// `name`, or `name+0x10`.
pub(crate) fn with_offset(name: &str, offset: u64) -> String {
    match offset {
        0 => name.to_owned(),
        _ => format!("{name}+{offset:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(symbols: &[(u64, u64, &str)]) -> SymbolTable {
        let mut table = SymbolTable::default();
        for &(start, size, name) in symbols {
            table.add(start, size, name, false, false);
        }
        table.seal();
        table
    }

    #[test]
    fn size_decides_and_nesting_is_seen() {
        let t = table(&[(0x10, 0x40, "outer"), (0x20, 8, "inner"), (0x80, 0, "open")]);
        let name = |a| t.covering(a, &(0x60..0x100)).map(|f| f.name);
        assert_eq!(name(0x12), Some("outer"));
        assert_eq!(name(0x27), Some("inner"));
        assert_eq!(name(0x28), Some("outer"), "behind the inner one");
        assert_eq!(name(0x50), None);
        assert_eq!(name(0x90), Some("open"));
        assert_eq!(t.covering(0x90, &(0x90..0x91)), None, "not that far");
        let before = |a, from: u64| t.before(a, &(from..0x100)).map(|f| f.name);
        assert_eq!(before(0x60, 0), Some("inner"));
        assert_eq!(before(0x60, 0x40), None, "in another segment");
        assert_eq!(before(0x8, 0), None);
    }

    #[test]
    fn a_name_is_found_as_its_language_writes_it() {
        let t = table(&[
            (0x10, 4, "plain"),
            (0x20, 4, "_ZNK3foo3barEi"),
            (0x30, 4, "_ZN3fooC1Ev"),
            (0x40, 4, "_ZN3fooplERKS_"),
        ]);
        let starts = |name: &str| t.by_name(name).map(|f| f.start).collect::<Vec<_>>();
        assert_eq!(starts("plain"), [0x10]);
        assert_eq!(starts("foo::bar(int) const"), [0x20]);
        assert_eq!(starts("foo::foo()"), [0x30]);
        assert_eq!(starts("foo::operator+(foo const&)"), [0x40]);
        assert_eq!(starts("bar"), [0u64; 0]);
    }

    #[test]
    fn the_plainest_alias_wins() {
        let t = table(&[
            (0x10, 4, "__libc_read"),
            (0x10, 4, "read"),
            (0x10, 4, "__read"),
        ]);
        assert_eq!(t.covering(0x11, &(0..0x100)).map(|f| f.name), Some("read"));
    }

    #[test]
    fn arguments_are_left_out() {
        let made =
            "std::enable_if<true>::type std::make_unique<A, char const (&) [22]>(char const (&) \
             [22])";
        assert_eq!(without_arguments(made), "std::make_unique");
        assert_eq!(
            without_arguments("alloc::sync::Arc<T>::new"),
            "alloc::sync::Arc::new"
        );
        assert_eq!(without_arguments("job_create"), "job_create");
        assert_eq!(without_arguments("<T as Trait>"), "<T as Trait>");
    }

    #[test]
    fn names_are_demangled() {
        assert_eq!(demangle("_ZN4pool5stateE"), "pool::state");
        assert_eq!(demangle("_ZN3foo3bar17h0123456789abcdefE"), "foo::bar");
        assert_eq!(demangle("plain"), "plain");
    }
}
