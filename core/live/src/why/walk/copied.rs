// SPDX-License-Identifier: MIT
//! What copies of threads tell the walk: who would end a wait, and whether the one that waits would
//! go on.

use std::time::{Duration, Instant};

use flagfinder_linux::clock::Effort;

use super::super::flags;
use super::super::held::CONDITION;
use super::super::obstacle::{Debtor, End, Obstacle, Weight, Who};
use super::super::place::is_on;
use super::super::report::{Known, Link, RootKind};
use super::super::way::{Chosen, Outcome};
use super::{holder, Place, Walk, MOST_THREADS};
use crate::effects::{ahead, once_woken, Ahead, Asking, Copies, Effect};
use crate::owed_proof::Strength;

/// Time for a copy of a thread that waits.
const OF_WAITER: Duration = Duration::from_millis(500);

impl Walk<'_> {
    /// Threads of which a copy ends the wait owe it, in place of all that are left, and of all
    /// others that hold the channel. `is_lone`: the thread waits for nothing else.
    pub(super) fn ask_who_ends(&mut self, waiting: Place, obstacle: &mut Obstacle, is_lone: bool) {
        let mut proved: Vec<(Strength, Debtor)> = Vec::new();
        let mut idle: Vec<Debtor> = Vec::new();
        let holders = obstacle.debtors.iter().filter(|one| holder(one).is_some());
        let has_several = holders.count() > 1;
        for debtor in std::mem::take(&mut obstacle.debtors) {
            let asked = self.ask(&debtor, waiting, (is_lone, has_several));
            let Some((pid, effect, mut ahead)) = asked else {
                obstacle.debtors.push(debtor);
                continue;
            };
            if obstacle.by_elimination && ahead.strength < Strength::Met {
                ahead = self.once_met((pid, effect), waiting, obstacle, ahead);
            }
            // Of those that inherited a channel, one is to use it.
            if has_several && holder(&debtor).is_some() && ahead.strength < Strength::Next {
                idle.push(debtor);
                continue;
            }
            let is_own = pid == waiting.0 && waiting != self.first;
            match nobody_uses(pid, effect) {
                _ if !ahead.owed.is_empty() => {
                    // Whoever first waits for the end of this one is sure to be no help. Others
                    // may do it once other data come than their copies read.
                    let is_circular = ahead.strength == Strength::Circular;
                    if is_circular && obstacle.by_elimination {
                        let done: Vec<u32> = ahead.owed.iter().map(|owed| owed.tid).collect();
                        if let Some(rest) = debtor.clone().without(|tid| done.contains(&tid)) {
                            obstacle.leave(rest, &ahead.passing);
                        }
                    }
                    let owing = owing(&ahead, &debtor.reason, effect);
                    proved.extend(owing.map(|one| (ahead.strength, one)));
                }
                // All that could do it were asked. A thread with which the chain begins may have
                // been woken by others until now. Data were made up: a thread may come to it once
                // others are read.
                Some(end) if is_own && ahead.is_complete => {
                    obstacle.by_elimination = false;
                    obstacle.known = Known::Assumed;
                    obstacle.otherwise = end;
                }
                _ if obstacle.by_elimination => {
                    obstacle.leave(debtor.clone(), &ahead.passing);
                }
                _ => obstacle.debtors.push(debtor.clone()),
            }
        }
        let best = proved.iter().map(|(strength, _)| *strength).max();
        if best != Some(Strength::Next) {
            obstacle.debtors.extend(idle);
        }
        if let Some(best) = best.filter(|_| obstacle.by_elimination) {
            proved.retain(|(strength, _)| *strength == best);
            if best > Strength::Circular {
                obstacle.by_elimination = false;
                obstacle.debtors.clear();
                obstacle.passing.clear();
            }
        }
        let proved = proved.into_iter().map(|(_, debtor)| debtor);
        obstacle.debtors.extend(proved);
    }

    /// What copies of the threads of a debtor's process do. `None`: they are not to be asked.
    fn ask<'d>(
        &mut self,
        debtor: &'d Debtor,
        waiting: Place,
        (is_lone, has_several): (bool, bool),
    ) -> Option<(u32, &'d Effect, Ahead)> {
        let effect = debtor.effect.as_ref()?;
        let (pid, file) = match &debtor.who {
            Who::Thread(pid, _) | Who::AnyOf(pid, _) => (*pid, None),
            Who::Process(pid, file) => (*pid, file.as_deref()),
        };
        let tids = self.processes.get(pid)?.tids();
        let is_seen = debtor.known != Known::Assumed;
        let is_alone = tids.len() < 2 && !has_several;
        let is_known = is_alone || is_seen && matches!(debtor.who, Who::Thread(..));
        if matches!(effect, Effect::Read(_) | Effect::Write(_)) {
            if is_known || (pid == waiting.0 && !is_lone) {
                return None;
            }
            let mut tids = tids.into_iter().take(MOST_THREADS);
            let is_used =
                file.is_some_and(|file| tids.any(|tid| is_on(self.processes, pid, tid, file)));
            if is_used {
                return None;
            }
        } else if is_known && is_seen {
            return None;
        }
        Some((pid, effect, self.ahead(pid, waiting, effect, Copies::AsIs)?))
    }

    /// No copy ended the wait, of a thread for which nothing is there yet. One may do so that finds
    /// what its thread looks for. It is the only way if no other thread is left, and none reads
    /// data that a copy would have to make up.
    fn once_met(
        &mut self,
        (pid, effect): (u32, &Effect),
        waiting: Place,
        obstacle: &Obstacle,
        known: Ahead,
    ) -> Ahead {
        if !matches!(effect, Effect::Store { .. }) || self.goes_on(waiting, obstacle) == Some(true)
        {
            return known;
        }
        match self.ahead(pid, waiting, effect, Copies::Met) {
            Some(met) if !met.owed.is_empty() => Ahead {
                is_complete: known.is_complete && met.is_complete && met.owed.len() == 1,
                ..met
            },
            _ => known,
        }
    }

    /// Would a thread that waits at a condition variable go on, if it was woken?
    fn goes_on(&mut self, place: Place, obstacle: &Obstacle) -> Option<bool> {
        let is_condition = obstacle.waits_for.name.starts_with(CONDITION);
        let address = obstacle
            .waits_for
            .address
            .as_deref()
            .filter(|_| is_condition)?;
        let word = u64::from_str_radix(address.trim_start_matches("0x"), 16).ok()?;
        let time = self.terms.deadline.at_most(self.to_copy).min(OF_WAITER);
        let asked = self.asking(place.0, None).filter(|_| !time.is_zero())?;
        once_woken(&asked, place.1, word, time)
    }

    /// What copies of the threads of a process do, which may end the wait of this one.
    fn ahead(
        &mut self,
        pid: u32,
        waiting: Place,
        effect: &Effect,
        copies: Copies,
    ) -> Option<Ahead> {
        let left = match copies {
            Copies::AsIs => self.to_copy,
            Copies::Met => self.to_meet,
        };
        let time = self.terms.deadline.at_most(left);
        let waiting = (pid == waiting.0).then_some(waiting.1);
        let asked = self.asking(pid, waiting).filter(|_| !time.is_zero())?;
        let (begin, before) = (Instant::now(), Effort::begin());
        let found = ahead(&asked, effect, copies, time);
        let left = left.saturating_sub(begin.elapsed());
        match copies {
            Copies::AsIs => self.to_copy = left,
            Copies::Met => self.to_meet = left,
        }
        // This time does not count for the chain.
        self.effort.leave_out(before);
        found
    }

    /// `waiting`: a thread of the process for which the others are asked.
    fn asking(&mut self, pid: u32, waiting: Option<u32>) -> Option<Asking<'_>> {
        let process = self.processes.get(pid)?;
        let inside = process.inside.as_ref()?;
        let own_id = |tid: u32| {
            let known = process.own_ids.iter().find(|(_, one)| **one == tid);
            known.map_or(tid, |(own, _)| *own)
        };
        Some(Asking {
            pid,
            names: &inside.names,
            activities: &process.activities,
            core: self.terms.core,
            waiting: waiting.map(|tid| (tid, own_id(tid))),
        })
    }

    /// Nobody is left that would wake the thread. A copy of it, woken, goes on: what it waits for
    /// is there, or it asks for nothing.
    pub(super) fn lost_wakeup(&mut self, place: Place, obstacle: &Obstacle) -> Option<Chosen> {
        self.goes_on(place, obstacle).filter(|goes_on| *goes_on)?;
        let what = format!(
            "a copy of thread {} goes on when it is woken. It was woken before it slept, or \
             never, and no thread is left that wakes it",
            place.1
        );
        let examined = self.examined.get(&place.1)?;
        let node = self.node(place);
        let link = Link {
            waiter: node.clone(),
            waits_for: obstacle.waits_for.clone(),
            owed_by: None,
            known: Known::Proved,
            reason: what.clone(),
            stack: examined.stack.clone(),
            at: obstacle.at.clone().or(examined.at.clone()),
            supposed: Vec::new(),
        };
        let mut root = End::fault(RootKind::LostWakeup, what).root(&node);
        root.assumed = true;
        Some(Chosen {
            links: vec![link],
            outcome: Outcome::Root(root, Weight::Fault),
        })
    }
}

