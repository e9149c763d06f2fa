// SPDX-License-Identifier: MIT
//! Which words of a goroutine's stack hold pointers that its open calls still use.
//!
//! In: the program's data, and a return address with the end of its frame. Out: the words of the
//! frame that the collector would follow there; older calls' words are none of them. Source: Go's
//! `runtime/symtab.go`, `stkframe.go` and `runtime2.go`, versions 1.18 to 1.26. Blind spot:
//! functions in assembly, which have no such maps.

use flagfinder_code::AddressSpace;

use super::runtime::Data;

/// What a table of functions begins with, where its functions keep their counts, and where the
/// module has what is told of them: in Go 1.18, and from 1.20 on.
const VERSIONS: [(u64, u64, u64); 2] = [(0xffff_fff0, 36, TOLD_OF_1_18), (0xffff_fff1, 40, TOLD)];
/// Words of `runtime.moduledata`: the table's slices, the first address of code, and where what is
/// told of functions begins.
const VALUES: u64 = 10;
const FUNCTIONS: u64 = 13;
const TABLE: u64 = 16;
const COUNT: u64 = 17;
const TEXT: u64 = 22;
const TOLD: u64 = 40;
const TOLD_OF_1_18: u64 = 38;
/// Of a function: the number of its tables by address, and the one of its maps among them.
const TABLES: u64 = 28;
const MAPS: u64 = 1;
/// Which of what is told of it are the maps of arguments, those of variables, and its objects.
const ARGUMENTS: u64 = 0;
const VARIABLES: u64 = 1;
const OBJECTS: u64 = 2;
const NONE: u64 = u32::MAX as u64;
/// The return address and the frame pointer stand behind the variables.
const LINKAGE: u64 = 16;
const MOST_WORDS: u64 = 1 << 16;
const MOST_OBJECTS: u64 = 1 << 10;
const LONGEST: usize = 1 << 16;

pub struct Slots {
    text: u64,
    /// Where functions are listed, and how many are.
    list: u64,
    count: u64,
    functions: u64,
    values: u64,
    told: u64,
    /// Where a function keeps how much is told of it.
    counts: u64,
}

impl Slots {
    pub fn find(memory: &dyn AddressSpace, data: &Data) -> Option<Slots> {
        data.all().find_map(|(at, header)| {
            let magic = memory.number(header, 4)?;
            let (_, counts, told) = VERSIONS.into_iter().find(|(one, ..)| *one == magic)?;
            let word = |index: u64| memory.word(at.checked_add(index * 8)?);
            let found = Slots {
                text: word(TEXT)?,
                list: word(TABLE)?,
                count: word(COUNT)?.checked_sub(1)?,
                functions: word(FUNCTIONS)?,
                values: word(VALUES)?,
                told: word(told)?,
                counts,
            };
            // The first function begins where the code does.
            let first = memory.number(found.list, 4)?;
            (first == 0 && found.count < 1 << 24).then_some(found)
        })
    }

    /// Places of the words that are in use where this call goes on. `end`: of its frame. `None`: it
    /// is not known.
    pub fn of(&self, memory: &dyn AddressSpace, pc: u64, end: u64) -> Option<Vec<u64>> {
        let (start, function) = self.function(memory, pc.wrapping_sub(1))?;
        let number = |at: u64| memory.number(function.checked_add(at)?, 4);
        let tables = number(TABLES)?;
        let told = memory.number(function.checked_add(self.counts + 3)?, 1)?;
        let first = self.counts + 4;
        let which = |index: u64| {
            if index >= told {
                return None;
            }
            let offset = number(first + (tables + index) * 4)?;
            (offset != NONE).then(|| self.told.checked_add(offset))?
        };
        if tables <= MAPS {
            return None;
        }
        let table = number(first + MAPS * 4)?;
        let map = self.value(memory, table, start, pc.wrapping_sub(1));
        let map = map.and_then(|map| u64::try_from(map).ok()).unwrap_or(0);
        let variables = end.checked_sub(LINKAGE)?;
        let mut found = Vec::new();
        let locals = which(VARIABLES)?;
        let size = memory.number(locals.checked_add(4)?, 4)?.min(MOST_WORDS);
        let begin = variables.checked_sub(size * 8)?;
        marked(memory, locals, map, begin, &mut found)?;
        if let Some(arguments) = which(ARGUMENTS) {
            marked(memory, arguments, map, end, &mut found)?;
        }
        if let Some(objects) = which(OBJECTS) {
            for index in 0..memory.word(objects)?.min(MOST_OBJECTS) {
                let one = objects.checked_add(8 + index * 16)?;
                let offset = memory.number(one, 4)? as u32 as i32;
                let size = memory.number(one.checked_add(4)?, 4)?.min(MOST_WORDS);
                let base = if offset < 0 { variables } else { end };
                let begin = base.checked_add_signed(offset.into())?;
                found.extend((begin..begin.checked_add(size)?).step_by(8));
            }
        }
        Some(found)
    }

