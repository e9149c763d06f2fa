// SPDX-License-Identifier: MIT
//! The backend `perf`: BPF programs on breakpoints of every CPU and on probes. The target is never
//! stopped.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use flagfinder_bpf::{require, Breakpoint, Capability, Counts, Object, Ring, Table, Trap};

use crate::attach::{duplicate, Breakpoints};
use crate::hooks::SiteHooks;
use crate::place::Place;
use crate::protocol::{Config, Count, Held, Hit, ReadSite, Reader, Word};
use crate::site::Site;
use crate::Result;

/// CPUs that came online are looked for this often.
const RENEWAL: Duration = Duration::from_secs(1);

/// Dropping it removes the breakpoints and hooks; so does the kernel when this process dies.
pub(crate) struct Perf {
    _object: Object,
    ring: Ring,
    counts: Counts<Count>,
    readers: Table<Reader, Held>,
    read_sites: Table<u64, ReadSite>,
    words: Table<u64, Word>,
    watching: Option<OwnedFd>,
    breakpoints: Option<Breakpoints>,
    hooks: Option<SiteHooks>,
    renewed: Instant,
}

/// Before anything is looked for: whether this user may.
///
/// # Errors
/// The missing capability, in four parts.
pub(crate) fn check_privileges() -> Result<()> {
    require(
        "Watching a process",
        &[Capability::Bpf, Capability::Perfmon],
    )
}

impl Perf {
    /// # Errors
    /// When the kernel refuses the programs, a breakpoint or a hook.
    pub fn open(
        pid: u32,
        words: &[Place],
        sites: &[Site],
        reads: bool,
        most_readers: Option<u32>,
        object: &[u8],
    ) -> Result<Perf> {
        let config = config(pid, words, sites, reads);
        let sizes: Vec<(&str, u32)> = most_readers
            .map(|most| ("readers", most))
            .into_iter()
            .collect();
        let mut object = Object::load(object, ("ff_config", &config), &[], &sizes)?;
        object.find_namespace()?;
        let watching = duplicate(object.program("ff_watch")?)?;
        let hooks = match sites.is_empty() {
            true => None,
            false => {
                let probing = duplicate(object.program("ff_site")?)?;
                let trapping = duplicate(object.program("ff_site_trap")?)?;
                Some(SiteHooks::new(probing, trapping))
            }
        };
        let mut perf = Perf {
            ring: object.ring("hits")?,
            counts: object.counts("counts")?,
            readers: object.table("readers")?,
            read_sites: object.table("read_sites")?,
            words: object.table("words")?,
            _object: object,
            watching: Some(watching),
            breakpoints: None,
            hooks,
            renewed: Instant::now(),
        };
        for (word, number) in words.iter().zip(0..) {
            perf.watch(number, (word.address, word.size), reads)?;
        }
        perf.hook(pid, sites, words.len())?;
        Ok(perf)
    }

    /// Accesses to one more word trap from now on.
    ///
    /// # Errors
    /// When the kernel refuses a breakpoint.
    pub fn watch(&mut self, number: u32, place: (u64, u32), reads: bool) -> Result<()> {
        let (address, size) = place;
        if self.words.get(&address).is_none() {
            let word = Word {
                place: number,
                size,
                reads: u32::from(reads),
            };
            self.words.insert(address, word);
        }
        let Some(program) = &self.watching else {
            return Ok(()); // nothing traps any more
        };
        let trap = if reads { Trap::ReadWrite } else { Trap::Write };
        let breakpoint = Breakpoint {
            address,
            size,
            trap,
        };
        match &mut self.breakpoints {
            Some(breakpoints) => breakpoints.add(breakpoint),
            none => {
                let program = duplicate(program.as_fd())?;
                *none = Some(Breakpoints::open(program, vec![breakpoint])?);
                Ok(())
            }
        }
    }

    /// Execution of the sites traps from now on; so many words are watched.
    ///
    /// # Errors
    /// When the kernel refuses a hook.
    pub fn hook(&mut self, pid: u32, sites: &[Site], words: usize) -> Result<()> {
        match &mut self.hooks {
            Some(hooks) => hooks.set(pid, sites, words),
            None => Ok(()),
        }
    }

    /// Execution of the sites traps no more.
    pub fn unhook(&mut self) {
        if let Some(hooks) = &mut self.hooks {
            hooks.rest();
        }
    }

    /// Debug registers for so many words. Whether the hooks rest for that.
    pub fn make_room(&mut self, sites: &[Site], words: usize) -> bool {
        let hooks = self.hooks.as_mut();
        hooks.is_some_and(|hooks| hooks.make_room(sites, words))
    }

    pub fn wait(&mut self, patience: Duration) {
        self.ring.wait(patience);
    }

    /// Hands over up to `most` hits; `take` answers with code that only reads, which BPF is told at
    /// once.
    pub fn drain(
        &mut self,
        most: usize,
        mut take: impl FnMut(Hit) -> Option<(u64, ReadSite)>,
    ) -> usize {
        let read_sites = &mut self.read_sites;
        self.ring.drain(most, |record| {
            if let Some((ip, site)) = Hit::read(record).and_then(&mut take) {
                // If there is no room, BPF sends every read, and reads are thinned out here.
                read_sites.insert(ip, site);
            }
        })
    }

    pub fn held(&self, reader: &Reader) -> Option<Held> {
        self.readers.get(reader)
    }

    /// # Errors
    /// When a CPU that came online can't be covered.
    pub fn renew(&mut self) -> Result<()> {
        if self.renewed.elapsed() > RENEWAL {
            self.renewed = Instant::now();
            if let Some(breakpoints) = &mut self.breakpoints {
                breakpoints.renew()?;
            }
        }
        Ok(())
    }

    pub fn detach(&mut self) {
        self.breakpoints = None;
        (self.watching, self.hooks) = (None, None);
    }

    pub fn counted(&self) -> Counted {
        let counts = self.counts.read();
        let cpus = counts.iter().zip(0..).filter(|(count, _)| count.lost > 0);
        Counted {
            lost: counts.iter().map(|count| count.lost).sum(),
            hits: counts.iter().map(|count| count.hits).sum(),
            crowded: counts.iter().map(|count| count.crowded).sum(),
            cpus: cpus.map(|(count, cpu)| (cpu, count.lost)).collect(),
        }
    }
}

/// Accesses that trapped, and records lost: in all, and by CPU where that is known.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub hits: u64,
    /// Reads that were not held back: there was no room for another reader.
    pub crowded: u64,
    pub lost: u64,
    pub cpus: BTreeMap<u32, u64>,
}

/// What whoever traps must know.
pub(crate) fn config(pid: u32, words: &[Place], sites: &[Site], reads: bool) -> Config {
    let mut config = Config {
        tgid: pid,
        sites: sites.len() as u32,
        ..Config::default()
    };
    if let [word] = words {
        (config.address, config.size) = (word.address, word.size);
        config.reads = u32::from(reads);
    }
    for (to, site) in config.site.iter_mut().zip(sites) {
        *to = site.config();
    }
    config
}
