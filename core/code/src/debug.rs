// SPDX-License-Identifier: MIT
//! DWARF of one file: source lines and variables with a fixed address. Those of frames: `scope.rs`.

use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use gimli::{
    AttributeValue, DebugInfoOffset, EndianArcSlice, LittleEndian, Operation, Reader, UnitOffset,
};
use object::{Object, ObjectSection};
use rustc_hash::FxHashMap;

use crate::budget::{share, Share};
use crate::file_bytes::unpacked;
use crate::mapped::Mapped;
use crate::symbols::demangle;

pub(crate) type Slice = EndianArcSlice<LittleEndian>;
pub(crate) type Dwarf = gimli::Dwarf<Slice>;
pub(crate) type Unit = gimli::Unit<Slice>;
pub(crate) type Entry<'e> = gimli::DebuggingInformationEntry<'e, 'e, Slice>;

/// A type in a file's DWARF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TypeId {
    pub unit: DebugInfoOffset,
    pub entry: UnitOffset,
    /// In the file that several files share (dwz).
    pub supplementary: bool,
}

/// A variable with a fixed address.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub address: u64,
    pub size: u64,
    pub name: String,
    pub kind: TypeId,
}

/// Concrete functions of a unit.
pub(crate) type Functions = Arc<Vec<(Range<u64>, UnitOffset)>>;

pub(crate) struct Debug {
    _memory: Share,
    dwarf: Arc<Dwarf>,
    lines: Mutex<addr2line::Context<Slice>>,
    variables: OnceLock<Variables>,
    units: Mutex<FxHashMap<(DebugInfoOffset, bool), Arc<Unit>>>,
    pub(crate) functions: Mutex<FxHashMap<DebugInfoOffset, Functions>>,
}

/// Why a file has no debug information for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    Unusable,
    /// With what was read before, so many bytes are more than is kept in memory.
    TooLarge(u64),
}

#[derive(Default)]
struct Variables {
    global: Vec<Variable>,
    /// Addresses are offsets in the module's thread-local block.
    tls: Vec<Variable>,
}

impl std::fmt::Debug for Debug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Debug").finish_non_exhaustive()
    }
}

/// Bytes of what [`sections`] reads.
fn size(file: &object::File<'_>) -> u64 {
    let mut sizes = 0u64;
    let _ = gimli::DwarfSections::load(|id| -> gimli::Result<()> {
        let section = file.section_by_name(id.name());
        let packed = section.and_then(|section| section.compressed_data().ok());
        sizes = sizes.saturating_add(packed.map_or(0, |data| data.uncompressed_size));
        Ok(())
    });
    sizes
}

fn sections(file: &object::File<'_>) -> gimli::Result<gimli::DwarfSections<Slice>> {
    gimli::DwarfSections::load(|id| {
        let data = file
            .section_by_name(id.name())
            .and_then(|section| unpacked(&section))
            .unwrap_or(Cow::Borrowed(&[]));
        Ok(EndianArcSlice::new(Arc::from(&*data), LittleEndian))
    })
}

/// Relative names are beside the file that names them.
fn supplementary(file: &object::File<'_>, path: &Path) -> Option<Mapped> {
    let (name, build_id) = file.gnu_debugaltlink().ok()??;
    let named = PathBuf::from(String::from_utf8_lossy(name).into_owned());
    shared_by(&path.parent()?.join(named), build_id)
}

/// The name may lead anywhere: only a file with the right build-id is used.
fn shared_by(path: &Path, build_id: &[u8]) -> Option<Mapped> {
    let bytes = crate::file_bytes::map(path).ok()?;
    let file = object::File::parse(&bytes[..]).ok()?;
    let is_meant = file.build_id().ok().flatten() == Some(build_id);
    is_meant.then_some(bytes)
}

/// `file.c:12`
fn told(place: &addr2line::Location<'_>) -> Option<String> {
    let file = place.file?;
    let name = file.rsplit('/').next().unwrap_or(file);
    Some(match place.line {
        Some(line) => format!("{name}:{line}"),
        None => name.to_owned(),
    })
}

