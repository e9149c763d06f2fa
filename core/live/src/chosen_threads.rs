// SPDX-License-Identifier: MIT
//! Which threads of a process are looked at, and in which way.

use flagfinder_failure::Failure;
use flagfinder_step::unable;

use crate::helpers::{Copies, Sleepers};
use crate::sample::{self, Activity};
use crate::thread_ways::{self, Told, Way};

/// The threads that the report shows, and those of them that are looked at.
pub(crate) struct Choice {
    pid: u32,
    pub threads: Vec<(Activity, Way)>,
    chosen: Vec<u32>,
    /// The most that are chosen, unless the user named them.
    most: Option<usize>,
}

impl Choice {
    /// Those that the user named, or those that seem to tell most.
    ///
    /// # Errors
    /// A thread was named that is not there.
    pub fn of(
        pid: u32,
        mut threads: Vec<(Activity, Way)>,
        named: &[u32],
        most: usize,
    ) -> Result<Choice, Failure> {
        let is_known = |tid: &u32| threads.iter().any(|(a, _)| a.tid == *tid);
        if let Some(unknown) = named.iter().find(|tid| !is_known(tid)) {
            return Err(unable(
                format!("Process {pid} has no thread {unknown}"),
                "It may have ended",
                format!("`ls /proc/{pid}/task` lists the threads"),
            ));
        }
        let most = named.is_empty().then_some(most);
        let chosen = match most {
            Some(most) => thread_ways::order(&threads, most),
            None => {
                threads.retain(|(a, _)| named.contains(&a.tid));
                // A thread that was asked for is stepped also when it seems to wait.
                let touchable = |way: &Way| !matches!(way, Way::Untouchable(_) | Way::Waits);
                let touched = threads.iter().filter(|(_, way)| touchable(way));
                touched.map(|(a, _)| a.tid).collect()
            }
        };
        Ok(Choice {
            pid,
            threads,
            chosen,
            most,
        })
    }

    /// Leaves those out that only wake again and again, unless it is the first thread. Returns
    /// them.
    pub fn leave_for_later(&mut self) -> Vec<u32> {
        let is_hot = |tid: u32| self.get(tid).is_some_and(|(_, way)| *way == Way::Hot);
        let is_urgent = |tid: &u32| *tid == self.pid || is_hot(*tid);
        let (urgent, later) = self.chosen.iter().partition(|tid| is_urgent(tid));
        self.chosen = urgent;
        later
    }

    /// Those that are looked at.
    pub fn tids(&self) -> &[u32] {
        &self.chosen
    }

    /// One that the report shows.
    pub fn get(&self, tid: u32) -> Option<&(Activity, Way)> {
        self.threads.iter().find(|(a, _)| a.tid == tid)
    }

    /// The same, with their names.
    pub fn named(&self) -> Vec<(u32, String)> {
        let name = |tid| {
            self.get(tid)
                .map_or_else(String::new, |(a, _)| a.name.clone())
        };
        self.chosen.iter().map(|tid| (*tid, name(*tid))).collect()
    }

    /// Those that are to be stepped in place: no copy stands for them.
    pub fn to_step(&self, copies: &Copies) -> Vec<(u32, String)> {
        let mut named = self.named();
        named.retain(|(tid, _)| !copies.stands_for(*tid));
        named
    }

    /// Leaves those out that could not be copied as they get no processor, and those of which no
    /// copy tells anything, but the program's own code. Returns all of which that code tells.
    pub fn leave(&mut self, copies: &Copies, told: impl Fn(u32) -> Option<Told>) -> Vec<u32> {
        let mut of_program = Vec::new();
        for (activity, way) in &mut self.threads {
            let tid = activity.tid;
            if !self.chosen.contains(&tid) {
                continue;
            }
            if copies.failed.contains(&tid) && thread_ways::gets_nothing(activity) {
                *way =
                    Way::Untouchable("it is ready to run, and others have its processors".into());
            } else if let Some(told) = told(tid) {
                of_program.push(tid);
                if copies.stands_for(tid) {
                    continue;
                }
                *way = Way::Told(told);
            } else {
                continue;
            }
            self.chosen.retain(|chosen| *chosen != tid);
        }
        of_program
    }

    /// Those that wait, and may take over the work of others that are held.
    pub fn sleepers(&self) -> Sleepers {
        let threads = self.threads.iter();
        Sleepers::new(
            self.pid,
            threads.map(|(a, way)| (a.tid, *way == Way::Waits)),
        )
    }

    /// How many more may be stepped, beside so many.
    pub fn room(&self, beside: usize) -> Option<usize> {
        self.most.map(|most| most.saturating_sub(beside))
    }

    /// A thread that took over while others were held.
    pub fn took_over(&mut self, tid: u32) {
        match self.threads.iter_mut().find(|(a, _)| a.tid == tid) {
            Some((_, way)) => *way = Way::Hot,
            None => {
                let activity = sample::now(self.pid, tid);
                self.threads.extend(activity.map(|a| (a, Way::Hot)));
            }
        }
    }

    /// How many more repeat something, where there was no room for all.
    pub fn left_out(&self) -> usize {
        if self.most != Some(self.chosen.len()) {
            return 0;
        }
        let repeats = |way: &Way| matches!(way, Way::Hot | Way::Repeats);
        let all = self.threads.iter().filter(|(_, way)| repeats(way)).count();
        all.saturating_sub(self.chosen.len())
    }
}
