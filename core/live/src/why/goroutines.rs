// SPDX-License-Identifier: MIT
//! Goroutines of a Go program: which are blocked, in what, and where.
//!
//! A thread for which Go's scheduler has no goroutine sleeps on a futex that names nobody, or waits
//! for the next timer and for any socket. The runtime keeps all goroutines in `runtime.allgs`, each
//! with its state, the reason of its wait, and the registers with which it goes on
//! (`runtime/runtime2.go`). Where a `runtime.g` keeps them is told by the type of the variable
//! `runtime.g0`. Blind spots: programs without symbols or debug information; who is to end a
//! goroutine's wait for another one.

use flagfinder_code::{is_of_go, AddressSpace, Code, Names, Spot, Whose};

use super::files;
use super::obstacle::{End, Obstacle};
use super::process::{Process, Processes};
use super::report::Kind;

/// Most goroutines that are read.
const MOST: u64 = 4096;
/// No `runtime.g` is larger.
const LARGEST: u64 = 4096;
const FRAMES: usize = 32;
/// Functions in which a thread looks for a goroutine to run.
const SCHEDULER: [&str; 3] = [
    "runtime.findRunnable+",
    "runtime.schedule+",
    "runtime.stopm+",
];
/// Longest text of a reason.
const REASON: u64 = 64;
/// The state of a goroutine that waits, and a bit that the garbage collector may add to it.
const WAITING: u64 = 4;
const SCANNED: u64 = 0x1000;
/// Most groups of goroutines that are told.
const TOLD: usize = 3;

/// A goroutine that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Goroutine {
    id: u64,
    /// As the runtime calls it: `chan send`.
    reason: String,
    /// The program's function that waits, and its line.
    place: String,
    /// The same, if it is the author's.
    at: Option<Spot>,
    /// Its open calls, innermost first.
    calls: Vec<(Whose, Spot)>,
}

impl Goroutine {
    fn told(&self) -> String {
        format!("{} (goroutine {}, {})", self.reason, self.id, self.place)
    }

    fn sleeps(&self) -> bool {
        self.reason == "sleep"
    }
}

/// Where a `runtime.g` keeps what is read of it.
struct Layout {
    state: u64,
    reason: u64,
    id: u64,
    pc: u64,
    frame: u64,
}

impl Layout {
    fn read(names: &Names) -> Option<Layout> {
        let (first, size) = *names.resolve(None, "runtime.g0").first()?;
        let path = |at: u64| Some((at, names.word_at(first.wrapping_add(at))?.word.path));
        let fields: Vec<(u64, String)> = (0..size.min(LARGEST)).filter_map(path).collect();
        let place = |begins: &str| {
            let found = fields.iter().find(|(_, path)| path.starts_with(begins));
            found.map(|(at, _)| *at)
        };
        Some(Layout {
            state: place(".atomicstatus")?,
            reason: place(".waitreason")?,
            id: place(".goid")?,
            pc: place(".sched.pc")?,
            frame: place(".sched.bp")?,
        })
    }
}

/// What the goroutines are blocked in, where the thread sleeps since there is none to run. `stack`:
/// its open calls.
pub fn obstacles(
    processes: &mut Processes,
    pid: u32,
    tid: u32,
    stack: &[Code],
) -> Option<Vec<Obstacle>> {
    let mut all = idle(processes.get(pid)?, stack)?;
    all.sort_by_key(|one| (one.sleeps(), one.id));
    // The first goroutine executes `main.main`.
    let first = all.iter().position(|one| one.id == 1).unwrap_or(0);
    let first = (first < all.len()).then(|| all.remove(first))?;
    let descriptor = processes.get(pid).and_then(poller);
    if let Some(descriptor) = descriptor.filter(|_| first.reason == "IO wait") {
        let mut all = files::each(processes, pid, tid, &[descriptor], &first.told());
        all.iter_mut().for_each(|one| one.at.clone_from(&first.at));
        return Some(all);
    }
    let what = match others(&all) {
        None => "nothing says who owes it, and no other goroutine is blocked".to_owned(),
        Some(others) => format!("nothing says who owes it; blocked as well: {others}"),
    };
    let end = End::unknown(what);
    let mut obstacle = Obstacle::ends(Kind::Flag, first.told(), end);
    obstacle.waits_for.statement = Some(format!("{} (goroutine {})", first.reason, first.id));
    obstacle.at = first.at;
    Some(vec![obstacle])
}

