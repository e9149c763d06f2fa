// SPDX-License-Identifier: MIT
//! Java's objects in the memory of HotSpot: the class of one, and what it refers to.
//!
//! A word is taken for a reference where its object's class has the name that is looked for, so
//! neither the layout of a class nor whether references are compressed need be known. Blind spots:
//! references of ZGC, which hold more than an address, and headers without a class of their own.

use std::rc::Rc;

use flagfinder_code::{AddressSpace, ByPages, Names};

use super::vm_structs::VmStructs;

/// No class has so many ancestors.
const MOST_ANCESTORS: usize = 64;
/// Larger objects are not searched.
const LARGEST: u64 = 4096;
/// Classes whose objects keep the value that they are made with, as the language has it.
const NEVER_CHANGE: [&str; 9] = [
    "java.lang.Boolean",
    "java.lang.Byte",
    "java.lang.Character",
    "java.lang.Double",
    "java.lang.Float",
    "java.lang.Integer",
    "java.lang.Long",
    "java.lang.Short",
    "java.lang.String",
];
/// In such an object the value begins no farther from its start.
const HEADER: u64 = 24;

/// The class of the object of Java that holds the word as a value that never changes; `None` where
/// no HotSpot runs as well.
pub fn never_changes(names: &Names, memory: &dyn AddressSpace, word: u64) -> Option<String> {
    let memory = ByPages::new(|address, buffer: &mut [u8]| memory.read(address, buffer));
    let structs = VmStructs::read(names, &memory)?;
    let objects = Objects {
        structs: &structs,
        memory: &memory,
    };
    objects.never_changes(word)
}

#[derive(Clone, Copy)]
pub struct Objects<'a> {
    pub structs: &'a VmStructs,
    pub memory: &'a dyn AddressSpace,
}