impl Debug {
    /// # Errors
    /// There is nothing usable.
    pub fn load(bytes: &[u8], path: &Path) -> Result<Debug, Unread> {
        let unusable = |_| Unread::Unusable;
        let file = object::File::parse(bytes).map_err(|_| Unread::Unusable)?;
        let shared = supplementary(&file, path);
        let shared = shared.as_ref();
        let shared = shared.and_then(|bytes| object::File::parse(&bytes[..]).ok());
        let needed = size(&file).saturating_add(shared.as_ref().map_or(0, size));
        let memory = share(needed).ok_or(Unread::TooLarge(needed))?;
        let own = sections(&file).map_err(unusable)?;
        let mut dwarf = own.borrow(Clone::clone);
        if let Some(shared) = shared.and_then(|file| sections(&file).ok()) {
            dwarf.set_sup(shared.borrow(Clone::clone));
        }
        let dwarf = Arc::new(dwarf);
        let lines = addr2line::Context::from_arc_dwarf(Arc::clone(&dwarf)).map_err(unusable)?;
        Ok(Debug {
            _memory: memory,
            dwarf,
            lines: Mutex::new(lines),
            variables: OnceLock::new(),
            units: Mutex::default(),
            functions: Mutex::default(),
        })
    }

    /// `file.c:12`.
    pub fn source(&self, address: u64) -> Option<String> {
        let lines = self.lines.lock().ok()?;
        let found = lines.find_location(address).ok()??;
        told(&found)
    }

    /// The same of the function that holds the code, where others were inlined into it.
    pub fn source_of_whole(&self, address: u64) -> Option<String> {
        let lines = self.lines.lock().ok()?;
        let mut frames = lines.find_frames(address).skip_all_loads().ok()?;
        let mut found = None;
        while let Ok(Some(frame)) = frames.next() {
            found = frame.location.as_ref().and_then(told);
        }
        found
    }

    /// Function, path of the source and line of each of those that were inlined there, innermost
    /// first, and of the one that holds the code.
    pub fn lines_at(&self, address: u64) -> Vec<(Option<String>, Option<String>, Option<u32>)> {
        let mut found = Vec::new();
        let Ok(lines) = self.lines.lock() else {
            return found;
        };
        let Ok(mut frames) = lines.find_frames(address).skip_all_loads() else {
            return found;
        };
        while let Ok(Some(frame)) = frames.next() {
            let function = frame.function.as_ref();
            let function = function.and_then(|name| Some(demangle(&name.raw_name().ok()?)));
            let place = frame.location.as_ref();
            let file = place.and_then(|place| place.file).map(str::to_owned);
            found.push((function, file, place.and_then(|place| place.line)));
        }
        found
    }

    /// The functions that were inlined there, innermost first; empty when none was.
    pub fn inlined(&self, address: u64) -> Vec<String> {
        let mut names = Vec::new();
        let Ok(lines) = self.lines.lock() else {
            return names;
        };
        let Ok(mut frames) = lines.find_frames(address).skip_all_loads() else {
            return names;
        };
        // The outermost frame is the function that holds the code.
        let mut inner = None;
        while let Ok(Some(frame)) = frames.next() {
            if let Some(function) = inner.replace(frame.function).flatten() {
                let name = function.demangle().map(Cow::into_owned);
                names.extend(name.or_else(|_| function.raw_name().map(Cow::into_owned)));
            }
        }
        // A function may have been inlined in parts, one within the other.
        names.dedup();
        names
    }

    fn variables(&self) -> &Variables {
        self.variables.get_or_init(|| {
            let mut all = Variables::default();
            let mut headers = self.dwarf.units();
            while let Ok(Some(header)) = headers.next() {
                if let Ok(unit) = self.dwarf.unit(header) {
                    // A damaged unit costs its own variables only.
                    let _ = self.collect(&unit, &mut all);
                }
            }
            all.global.sort_by_key(|v| v.address);
            all.tls.sort_by_key(|v| v.address);
            all
        })
    }