/// The open calls of each that waits.
pub fn calls(process: &Process) -> Vec<Vec<(Whose, Spot)>> {
    let inside = process.inside.as_ref();
    let all = inside.and_then(|inside| blocked(&inside.names, &*inside.memory));
    let all = all.unwrap_or_default().into_iter();
    all.map(|one| one.calls).collect()
}

/// The goroutines that wait, where another one runs.
pub fn also_blocked(process: &Process) -> Option<String> {
    let inside = process.inside.as_ref()?;
    others(&blocked(&inside.names, &*inside.memory)?)
}

/// The epoll descriptor by which the runtime waits for all files.
fn poller(process: &Process) -> Option<i32> {
    let inside = process.inside.as_ref().filter(|_| !process.is_dead)?;
    let (at, _) = *inside.names.resolve(None, "runtime.epfd").first()?;
    Some(inside.memory.number(at, 4)? as i32)
}

/// Goroutines that wait, if the thread looks for one to run.
fn idle(process: &Process, stack: &[Code]) -> Option<Vec<Goroutine>> {
    let is_scheduler = |code: &Code| {
        let symbol = code.symbol.as_deref();
        symbol.is_some_and(|symbol| SCHEDULER.iter().any(|begins| symbol.starts_with(begins)))
    };
    let inside = process.inside.as_ref()?;
    stack.iter().take(FRAMES).find(|code| is_scheduler(code))?;
    blocked(&inside.names, &*inside.memory)
}

/// Goroutines that wait in the program's code.
fn blocked(names: &Names, memory: &dyn AddressSpace) -> Option<Vec<Goroutine>> {
    let (list, _) = *names.resolve(None, "runtime.allgs").first()?;
    let (first, count) = (memory.word(list)?, memory.word(list.wrapping_add(8))?);
    let (reasons, _) = *names.resolve(None, "runtime.waitReasonStrings").first()?;
    let layout = Layout::read(names)?;
    let goroutine = |index: u64| {
        let at = memory.word(first.checked_add(index * 8)?)?;
        let field = |offset: u64, bytes: usize| memory.number(at.checked_add(offset)?, bytes);
        if field(layout.state, 4)? & !SCANNED != WAITING {
            return None;
        }
        let reason = reasons.checked_add(field(layout.reason, 1)? * 16)?;
        let frames = frames(memory, field(layout.pc, 8)?, field(layout.frame, 8)?);
        let code = |pc| {
            let code = names.caller(pc);
            let source = names.source_of_caller(pc).or(code.source);
            Code { source, ..code }
        };
        let spots: Vec<(Whose, Spot)> = frames.iter().flat_map(|pc| names.spots(*pc)).collect();
        let each = spots.iter().map(|(whose, spot)| (*whose, spot));
        let at = Spot::first_own(each).cloned();
        let codes: Vec<Code> = frames.into_iter().map(code).collect();
        Some(Goroutine {
            id: field(layout.id, 8)?,
            reason: text(memory, reason)?,
            place: place(&codes)?,
            at,
            calls: spots,
        })
    };
    Some((0..count.min(MOST)).filter_map(goroutine).collect())
}

/// Go keeps frame pointers on x86-64. Callers' frames lie higher.
fn frames(memory: &dyn AddressSpace, pc: u64, mut frame: u64) -> Vec<u64> {
    let mut found = vec![pc];
    while found.len() < FRAMES {
        let next = memory.word(frame).filter(|next| *next > frame);
        let (Some(next), Some(pc)) = (next, memory.word(frame.wrapping_add(8))) else {
            break;
        };
        found.push(pc);
        frame = next;
    }
    found
}

