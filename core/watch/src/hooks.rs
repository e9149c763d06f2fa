// SPDX-License-Identifier: MIT
//! The hooks on instructions: breakpoints while the debug registers do, probes else.
//!
//! A probe rests only after the kernel has waited for all processors, tenths of a second in which a
//! hot instruction still traps. A breakpoint rests at once, but takes a register from the words. So
//! words that are to be followed are found by breakpoints, and hooks that stay are probes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use flagfinder_bpf::{Attached, Breakpoint, Trap};

use crate::attach::{duplicate, probes, Breakpoints};
use crate::protocol::WATCH_MAX;
use crate::site::Site;
use crate::Result;

/// The size that the kernel asks for of a breakpoint on an instruction.
const EXECUTED: u32 = 8;

/// Dropping it removes them.
pub(crate) struct SiteHooks {
    probing: OwnedFd,
    trapping: OwnedFd,
    traps: Option<Breakpoints>,
    probes: Vec<Attached>,
}

impl SiteHooks {
    /// None is set. The programs are for probes and for breakpoints.
    pub fn new(probing: OwnedFd, trapping: OwnedFd) -> SiteHooks {
        SiteHooks {
            probing,
            trapping,
            traps: None,
            probes: Vec::new(),
        }
    }

    /// Execution of the sites traps from now on; `words` debug registers are taken.
    ///
    /// # Errors
    /// When the kernel refuses a hook.
    pub fn set(&mut self, pid: u32, sites: &[Site], words: usize) -> Result<()> {
        if let Some(traps) = &mut self.traps {
            if traps.renew().is_ok() && traps.enable(true).is_ok() {
                return Ok(());
            }
        }
        self.traps = match fit(sites, words) {
            true => open_traps(sites, self.trapping.as_fd()).ok(),
            false => None,
        };
        if self.traps.is_none() {
            self.probes = probes(pid, sites, &self.probing)?;
        }
        Ok(())
    }

    /// Execution of the sites traps no more.
    pub fn rest(&mut self) {
        self.probes.clear();
        let traps = self.traps.take();
        self.traps = traps.filter(|traps| traps.enable(false).is_ok());
    }

    /// Gives the debug registers back, if `words` need them: then execution traps no more.
    pub fn make_room(&mut self, sites: &[Site], words: usize) -> bool {
        let must = self.traps.is_some() && words + sites.len() > WATCH_MAX;
        if must {
            self.rest();
            self.traps = None;
        }
        must
    }
}

/// Other tools may have taken registers: then the kernel refuses.
fn open_traps(sites: &[Site], program: BorrowedFd<'_>) -> Result<Breakpoints> {
    let at = |site: &Site| Breakpoint {
        address: site.ip,
        size: EXECUTED,
        trap: Trap::Execute,
    };
    Breakpoints::open(duplicate(program)?, sites.iter().map(at).collect())
}

/// Are they to find words, and is there a register for each?
fn fit(sites: &[Site], words: usize) -> bool {
    sites.iter().any(|site| site.follow) && words + sites.len() <= WATCH_MAX
}
