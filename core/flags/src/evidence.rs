//! What other runs and other threads say about candidates: who wrote them, what the
//! normal run read there, and how it left.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::Candidate;

/// A store to a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// From the normal run; else from the spin run.
    pub normal: bool,
    pub tid: u32,
    /// Run-time address of the instruction, in that run.
    pub pc: u64,
    /// As last stored.
    pub value: Option<u64>,
    pub count: u64,
    /// The store was made by a thread other than the reader (in that run).
    pub foreign: bool,
    /// Return addresses of the open calls then, innermost first.
    pub stack: Vec<u64>,
}

/// What the normal run says of one candidate.
#[derive(Clone, Debug, Default)]
pub struct Counterpart {
    /// Where the same instruction read in the normal run.
    pub address: Option<u64>,
    /// What it read when the normal run left by the exit.
    pub exit_value: Option<u64>,
    /// The same instruction ran at all.
    pub seen: bool,
}

/// All of it; empty when only a window is there.
#[derive(Clone, Debug, Default)]
pub struct Outside {
    /// By candidate address in the spin run.
    pub stores: FxHashMap<u64, Vec<Store>>,
    pub counterparts: FxHashMap<u64, Counterpart>,
    /// Exit branches (pc in the spin run): how often the normal runs took the other way.
    pub other_way: FxHashMap<u64, u64>,
    /// The branch at which the diff says the runs part (pc in the spin run).
    pub parting: Option<u64>,
    /// Branches (pc in the spin run) that the diff names beside it.
    pub also_parting: Vec<u64>,
    /// The thread of the normal run that does there what the spinning one does; others run the same code.
    pub reader: Option<u32>,
    /// A normal run with values was searched for stores.
    pub normal_searched: bool,
    /// The spin run's other threads were searched for stores.
    pub spin_searched: bool,
    /// Branches whose other way stays in the loop: they skip something, they leave nothing.
    pub skips: FxHashSet<u64>,
    /// Words other than zero that are as the program's file has them.
    pub as_in_file: FxHashSet<u64>,
    /// Words of the C library's or language runtime's own.
    pub of_runtime: FxHashSet<u64>,
    /// The process was looked at, without another run to compare with.
    pub live: bool,
}

impl Outside {
    /// What the other runs say about leaving by the branch at `pc`.
    pub fn exit(&self, pc: u64, _other: u64) -> Option<(f64, String)> {
        if self.parting == Some(pc) {
            return Some((
                0.3,
                "the normal run leaves the loop by this very branch".into(),
            ));
        }
        if self.also_parting.contains(&pc) {
            return Some((
                0.2,
                "the normal run goes the other way at this branch".into(),
            ));
        }
        if self.skips.contains(&pc) {
            return Some((
                -0.3,
                "its other way stays in the loop: it skips something".into(),
            ));
        }
        let count = self.other_way.get(&pc).copied().unwrap_or(0);
        (count > 0).then(|| {
            (
                0.15,
                format!("the normal run took the other way here {count} times"),
            )
        })
    }

    /// Was it made by another thread than the one that waits (in the normal run: than its counterpart)?
    pub fn is_foreign(&self, store: &Store) -> bool {
        store.foreign && !(store.normal && Some(store.tid) == self.reader)
    }

    /// Does a thread other than the reader write it where things go well? (In the spin
    /// run it may just have been set up before the loop.)
    pub fn is_written_by_others(&self, candidate: &Candidate) -> bool {
        let stores = self.stores.get(&candidate.address);
        stores.is_some_and(|stores| {
            let mut normal = stores.iter().filter(|store| store.normal);
            normal.any(|store| self.is_foreign(store))
        })
    }

    /// What the writers say about a candidate.
    pub fn judge(&self, candidate: &Candidate, _tid: u32, add: &mut dyn FnMut(f64, String)) {
        if self.as_in_file.contains(&candidate.address) {
            let why = "it is as the program's file has it, and not zero: a setting more likely";
            add(-0.06, why.into());
        }
        if self.of_runtime.contains(&candidate.address) {
            add(-0.2, "it belongs to the C library itself".into());
        }
        if self.live {
            let why = "nothing else is known: there is no good run to compare with";
            add(0.0, why.into());
        }
        let stores = self.stores.get(&candidate.address);
        let foreign = |normal: bool| {
            stores.and_then(|stores| {
                stores
                    .iter()
                    .find(|store| store.normal == normal && self.is_foreign(store))
            })
        };
        let counterpart = self.counterparts.get(&candidate.address);
        if let Some(store) = foreign(true) {
            add(
                0.3,
                format!("thread {} wrote it in the normal run", store.tid),
            );
        } else if self.normal_searched && counterpart.is_some_and(|c| c.seen) {
            if stores.is_some_and(|s| s.iter().any(|store| store.normal)) {
                add(-0.1, "in the normal run only its reader wrote it".into());
            } else {
                add(
                    -0.2,
                    "nobody wrote it in the recorded part of the normal run".into(),
                );
            }
        }
        if let Some(store) = foreign(false) {
            add(
                0.1,
                format!("thread {} wrote it in the spin run", store.tid),
            );
        }
        if let Some(value) = counterpart.and_then(|c| c.exit_value) {
            if Some(value) != candidate.value {
                add(0.15, format!("the normal run left with {value:#x} there"));
                let mut stores = stores.into_iter().flatten();
                if stores.any(|s| s.normal && self.is_foreign(s) && s.value == Some(value)) {
                    add(0.1, "that is what the other thread wrote".into());
                }
            } else {
                add(-0.15, "the normal run read the same value and left".into());
            }
        }
    }
}