    /// Only entries that may be such a variable are parsed: there are few.
    fn collect(&self, unit: &Unit, all: &mut Variables) -> gimli::Result<()> {
        let mut entries = unit.entries_raw(None)?;
        while !entries.is_empty() {
            let offset = entries.next_offset();
            let Some(form) = entries.read_abbreviation()? else {
                continue;
            };
            entries.skip_attributes(form.attributes())?;
            let mut has = form.attributes().iter().map(|attribute| attribute.name());
            if form.tag() != gimli::DW_TAG_variable
                || !has.any(|name| name == gimli::DW_AT_location)
            {
                continue;
            }
            let entry = unit.entry(offset)?;
            let Some((address, is_tls)) = self.fixed_location(unit, &entry) else {
                continue;
            };
            let (Some(name), Some(kind)) = (self.name(unit, &entry), self.type_of(unit, &entry))
            else {
                continue;
            };
            let size = self.size(kind).unwrap_or(0);
            let list = if is_tls {
                &mut all.tls
            } else {
                &mut all.global
            };
            list.push(Variable {
                address,
                size,
                name,
                kind,
            });
        }
        Ok(())
    }

    fn fixed_location(&self, unit: &Unit, entry: &Entry<'_>) -> Option<(u64, bool)> {
        let AttributeValue::Exprloc(expression) =
            entry.attr_value(gimli::DW_AT_location).ok()??
        else {
            return None;
        };
        let mut operations = expression.operations(unit.encoding());
        let address = match operations.next().ok()?? {
            Operation::Address { address } => address,
            Operation::AddressIndex { index } => self.dwarf.address(unit, index).ok()?,
            Operation::UnsignedConstant { value } => value,
            _ => return None,
        };
        match operations.next().ok()? {
            None => Some((address, false)),
            Some(Operation::TLS) => Some((address, true)),
            Some(_) => None,
        }
    }

    fn find(list: &[Variable], address: u64) -> Option<&Variable> {
        let after = list.partition_point(|v| v.address <= address);
        let candidates = list[..after].iter().rev().take(8);
        candidates
            .into_iter()
            .find(|v| address - v.address < v.size.max(1))
    }

    /// Finds the variables now, and not when the first is asked for.
    pub fn warm(&self) {
        self.variables();
    }

    /// Every variable with a fixed place.
    pub fn all(&self, tls: bool) -> &[Variable] {
        let all = self.variables();
        if tls {
            &all.tls
        } else {
            &all.global
        }
    }

    /// The global (or static) variable at a virtual address.
    pub fn global(&self, address: u64) -> Option<&Variable> {
        Self::find(&self.variables().global, address)
    }

    /// The thread-local variable at an offset in the module's block.
    pub fn thread_local(&self, offset: u64) -> Option<&Variable> {
        Self::find(&self.variables().tls, offset)
    }

    /// The unit whose code holds the address.
    pub(crate) fn unit_at(&self, pc: u64) -> Option<Arc<Unit>> {
        let lines = self.lines.lock().ok()?;
        let unit = lines.find_dwarf_and_unit(pc).skip_all_loads()?.unit;
        self.unit(unit.header.offset().as_debug_info_offset()?, false)
    }

    /// A unit, parsed at first use.
    fn unit(&self, start: DebugInfoOffset, supplementary: bool) -> Option<Arc<Unit>> {
        let mut units = self.units.lock().ok()?;
        if let Some(known) = units.get(&(start, supplementary)) {
            return Some(Arc::clone(known));
        }
        let dwarf = self.dwarf(supplementary)?;
        let header = dwarf.debug_info.header_from_offset(start).ok()?;
        let unit = Arc::new(dwarf.unit(header).ok()?);
        units.insert((start, supplementary), Arc::clone(&unit));
        Some(unit)
    }

    pub(crate) fn own_dwarf(&self) -> &Dwarf {
        &self.dwarf
    }

