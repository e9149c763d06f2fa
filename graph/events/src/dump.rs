// SPDX-License-Identifier: MIT
//! Events as text, one a line.

use crate::call::Call;
use crate::event::{Event, Kind};
use crate::protocol::FORK_NOT_FOLLOWED;
use crate::reader::EventFile;
use crate::sites::WALKED;

fn detail(event: &Event) -> String {
    let call = || {
        event.call().map_or(String::new(), |call| {
            format!(" {}({:#x})", call.name(), call.first)
        })
    };
    match event.kind {
        Kind::Switch => format!(
            "{} -> {} {}{}",
            event.a,
            event.b,
            event.state().name(),
            call()
        ),
        Kind::Waking => {
            let caller = event
                .waker_call()
                .map_or(String::new(), |n| format!(" in {}", Call::name_of(n)));
            format!(
                "{} by {} {}{caller}",
                event.b,
                event.a,
                event.context().name()
            )
        }
        Kind::Enter => format!("{}{}", event.a, call()),
        Kind::EnterWide => format!(
            "{}{} {:#x} {:#x}",
            event.a,
            call(),
            event.words[1],
            event.words[2]
        ),
        Kind::ExitCall => event.call_end().map_or(String::new(), |end| {
            format!("{} {} = {}", event.a, Call::name_of(end.number), end.result)
        }),
        Kind::Fork => format!(
            "{} starts {} of process {} {}{}",
            event.a,
            event.b,
            event.halves(0).0,
            event.name(1),
            match event.flags & FORK_NOT_FOLLOWED {
                0 => "",
                _ => ", which is not followed",
            }
        ),
        Kind::Exec => format!(
            "{} process {} {}",
            event.a,
            event.halves(0).0,
            event.name(1)
        ),
        Kind::Exit => format!("{} status {:#x}", event.a, event.halves(0).1),
        Kind::Rename => format!("{} is now {}", event.b, event.name(0)),
        Kind::Signal => {
            format!(
                "{} to {} by {} {}",
                event.halves(0).0,
                event.b,
                event.a,
                event.context().name()
            )
        }
        Kind::Arm => format!("{} timer {:#x}", event.a, event.words[0]),
        Kind::Submit | Kind::Complete => format!("{} request {:#x}", event.a, event.words[0]),
        Kind::Yield => event.a.to_string(),
        Kind::Sample => format!("{} at {:#x}{}", event.a, event.words[1], call()),
        Kind::Sent | Kind::Received => {
            let (flow, bytes) = event.halves(0);
            format!(
                "{} flow {flow} {bytes} bytes to {:#x}",
                event.a, event.words[1]
            )
        }
        Kind::Refused => format!(
            "{} a file's lock, which {} of process {} has",
            event.a, event.b, event.words[0]
        ),
        Kind::Fire => format!("timer {:#x} wakes {}", event.words[0], event.b),
        Kind::Lost => format!("{} events since {}", event.words[0], event.words[1]),
    }
}

/// Hands lines to `write`: those that concern `tid` (0: all), from time `start` on, at most
/// `limit`. Returns how many.
pub fn dump(
    file: &EventFile,
    tid: u32,
    start: u64,
    limit: usize,
    mut write: impl FnMut(&str),
) -> usize {
    let mut written = 0;
    file.events(|event| {
        let concerns = tid == 0 || event.a == tid || event.b == tid || event.kind == Kind::Lost;
        if written >= limit || event.ts < start || !concerns {
            return;
        }
        written += 1;
        let stack = file.stack(event.stack);
        let sites: Vec<String> = stack
            .iter()
            .map(|&word| match file.python_function(word) {
                Some(function) => function.name.clone(),
                None => format!("{:#x}", word & !WALKED),
            })
            .collect();
        let stack = if sites.is_empty() {
            String::new()
        } else {
            format!(" [{}]", sites.join(" "))
        };
        write(&format!(
            "{} cpu{} {} {}{stack}",
            event.ts,
            event.cpu,
            event.kind.name(),
            detail(event)
        ));
    });
    written
}