impl Objects<'_> {
    fn compressed(&self, kind: &str, old: &str) -> Option<(u64, u64)> {
        let known = self.structs.known.compressed.borrow().get(kind).copied();
        known.unwrap_or_else(|| {
            let found = self.read_compressed(kind, old);
            let mut all = self.structs.known.compressed.borrow_mut();
            all.insert(kind.to_owned(), found);
            found
        })
    }

    fn read_compressed(&self, kind: &str, old: &str) -> Option<(u64, u64)> {
        let place = |field: &str| {
            let now = self.structs.place(kind, field);
            now.or_else(|| self.structs.place(kind, &format!("{old}.{field}")))
        };
        let base = self.memory.word(place("_base")?)?;
        let shift = self.memory.number(place("_shift")?, 4)?;
        // References have 32 bits.
        (shift < 32).then_some((base, shift))
    }

    /// The class's name with dots, if the word points to an object.
    pub fn class_name(&self, object: u64) -> Option<String> {
        Some(self.name(self.class(object)?)?.to_string())
    }

    /// The class of the object that holds the word as a value that never changes, if one does.
    pub fn never_changes(&self, word: u64) -> Option<String> {
        let mut starts = (8..=HEADER).step_by(8);
        starts.find_map(|back| {
            let class = self.class_name((word & !7).checked_sub(back)?)?;
            NEVER_CHANGE.contains(&class.as_str()).then_some(class)
        })
    }

    pub fn class(&self, object: u64) -> Option<u64> {
        let compressed = || {
            let (base, shift) = self.compressed("CompressedKlassPointers", "_narrow_klass")?;
            let at = self
                .structs
                .place("oopDesc", "_metadata._compressed_klass")?;
            let class = self.memory.number(object.checked_add(at)?, 4)?;
            Some(base.wrapping_add(class << shift))
        };
        let whole = || {
            let at = self.structs.place("oopDesc", "_metadata._klass")?;
            self.memory.word(object.checked_add(at)?)
        };
        let is_class = |class: &u64| self.name(*class).is_some();
        let compressed = compressed().filter(is_class);
        compressed.or_else(|| whole().filter(is_class))
    }

    pub fn name(&self, class: u64) -> Option<Rc<str>> {
        let known = self.structs.known.names.borrow().get(&class).cloned();
        known.unwrap_or_else(|| {
            let found: Option<Rc<str>> = self.read_name(class).map(Rc::from);
            let mut all = self.structs.known.names.borrow_mut();
            all.insert(class, found.clone());
            found
        })
    }

    fn read_name(&self, class: u64) -> Option<String> {
        let field = |kind: &str, field: &str| self.structs.place(kind, field);
        let symbol = self
            .memory
            .word(class.checked_add(field("Klass", "_name")?)?)?;
        let length = symbol.checked_add(field("Symbol", "_length")?)?;
        let length = self.memory.number(length, 2)? as usize;
        let mut bytes = vec![0u8; length];
        let body = symbol.checked_add(field("Symbol", "_body")?)?;
        if length == 0 || self.memory.read(body, &mut bytes) != length {
            return None;
        }
        let name = String::from_utf8(bytes).ok()?;
        let is_name = name.chars().all(|c| !c.is_control() && !c.is_whitespace());
        is_name.then(|| name.replace('/', "."))
    }

    /// The class of that name that the object's descends from.
    fn ancestor(&self, object: u64, name: &str) -> Option<u64> {
        self.ancestor_of(self.class(object)?, name)
    }

    /// The class of that name that this one descends from.
    pub fn ancestor_of(&self, mut class: u64, name: &str) -> Option<u64> {
        for _ in 0..MOST_ANCESTORS {
            if &*self.name(class)? == name {
                return Some(class);
            }
            class = self
                .memory
                .word(class.checked_add(self.structs.place("Klass", "_super")?)?)?;
        }
        None
    }

    /// Does the object's class descend from the one of that name?
    pub fn is_a(&self, object: u64, name: &str) -> bool {
        self.ancestor(object, name).is_some()
    }

    /// Bytes of an object of the class.
    fn size(&self, class: u64) -> Option<u64> {
        let layout = class.checked_add(self.structs.place("Klass", "_layout_helper")?)?;
        // Of arrays it is negative; the lowest bit says how one is allocated.
        let size = self.memory.number(layout, 4)? as i32;
        u64::try_from(size & !7)
            .ok()
            .filter(|size| *size <= LARGEST)
    }

    /// What words of the object, as far as the class lays it out, may refer to.
    fn references(&self, object: u64, class: u64) -> Vec<u64> {
        self.words(object, self.size(class).unwrap_or(0))
    }

    /// What an array may refer to, as far as it is searched.
    pub fn elements(&self, array: u64) -> Vec<u64> {
        self.words(array, LARGEST)
    }

    /// What these bytes of it may refer to.
    pub fn words(&self, object: u64, size: u64) -> Vec<u64> {
        let mut bytes = vec![0u8; size as usize];
        let read = self.memory.read(object, &mut bytes);
        let bytes = &bytes[..read];
        let compressed = self.compressed("CompressedOops", "_narrow_oop");
        let whole = bytes.chunks_exact(8);
        let whole = whole.map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        let short = bytes.chunks_exact(4).filter_map(|word| {
            let (base, shift) = compressed?;
            let word = u32::from_le_bytes(word.try_into().ok()?);
            (word != 0).then(|| base.wrapping_add(u64::from(word) << shift))
        });
        short.chain(whole).filter(|word| *word != 0).collect()
    }

    /// The numbers of 32 bits that it holds, and what else may lie there.
    pub fn halves(&self, object: u64) -> Vec<u32> {
        let size = self.class(object).and_then(|class| self.size(class));
        let mut bytes = vec![0u8; size.unwrap_or(0) as usize];
        let read = self.memory.read(object, &mut bytes);
        let words = bytes[..read].chunks_exact(4);
        words
            .map(|word| u32::from_le_bytes(word.try_into().unwrap_or_default()))
            .collect()
    }

    /// The objects that this one may refer to.
    pub fn all_referred(&self, object: u64) -> Vec<u64> {
        let class = self.class(object);
        class.map_or_else(Vec::new, |class| self.references(object, class))
    }

    /// The objects that this one refers to and whose classes descend from `name`.
    pub fn refer_to(&self, object: u64, name: &str) -> Vec<u64> {
        let mut references = self.all_referred(object);
        references.retain(|other| self.ancestor(*other, name).is_some());
        references
    }

    /// What the object refers to by the fields that it has from its ancestor `name`.
    pub fn of_ancestor(&self, object: u64, name: &str) -> Vec<u64> {
        let class = self.ancestor(object, name);
        class.map_or_else(Vec::new, |class| self.references(object, class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Classes at 0x100 and 0x200; one object of each, at 0x800 and 0x840.
    struct Memory([(u64, &'static str); 2]);

    impl AddressSpace for Memory {
        fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
            let word = match address {
                0x808 => 0x100,
                0x848 => 0x200,
                _ => 0,
            };
            let mut bytes = u64::to_le_bytes(word).to_vec();
            for (class, name) in self.0 {
                match address.checked_sub(class) {
                    Some(0) => bytes = u64::to_le_bytes(class + 0x10).to_vec(),
                    Some(0x10) => bytes = u64::to_le_bytes(name.len() as u64).to_vec(),
                    Some(0x18) => bytes = name.as_bytes().to_vec(),
                    _ => {}
                }
            }
            let count = buffer.len().min(bytes.len());
            buffer[..count].copy_from_slice(&bytes[..count]);
            count
        }
    }

    #[test]
    fn a_boxed_number_never_changes() {
        let structs = VmStructs::of(&[
            ("oopDesc", "_metadata._klass", 8),
            ("Klass", "_name", 0),
            ("Symbol", "_length", 0),
            ("Symbol", "_body", 8),
        ]);
        let memory = Memory([(0x100, "java/lang/Integer"), (0x200, "Box")]);
        let objects = Objects {
            structs: &structs,
            memory: &memory,
        };
        let integer = Some("java.lang.Integer".to_owned());
        assert_eq!(objects.never_changes(0x810), integer);
        assert_eq!(objects.never_changes(0x814), integer);
        assert_eq!(objects.never_changes(0x850), None);
        assert_eq!(objects.never_changes(0x900), None);
    }
}
