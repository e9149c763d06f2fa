// SPDX-License-Identifier: MIT
//! Which test of a test runner a process is in.
//!
//! In: the open calls of its threads. Out: of each, the call of the program's author that the
//! runner made. Runners: pytest, unittest, Rust's libtest, Go's testing, JUnit and TestNG; jest,
//! mocha, vitest and node's own. Of ctest, and of a make that tests, the command is told that it
//! runs. Blind spots: tests that an event loop runs, and threads that run, but for
//! those of JavaScript and Perl.

use std::time::Duration;

use flagfinder_code::{Spot, Whose};
use flagfinder_linux::arguments::arguments;
use flagfinder_linux::clock::Effort;
use flagfinder_linux::proc::Stat;

use super::asked::InSource;
use super::process::{Process, Processes};
use super::report::Tested;
use super::{go, java};
use crate::stack::Stack;

/// What the functions of runners begin with, and parts of paths of their files.
const FUNCTIONS: [&str; 6] = [
    "test::run_test",
    "test::__rust_begin_short_backtrace",
    "testing.tRunner",
    "org.junit.",
    "junit.framework.",
    "org.testng.",
];
const FILES: [&str; 8] = [
    "/_pytest/",
    "/unittest/case.py",
    "/unittest/async_case.py",
    "/node_modules/jest-circus/",
    "/node_modules/jest-jasmine2/",
    "/node_modules/mocha/",
    "/node_modules/@vitest/runner/",
    "node:internal/test_runner",
];
/// The functions of JavaScript's runners to which a test is handed: what one is handed may go on
/// behind a wait of its own, when no call of the runner is open.
const TAKERS: [&str; 4] = ["it(", "test(", "it.only(", "test.only("];
/// Runners that start each test as a program; the last two only if they were asked to test.
const STARTERS: [&str; 3] = ["ctest", "make", "gmake"];
const TARGETS: [&str; 2] = ["test", "check"];
const SHELLS: [&str; 4] = ["sh", "bash", "dash", "env"];
/// What Python runs when its program is over: it waits for threads that are no daemons.
const AT_THE_END: (&str, &str) = ("_shutdown", "/threading.py");
const OVER: &str = "none: the last one is over, and Python waits for threads that go on";
/// Most processes, and threads of each, that are looked at, and processor time for them.
const PROCESSES: usize = 8;
const THREADS: usize = 64;
const PATIENCE: Duration = Duration::from_millis(400);

/// Of these processes.
pub fn tests(processes: &mut Processes, pids: &[u32], in_source: &InSource) -> Vec<Tested> {
    tests_within(processes, pids, in_source, PATIENCE)
}

/// The same with more processor time, or less.
pub fn tests_within(
    processes: &mut Processes,
    pids: &[u32],
    in_source: &InSource,
    patience: Duration,
) -> Vec<Tested> {
    let effort = Effort::begin();
    let mut found = Vec::new();
    let mut threads = Vec::new();
    for pid in pids.iter().take(PROCESSES) {
        let Some(process) = processes.get(*pid) else {
            continue;
        };
        let of_go = go::calls(process);
        let each = of_go.iter().filter_map(|calls| test_in(calls));
        found.extend(each.map(|spot| Tested {
            pid: *pid,
            tid: None,
            command: None,
            spot,
        }));
        let main = in_source.stacks.get(pid);
        if main.is_some_and(|calls| is_at_the_end(calls)) && is_asked_to_test(*pid) {
            found.push(Tested::command(*pid, OVER));
        }
        threads.push((*pid, process.tids()));
    }
    for (pid, tid) in in_order(&threads) {
        if effort.exceeds(patience) {
            break;
        }
        let Some(process) = processes.get(pid) else {
            continue;
        };
        if let Some(spot) = test_in(&calls(process, tid, in_source)) {
            found.push(Tested {
                pid,
                tid: Some(tid),
                command: None,
                spot,
            });
        }
    }
    if found.is_empty() {
        let mut lives = |pid: &u32| processes.get(*pid).is_some_and(|process| !process.is_dead);
        let living: Vec<u32> = pids.iter().copied().filter(|pid| lives(pid)).collect();
        let mut each = living.into_iter().rev().filter_map(started_by_runner);
        found.extend(each.next());
    }
    found
}

/// The first threads of all processes before the others: most languages run their tests there, and
/// a runner's own threads are many.
fn in_order(threads: &[(u32, Vec<u32>)]) -> Vec<(u32, u32)> {
    let each = threads.iter().flat_map(|(pid, tids)| {
        let tids = tids.iter().take(THREADS);
        tids.map(move |tid| (*pid, *tid))
    });
    let (mut order, others): (Vec<_>, Vec<_>) = each.partition(|(pid, tid)| pid == tid);
    order.extend(others);
    order
}

impl Tested {
    pub(super) fn command(pid: u32, text: &str) -> Tested {
        Tested {
            pid,
            tid: None,
            command: Some(text.to_owned()),
            spot: Spot::default(),
        }
    }
}

/// The command of a process that such a runner started, or a shell of it.
fn started_by_runner(pid: u32) -> Option<Tested> {
    let mut runner = parent(pid)?;
    let mut words = words(runner);
    if program(&words).is_some_and(|name| SHELLS.contains(&name)) {
        runner = parent(runner)?;
        words = self::words(runner);
    }
    let name = program(&words).filter(|name| STARTERS.contains(name))?;
    let tests = name == "ctest" || is_asked_to_test(runner);
    tests.then(|| Tested::command(pid, &self::words(pid).join(" ")))
}

