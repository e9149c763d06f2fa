// SPDX-License-Identifier: MIT
//! Stacks by name. They are resolved when the graph is built: later the files of the programs may
//! have changed.

use std::collections::{BTreeMap, HashMap};

use flagfinder_code::{CallSites, Names, NamesInput};
use flagfinder_events::{EventFile, PythonFact, PYTHON, WALKED};
use rustc_hash::FxHashMap;

use crate::graph::Place;
use crate::site::{KERNEL_SITE, PYTHON_SITE};

/// Most generations between a process and one whose code is known.
const GENERATIONS: usize = 16;

/// How a function that the recorder named stands in a stack: `Job.run (python job.py:12)`, or
/// `rwsem_down_read_slowpath (kernel)`.
fn recorded_site(function: &PythonFact) -> String {
    let PythonFact {
        name, file, line, ..
    } = function;
    if file.is_empty() {
        return format!("{name}{KERNEL_SITE}");
    }
    let file = file.rsplit('/').next().unwrap_or(file);
    format!("{name}{PYTHON_SITE}{file}:{line})")
}

#[derive(Default)]
pub(crate) struct Stacks {
    /// Process and number of the stack in the recording, to the number in the graph.
    numbers: FxHashMap<(u32, u32), u32>,
    list: Vec<(u32, u32)>,
    /// Processes and addresses that threads were found at, from 1.
    places: Vec<(u32, u64)>,
    place_numbers: FxHashMap<(u32, u64), u32>,
    /// A process that was forked runs its parent's code, until its own is known.
    parents: FxHashMap<u32, u32>,
}

/// What [`Meta`](crate::graph::Meta) keeps of stacks.
pub(crate) struct Named {
    pub sites: Vec<String>,
    pub places: Vec<Option<Place>>,
    pub stacks: Vec<Vec<u32>>,
    /// Call sites (the first stands for none) that threads were found at.
    pub found_at: Vec<String>,
}

struct Code {
    names: Names,
    sites: CallSites,
    /// Numbers of call sites that were named before.
    known: FxHashMap<u64, u32>,
}

impl Code {
    fn new(maps: &str, recorded: i64) -> Code {
        Code {
            names: Names::new(NamesInput::from_code_maps(maps, recorded)),
            sites: CallSites::default(),
            known: FxHashMap::default(),
        }
    }

    /// The live call sites among the words, innermost first. The first word is where the thread
    /// was.
    fn live(&mut self, words: &[u64]) -> Vec<u64> {
        let Some((&ip, above)) = words.split_first() else {
            return Vec::new();
        };
        if ip & WALKED != 0 {
            return std::iter::once(ip & !WALKED)
                .chain(above.iter().copied())
                .collect();
        }
        let names = &self.names;
        let mut found = vec![ip];
        let read = |at: u64, count: usize| names.file_code(at, count);
        self.sites.candidates(names, above, read, &mut found);
        let callers = self.sites.callers(names, ip, &found[1..]);
        found.truncate(1);
        found.extend(callers);
        found
    }

    /// Numbers of the call sites of a stack: those in the kernel, those in the program's code, and
    /// the Python functions that this code interprets.
    fn stack(
        &mut self,
        words: &[u64],
        python: &BTreeMap<u32, PythonFact>,
        told: &mut Told,
    ) -> Vec<u32> {
        let is_python = |word: &u64| word & (PYTHON | WALKED) == PYTHON;
        let native = words.iter().position(is_python).unwrap_or(words.len());
        let (native, functions) = words.split_at(native);
        let functions = functions.iter().map(|word| *word as u32);
        let functions = functions.filter_map(|number| python.get(&number));
        let (kernel, functions): (Vec<_>, Vec<_>) =
            functions.partition(|function| function.file.is_empty());
        let mut number = |function| told.number(recorded_site(function), None);
        let mut named: Vec<u32> = kernel.into_iter().map(&mut number).collect();
        let functions: Vec<u32> = functions.into_iter().map(number).collect();
        for address in self.live(native) {
            named.push(*self.known.entry(address).or_insert_with(|| {
                let site = self.names.caller(address);
                let name = site.to_string();
                let offset = site.offset;
                told.number(name, site.module.map(|module| Place { module, offset }))
            }));
        }
        named.extend(functions);
        named
    }
}

impl Stacks {
    pub fn number(&mut self, pid: u32, stack: u32) -> u32 {
        *self.numbers.entry((pid, stack)).or_insert_with(|| {
            self.list.push((pid, stack));
            self.list.len() as u32
        })
    }

    /// The number of an address that a thread of a process was found at.
    pub fn place(&mut self, pid: u32, address: u64) -> u32 {
        *self.place_numbers.entry((pid, address)).or_insert_with(|| {
            self.places.push((pid, address));
            self.places.len() as u32
        })
    }

    pub fn forked(&mut self, pid: u32, parent: u32) {
        if pid != parent {
            self.parents.insert(pid, parent);
        }
    }

    /// It runs its parent's code no more. If its own is never known, its call sites have no names.
    pub fn executed(&mut self, pid: u32) {
        self.parents.remove(&pid);
    }

    /// Names of call sites, where they are, and stacks of their numbers.
    pub fn resolve(self, file: &EventFile) -> Named {
        let recorded = (file.info.started_unix_ns / 1_000_000_000) as i64;
        let maps: HashMap<u32, &str> = file.maps.iter().map(|m| (m.pid, &m.text[..])).collect();
        self.name(&maps, &file.python, recorded, |stack| file.stack(stack))
    }

