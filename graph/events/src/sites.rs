// SPDX-License-Identifier: MIT
//! Which call sites of a stack are kept (Uscope, section III.C): by mode, within the budget.
//!
//! In: words of a stack that lie in code, or a copy of the stack; where each process has code, by
//! file. Out: call sites, innermost first. From a copy they are found by the unwind tables of the
//! files (`.eh_frame`), and then all of them are true callers. Blind spots: code without tables
//! ends the walk; what lies above the copy is not seen.

use std::sync::Arc;

use flagfinder_code::{AddressSpace, Frame, Names, NamesInput, Registers};
use rustc_hash::FxHashMap;

use crate::options::StackMode;
use crate::processes::span;
use crate::protocol::STACK_MOST;

/// In the first word of a stack whose words are callers by unwind tables. User addresses do not
/// have this bit.
pub const WALKED: u64 = 1 << 63;

/// Most callers that a walk passes to reach the outer ones that the mode asks for.
const DEEPEST: usize = 256;
/// Most processes whose unwind tables are held at once. Of further ones, words that lie in code are
/// kept.
const MOST_TABLES: usize = 64;
// As DWARF and the instruction set number them.
const RSP: usize = 4;
const RBP: usize = 5;

/// A thread's stack as it was recorded.
pub(crate) enum Recorded<'r> {
    /// Words that lie in code; where the thread was comes first.
    Words(&'r [u64]),
    /// Registers ip, sp, bp, and what lies at sp.
    Copy([u64; 3], &'r [u8]),
}

/// Where a process has code.
struct Code {
    /// By start: from, to, number of the file.
    ranges: Vec<(u64, u64, u32)>,
    /// The file that it runs.
    program: Option<u32>,
    /// Names with the files' unwind tables; only where stacks are copied.
    names: Option<Names>,
}

impl Code {
    fn new(maps: &str, program: &str, recorded: i64, walks: bool) -> Code {
        let mut files: FxHashMap<&str, u32> = FxHashMap::default();
        let mut ranges = Vec::new();
        for (start, end, path) in maps.lines().filter_map(span) {
            // Code without a file is a range by itself.
            let next = files.len() as u32;
            let file = match path {
                "" => u32::MAX - ranges.len() as u32,
                _ => *files.entry(path).or_insert(next),
            };
            ranges.push((start, end, file));
        }
        ranges.sort_unstable();
        Code {
            program: files.get(program).copied(),
            names: walks.then(|| Names::new(NamesInput::from_code_maps(maps, recorded))),
            ranges,
        }
    }

    /// The file whose code lies there.
    fn file(&self, address: u64) -> Option<u32> {
        let after = self.ranges.partition_point(|(start, ..)| *start <= address);
        let (_, end, file) = self.ranges.get(after.checked_sub(1)?)?;
        (address < *end).then_some(*file)
    }

    /// Where the thread is, and its callers; where there are no tables, words that lie in code.
    fn walk(&self, [ip, sp, bp]: [u64; 3], bytes: &[u8]) -> Vec<u64> {
        let mut registers: Registers = [None; 16];
        (registers[RSP], registers[RBP]) = (Some(sp), Some(bp));
        let copy = Copied { start: sp, bytes };
        let names = self.names.as_ref();
        let frames = names.map_or_else(Vec::new, |names| {
            names.frames(ip, registers, &copy, DEEPEST)
        });
        if frames.len() > 1 {
            let mut callers: Vec<u64> = frames.iter().map(|frame: &Frame| frame.pc).collect();
            callers[0] |= WALKED;
            return callers;
        }
        let words = bytes.chunks_exact(8).filter_map(|w| w.try_into().ok());
        let words = words.map(u64::from_le_bytes);
        let found = words.filter(|word| self.file(*word).is_some());
        std::iter::once(ip).chain(found.take(DEEPEST)).collect()
    }

    fn keep(&self, mode: StackMode, budget: usize, words: &[u64]) -> Vec<u64> {
        let Some((&first, above)) = words.split_first() else {
            return Vec::new();
        };
        let file_of = |word: u64| self.file(word & !WALKED);
        let is_own = |word: &&u64| file_of(**word) == self.program;
        let mut kept = vec![first];
        match mode {
            StackMode::Off => {}
            StackMode::All => kept.extend(above.iter().take(budget)),
            StackMode::Application => kept.extend(above.iter().find(is_own)),
            StackMode::ApplicationAll => {
                kept.extend(above.iter().filter(is_own).take(budget));
            }
            StackMode::Library => {
                let mut seen: Vec<Option<u32>> = vec![file_of(first)];
                for &word in above {
                    if kept.len() > budget {
                        break;
                    }
                    let file = file_of(word);
                    if !seen.contains(&file) {
                        seen.push(file);
                        kept.push(word);
                    }
                }
            }
        }
        kept
    }
}

/// The part of a thread's memory that was copied.
struct Copied<'c> {
    start: u64,
    bytes: &'c [u8],
}

