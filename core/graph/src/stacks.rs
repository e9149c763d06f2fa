// SPDX-License-Identifier: MIT
//! Stacks by name. They are resolved when the graph is built: later the files of the programs may
//! have changed.

use std::collections::HashMap;

use flagfinder_code::{CallSites, Names, NamesInput};
use flagfinder_events::EventFile;
use rustc_hash::FxHashMap;

use crate::graph::Place;

/// From a process back to one whose code is known.
const GENERATIONS: usize = 16;

#[derive(Default)]
pub(crate) struct Stacks {
    /// Process and number of the stack in the recording, to the number in the graph.
    numbers: FxHashMap<(u32, u32), u32>,
    list: Vec<(u32, u32)>,
    /// A process that was forked runs its parent's code, until its own is known.
    parents: FxHashMap<u32, u32>,
}

/// What [`Meta`](crate::graph::Meta) keeps of stacks.
pub(crate) struct Named {
    pub sites: Vec<String>,
    pub places: Vec<Option<Place>>,
    pub stacks: Vec<Vec<u32>>,
}

/// A process's code.
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
        let names = &self.names;
        let mut found = vec![ip];
        let read = |at: u64, count: usize| names.file_code(at, count);
        self.sites.candidates(names, above, read, &mut found);
        let callers = self.sites.callers(names, ip, &found[1..]);
        found.truncate(1);
        found.extend(callers);
        found
    }
}

impl Stacks {
    pub fn number(&mut self, pid: u32, stack: u32) -> u32 {
        *self.numbers.entry((pid, stack)).or_insert_with(|| {
            self.list.push((pid, stack));
            self.list.len() as u32
        })
    }

    pub fn forked(&mut self, pid: u32, parent: u32) {
        if pid != parent {
            self.parents.insert(pid, parent);
        }
    }

    /// Names of call sites, where they are, and stacks of their numbers.
    pub fn resolve(self, file: &EventFile) -> Named {
        let recorded = (file.info.started_unix_ns / 1_000_000_000) as i64;
        let maps: HashMap<u32, &str> = file.maps.iter().map(|m| (m.pid, &m.text[..])).collect();
        let mut codes: HashMap<u32, Code> = HashMap::new();
        let mut sites: Vec<String> = Vec::new();
        let mut places = Vec::new();
        let mut numbers: HashMap<String, u32> = HashMap::new();
        let mut stacks = vec![Vec::new()];
        for (mut pid, stack) in self.list {
            for _ in 0..GENERATIONS {
                let parent = self.parents.get(&pid).filter(|_| !maps.contains_key(&pid));
                pid = parent.copied().unwrap_or(pid);
            }
            let text = maps.get(&pid).copied().unwrap_or_default();
            let code = codes
                .entry(pid)
                .or_insert_with(|| Code::new(text, recorded));
            let live = code.live(file.stack(stack));
            let named = live.into_iter().map(|address| {
                *code.known.entry(address).or_insert_with(|| {
                    let site = code.names.caller(address);
                    *numbers.entry(site.to_string()).or_insert_with_key(|name| {
                        sites.push(name.clone());
                        places.push(site.module.map(|module| Place {
                            module,
                            offset: site.offset,
                        }));
                        sites.len() as u32 - 1
                    })
                })
            });
            stacks.push(named.collect());
        }
        Named {
            sites,
            places,
            stacks,
        }
    }
}