    /// The same of code `maps` by process, which were so `recorded` seconds after 1970, of Python
    /// functions by number, and of the words of each stack.
    pub fn name<'w>(
        self,
        maps: &HashMap<u32, &str>,
        python: &BTreeMap<u32, PythonFact>,
        recorded: i64,
        words: impl Fn(u32) -> &'w [u64],
    ) -> Named {
        let mut told = Told::default();
        let mut found_at = vec![String::new(); self.places.len() + 1];
        let mut stacks = vec![Vec::new(); self.list.len() + 1];
        for (text, work) in self.by_code(maps) {
            let mut code = Code::new(text, recorded);
            for at in work.places {
                found_at[at + 1] = code.names.code(self.places[at].1).to_string();
            }
            for at in work.stacks {
                stacks[at + 1] = code.stack(words(self.list[at].1), python, &mut told);
            }
        }
        told.renumber(&mut stacks);
        Named {
            sites: told.sites,
            places: told.places,
            stacks,
            found_at,
        }
    }

    /// What is to be named by each code map. The code of one is dropped before that of the next is
    /// read: there may be a map for each of thousands of processes.
    fn by_code<'m>(&self, maps: &HashMap<u32, &'m str>) -> Vec<(&'m str, Work)> {
        let mut all: Vec<(&str, Work)> = Vec::new();
        let mut by_text: FxHashMap<&str, usize> = FxHashMap::default();
        let mut by_pid: FxHashMap<u32, usize> = FxHashMap::default();
        let mut code_of = |all: &mut Vec<(&'m str, Work)>, pid: u32| {
            *by_pid.entry(pid).or_insert_with(|| {
                let text = self.code_map(maps, pid);
                *by_text.entry(text).or_insert_with(|| {
                    all.push((text, Work::default()));
                    all.len() - 1
                })
            })
        };
        for (at, (pid, _)) in self.places.iter().enumerate() {
            let code = code_of(&mut all, *pid);
            all[code].1.places.push(at);
        }
        for (at, (pid, _)) in self.list.iter().enumerate() {
            let code = code_of(&mut all, *pid);
            all[code].1.stacks.push(at);
        }
        all
    }

    /// The map of the code that a process runs: its own, or that of who forked it.
    fn code_map<'m>(&self, maps: &HashMap<u32, &'m str>, mut pid: u32) -> &'m str {
        for _ in 0..GENERATIONS {
            let parent = self.parents.get(&pid).filter(|_| !maps.contains_key(&pid));
            pid = parent.copied().unwrap_or(pid);
        }
        maps.get(&pid).copied().unwrap_or_default()
    }
}

/// Indices of the places and stacks that one code map names.
#[derive(Default)]
struct Work {
    places: Vec<usize>,
    stacks: Vec<usize>,
}

/// Call sites that were named, whatever process they are of.
#[derive(Default)]
struct Told {
    sites: Vec<String>,
    places: Vec<Option<Place>>,
    numbers: HashMap<String, u32>,
}

impl Told {
    fn number(&mut self, name: String, place: Option<Place>) -> u32 {
        *self.numbers.entry(name).or_insert_with_key(|name| {
            self.sites.push(name.clone());
            self.places.push(place);
            self.sites.len() as u32 - 1
        })
    }

    /// Numbers sites in the order in which the stacks name them first, whatever was named first.
    fn renumber(&mut self, stacks: &mut [Vec<u32>]) {
        let mut newer: Vec<Option<u32>> = vec![None; self.sites.len()];
        let (mut sites, mut places) = (Vec::new(), Vec::new());
        for site in stacks.iter_mut().flatten() {
            let old = *site as usize;
            *site = *newer[old].get_or_insert_with(|| {
                sites.push(std::mem::take(&mut self.sites[old]));
                places.push(self.places[old].take());
                sites.len() as u32 - 1
            });
        }
        (self.sites, self.places) = (sites, places);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two processes whose code maps have no file behind them: sites are called by their offsets.
    const ONE: &str = "1000-2000 r-xp 00000000 00:05 7 /nowhere/one\n";
    const TWO: &str = "5000-6000 r-xp 00000000 00:05 8 /nowhere/two\n";

    #[test]
    fn sites_have_numbers_in_the_order_of_stacks_whoever_is_named_first() {
        let mut stacks = Stacks::default();
        let walked: [&[u64]; 4] = [&[], &[0x1010, 0x1020], &[0x5010], &[0x1030, 0x1010]];
        // The first word says that these are call sites.
        let of_words = |walked: &&[u64]| -> Vec<u64> {
            let mut words = walked.to_vec();
            words.iter_mut().take(1).for_each(|word| *word |= WALKED);
            words
        };
        let words: Vec<Vec<u64>> = walked.iter().map(of_words).collect();
        // Process 3 is a fork of 1, 4 has the same map as 2.
        stacks.forked(3, 1);
        for (pid, stack) in [(1, 1), (2, 2), (3, 3), (4, 2)] {
            stacks.number(pid, stack);
        }
        stacks.place(2, 0x5020);
        stacks.place(1, 0x1010);
        let maps = HashMap::from([(1, ONE), (2, TWO), (4, TWO)]);
        let named = stacks.name(&maps, &BTreeMap::new(), 0, |stack| &words[stack as usize]);
        assert_eq!(named.sites[0], "one+0x10");
        assert_eq!(named.sites[2], "two+0x10");
        assert_eq!(named.found_at, ["", "two+0x20", "one+0x10"]);
        assert_eq!(named.stacks[1].len(), 2);
        assert_eq!(
            named.stacks[1..],
            [vec![0, 1], vec![2], vec![3, 0], vec![2]]
        );
        assert_eq!(named.places.len(), named.sites.len());
    }
}
