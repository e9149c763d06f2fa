// SPDX-License-Identifier: MIT
//! Which threads are worth stepping, and which must be left alone.

use flagfinder_code::AddressSpace;
use flagfinder_linux::proc::is_over;

use crate::sample::Activity;
use flagfinder_waits::call;

/// What is done with a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// It uses the processor all the time it gets.
    Hot,
    /// It sleeps and wakes, again and again, or will wake soon by its timeout.
    Repeats,
    /// It is blocked: described, never touched.
    Waits,
    /// It is not stepped: no copy stands for it, or the program's own code tells of its loop.
    Told(Told),
    /// It cannot be stepped; why.
    Untouchable(String),
}

/// What the program's own code tells of a thread that repeats something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// What its loop waits for, which may be nothing.
    Known,
    /// That its loop comes to an end by itself.
    Ends,
}

/// A thread that uses this share of a processor is hot.
pub const HOT: f64 = 0.3;
/// It used some processor time in many short turns.
const WARM: f64 = 0.02;
/// A smaller share of a processor counts as none.
const NONE: f64 = 0.01;

pub fn way(activity: &Activity, memory: &dyn AddressSpace) -> Way {
    if let Some(why) = untouchable(activity) {
        return Way::Untouchable(why);
    }
    if activity.wants >= HOT || (activity.state == 'R' && activity.wants >= WARM) {
        return Way::Hot;
    }
    if activity.sleeps >= 2 || activity.wants >= WARM {
        return Way::Repeats;
    }
    let timeout = activity.call.and_then(|c| call::timeout(&c, memory));
    let wakes_soon = timeout.is_some_and(|t| !t.absolute && t.time <= call::SOON);
    if wakes_soon || activity.sleeps > 0 {
        return Way::Repeats;
    }
    Way::Waits
}

fn untouchable(activity: &Activity) -> Option<String> {
    match activity.state {
        state if is_over(state) => return Some("it has ended".into()),
        'T' => {
            return Some(
                "its process is stopped (SIGSTOP, or Ctrl-Z); `kill -CONT` lets it go on".into(),
            )
        }
        _ => {}
    }
    if activity.tracer != 0 {
        let tracer = activity.tracer;
        return Some(format!(
            "process {tracer} traces it already (a debugger, strace); end that first"
        ));
    }
    let freezers = ["__refrigerator", "do_freezer_trap", "cgroup_freezing"];
    freezers
        .contains(&activity.sleeps_in.as_str())
        .then(|| "its control group is frozen; thaw that first".into())
}

/// Other threads keep the thread from its processors: a stop and each step would wait for a turn.
pub fn gets_nothing(activity: &Activity) -> bool {
    activity.state == 'R' && activity.wants >= HOT && activity.cpu < NONE
}

/// The threads to step; those that tell most come first.
pub fn order(threads: &[(Activity, Way)], most: usize) -> Vec<u32> {
    let mut list: Vec<&(Activity, Way)> = threads
        .iter()
        .filter(|(_, way)| matches!(way, Way::Hot | Way::Repeats))
        .collect();
    list.sort_by(|(a, way_a), (b, way_b)| {
        let rank = |way: &Way| u8::from(*way != Way::Hot);
        rank(way_a)
            .cmp(&rank(way_b))
            .then(b.wants.total_cmp(&a.wants))
            .then(b.sleeps.cmp(&a.sleeps))
            .then(b.cpu.total_cmp(&a.cpu))
    });
    list.into_iter().take(most).map(|(a, _)| a.tid).collect()
}
