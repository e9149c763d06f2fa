// SPDX-License-Identifier: MIT
//! The system call that keeps a loop going, as a flag: `poll` that finds a dead descriptor ready.

use flagfinder_analysis::runtime::{is_runtime_module, is_runtime_symbol};
use flagfinder_analysis::OtherWay;
use flagfinder_code::Code;
use flagfinder_linux::descriptors::{named, Named};
use flagfinder_linux::syscalls::{self, Role};
use flagfinder_machine::Syscall;

use crate::report::{AskedCall, Flag, FlagKind, Found, Values};
use crate::report_builder::Builder;
use crate::rules::{Rule, Weight};

/// A call that is made less often says little about a loop.
const LEAST: usize = 3;
/// Highest score of such a call, if it is made in every iteration.
const SELDOM: f64 = 0.5;

/// The window may begin or end between two calls.
const AT_THE_ENDS: usize = 1;

/// (nothing speaks against it, it asks for a lock that another has, tells whether something is
/// ready, the normal run left by its answer, exits).
type CallRank = (bool, bool, bool, bool, usize);

impl Builder<'_> {
    /// The system call whose result decides an exit outside the C library, by [`CallRank`]: a lock
    /// that another has comes first, then polls, then the one whose answer made the normal run
    /// leave, then the one with most exits.
    pub(crate) fn deciding_call(&self) -> Option<u32> {
        let mut best: Option<(CallRank, u32)> = None;
        for (step, exits) in &self.analysis.calls {
            let Some(call) = self.window.syscall_at(*step) else {
                continue;
            };
            let role = syscalls::role(call.number, &call.args);
            if !matches!(role, Role::Poll | Role::Work) {
                continue;
            }
            let result = call.result.unwrap_or(0);
            // No loop waits for a descriptor to be made, or for what it did itself to be done; it
            // may wait for what comes of it.
            let is_done = syscalls::makes_descriptor(call.number)
                || syscalls::is_command(call.number, &call.args) && Rule::Commands.is_on();
            if result >= 0 && is_done {
                continue;
            }
            let wrapper = self.code(self.window.pc(*step)).module;
            let (mut left, mut outside) = (0, 0);
            for &exit in exits {
                let exit = &self.analysis.exits[exit];
                let pc = self.window.pc(exit.step);
                // A call that ends a walk through its own answer, or the program, ends no wait.
                let dies = self.outside.other_ways.get(&pc) == Some(&OtherWay::Dies);
                if exit.induction || exit.ends_scan || dies {
                    continue;
                }
                let code = self.code(pc);
                let runtime = code.module.as_deref().is_some_and(is_runtime_module);
                let scheduler = code.symbol.as_deref().is_some_and(is_runtime_symbol);
                let own_wrapper = wrapper.as_deref().is_some_and(|w| !is_runtime_module(w));
                outside += usize::from(!scheduler && (!runtime || own_wrapper));
                // The test of the answer for an error often lies in the C library.
                left += usize::from(self.lets_go(pc));
            }
            let rank = (
                self.call_doubt(*step).is_none(),
                syscalls::is_refused_lock(call.number, &call.args, result),
                role == Role::Poll,
                left > 0,
                outside,
            );
            if outside > 0 && best.is_none_or(|b| rank > b.0) {
                best = Some((rank, *step));
            }
        }
        best.map(|(_, step)| step)
    }

    /// Why the call is not what the loop waits for: as long as it is repeated and gives the same
    /// answer, without data, nothing has changed.
    pub(crate) fn call_doubt(&self, step: u32) -> Option<&'static str> {
        let (analysis, call) = (self.analysis, self.window.syscall_at(step)?);
        let (count, steady) = self.answers(call);
        // A call that asks for something not yet ready is often made on the way.
        let fails = call.result.is_some_and(|result| result < 0);
        let all = analysis.spin.starts.len() - 1;
        let rounds = if fails { self.rounds } else { all };
        if self.outside.own_wakeups.contains(&step) {
            Some("a virtual machine's threads wake each other this way to pause")
        } else if analysis.progress.consumes {
            Some("data is taken over in (nearly) every iteration: the loop makes progress")
        } else if analysis.progress.is_woken {
            Some("other threads wake it in (nearly) every iteration: it is served")
        } else if self.outside.live && !analysis.progress.repeats {
            Some("no two iterations go the same way: it does something else each time")
        } else if call.moves_data() && !analysis.same_again.contains(&step) {
            Some("it hands data over: the loop makes progress")
        } else if count < LEAST.min(all)
            || (count + AT_THE_ENDS) * 2 < rounds && !self.is_of_each_round(call)
        {
            Some("it is made in few iterations only")
        } else if steady * 4 < count * 3 {
            Some("its answer changes while the loop goes on")
        } else {
            None
        }
    }

    /// Does the call come after the same number of iterations each time, in a loop in which no word
    /// is likely? An interpreter's loop goes round for each operation of its program; the program's
    /// own loop makes the call once in so many of these.
    fn is_of_each_round(&self, call: &Syscall) -> bool {
        const LEAST_GAPS: usize = 5;
        let spin = &self.analysis.spin;
        if self.rounds + 1 < spin.starts.len() {
            return false;
        }
        let calls = self.window.syscalls.iter();
        let alike = calls.filter(|c| c.number == call.number && c.step >= spin.first_step());
        let rounds: Vec<usize> = alike
            .map(|c| spin.starts.partition_point(|&start| start <= c.step))
            .collect();
        let mut gaps = rounds.windows(2).map(|pair| pair[1] - pair[0]);
        let first = gaps.next();
        first.is_some_and(|first| first > 1 && gaps.all(|gap| gap == first))
            && rounds.len() > LEAST_GAPS
    }

    /// How often the loop makes the call, and how often it then gives the same kind of answer about
    /// the same.
    fn answers(&self, call: &Syscall) -> (usize, usize) {
        let kind = |result: Option<i64>| result.map(|r| r.clamp(-4096, 1));
        let first = self.analysis.spin.first_step();
        let calls = self.window.syscalls.iter();
        let alike = calls.filter(|c| c.number == call.number && c.step >= first);
        let steady = alike.clone().filter(|other| {
            other.args[0] != call.args[0] || kind(other.result) == kind(call.result)
        });
        (alike.count(), steady.count())
    }

    /// A poll that finds something ready in every iteration, which nothing in the loop then takes:
    /// it keeps the loop going, though no branch that could leave the loop depends on it.
    pub(crate) fn ready_call(&self) -> Option<u32> {
        let spin = &self.analysis.spin;
        let whole = spin.first_step()..*spin.starts.last()?;
        let calls = self.window.syscalls.iter();
        let polls: Vec<_> = calls
            .filter(|call| whole.contains(&call.step))
            .filter(|call| syscalls::role(call.number, &call.args) == Role::Poll)
            .collect();
        let last = polls.last()?;
        let always = polls.len() + 1 >= spin.starts.len()
            && polls
                .iter()
                .all(|call| call.number == last.number && call.result.is_some_and(|r| r > 0));
        (always && !self.analysis.progress.consumes).then_some(last.step)
    }

    /// Go's scheduler polls for all its tasks, whatever these do.
    pub(crate) fn is_schedulers_poll(&self, step: u32) -> bool {
        let symbol = self.code(self.window.pc(step)).symbol;
        let is_poll = self
            .window
            .syscall_at(step)
            .is_some_and(|call| syscalls::role(call.number, &call.args) == Role::Poll);
        is_poll && symbol.as_deref().is_some_and(is_runtime_symbol)
    }

    fn lets_go(&self, pc: u64) -> bool {
        let sign = self.outside.exit(pc);
        sign.is_some_and(|(rule, _)| matches!(rule.row().weight, Weight::Points(1..)))
    }

    /// Does the call only say that nothing is ready, and did the normal run never leave by its
    /// answer? Then the loop asks on its way, and repeats for another reason.
    pub(crate) fn asks_in_passing(&self, step: u32) -> bool {
        let Some(call) = self.window.syscall_at(step) else {
            return false;
        };
        let is_poll = syscalls::role(call.number, &call.args) == Role::Poll;
        let mut exits = self.analysis.calls.iter().filter(|(at, _)| *at == step);
        let exits = exits.next().map_or(&[][..], |(_, exits)| exits);
        is_poll
            && call.result == Some(0)
            && !exits.iter().any(|&exit| {
                let exit = &self.analysis.exits[exit];
                self.lets_go(self.window.pc(exit.step))
            })
    }

    pub(crate) fn call_flag(&self, step: u32) -> Flag {
        let call = self.window.syscall_at(step);
        let (number, result) = call.map_or((0, None), |call| (call.number, call.result));
        let name = syscalls::name(number);
        let found = self.found_ready(step);
        let single = call.and_then(|call| syscalls::descriptor(call.number, &call.args));
        let path = self.outside.paths.get(&step).cloned();
        let descriptors: Vec<String> = match (&path, single) {
            (Some(path), _) => vec![path.clone()],
            (None, Some(fd)) => vec![format!("fd {fd}")],
            (None, None) => found.iter().map(found_text).collect(),
        };
        let of = if descriptors.is_empty() {
            String::new()
        } else {
            format!(" on {}", descriptors.join(", "))
        };
        let returns = match result {
            Some(result) if result < 0 => format!("error {}", -result),
            Some(result) => result.to_string(),
            None => "what is not known".into(),
        };
        let full = match result {
            Some(_) => format!("{name}{of} returns {returns}"),
            None => format!("{name}{of}"),
        };
        let (count, steady) = call.map_or((0, 0), |call| self.answers(call));
        let exits = self
            .analysis
            .calls
            .iter()
            .find(|(s, _)| *s == step)
            .map_or(&[][..], |(_, exits)| exits);
        let mut readers: Vec<Code> = Vec::new();
        for exit in exits.iter().take(4) {
            readers.push(self.code(self.window.pc(self.analysis.exits[*exit].step)));
        }
        let mut evidence = vec![
            format!(
                "{name} is called in the loop ({count} times in the window) and returns {returns}"
            ),
            if exits.is_empty() {
                match result {
                    Some(result) if result > 0 => {
                        "what it finds ready is never taken, so it does not wait".into()
                    }
                    _ => "nothing else that is asked of the system gives another answer".into(),
                }
            } else {
                format!(
                    "its result decides {} branches that could leave the loop",
                    exits.len()
                )
            },
        ];
        if steady < count {
            evidence.push("its result is not always the same".into());
        }
        Flag {
            confidence: match (steady == count && !exits.is_empty(), count < LEAST) {
                (_, true) => SELDOM,
                (true, false) => 0.8,
                (false, false) => 0.6,
            },
            symbol: Some(name.clone()),
            value: Values {
                spin: result.map(|r| r as u64),
                ..Values::default()
            },
            exit_when: format!("{name}{of} answers differently"),
            readers,
            evidence,
            call: call.map(|call| AskedCall {
                number,
                args: call.args,
                result,
                found,
                path,
                per_second: None,
            }),
            ..Flag::new(FlagKind::Syscall, full)
        }
    }

    /// Which of several descriptors the call found ready.
    fn found_ready(&self, step: u32) -> Vec<Found> {
        let Some(call) = self.window.syscall_at(step) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for (address, bytes) in &call.written {
            // The kernel's answers are seen where the program read them.
            let Some(word) = self.read_later(step, *address, *bytes) else {
                continue;
            };
            match named(call.number, &call.args) {
                Some(Named::Entries { address: first, .. }) if word & 0xffff != 0 => {
                    let events = word & 0xffff;
                    let entry = (address - first) / 8;
                    found.push(Found {
                        fd: self.descriptor_at(address - 6),
                        entry: Some(entry),
                        events: Some(events as u16),
                        set: None,
                    });
                }
                Some(Named::Sets { addresses, .. }) => {
                    let set = ["read", "write", "except"]
                        .into_iter()
                        .zip(&addresses)
                        .find(|(_, at)| *at == address)
                        .map_or("read", |(set, _)| set);
                    for fd in (0..64).filter(|fd| word >> fd & 1 == 1) {
                        found.push(Found {
                            fd: Some(fd),
                            entry: None,
                            events: None,
                            set: Some(set.to_owned()),
                        });
                    }
                }
                _ => {}
            }
        }
        found.truncate(4);
        found
    }

    /// The descriptor in the entry of a poll set at the address, if the program touched
    /// it in the window.
    fn descriptor_at(&self, address: u64) -> Option<i32> {
        let steps = (0..self.window.len()).rev();
        let mut touched = steps.flat_map(|step| self.window.accesses(step));
        touched.find_map(|access| {
            let whole = access.address == Some(address) && matches!(access.bytes, 4 | 8);
            let fd = access.value.get(32).filter(|_| whole)?;
            Some(fd as u32 as i32)
        })
    }

    /// What the program read at the address after the call.
    fn read_later(&self, step: u32, address: u64, bytes: u64) -> Option<u64> {
        let end = self.window.len().min(step + 20_000);
        let (mut word, mut any) = (0u64, false);
        for at in step + 1..end {
            if self
                .window
                .syscall_at(at)
                .is_some_and(|c| Some(c.number) == self.window.syscall_at(step).map(|c| c.number))
            {
                break;
            }
            for access in self.window.accesses(at).iter().filter(|a| !a.write) {
                let Some(from) = access.address else { continue };
                let inside = from >= address && from < address + bytes.min(8);
                let value = access.value.get((access.bytes * 8).min(64));
                if let Some(value) = value.filter(|_| inside) {
                    word |= value << ((from - address) * 8);
                    any = true;
                }
                let covers = from < address && from + u64::from(access.bytes) > address;
                if let Some(value) = value.filter(|_| covers && access.bytes <= 8) {
                    word |= value >> ((address - from) * 8);
                    any = true;
                }
            }
        }
        any.then_some(word)
    }
}

