// SPDX-License-Identifier: MIT
//! Which classes of the program are loaded, and which extend or implement another one.
//!
//! In: HotSpot's list of loaders, each with its classes. Out: by class of the program, those below
//! it. Blind spots: classes that are only loaded later.

use flagfinder_code::Whose;
use rustc_hash::FxHashMap;

use super::java_frames::{whose, Frames};
use super::vm_structs::Kinds;

/// Most loaders and classes that are looked at, and ancestors of one.
const MOST_LOADERS: usize = 20_000;
const MOST_CLASSES: usize = 60_000;
const MOST_ANCESTORS: usize = 64;
/// Most that are below others, each counted with every one that it is below.
const MOST_BELOW: usize = 1 << 20;

/// Of all classes that are loaded.
pub fn read(frames: &Frames) -> Kinds {
    let mut kinds = Kinds::default();
    let mut names: FxHashMap<u64, Option<String>> = FxHashMap::default();
    let mut own = |class: u64| {
        let name = names.entry(class).or_insert_with(|| {
            let name = frames.word(class, "Klass", "_name");
            let name = name.and_then(|name| frames.symbol(name))?;
            (whose(&name) != Whose::System && !name.starts_with('[')).then_some(name)
        });
        name.clone()
    };
    let mut found = 0;
    for class in loaded(frames) {
        if found >= MOST_BELOW {
            break;
        }
        let interfaces = frames.word(class, "InstanceKlass", "_transitive_interfaces");
        let interfaces = interfaces.filter(|all| *all != 0);
        let above = std::iter::successors(frames.word(class, "Klass", "_super"), |class| {
            frames.word(*class, "Klass", "_super")
        });
        let above = above.take_while(|one| *one != 0).take(MOST_ANCESTORS);
        let interfaces =
            interfaces.map_or_else(Vec::new, |all| frames.elements(all, "Array<Klass*>"));
        for one in above.chain(interfaces) {
            if let Some(name) = own(one).filter(|_| one != class) {
                kinds.below.entry(one).or_default().push(class);
                found += 1;
                kinds.by_name.insert(name, one);
            }
        }
    }
    kinds
}

/// All classes but those of arrays.
fn loaded(frames: &Frames) -> Vec<u64> {
    let head = frames.structs.place("ClassLoaderDataGraph", "_head");
    let mut loader = head.and_then(|head| frames.memory.word(head)).unwrap_or(0);
    let mut found = Vec::new();
    for _ in 0..MOST_LOADERS {
        if loader == 0 {
            break;
        }
        let mut class = frames
            .word(loader, "ClassLoaderData", "_klasses")
            .unwrap_or(0);
        while class != 0 && found.len() < MOST_CLASSES {
            // That of an array is laid out in another way: its layout is told by a negative number.
            let layout = frames.number(class, "Klass", "_layout_helper", 4);
            if layout.is_some_and(|layout| layout as i32 >= 0) {
                found.push(class);
            }
            class = frames.word(class, "Klass", "_next_link").unwrap_or(0);
        }
        loader = frames.word(loader, "ClassLoaderData", "_next").unwrap_or(0);
    }
    found
}

#[cfg(test)]
mod tests {
    use flagfinder_code::AddressSpace;

    use super::super::vm_structs::VmStructs;
    use super::*;

    /// Where all names lie, and what leads there.
    const NAMES: u64 = 0x10_0000;
    const LEADS: u64 = 0x8000_0000;

    /// Each word leads to some class, and lists have many thousands of them.
    struct Tangle;

    impl AddressSpace for Tangle {
        fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
            let word = |at: u64| match at {
                LEADS.. => NAMES,
                NAMES.. => u64::from_le_bytes([b'A'; 8]),
                _ => 0x1000 + ((at * 31 % 0x1000) & !7),
            };
            for (chunk, at) in buffer.chunks_mut(8).zip((address..).step_by(8)) {
                chunk.copy_from_slice(&word(at).to_le_bytes()[..chunk.len()]);
            }
            buffer.len()
        }
    }

    #[test]
    fn of_classes_that_are_all_below_each_other_not_all_are_kept() {
        let structs = VmStructs::of(&[
            ("ClassLoaderDataGraph", "_head", 0),
            ("ClassLoaderData", "_klasses", 8),
            ("ClassLoaderData", "_next", 16),
            ("Klass", "_layout_helper", 0),
            ("Klass", "_next_link", 8),
            ("Klass", "_super", 16),
            ("Klass", "_name", LEADS),
            ("InstanceKlass", "_transitive_interfaces", 24),
            ("Array<int>", "_length", 0),
            ("Array<Klass*>", "_data", 8),
            ("Symbol", "_length", 0),
            ("Symbol", "_body", 0),
        ]);
        let memory = &Tangle;
        let kinds = read(&Frames {
            structs: &structs,
            memory,
        });
        let below: usize = kinds.below.values().map(Vec::len).sum();
        assert!(
            (1 << 16..MOST_BELOW + (1 << 16)).contains(&below),
            "{below}"
        );
    }
}