fn parent(pid: u32) -> Option<u32> {
    Stat::of(pid)?.field(Stat::PARENT)
}

fn words(pid: u32) -> Vec<String> {
    let told = arguments(pid).unwrap_or_default();
    let told = String::from_utf8_lossy(&told);
    told.split_terminator('\0').map(str::to_owned).collect()
}

fn program(words: &[String]) -> Option<&str> {
    words.first()?.rsplit('/').next()
}

/// Do its arguments speak of tests?
fn is_asked_to_test(pid: u32) -> bool {
    let words = words(pid);
    let mut words = words.iter().flat_map(|word| word.rsplit('/').next());
    words.any(|word| TARGETS.iter().any(|target| word.contains(target)))
}

/// Is the first thread of a Python program, with these calls, done with the program?
fn is_at_the_end(calls: &[Spot]) -> bool {
    calls.last().is_some_and(|outer| {
        let file = outer.file.as_deref().unwrap_or_default();
        outer.function.as_deref() == Some(AT_THE_END.0) && file.ends_with(AT_THE_END.1)
    })
}

/// As the program's language has them, innermost first.
fn calls(process: &Process, tid: u32, in_source: &InSource) -> Vec<(Whose, Spot)> {
    if let Some(calls) = in_source.stacks.get(&tid) {
        let told = calls.iter().map(|spot| (spot.whose(), spot.clone()));
        return told.collect();
    }
    let Some(call) = process.activity(tid).and_then(|activity| activity.call) else {
        return process.calls_of_runtime(tid);
    };
    let of_java = java::calls(process, tid);
    if !of_java.is_empty() {
        return of_java;
    }
    let of_runtime = process.calls_of_runtime(tid);
    if !of_runtime.is_empty() {
        return of_runtime;
    }
    let Some(inside) = &process.inside else {
        return Vec::new();
    };
    let stack = Stack::of(&call, &*inside.memory, &inside.names);
    let sure = stack.spots(&inside.names).into_iter();
    let sure = sure.take_while(|(_, _, sure)| *sure);
    sure.map(|(whose, spot, _)| (whose, spot)).collect()
}

/// What the innermost call of a runner called, of the author's.
fn test_in(calls: &[(Whose, Spot)]) -> Option<Spot> {
    let Some(runner) = calls.iter().position(|(_, spot)| is_runner(spot)) else {
        let is_taken = |function: &str| TAKERS.iter().any(|taker| function.starts_with(taker));
        let taken = calls
            .iter()
            .find(|(_, spot)| spot.function.as_deref().is_some_and(is_taken));
        return taken.map(|(_, spot)| spot.clone());
    };
    let mut inside = calls[..runner].iter().rev();
    let (_, test) = inside.find(|(whose, _)| *whose == Whose::Own)?;
    // Rust's tests are called by way of one.
    let function = test.function.as_deref();
    let function = function.map(|name| name.trim_end_matches("::{{closure}}").to_owned());
    Some(Spot {
        function,
        ..test.clone()
    })
}

fn is_runner(spot: &Spot) -> bool {
    let function = spot.function.as_deref().unwrap_or_default();
    let file = spot.file.as_deref().unwrap_or_default();
    FUNCTIONS.iter().any(|begins| function.starts_with(begins))
        || FILES.iter().any(|part| file.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(names: &[(&str, &str)]) -> Vec<(Whose, Spot)> {
        let spot = |(function, file): &(&str, &str)| Spot {
            function: Some((*function).into()),
            file: Some((*file).into()),
            ..Spot::default()
        };
        let told = names.iter().map(|name| (spot(name).whose(), spot(name)));
        told.collect()
    }

    #[test]
    fn the_authors_call_next_to_the_runner_is_the_test() {
        let site = "/usr/lib/python3/dist-packages/_pytest/python.py";
        let found = test_in(&calls(&[
            ("wait", "/usr/lib/python3.11/threading.py"),
            ("helper", "/src/app.py"),
            ("test_hangs", "/src/test_app.py"),
            ("pytest_pyfunc_call", site),
            ("<module>", "/src/run.py"),
        ]));
        assert_eq!(
            found.and_then(|spot| spot.function).as_deref(),
            Some("test_hangs")
        );
        assert_eq!(test_in(&calls(&[("main", "/src/app.py")])), None);
        assert_eq!(
            test_in(&calls(&[("pytest_pyfunc_call", site)])),
            None,
            "in between two"
        );
    }

    #[test]
    fn a_runner_of_many_threads_is_not_looked_at_before_the_process_that_it_started() {
        let threads = [(10, vec![10, 11, 12]), (20, vec![20, 21])];
        let order = [(10, 10), (20, 20), (10, 11), (10, 12), (20, 21)];
        assert_eq!(in_order(&threads), order);
    }

    #[test]
    fn after_the_last_test_python_waits_for_its_threads() {
        let spot = |function: &str| Spot {
            function: Some(function.into()),
            file: Some("/usr/lib/python3.11/threading.py".into()),
            ..Spot::default()
        };
        assert!(is_at_the_end(&[spot("join"), spot("_shutdown")]));
        assert!(!is_at_the_end(&[spot("_shutdown"), spot("join")]));
        assert!(!is_at_the_end(&[]));
    }
}
