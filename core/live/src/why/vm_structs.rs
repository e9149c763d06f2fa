// SPDX-License-Identifier: MIT
//! The table by which HotSpot tells debuggers where its structures keep their fields.
//!
//! libjvm exports `gHotSpotVMStructs`, an array with an entry for each field, and beside it the
//! offsets within an entry. The JDK's own debugger (the serviceability agent) reads the same.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use flagfinder_code::{AddressSpace, Names};
use rustc_hash::FxHashMap;

pub const LIBRARY: &str = "libjvm.so";
/// No HotSpot has so many fields; the array ends with an entry without a name.
const MOST: u64 = 20_000;
/// Longest name of a type or field.
const NAME: usize = 96;

type Places = FxHashMap<String, FxHashMap<String, u64>>;

pub struct VmStructs {
    /// By type and field: offset within the structure, or address of a static field.
    places: Places,
    /// Bytes of a type.
    sizes: FxHashMap<String, u64>,
    pub known: Known,
}

/// What was read of classes, which stay as they are.
#[derive(Default)]
pub struct Known {
    /// Of what may be a class: its name, if it is one.
    pub names: RefCell<FxHashMap<u64, Option<Rc<str>>>>,
    /// By structure: how references are compressed, if they are.
    pub compressed: RefCell<FxHashMap<String, Option<(u64, u64)>>>,
    /// Which extend or implement which.
    pub kinds: OnceCell<Kinds>,
}

/// Which classes of the program extend or implement which.
#[derive(Default)]
pub struct Kinds {
    pub below: FxHashMap<u64, Vec<u64>>,
    pub by_name: FxHashMap<String, u64>,
}

impl Kinds {
    /// The classes that extend or implement this one.
    pub fn below(&self, class: u64) -> &[u64] {
        self.below.get(&class).map_or(&[], Vec::as_slice)
    }

    /// The class of that name, if it is extended or implemented.
    pub fn called(&self, name: &str) -> Option<u64> {
        self.by_name.get(name).copied()
    }
}

/// Where an entry keeps what it tells.
struct Entry {
    kind: u64,
    field: u64,
    is_static: u64,
    offset: u64,
    address: u64,
}

impl VmStructs {
    /// `None`: no HotSpot runs in the process, or its table can't be read.
    pub fn read(names: &Names, memory: &dyn AddressSpace) -> Option<VmStructs> {
        let exported = |symbol: &str| {
            let found = names.resolve(Some(LIBRARY), symbol);
            memory.word(found.first()?.0)
        };
        let in_entry = |what: &str| exported(&format!("gHotSpotVMStructEntry{what}Offset"));
        let entry = Entry {
            kind: in_entry("TypeName")?,
            field: in_entry("FieldName")?,
            is_static: in_entry("IsStatic")?,
            offset: in_entry("Offset")?,
            address: in_entry("Address")?,
        };
        let first = exported("gHotSpotVMStructs")?;
        let stride = exported("gHotSpotVMStructEntryArrayStride")?;
        let mut places = Places::default();
        for index in 0..MOST {
            let at = first.checked_add(index.checked_mul(stride)?)?;
            let word = |offset: u64| memory.word(at.checked_add(offset)?);
            let kind = word(entry.kind)?;
            if kind == 0 {
                break;
            }
            let is_static = memory.number(at.checked_add(entry.is_static)?, 4)? != 0;
            let place = match is_static {
                true => word(entry.address)?,
                false => word(entry.offset)?,
            };
            let field = text(memory, word(entry.field)?);
            let of_kind = places.entry(text(memory, kind)).or_default();
            of_kind.insert(field, place);
        }
        let sizes = sizes(&exported, memory).unwrap_or_default();
        Some(VmStructs {
            places,
            sizes,
            known: Known::default(),
        })
    }

    #[cfg(test)]
    pub fn of(places: &[(&str, &str, u64)]) -> VmStructs {
        let mut all = Places::default();
        for (kind, field, at) in places {
            let of_kind = all.entry((*kind).to_owned()).or_default();
            of_kind.insert((*field).to_owned(), *at);
        }
        VmStructs {
            places: all,
            sizes: FxHashMap::default(),
            known: Known::default(),
        }
    }

    /// Offset of a field, or address of a static one.
    pub fn place(&self, kind: &str, field: &str) -> Option<u64> {
        self.places.get(kind)?.get(field).copied()
    }

    /// Bytes of an object of this type.
    pub fn size(&self, kind: &str) -> Option<u64> {
        self.sizes.get(kind).copied()
    }
}

/// A second table has the types.
fn sizes(
    exported: &dyn Fn(&str) -> Option<u64>,
    memory: &dyn AddressSpace,
) -> Option<FxHashMap<String, u64>> {
    let name = exported("gHotSpotVMTypeEntryTypeNameOffset")?;
    let size = exported("gHotSpotVMTypeEntrySizeOffset")?;
    let mut at = exported("gHotSpotVMTypes")?;
    let stride = exported("gHotSpotVMTypeEntryArrayStride")?;
    let mut found = FxHashMap::default();
    for _ in 0..MOST {
        let kind = memory.word(at.checked_add(name)?)?;
        if kind == 0 {
            break;
        }
        found.insert(text(memory, kind), memory.word(at.checked_add(size)?)?);
        at = at.checked_add(stride)?;
    }
    Some(found)
}

fn text(memory: &dyn AddressSpace, address: u64) -> String {
    let mut bytes = [0u8; NAME];
    let read = memory.read(address, &mut bytes);
    let end = bytes[..read].iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(read)]).into_owned()
}