/// The threads of which a copy ended the wait. `holds`: what is seen of their process.
fn owing<'a>(
    ahead: &'a Ahead,
    holds: &'a str,
    effect: &'a Effect,
) -> impl Iterator<Item = Debtor> + 'a {
    let does = match effect {
        Effect::Store { .. } => None,
        Effect::Read(_) | Effect::Write(_) => Some("uses it"),
        Effect::Unlock(_) => Some("gives it back"),
        Effect::Signal { .. } | Effect::Send(_) => Some("sends one"),
        Effect::Receive(_) => Some("takes one"),
    };
    ahead.owed.iter().map(move |owed| {
        let mut debtor = flags::debtor(owed);
        if let Some(does) = does {
            let after = owed.after.as_deref().unwrap_or_default();
            debtor.reason = format!("{holds}; a copy of this thread {does}, after {after}");
        }
        let is_met = ahead.strength == Strength::Met;
        if ahead.strength == Strength::Failing || is_met && !ahead.is_complete {
            debtor.known = Known::Assumed;
        }
        debtor
    })
}

/// A process has both ends of a channel, and copies of all its other threads went on without using
/// it. `None`: it is another effect, of which nothing follows.
fn nobody_uses(pid: u32, effect: &Effect) -> Option<End> {
    let told = |does: &str, on: &[i32]| {
        let fd = on.first().copied().unwrap_or_default();
        format!(
            "only process {pid} itself can {does} (fd {fd}), and no copy of its other threads, \
             which read made-up data, came to that"
        )
    };
    match effect {
        // A full channel was meant for somebody; many threads wait for whatever comes by one.
        Effect::Read(on) => Some(End::outside(RootKind::Ended, told("read it", on))),
        Effect::Write(on) => Some(End::unknown(told("write to it", on))),
        _ => None,
    }
}