/// `fd 0 (revents 0x20)`
fn found_text(found: &Found) -> String {
    let what = match (found.fd, found.entry) {
        (None, Some(entry)) => format!("entry {entry}"),
        (fd, _) => format!("fd {}", fd.unwrap_or(-1)),
    };
    match (found.events, found.set.as_deref()) {
        (Some(events), _) => format!("{what} (revents {events:#x})"),
        (None, set) => format!("{what} ({} set)", set.unwrap_or("read")),
    }
}

#[cfg(test)]
mod tests {
    use flagfinder_code::{Names, NamesInput};
    use flagfinder_machine::evaluator::Access;
    use flagfinder_machine::value::Value;
    use flagfinder_machine::{Syscall, Window};
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::{LEAST, SELDOM};
    use crate::report::{Flag, FlagKind, ThreadName};

    const DISPATCH: (u64, &[u8]) = (0x1000, &[0xff, 0xd0]);
    /// cmp dword [rbx], 0; jne; ret
    const TEST: [(u64, &[u8]); 3] = [
        (0x2000, &[0x83, 0x3b, 0x00]),
        (0x2003, &[0x75, 0x20]),
        (0x2005, &[0xc3]),
    ];
    /// syscall; test eax, eax; jns; ret
    const ASK: [(u64, &[u8]); 4] = [
        (0x3000, &[0x0f, 0x05]),
        (0x3002, &[0x85, 0xc0]),
        (0x3004, &[0x79, 0x20]),
        (0x3006, &[0xc3]),
    ];
    /// nop; ret
    const WORK: [(u64, &[u8]); 2] = [(0x4000, &[0x90]), (0x4001, &[0xc3])];