/// A Go string.
fn text(memory: &dyn AddressSpace, at: u64) -> Option<String> {
    let (first, length) = (memory.word(at)?, memory.word(at.checked_add(8)?)?);
    let mut bytes = [0; REASON as usize];
    let bytes = &mut bytes[..length.min(REASON) as usize];
    (memory.read(first, bytes) == bytes.len()).then(|| String::from_utf8_lossy(bytes).into_owned())
}

/// The innermost function of the program, or else of the library. `None`: all is the runtime's.
fn place(codes: &[Code]) -> Option<String> {
    let function = |code: &Code| {
        let symbol = code.symbol.as_deref()?;
        let name = symbol.rsplit_once('+').map_or(symbol, |(name, _)| name);
        Some((name.to_owned(), code.source.clone()))
    };
    let named: Vec<_> = codes.iter().filter_map(function).collect();
    let own = named.iter().find(|(name, _)| !is_of_go(name));
    let other = || named.iter().find(|(name, _)| !name.starts_with("runtime."));
    let (name, source) = own.or_else(other)?;
    Some(match source {
        Some(source) => format!("{name} at {source}"),
        None => name.clone(),
    })
}

/// Goroutines that do the same at the same place are told together.
fn others(all: &[Goroutine]) -> Option<String> {
    let mut groups: Vec<Vec<&Goroutine>> = Vec::new();
    for one in all {
        let is_like = |group: &&mut Vec<&Goroutine>| {
            (&group[0].reason, &group[0].place) == (&one.reason, &one.place)
        };
        match groups.iter_mut().find(is_like) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    let told = groups.iter().take(TOLD).map(|group| match &group[..] {
        [one] => one.told(),
        several => {
            let (count, first) = (several.len(), several[0]);
            format!("{} ({count} goroutines, {})", first.reason, first.place)
        }
    });
    let mut texts: Vec<String> = told.collect();
    let more: usize = groups.iter().skip(TOLD).map(Vec::len).sum();
    if more > 0 {
        texts.push(format!("and {more} more"));
    }
    (!texts.is_empty()).then(|| texts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goroutine(id: u64, reason: &str, place: &str) -> Goroutine {
        Goroutine {
            id,
            reason: reason.into(),
            place: place.into(),
            at: None,
            calls: Vec::new(),
        }
    }

    #[test]
    fn goroutines_at_one_place_are_told_together() {
        let all = [
            goroutine(7, "chan send", "main.work at a.go:3"),
            goroutine(8, "select", "main.serve at a.go:9"),
            goroutine(9, "chan send", "main.work at a.go:3"),
        ];
        let told = others(&all).unwrap();
        let expected = "chan send (2 goroutines, main.work at a.go:3); select (goroutine 8, \
                        main.serve at a.go:9)";
        assert_eq!(told, expected);
        assert_eq!(others(&[]), None);
        let many: Vec<Goroutine> = (2..9)
            .map(|id| goroutine(id, "sleep", &format!("main.f{id}")))
            .collect();
        assert!(others(&many).unwrap().ends_with("; and 4 more"));
    }

    #[test]
    fn frames_end_where_callers_would_lie_lower() {
        struct Stack;
        impl AddressSpace for Stack {
            fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
                let words: [u64; 6] = [0x1010, 0xa, 0x1020, 0xb, 0x1000, 0xc];
                let Some(word) = address.checked_sub(0x1000).map(|at| at as usize / 8) else {
                    return 0;
                };
                match words.get(word) {
                    Some(word) => buffer.copy_from_slice(&word.to_le_bytes()[..buffer.len()]),
                    None => return 0,
                }
                buffer.len()
            }
        }
        assert_eq!(frames(&Stack, 0x9, 0x1000), [0x9, 0xa, 0xb]);
    }
}