impl AddressSpace for Copied<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let place = address.checked_sub(self.start);
        let from = place.and_then(|place| self.bytes.get(usize::try_from(place).ok()?..));
        let from = from.unwrap_or(&[]);
        let count = from.len().min(buffer.len());
        buffer[..count].copy_from_slice(&from[..count]);
        count
    }
}

/// All processes' code, and what is kept of their stacks.
pub(crate) struct Sites {
    mode: StackMode,
    budget: usize,
    /// Seconds since 1970 when the recording began.
    recorded: i64,
    walks: bool,
    code: FxHashMap<u32, Arc<Code>>,
}

impl Sites {
    pub fn new(mode: StackMode, budget: u32, walks: bool, recorded: i64) -> Sites {
        Sites {
            mode,
            budget: (budget as usize).min(STACK_MOST - 1),
            recorded,
            walks,
            code: FxHashMap::default(),
        }
    }

    /// A process has code there: lines of its maps, and the path of its program.
    pub fn learn(&mut self, pid: u32, maps: &str, program: &str) {
        if self.mode == StackMode::Off || self.mode == StackMode::All && !self.walks {
            return; // nothing is asked of it
        }
        self.code.remove(&pid);
        let walks = self.walks && self.code.len() < MOST_TABLES;
        let code = Code::new(maps, program, self.recorded, walks);
        self.code.insert(pid, Arc::new(code));
    }

    /// A process starts with its parent's code.
    pub fn forked(&mut self, pid: u32, parent: u32) {
        if let Some(code) = self.code.get(&parent).filter(|_| pid != parent) {
            self.code.insert(pid, Arc::clone(code));
        }
    }

    pub fn ended(&mut self, pid: u32) {
        self.code.remove(&pid);
    }

    pub fn knows(&self, pid: u32) -> bool {
        self.code.contains_key(&pid)
    }

    /// Python functions that are kept of a stack: they are the program's own.
    pub fn python_budget(&self) -> usize {
        match self.mode {
            StackMode::Off => 0,
            StackMode::Application => 1,
            _ => self.budget,
        }
    }