    /// The beginning of an interpreter's loop. Its program tests a word in each of its rounds of
    /// `pieces`, and asks for a file that is not there in those rounds for which `asks` says so.
    fn first(pieces: u64, asks: impl Fn(u64) -> bool) -> FlagKind {
        first_of(12, pieces, asks).kind
    }

    fn first_of(rounds: u64, pieces: u64, asks: impl Fn(u64) -> bool) -> Flag {
        let first = of_program(&TEST, -i64::from(libc::ENOENT), rounds, pieces, asks);
        first.expect("a flag")
    }

    fn of_program(
        test: &[(u64, &[u8])],
        result: i64,
        rounds: u64,
        pieces: u64,
        asks: impl Fn(u64) -> bool,
    ) -> Option<Flag> {
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        for round in 0..rounds {
            for piece in 0..pieces {
                let routine: Vec<(u64, &[u8])> = match piece {
                    0 if pieces == 1 && asks(round) => [test, &ASK].concat(),
                    0 => test.to_vec(),
                    1 if asks(round) => ASK.to_vec(),
                    _ => WORK.to_vec(),
                };
                for &(pc, bytes) in [DISPATCH].iter().chain(&routine) {
                    let mut decoder = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE);
                    let index = window.intern(&decoder.decode(), 0, &mut factory);
                    let rsp = if pc == DISPATCH.0 { 0x7000 } else { 0x6ff8 };
                    window.push(index, Value::of(rsp));
                    match pc {
                        0x2000 => window.push_access(Access {
                            address: Some(0x5000),
                            bytes: 4,
                            write: false,
                            value: Value::of(0),
                        }),
                        0x3000 => window.syscalls.push(Syscall {
                            step: window.len() - 1,
                            number: libc::SYS_newfstatat as u32,
                            args: [3; 6],
                            result: Some(result),
                            written: Vec::new(),
                        }),
                        _ => {}
                    }
                }
            }
        }
        let names = Names::new(NamesInput::from_code_maps("", 0));
        let thread = ThreadName {
            tid: 1,
            name: String::new(),
        };
        let report = crate::find_in_window(&window, &names, thread);
        report.flags.into_iter().next()
    }

    #[test]
    fn a_call_made_as_often_as_the_word_is_read_is_not_rare() {
        assert_eq!(first(2, |_| true), FlagKind::Syscall);
        assert_eq!(first(4, |_| true), FlagKind::Syscall);
        assert_ne!(first(4, |round| round % 3 == 0), FlagKind::Syscall);
    }

    /// A program waits until a file goes away. An interpreter runs five operations in each round.
    #[test]
    fn a_call_of_each_round_of_an_interpreted_program_counts() {
        let first = |asks: fn(u64) -> bool| of_program(&WORK, 0, 24, 5, asks);
        let flag = first(|_| true).expect("a flag");
        assert_eq!(flag.kind, FlagKind::Syscall);
        let now_and_then = first(|round| [0, 2, 3, 9, 11, 12, 19].contains(&round));
        assert!(now_and_then.is_none_or(|flag| flag.kind != FlagKind::Syscall));
    }

    /// A thread that looks once a second is seen to look only a few times.
    #[test]
    fn a_call_of_every_round_counts_however_few_there_were() {
        let rounds = LEAST as u64;
        let flag = first_of(rounds, 1, |round| round > 0);
        assert_eq!((flag.kind, flag.confidence), (FlagKind::Syscall, SELDOM));
        let call = flag.call.expect("what was asked");
        assert_eq!(i64::from(call.number), libc::SYS_newfstatat);
        assert_eq!(call.result, Some(-i64::from(libc::ENOENT)));
        let flag = first_of(rounds, 1, |round| round == 1);
        assert_ne!(flag.kind, FlagKind::Syscall, "once");
    }
}
