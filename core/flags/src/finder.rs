//! From an analysed window and its evidence to a report.

use flagfinder_code::{Code, DataKind, DataName, Names};

use crate::analysis::{is_runtime_module, Analysis};
use crate::evidence::Outside;
use crate::rank::{self, Ranked, ENOUGH};
use crate::report::{
    Addresses, Flag, FlagKind, Group, LoopKind, LoopReport, Report, ThreadName, Threads, Values,
    Verdict, Writer,
};
use crate::syscalls::{self, Role};
use crate::window::Window;

/// Most flags a report lists.
const LISTED: usize = 8;
/// A word this much below the best is not worth listing.
const FAR_BELOW: f64 = 0.45;

/// Names of both runs; `normal` is absent for a live thread or a lone spin trace.
pub struct Naming<'a> {
    pub spin: &'a Names,
    pub normal: Option<&'a Names>,
}

/// The report on one thread's window.
pub fn report(
    window: &Window,
    analysis: &Analysis,
    naming: &Naming,
    thread: ThreadName,
    outside: &Outside,
) -> Report {
    let names = naming.spin;
    let ranked = rank::rank(window, analysis, names, thread.tid, outside);
    let mut writer = Builder {
        window,
        analysis,
        naming,
        outside,
        explain: Vec::new(),
    };
    writer.explain_loop();
    let call = writer.deciding_call();
    let best = ranked.first().map_or(0.0, |r| r.score);
    let proven = ranked.first().is_some_and(|r| writer.is_proven(r));
    let mut flags: Vec<Flag> = Vec::new();
    let mut call_flag = call.map(|call| writer.call_flag(call));
    if let Some(flag) = &mut call_flag {
        if analysis.consumes {
            flag.confidence = 0.1;
            let why = "data is taken over in (nearly) every iteration: the loop makes progress";
            flag.evidence.push(why.into());
        }
    }
    let call_first = call_flag
        .as_ref()
        .is_some_and(|flag| !proven && flag.confidence >= ENOUGH);
    if call_first {
        flags.extend(call_flag.take());
    }
    let condition = ranked.first().map(|r| analysis.compounds[r.exit]);
    let listed = ranked.iter().filter(|ranked| {
        ranked.score > 0.05
            && (ranked.score + FAR_BELOW >= best || writer.is_tested_in(ranked, condition))
    });
    for ranked in listed.take(LISTED) {
        let mut flag = writer.flag(ranked);
        if call_first {
            flag.confidence *= 0.5;
            let why = "the result of a system call decides as well, and comes first";
            flag.evidence.push(why.into());
        }
        flags.push(flag);
    }
    flags.extend(call_flag);
    for (index, flag) in flags.iter_mut().enumerate() {
        flag.rank = index as u32 + 1;
    }
    let mut groups = writer.groups(&flags);
    let kind = writer.kind(flags.first());
    let (verdict, reason) = writer.verdict(&flags, call_first, kind);
    let mut notes = Vec::new();
    if verdict == Verdict::NoFlag {
        // What was not believed is no flag; it is told all the same.
        groups.clear();
        notes.extend(flags.drain(..).map(|flag| {
            let doubt = flag.evidence.last().map_or("", String::as_str);
            format!(
                "considered {}, at {:.2}: {doubt}",
                flag.name, flag.confidence
            )
        }));
    }
    Report {
        verdict,
        reason,
        threads: Threads {
            normal: None,
            spin: Some(thread),
        },
        spin_loop: Some(writer.loop_report(kind)),
        flags,
        groups,
        notes,
        explain: writer.explain,
        ..Report::nothing(verdict, "")
    }
}

/// (tells whether something is ready, the normal run left by its answer, exits).
type CallRank = (bool, bool, usize);

struct Builder<'a> {
    window: &'a Window,
    analysis: &'a Analysis,
    naming: &'a Naming<'a>,
    outside: &'a Outside,
    explain: Vec<String>,
}