    pub(crate) fn dwarf(&self, supplementary: bool) -> Option<&Dwarf> {
        if supplementary {
            self.dwarf.sup()
        } else {
            Some(&self.dwarf)
        }
    }

    /// Runs `f` with the entry of a type.
    pub(crate) fn with_entry<T>(
        &self,
        id: TypeId,
        f: impl FnOnce(&Unit, &Entry<'_>) -> Option<T>,
    ) -> Option<T> {
        let unit = self.unit(id.unit, id.supplementary)?;
        let entry = unit.entry(id.entry).ok()?;
        f(&unit, &entry)
    }

    /// Where a reference attribute of an entry points.
    pub(crate) fn reference(
        &self,
        unit: &Unit,
        entry: &Entry<'_>,
        attribute: gimli::DwAt,
        supplementary: bool,
    ) -> Option<TypeId> {
        let (offset, supplementary) = match entry.attr_value(attribute).ok()?? {
            AttributeValue::UnitRef(entry) => {
                let unit = unit.header.offset().as_debug_info_offset()?;
                return Some(TypeId {
                    unit,
                    entry,
                    supplementary,
                });
            }
            AttributeValue::DebugInfoRef(offset) => (offset, supplementary),
            AttributeValue::DebugInfoRefSup(offset) => (offset, true),
            _ => return None,
        };
        let mut headers = self.dwarf(supplementary)?.units();
        while let Ok(Some(header)) = headers.next() {
            let start = header.offset().as_debug_info_offset()?;
            if let Some(entry) = offset.to_unit_offset(&header) {
                return Some(TypeId {
                    unit: start,
                    entry,
                    supplementary,
                });
            }
        }
        None
    }

    pub(crate) fn type_of(&self, unit: &Unit, entry: &Entry<'_>) -> Option<TypeId> {
        self.inherited(unit, entry, &|debug, unit, entry, supplementary| {
            debug.reference(unit, entry, gimli::DW_AT_type, supplementary)
        })
    }

    pub(crate) fn name(&self, unit: &Unit, entry: &Entry<'_>) -> Option<String> {
        self.inherited(unit, entry, &|debug, unit, entry, supplementary| {
            debug.own_name(unit, entry, supplementary)
        })
    }

    pub(crate) fn own_name(
        &self,
        unit: &Unit,
        entry: &Entry<'_>,
        supplementary: bool,
    ) -> Option<String> {
        let value = entry.attr_value(gimli::DW_AT_name).ok()??;
        let text = self.dwarf(supplementary)?.attr_string(unit, value).ok()?;
        Some(text.to_string_lossy().ok()?.into_owned())
    }

    /// An attribute of the entry, or of what it completes or is an instance of.
    fn inherited<T>(
        &self,
        unit: &Unit,
        entry: &Entry<'_>,
        get: &impl Fn(&Debug, &Unit, &Entry<'_>, bool) -> Option<T>,
    ) -> Option<T> {
        if let Some(value) = get(self, unit, entry, false) {
            return Some(value);
        }
        let origin = self
            .reference(unit, entry, gimli::DW_AT_specification, false)
            .or_else(|| self.reference(unit, entry, gimli::DW_AT_abstract_origin, false))?;
        self.with_entry(origin, |unit, entry| {
            get(self, unit, entry, origin.supplementary).or_else(|| {
                // A concrete instance's origin may itself complete a declaration.
                let declared = self.reference(
                    unit,
                    entry,
                    gimli::DW_AT_specification,
                    origin.supplementary,
                )?;
                self.with_entry(declared, |unit, entry| {
                    get(self, unit, entry, declared.supplementary)
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_file_that_is_meant_is_shared() {
        let path = std::env::current_exe().unwrap();
        let bytes = crate::file_bytes::map(&path).unwrap();
        let file = object::File::parse(&bytes[..]).unwrap();
        let own = file.build_id().unwrap().expect("linked with a build-id");
        assert!(shared_by(&path, own).is_some());
        assert!(shared_by(&path, &[own, &[0]].concat()).is_none());
        assert!(shared_by(&path, &[]).is_none());
    }
}