    /// The call sites of a stack that are kept. Where the process's code is not known yet, those
    /// that were recorded; none of a copy but where the thread was.
    pub fn keep(&self, pid: Option<u32>, stack: &Recorded<'_>) -> Vec<u64> {
        let code = pid.and_then(|pid| self.code.get(&pid));
        match (code, stack) {
            (None, Recorded::Words(words)) => words.iter().take(self.budget + 1).copied().collect(),
            (None, Recorded::Copy([ip, ..], _)) => vec![*ip],
            // The kernel has kept those of the program.
            (Some(code), Recorded::Words(words)) => code.keep(self.mode, self.budget, words),
            (Some(code), Recorded::Copy(registers, bytes)) => {
                code.keep(self.mode, self.budget, &code.walk(*registers, bytes))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "1000-2000 r-xp 00001000 08:01 12 /bin/app\n\
                        7000-8000 r-xp 00000000 08:01 13 /lib/a.so\n\
                        8000-8100 r-xp 00001000 08:01 13 /lib/a.so\n\
                        9000-a000 r-xp 00000000 08:01 14 /lib/b.so";

    fn kept(mode: StackMode, budget: u32, words: &[u64]) -> Vec<u64> {
        let mut sites = Sites::new(mode, budget, false, 0);
        sites.learn(5, MAPS, "/bin/app");
        sites.keep(Some(5), &Recorded::Words(words))
    }

    #[test]
    fn each_mode_keeps_its_own_within_the_budget() {
        // In a.so, which b.so called twice, which the program called.
        let words = [0x7010, 0x8020, 0x9010, 0x9020, 0x1010, 0x1020, 0x9030];
        let application = kept(StackMode::Application, 8, &words);
        assert_eq!(application, [0x7010, 0x1010]);
        let all_of_it = kept(StackMode::ApplicationAll, 8, &words);
        assert_eq!(all_of_it, [0x7010, 0x1010, 0x1020]);
        assert_eq!(kept(StackMode::ApplicationAll, 1, &words), application);
        let one_of_each = kept(StackMode::Library, 8, &words);
        assert_eq!(one_of_each, [0x7010, 0x9010, 0x1010]);
        assert_eq!(kept(StackMode::Library, 1, &words), [0x7010, 0x9010]);
        assert_eq!(kept(StackMode::All, 8, &words), words);
        assert_eq!(kept(StackMode::All, 2, &words), words[..3]);
    }

    #[test]
    fn a_process_that_starts_has_its_parent_s_code() {
        let mut sites = Sites::new(StackMode::Library, 8, false, 0);
        sites.learn(5, MAPS, "/bin/app");
        sites.forked(6, 5);
        let words = [0x7010, 0x8020, 0x1010];
        let kept = |sites: &Sites, pid| sites.keep(Some(pid), &Recorded::Words(&words));
        assert_eq!(kept(&sites, 6), [0x7010, 0x1010]);
        sites.ended(6);
        assert_eq!(kept(&sites, 6), words);
    }

    #[test]
    fn a_copy_is_read_as_far_as_it_goes() {
        let copied = Copied {
            start: 0x100,
            bytes: &[1, 0, 0, 0, 0, 0, 0, 0, 2],
        };
        assert_eq!(copied.word(0x100), Some(1));
        assert_eq!(copied.word(0x108), None);
        assert_eq!(copied.word(0xf8), None);
    }

    /// This thread's own stack, with a frame that is larger than what is scanned without tables.
    #[test]
    fn callers_are_found_by_unwind_tables_across_large_frames() {
        let (mut words, mut registers) = (Vec::new(), [0; 3]);
        outermost(&mut |here| (registers, words) = here);
        let maps = crate::processes::code_maps(std::process::id()).unwrap();
        let program = flagfinder_linux::proc::program(std::process::id());
        let recorded = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64;
        let mut sites = Sites::new(StackMode::All, 31, true, recorded);
        sites.learn(1, &maps, &program);
        let found = sites.keep(Some(1), &Recorded::Copy(registers, &words));
        assert_eq!(found[0], registers[0] | WALKED);
        let names = Names::new(NamesInput::from_code_maps(&maps, recorded));
        let called: Vec<String> = found[1..]
            .iter()
            .map(|pc| names.caller(*pc).to_string())
            .collect();
        let place = |name: &str| called.iter().position(|site| site.contains(name));
        assert!(
            place("large_frame").unwrap() < place("outermost").unwrap(),
            "{called:?}"
        );
    }

    type Here = ([u64; 3], Vec<u8>);

    #[inline(never)]
    fn outermost(tell: &mut dyn FnMut(Here)) {
        large_frame(tell);
        std::hint::black_box(());
    }

    #[inline(never)]
    fn large_frame(tell: &mut dyn FnMut(Here)) {
        let room = std::hint::black_box([0u8; 640]);
        innermost(tell);
        std::hint::black_box(room);
    }

    #[inline(never)]
    fn innermost(tell: &mut dyn FnMut(Here)) {
        let (ip, sp, bp): (u64, u64, u64);
        // SAFETY: registers are read, and the stack above, which this thread owns.
        let bytes = unsafe {
            std::arch::asm!(
                "lea {0}, [rip]", "mov {1}, rsp", "mov {2}, rbp",
                out(reg) ip, out(reg) sp, out(reg) bp
            );
            std::slice::from_raw_parts(sp as *const u8, 3072).to_vec()
        };
        tell(([ip, sp, bp], bytes));
    }
}