impl Builder<'_> {
    fn code(&self, pc: u64) -> Code {
        self.naming.spin.code(pc)
    }

    fn explain_loop(&mut self) {
        let analysis = self.analysis;
        let header = self.code(self.window.code_at(analysis.spin.marker).pc());
        self.explain.push(format!(
            "{} iterations of a loop that begins at {header}",
            analysis.spin.iterations
        ));
        self.explain.push(format!(
            "{} branches always went one way and could leave it",
            analysis.exits.len()
        ));
        self.explain.push(format!(
            "they depend on {} words of memory and {} system calls that the thread does not write itself, and on {} words that it does",
            analysis.candidates.len(),
            analysis.calls.len(),
            analysis.own_words.len()
        ));
    }

    /// Another thread writes it where things go well.
    fn is_proven(&self, ranked: &Ranked) -> bool {
        let address = self.analysis.candidates[ranked.candidate].address;
        let stores = self.outside.stores.get(&address);
        ranked.score >= ENOUGH && stores.is_some_and(|s| s.iter().any(|s| s.foreign))
    }

    /// Is it compared in one of the condition's tests?
    fn is_tested_in(&self, ranked: &Ranked, condition: Option<usize>) -> bool {
        let candidate = &self.analysis.candidates[ranked.candidate];
        candidate.exits.iter().any(|&exit| {
            let test = self.analysis.conditions[exit].as_ref();
            Some(self.analysis.compounds[exit]) == condition
                && test.is_some_and(|test| test.mentions(candidate.address, candidate.bytes))
        })
    }

    /// The system call whose result decides an exit outside the C library: first the one
    /// whose answer made the normal run leave, then polls, then the one with most exits.
    fn deciding_call(&self) -> Option<u32> {
        let mut best: Option<(CallRank, u32)> = None;
        for (step, exits) in &self.analysis.calls {
            let Some(call) = self.window.syscall_at(*step) else {
                continue;
            };
            let role = syscalls::role(call.number, &call.args);
            if !matches!(role, Role::Poll | Role::Work) {
                continue;
            }
            let wrapper = self.code(self.window.pc(*step)).module;
            let (mut left, mut outside) = (0, 0);
            for &exit in exits {
                let exit = &self.analysis.exits[exit];
                let pc = self.window.pc(exit.step);
                let module = self.code(pc).module;
                let runtime = module.as_deref().is_some_and(is_runtime_module);
                if !runtime || wrapper.as_deref().is_some_and(|w| !is_runtime_module(w)) {
                    outside += 1;
                }
                // The test of the answer for an error often lies in the C library.
                left += usize::from(self.outside.exit(pc, exit.other).is_some());
            }
            let rank = (role == Role::Poll, left > 0, outside);
            if outside > 0 && best.is_none_or(|b| rank > b.0) {
                best = Some((rank, *step));
            }
        }
        best.map(|(_, step)| step)
    }

    fn call_flag(&self, step: u32) -> Flag {
        let call = self.window.syscall_at(step);
        let (number, args, result) =
            call.map_or((0, [0; 6], None), |c| (c.number, c.args, c.result));
        let name = syscalls::name(number);
        let descriptors = self.ready_descriptors(step);
        let of = if descriptors.is_empty() {
            String::new()
        } else {
            format!(" on {}", descriptors.join(", "))
        };
        let returns = match result {
            Some(result) if result < 0 => format!("error {}", -result),
            Some(result) => result.to_string(),
            None => "nothing".into(),
        };
        let same = self
            .window
            .syscalls
            .iter()
            .filter(|c| c.number == number && c.step >= self.analysis.spin.first_step());
        let (mut count, mut steady) = (0, true);
        for other in same {
            count += 1;
            steady &= other.result == result || other.args[0] != args[0];
        }
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
            format!(
                "its result decides {} branches that could leave the loop",
                exits.len()
            ),
        ];
        if !steady {
            evidence.push("its result is not always the same".into());
        }
        Flag {
            rank: 0,
            confidence: if steady { 0.8 } else { 0.6 },
            kind: FlagKind::Syscall,
            name: format!("{name}{of} returns {returns}"),
            module: None,
            offset: None,
            symbol: Some(name.clone()),
            field: None,
            address: Addresses::default(),
            size: 0,
            value: Values {
                spin: result.map(|r| r as u64),
                exit: None,
            },
            exit_when: format!("{name}{of} answers differently"),
            access_path: None,
            readers,
            writers: Vec::new(),
            evidence,
        }
    }

    /// `fd 0 (revents 0x20)`: what the call was about, or found ready.
    fn ready_descriptors(&self, step: u32) -> Vec<String> {
        let Some(call) = self.window.syscall_at(step) else {
            return Vec::new();
        };
        if let Some(fd) = syscalls::descriptor(call.number, &call.args) {
            return vec![format!("fd {fd}")];
        }
        let mut found = Vec::new();
        for (address, bytes) in &call.written {
            // The kernel's answers are seen where the program read them.
            let Some(word) = self.read_later(step, *address, *bytes) else {
                continue;
            };
            match i64::from(call.number) {
                libc::SYS_poll | libc::SYS_ppoll if word & 0xffff != 0 => {
                    let events = word & 0xffff;
                    let entry = (address - call.args[0]) / 8;
                    let what = self
                        .descriptor_at(address - 6)
                        .map_or_else(|| format!("entry {entry}"), |fd| format!("fd {fd}"));
                    found.push(format!("{what} (revents {events:#x})"));
                }
                libc::SYS_select | libc::SYS_pselect6 => {
                    let set = ["read", "write", "except"]
                        .into_iter()
                        .zip(&call.args[1..4])
                        .find(|(_, at)| *at == address)
                        .map_or("read", |(set, _)| set);
                    for fd in (0..64).filter(|fd| word >> fd & 1 == 1) {
                        found.push(format!("fd {fd} ({set} set)"));
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

    fn flag(&self, ranked: &Ranked) -> Flag {
        let candidate = &self.analysis.candidates[ranked.candidate];
        let names = self.naming.spin;
        let data = names.data(candidate.address);
        let condition = self.analysis.conditions[ranked.exit].as_ref();
        let short = |address: u64| {
            if address == candidate.address {
                "value".to_string()
            } else {
                short_name(&names.data(address), address)
            }
        };
        let typed = self.through_pointer(candidate.step, candidate.address);
        let counterpart = self.outside.counterparts.get(&candidate.address);
        let bits = (candidate.bytes * 8).min(64);
        let direct = condition.filter(|c| c.mentions(candidate.address, candidate.bytes));
        // The word that the normal run left with tells nothing where another one let it go.
        let left_with = counterpart.and_then(|c| c.exit_value);
        let left_with = left_with.filter(|_| left_with != candidate.value || direct.is_none());
        let exit_value = left_with.or_else(|| {
            direct.and_then(|c| {
                c.leaving_value(candidate.address, bits, candidate.value.unwrap_or(0))
            })
        });
        let exit_when = match (direct, exit_value) {
            (Some(condition), _) => condition.text(&short),
            (None, Some(value)) => format!("value == {value:#x} (as in the normal run)"),
            (None, None) => match candidate.value {
                Some(value) => format!("value != {value:#x}"),
                None => "value changes".into(),
            },
        };
        Flag {
            rank: 0,
            confidence: (ranked.score * 100.0).round() / 100.0,
            kind: flag_kind(data.kind),
            module: data.module.clone(),
            offset: data.offset,
            symbol: data.symbol.clone(),
            field: data.field.clone().or_else(|| typed.as_ref()?.1.clone()),
            name: data.name.clone(),
            address: Addresses {
                spin: Some(candidate.address),
                normal: counterpart.and_then(|c| c.address),
            },
            size: candidate.bytes,
            value: Values {
                spin: candidate.value,
                exit: exit_value,
            },
            exit_when,
            access_path: typed
                .map(|(path, _)| path)
                .or_else(|| self.access_path(candidate.step)),
            readers: candidate.readers.iter().map(|&pc| self.code(pc)).collect(),
            writers: self.writers(candidate.address),
            evidence: ranked.evidence.clone(),
        }
    }

    fn writers(&self, address: u64) -> Vec<Writer> {
        let stores = self.outside.stores.get(&address);
        let stores = stores.map_or(&[][..], |stores| &stores[..]);
        let named = stores.iter().filter_map(|store| {
            let names = if store.normal {
                self.naming.normal?
            } else {
                self.naming.spin
            };
            Some(Writer {
                run: if store.normal { "normal" } else { "spin" }.into(),
                tid: store.tid,
                thread: names.thread_label(store.tid),
                code: names.code(store.pc),
                value: store.value,
                stack: store.stack.iter().map(|&pc| names.caller(pc)).collect(),
                count: store.count,
            })
        });
        named.collect()
    }

    /// `pool->workers[2].state` and `.workers[2].state`, when the word was reached through
    /// a variable whose type says what it points to.
    fn through_pointer(&self, step: u32, address: u64) -> Option<(String, Option<String>)> {
        let (window, names) = (self.window, self.naming.spin);
        let base = window.code(step).memory.first()?.base?;
        let start = self.analysis.spin.first_step().saturating_sub(1);
        let set = crate::decoded::general(base);
        let definition = (start..step)
            .rev()
            .find(|&s| window.code(s).writes & set != 0)?;
        let access = window.accesses(definition).iter().find(|a| !a.write)?;
        let (variable, pointer) = (access.address?, access.value.get(64)?);
        let (kind, 0) = names.type_at(variable)? else {
            return None;
        };
        let offset = address.checked_sub(pointer)?;
        let field = names.field_path(names.pointee(kind)?, offset)?;
        let symbol = short_name(&names.data(variable), variable);
        let path = match field.strip_prefix('.') {
            Some(member) => format!("{symbol}->{member}"),
            None => format!("(*{symbol}){field}"),
        };
        Some((path, Some(field).filter(|field| !field.is_empty())))
    }

    /// How the code reached the word: the pointers that were loaded to form its address.
    fn access_path(&self, step: u32) -> Option<String> {
        let window = self.window;
        let mut parts: Vec<String> = Vec::new();
        let (mut at, mut reference) = (step, window.code(step).memory.first().copied()?);
        for _ in 0..4 {
            let displacement = reference.displacement;
            let Some(base) = reference.base else { break };
            let start = self.analysis.spin.first_step().saturating_sub(1);
            let set = crate::decoded::general(base);
            let definition = (start..at)
                .rev()
                .find(|&s| window.code(s).writes & set != 0)?;
            let code = window.code(definition);
            let load = code.memory.first().filter(|m| m.read)?;
            let access = window.accesses(definition).iter().find(|a| !a.write)?;
            let address = access.address?;
            let data = self.naming.spin.data(address);
            parts.push(format!("->+{displacement:#x}"));
            if matches!(
                data.kind,
                DataKind::Global | DataKind::Tls | DataKind::Linkage
            ) {
                parts.push(short_name(&data, address));
                parts.reverse();
                return Some(parts.concat());
            }
            at = definition;
            reference = *load;
        }
        None
    }

    fn groups(&self, flags: &[Flag]) -> Vec<Group> {
        let analysis = self.analysis;
        let name = |address| short_name(&self.naming.spin.data(address), address);
        let mut groups: Vec<Group> = Vec::new();
        for exits in self.exits_by_condition() {
            let decides = |flag: &&Flag| {
                let mut candidates = analysis.candidates.iter();
                candidates.any(|c| {
                    Some(c.address) == flag.address.spin
                        && exits.iter().any(|exit| c.exits.contains(exit))
                })
            };
            let members: Vec<u32> = flags.iter().filter(decides).map(|f| f.rank).collect();
            if members.is_empty() || groups.iter().any(|g| g.flags == members) {
                continue;
            }
            let mut tests: Vec<String> = Vec::new();
            for condition in exits
                .iter()
                .filter_map(|&e| analysis.conditions[e].as_ref())
            {
                let test = condition.text(&name);
                let about_them = flags.iter().filter(|f| members.contains(&f.rank)).any(|f| {
                    let address = f.address.spin;
                    address.is_some_and(|address| condition.mentions(address, f.size))
                });
                if (about_them || exits.len() == 1) && !tests.contains(&test) {
                    tests.push(test);
                }
            }
            groups.push(Group {
                branch: self.code(self.window.pc(analysis.exits[exits[0]].step)),
                exit_when: (!tests.is_empty()).then(|| tests.join(" or ")),
                flags: members,
            });
        }
        groups.sort_by_key(|group| group.flags.clone());
        groups.truncate(LISTED);
        groups
    }

    /// The exits of each condition of the source, in the order of execution.
    fn exits_by_condition(&self) -> Vec<Vec<usize>> {
        let mut by_condition: Vec<(usize, Vec<usize>)> = Vec::new();
        for (exit, &condition) in self.analysis.compounds.iter().enumerate() {
            match by_condition.iter_mut().find(|(c, _)| *c == condition) {
                Some((_, exits)) => exits.push(exit),
                None => by_condition.push((condition, vec![exit])),
            }
        }
        by_condition.into_iter().map(|(_, exits)| exits).collect()
    }

    fn kind(&self, first: Option<&Flag>) -> LoopKind {
        let atomic = first.is_some_and(|flag| {
            let mut candidates = self.analysis.candidates.iter();
            candidates.any(|c| Some(c.address) == flag.address.spin && c.atomic)
        });
        if atomic {
            LoopKind::Rmw
        } else {
            self.analysis.kind
        }
    }

    fn verdict(&self, flags: &[Flag], call_first: bool, kind: LoopKind) -> (Verdict, String) {
        match flags.first() {
            Some(flag) if call_first => (
                Verdict::SyscallLoop,
                format!("the loop repeats because {}", flag.name),
            ),
            Some(flag) if flag.confidence >= ENOUGH && flag.kind != FlagKind::Syscall => {
                let text = format!("the loop polls {}; it ends when {}", flag.name, flag.exit_when);
                if kind == LoopKind::Rmw {
                    (Verdict::Lock, text)
                } else {
                    (Verdict::DataFlag, text)
                }
            }
            _ if self.analysis.consumes => (
                Verdict::NoFlag,
                "the loop takes over data in every iteration: it makes progress".into(),
            ),
            _ if self.analysis.exits.iter().any(|exit| exit.induction) => (
                Verdict::NoFlag,
                "what decides the loop's exits is changed by the loop's own thread in every iteration: it makes progress".into(),
            ),
            _ => (
                Verdict::NoFlag,
                "no exit of the loop depends on memory that stays the same and that this thread does not write".into(),
            ),
        }
    }

    fn loop_report(&self, kind: LoopKind) -> LoopReport {
        let spin = &self.analysis.spin;
        let header = self.code(self.window.code_at(spin.marker).pc());
        let function = header.symbol.as_deref().map(|s| {
            s.rsplit_once("+0x")
                .map_or(s, |(function, _)| function)
                .to_string()
        });
        let module = header.module.clone();
        let place = module
            .as_ref()
            .map(|module| format!("{module}+{:#x}", header.offset));
        LoopReport {
            kind,
            function: function.or(place),
            module,
            iterations: spin.iterations,
            header,
        }
    }
}

fn short_name(data: &DataName, address: u64) -> String {
    match (&data.symbol, &data.field) {
        (Some(symbol), Some(field)) => format!("{symbol}{field}"),
        (Some(symbol), None) => symbol.clone(),
        (None, _) => match (&data.module, data.offset) {
            (Some(module), Some(offset)) => format!("[{module}+{offset:#x}]"),
            _ => format!("[{address:#x}]"),
        },
    }
}

fn flag_kind(kind: DataKind) -> FlagKind {
    match kind {
        DataKind::Global | DataKind::ReadOnly | DataKind::Linkage | DataKind::Code => {
            FlagKind::Global
        }
        DataKind::Tls | DataKind::ThreadControl => FlagKind::Tls,
        DataKind::Stack => FlagKind::Stack,
        DataKind::Shared | DataKind::File => FlagKind::Shared,
        DataKind::Heap | DataKind::Anonymous | DataKind::Kernel | DataKind::Unknown => {
            FlagKind::Heap
        }
    }
}