    /// Where the function begins that holds the address, and what is told of it.
    fn function(&self, memory: &dyn AddressSpace, pc: u64) -> Option<(u64, u64)> {
        let wanted = pc.checked_sub(self.text)?;
        let entry = |index: u64| memory.number(self.list.checked_add(index * 8)?, 4);
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = (low + high) / 2;
            match entry(middle)? <= wanted {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let index = low.checked_sub(1)?;
        let offset = memory.number(self.list.checked_add(index * 8 + 4)?, 4)?;
        let start = self.text.checked_add(entry(index)?)?;
        Some((start, self.functions.checked_add(offset)?))
    }

    /// What a table of differences says of an address; `None`: it has nothing.
    fn value(&self, memory: &dyn AddressSpace, table: u64, start: u64, wanted: u64) -> Option<i64> {
        let mut at = self.values.checked_add(table).filter(|_| table != 0)?;
        let number = |at: &mut u64| {
            let mut value = 0u64;
            for shift in (0..35).step_by(7) {
                let byte = memory.number(*at, 1)?;
                *at += 1;
                value |= (byte & 0x7f) << shift;
                if byte & 0x80 == 0 {
                    return Some(value);
                }
            }
            None
        };
        let (mut pc, mut value) = (start, -1i64);
        for _ in 0..LONGEST {
            let delta = number(&mut at)?;
            if delta == 0 && pc != start {
                return None;
            }
            value += (delta >> 1) as i64 ^ -((delta & 1) as i64);
            pc = pc.checked_add(number(&mut at)?)?;
            if wanted < pc {
                return Some(value);
            }
        }
        None
    }
}

/// Adds the places from `begin` on that the map of this number marks.
fn marked(
    memory: &dyn AddressSpace,
    maps: u64,
    number: u64,
    begin: u64,
    found: &mut Vec<u64>,
) -> Option<()> {
    let count = memory.number(maps, 4)?;
    let bits = memory.number(maps.checked_add(4)?, 4)?.min(MOST_WORDS);
    if number >= count {
        return (count == 0).then_some(());
    }
    let first = maps.checked_add(8 + number * bits.div_ceil(8))?;
    for bit in 0..bits {
        if memory.number(first + bit / 8, 1)? >> (bit % 8) & 1 == 1 {
            found.push(begin.checked_add(bit * 8)?);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::Words;
    use super::*;

    const MODULE: u64 = 0x2000;
    const TEXT_AT: u64 = 0x40_0000;
    const END: u64 = 0x8100;

    /// Bytes as words, from a place on.
    fn bytes(at: u64, all: &[u8]) -> Vec<(u64, u64)> {
        let words = all.chunks(8).map(|part| {
            let mut eight = [0; 8];
            eight[..part.len()].copy_from_slice(part);
            u64::from_le_bytes(eight)
        });
        (at..).step_by(8).zip(words).collect()
    }

    fn numbers(all: &[u32]) -> Vec<u8> {
        all.iter().flat_map(|one| one.to_le_bytes()).collect()
    }

    /// A function of 64 bytes with two maps of three variables: up to its 32nd byte the first one.
    fn found(magic: u32, pc: u64) -> Option<Vec<u64>> {
        let (told, counts) = if magic == 0xffff_fff0 {
            (TOLD_OF_1_18, 36)
        } else {
            (TOLD, 40)
        };
        let mut function = vec![0u8; counts];
        function[TABLES as usize] = 2;
        function.extend([0, 0, 0, 2]);
        function.extend(numbers(&[0, 1, u32::MAX, 0]));
        let module = (0..48).map(|at| (MODULE + at * 8, 0));
        let fields = [
            (0, 0x3000),
            (VALUES, 0x4000),
            (FUNCTIONS, 0x5000),
            (TABLE, 0x6000),
            (COUNT, 2),
            (TEXT, TEXT_AT),
            (told, 0x7000),
        ];
        let fields = fields.map(|(index, word)| (MODULE + index * 8, word));
        let memory = module
            .chain(fields)
            .chain(bytes(0x3000, &numbers(&[magic, 0])))
            // To 0 for 32 bytes, then to 1.
            .chain(bytes(0x4000, &[0, 2, 32, 2, 32, 0, 0, 0]))
            .chain(bytes(0x5000, &function))
            .chain(bytes(0x6000, &numbers(&[0, 0, 64, 0])))
            .chain(bytes(0x7000, &[2, 0, 0, 0, 3, 0, 0, 0, 0b001, 0b110]));
        let memory = Words::from_iter(memory);
        let data = Data::read(&memory, std::slice::from_ref(&(MODULE..MODULE + 48 * 8)));
        Slots::find(&memory, &data)?.of(&memory, TEXT_AT + pc, END)
    }

    #[test]
    fn the_map_of_the_call_tells_what_is_in_use() {
        let first = END - LINKAGE - 24;
        for magic in [0xffff_fff0, 0xffff_fff1] {
            assert_eq!(found(magic, 8), Some(vec![first]), "{magic:x}");
            assert_eq!(found(magic, 40), Some(vec![first + 8, first + 16]));
        }
        assert_eq!(found(0xffff_ff00, 8), None, "another table");
    }
}
