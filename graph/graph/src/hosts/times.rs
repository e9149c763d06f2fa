// SPDX-License-Identifier: MIT
//! One time for all hosts: the first one's. Each other host is compared with the host to which the
//! difference is known best.

use flagfinder_failure::{Failure, Result};

use super::clocks::{Bound, Clock, Unknown};
use super::pairs::Message;
use super::part::{Part, Sent, STILL_WORKS};

/// A host's way to the first one's time.
struct Way {
    /// The clock that leads to the time of the host `by`.
    clock: Clock,
    by: Option<usize>,
}

pub(super) struct Times(Vec<Way>);

fn began(part: &Part, message: &Message) -> Option<u64> {
    part.exchanges[message.sent].began
}

/// The clock that leads from the times of host `to` to those of host `from`.
fn compared(
    parts: &[Part],
    sent: &Sent,
    from: usize,
    to: usize,
) -> std::result::Result<Clock, Unknown> {
    if !parts[from].boot_id.is_empty() && parts[from].boot_id == parts[to].boot_id {
        return Ok(Clock::same());
    }
    let certain = |key| {
        sent[&key]
            .iter()
            .filter(|message: &&Message| message.is_certain)
    };
    let least = certain((from, to)).filter_map(|message| {
        let received = parts[to].exchanges[message.received].ts;
        Some((
            received,
            began(&parts[from], message)? as i64 - received as i64,
        ))
    });
    let most = certain((to, from)).filter_map(|message| {
        let began = began(&parts[to], message)?;
        let received = parts[from].exchanges[message.received].ts;
        Some((began, received as i64 - began as i64))
    });
    let (least, most): (Vec<Bound>, Vec<Bound>) = (least.collect(), most.collect());
    let meta = &parts[to].graph.meta;
    Clock::between((meta.first, meta.last), &least, &most)
}

fn refused(found: String, fix: &str) -> Failure {
    let what = "The clocks of the hosts can't be compared";
    Failure::bad_file(what, found, fix, STILL_WORKS)
}

fn why(parts: &[Part], unknown: Unknown, from: usize, to: usize) -> Failure {
    let (one, other) = (&parts[from].name, &parts[to].name);
    match unknown {
        Unknown::NoExchange => refused(
            format!("{one} and {other} recorded nothing that one sent and the other received"),
            "Record all hosts with --network, at the same time, and the processes that talk to \
             each other. Addresses that are translated in between are not recognised.",
        ),
        Unknown::OneWay => refused(
            format!("{one} and {other} recorded messages in one direction only"),
            "Record longer, until something has gone both ways.",
        ),
        Unknown::Contradiction(by, at) => refused(
            format!(
                "between {one} and {other} a message was received {by} ns before it was sent, \
                 whatever their clocks say, at {at} of {other}"
            ),
            "Are both recordings of the same time? A clock of one was changed by more than a part \
             in a thousand meanwhile, or something between them answers in their names.",
        ),
    }
}

impl Times {
    /// # Errors
    /// When the time of a host can't be told from what was exchanged.
    pub fn told(parts: &[Part], sent: &Sent) -> Result<Times> {
        let mut ways: Vec<Option<Way>> = parts.iter().map(|_| None).collect();
        ways[0] = Some(Way {
            clock: Clock::same(),
            by: None,
        });
        // Each pair once; a clock leads from the second to the first.
        let mut known: Vec<Vec<Option<std::result::Result<Clock, Unknown>>>> = parts
            .iter()
            .map(|_| parts.iter().map(|_| None).collect())
            .collect();
        loop {
            let mut best: Option<(u64, usize, usize)> = None;
            let mut failure: Option<Failure> = None;
            for from in (0..parts.len()).filter(|&from| ways[from].is_some()) {
                for to in (0..parts.len()).filter(|&to| ways[to].is_none()) {
                    let clock =
                        known[from][to].get_or_insert_with(|| compared(parts, sent, from, to));
                    match clock {
                        Ok(clock) if best.is_none_or(|(width, ..)| clock.widths.0 < width) => {
                            best = Some((clock.widths.0, from, to));
                        }
                        Ok(_) => {}
                        Err(Unknown::NoExchange) if failure.is_some() => {}
                        Err(unknown) => failure = Some(why(parts, *unknown, from, to)),
                    }
                }
            }
            match (best, failure) {
                (Some((_, from, to)), _) => {
                    let Some(Ok(clock)) = known[from][to].take() else {
                        continue;
                    };
                    let by = Some(from);
                    ways[to] = Some(Way { clock, by });
                }
                (None, Some(failure)) => return Err(failure),
                (None, None) => break,
            }
        }
        let times = Times(ways.into_iter().flatten().collect());
        times.check(parts, sent)?;
        Ok(times)
    }

    /// Hosts that were not compared with each other may show that others were compared wrongly.
    fn check(&self, parts: &[Part], sent: &Sent) -> Result<()> {
        for (&(from, to), messages) in sent {
            let width = self.widths(from).1 + self.widths(to).1;
            let rough = 2 * (self.rough(from) + self.rough(to));
            for message in messages.iter().filter(|message| message.is_certain) {
                let Some(began) = began(&parts[from], message) else {
                    continue;
                };
                let received = parts[to].exchanges[message.received].ts;
                let (began, end) = (self.of(from, began), self.of(to, received));
                let by = began.saturating_sub(end);
                if by > width + rough {
                    let unknown = Unknown::Contradiction(by, received);
                    return Err(why(parts, unknown, from, to));
                }
            }
        }
        Ok(())
    }

    /// A time of a host as the first one has it.
    pub fn of(&self, host: usize, time: u64) -> u64 {
        let way = &self.0[host];
        match way.by {
            None => time,
            Some(by) => self.of(by, way.clock.of(time)),
        }
    }

    fn rough(&self, host: usize) -> u64 {
        let way = &self.0[host];
        let beyond = way.by.map_or(0, |by| self.rough(by));
        beyond + way.clock.rough()
    }

    /// How much of its clock is not known, at best and at worst; ns.
    pub fn widths(&self, host: usize) -> (u64, u64) {
        let way = &self.0[host];
        let (best, worst) = way.by.map_or((0, 0), |by| self.widths(by));
        (best + way.clock.widths.0, worst + way.clock.widths.1)
    }

    /// The host with which it was compared.
    pub fn by(&self, host: usize) -> Option<usize> {
        self.0[host].by
    }
}
