// SPDX-License-Identifier: MIT
//! A wait for a semaphore or a message queue of System V, by who used it last.

use flagfinder_linux::proc::Stat;
use flagfinder_waits::ipc::{self, Now, Waits};
use flagfinder_waits::proc::Call;

use super::obstacle::{Debtor, End, Obstacle, Who};
use super::process::{name, Process};
use super::report::{Kind, Known, RootKind};
use crate::effects::Effect;

/// `None`: the call is none of System V, or nothing can be asked of what it waits for.
pub fn obstacle(process: &Process, call: &Call) -> Option<Obstacle> {
    let memory = &process.inside.as_ref()?.memory;
    let waits = ipc::waits(call, &**memory).filter(|_| ipc::is_ours(process.pid))?;
    let now = ipc::now(&waits)?;
    let is_there = |pid: u32| Stat::of_thread(pid, pid).is_some();
    Some(told(process.pid, waits, now, is_there))
}

fn told(pid: u32, waits: Waits, now: Now, is_there: impl Fn(u32) -> bool) -> Obstacle {
    let Now { value, last } = now;
    let effect = match waits {
        Waits::Semaphore { .. } => None,
        Waits::Message { queue } => Some(Effect::Send(queue)),
        Waits::Room { queue } => Some(Effect::Receive(queue)),
    };
    let (kind, what, state, did) = match waits {
        Waits::Semaphore { set, number, by } => (
            Kind::Lock,
            format!("semaphore {number} of set {set}"),
            match by {
                0 => format!("it is {value}, and is to become 0"),
                _ => format!("it is {value}"),
            },
            "changed it last",
        ),
        Waits::Message { queue } => (
            Kind::Call,
            format!("a message on queue {queue}"),
            match value {
                0 => "the queue is empty".to_owned(),
                _ => format!("the queue has {value} messages, none of the type that it asks for"),
            },
            "sent the last message there",
        ),
        Waits::Room { queue } => (
            Kind::Call,
            format!("room on message queue {queue}"),
            format!("the queue has {value} messages and is full"),
            "took the last message from there",
        ),
    };
    match last {
        Some(last) if last != pid && is_there(last) => {
            let reason = format!("{state}, and process {last} ({}) {did}", name(last, last));
            let debtor = Debtor::assumed(Who::Process(last, None), reason);
            Obstacle::owed(kind, what, vec![Debtor { effect, ..debtor }])
        }
        Some(last) if last != pid => {
            let ended = format!("{state}, and process {last}, which {did}, has ended");
            let end = Obstacle::ends(kind, what, End::fault(RootKind::Ended, ended));
            let known = Known::Assumed;
            Obstacle { known, ..end }
        }
        Some(_) => {
            let own = format!("{state}, and the process itself {did}");
            Obstacle::ends(kind, what, End::unknown(own))
        }
        None => {
            let nobody = format!("{state}, and no process has used it yet");
            Obstacle::ends(kind, what, End::unknown(nobody))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(last: Option<u32>, is_there: bool) -> Obstacle {
        let waits = Waits::Semaphore {
            set: 3,
            number: 0,
            by: -1,
        };
        told(1, waits, Now { value: 0, last }, |_| is_there)
    }

    #[test]
    fn who_changed_a_semaphore_last_may_owe_it() {
        let found = of(Some(7), true);
        assert_eq!(found.waits_for.name, "semaphore 0 of set 3");
        assert_eq!(found.debtors[0].who, Who::Process(7, None));
        assert_eq!(found.debtors[0].known, Known::Assumed);
        assert_eq!(of(Some(7), false).otherwise.kind, RootKind::Ended);
    }

    #[test]
    fn nobody_is_blamed_for_what_the_process_did_itself() {
        for last in [Some(1), None] {
            let found = of(last, true);
            assert!(found.debtors.is_empty());
            assert_eq!(found.otherwise.kind, RootKind::Unknown);
        }
    }
}
