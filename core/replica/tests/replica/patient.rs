// SPDX-License-Identifier: MIT
//! Copies of a real thread: a small C program, compiled here, that spins on a word.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use flagfinder_replica::{
    go_round, Event, Experiment, Halt, Live, Moment, Outcome, Pages, Proof, Ran, Replica, Rounds,
    Supposed, Supposition, ThreadState, Unfit, Wanted, Watched, Word, PAGE,
};

const TIME: Duration = Duration::from_secs(60);
/// Pages beside one that was used.
const AROUND: u64 = 4;

/// Built once, into cargo's folder for tests.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("replica-patient");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/patient.c");
        let built = Command::new("cc")
            .args(["-O1", "-g", "-pthread", "-o"])
            .arg(&program)
            .arg(source)
            .status();
        assert!(built.expect("a C compiler").success());
        program
    })
}

/// A running program that has said where its words are.
struct Patient {
    child: Child,
    words: Vec<u64>,
}

impl Patient {
    /// `way` names one of the program's loops.
    fn start(way: &str) -> Patient {
        let mut child = Command::new(program())
            .arg(way)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut line = String::new();
        let output = child.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16);
        let words = line.split_whitespace().map(|word| hex(word).expect("hex"));
        let words = words.collect();
        Patient { child, words }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes the values, each at the number of its word, into one copy.
    fn with(&self, values: &[(usize, u64)]) -> Result<Proof, Unfit> {
        self.beside(values, &[])
    }

    /// The same; asks whether the thread changes the words of these numbers.
    fn beside(&self, values: &[(usize, u64)], others: &[usize]) -> Result<Proof, Unfit> {
        let (live, state) = self.look();
        let pages = Pages::new(&live);
        let experiment = Experiment::prepare(&pages, &state, &[], Rounds::default(), TIME)
            .expect("a process")?;
        let word = |at: usize, value| Word {
            address: self.words[at],
            bytes: 4,
            value,
        };
        let words: Vec<Word> = values.iter().map(|&(at, value)| word(at, value)).collect();
        let others: Vec<Word> = others.iter().map(|&at| word(at, 0)).collect();
        Ok(experiment.try_words(&words, &others, TIME).expect("a copy"))
    }

    /// The thread wherever it is. Its pages may be of other moments.
    fn now(&self) -> (Live, ThreadState) {
        let live = Live::open(self.pid()).expect("readable");
        let (state, _) = live.capture(self.pid(), TIME).expect("stops");
        (live, state)
    }

    /// The thread in its loop: right after its line it may still be in the call that printed it.
    /// Pages that a copy of it used before are of the moment of the registers, so that nothing the
    /// program wrote since is among them.
    fn look(&self) -> (Live, ThreadState) {
        let mut known = Wanted::default();
        loop {
            let live = Live::open(self.pid()).expect("readable");
            let captured = live.capture_with(self.pid(), TIME, Moment::Now, &known);
            let state = captured.expect("stops").state;
            let pages = Pages::new(&live);
            let looked = Experiment::prepare(&pages, &state, &[], Rounds::default(), TIME)
                .expect("a process");
            let is_loop = match looked {
                Ok(_) | Err(Unfit::Halted(Halt::Blocks { .. })) => true,
                Err(_) => false,
            };
            let used = pages.writable(AROUND);
            drop(pages);
            if is_loop && used.is_subset(&known.held) {
                return (live, state);
            }
            known.held.extend(used);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn outcome(&self, values: &[(usize, u64)]) -> Outcome {
        self.with(values).expect("it repeats").outcome
    }

    fn still_runs(&mut self) -> bool {
        self.child.try_wait().expect("our child").is_none()
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        for name in ["patient", "fifo"] {
            let _ = std::fs::remove_file(format!("/tmp/replica-{name}-{}", self.pid()));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_value_that_ends_the_loop_is_told_from_others() {
    let mut patient = Patient::start("yield");
    let proof = patient.with(&[(0, 1)]).expect("it repeats");
    assert_eq!(proof.outcome, Outcome::Leaves, "{proof:?}");
    assert!(proof.instructions.is_some_and(|n| n < 200), "{proof:?}");
    assert_eq!(patient.outcome(&[(1, 7)]), Outcome::Returns);
    // The program itself never saw the values.
    assert!(patient.still_runs());
}

#[test]
fn a_word_that_only_changes_what_the_loop_does_does_not_end_it() {
    let patient = Patient::start("yield");
    let proof = patient.with(&[(1, 9)]).expect("it repeats");
    assert_eq!(proof.outcome, Outcome::Returns, "{proof:?}");
}

#[test]
fn a_round_that_computes_for_long_is_followed_to_its_end() {
    let patient = Patient::start("long");
    let (live, state) = patient.now();
    let pages = Pages::new(&live);
    let word = Word {
        address: patient.words[0],
        bytes: 4,
        value: 1,
    };
    let mut copy = Replica::start(&pages, &state).expect("a process");
    let deadline = Instant::now() + TIME;
    let rounds = Rounds::between_looks(&mut copy, word, 1_000_000, deadline).expect("a copy");
    assert!((40_000..80_000).contains(&rounds.length), "{rounds:?}");
    let experiment = Experiment::prepare(&pages, &state, &[], rounds, TIME).expect("a process");
    let proof = experiment
        .expect("it repeats")
        .try_word(word, TIME)
        .expect("a copy");
    assert_eq!(proof.outcome, Outcome::Leaves, "{proof:?}");
}

#[test]
fn a_loop_that_goes_on_to_wait_for_the_next_thing_has_ended_the_first_wait() {
    let patient = Patient::start("turns");
    let (now, next) = (0, 3);
    assert_eq!(patient.outcome(&[(now, 1)]), Outcome::Leaves);
    assert_eq!(patient.outcome(&[(next, 1)]), Outcome::Returns);
}

#[test]
fn a_thread_that_was_out_of_its_loop_since_it_was_copied_is_told_from_one_that_stayed() {
    let patient = Patient::start("rounds");
    let (live, state) = patient.look();
    let pages = Pages::new(&live);
    let experiment = Experiment::prepare(&pages, &state, &[], Rounds::default(), TIME)
        .expect("a process")
        .expect("it repeats");
    let was_left = || {
        let (live, state) = patient.look();
        let polled = &patient.words[..1];
        let left = experiment.was_left(&Pages::new(&live), &state, polled);
        left.expect("a process")
    };
    assert_eq!(was_left(), Some(false));
    let (done, number) = (patient.words[0], patient.words[3]);
    let memory = format!("/proc/{}/mem", patient.pid());
    let memory = File::options().read(true).write(true).open(memory);
    let memory = memory.expect("our child's");
    memory.write_all_at(&[1, 0, 0, 0], done).expect("written");
    let mut round = [0; 4];
    while round == [0; 4] {
        memory.read_exact_at(&mut round, number).expect("read");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(was_left(), Some(true));
}

#[test]
fn a_lock_that_is_taken_in_an_optimistic_look_only_makes_the_thread_wait_elsewhere() {
    let patient = Patient::start("optimist");
    let (flag, lock) = (0, 1);
    let proof = patient.with(&[(lock, 1)]).expect("it repeats");
    assert_eq!(proof.outcome, Outcome::Returns, "{proof:?}");
    assert!(proof.hands_over, "{proof:?}");
    assert_eq!(patient.outcome(&[(flag, 1)]), Outcome::Leaves);
}

#[test]
fn who_answers_before_waiting_for_the_word_again_has_left_the_loop() {
    let patient = Patient::start("hands");
    assert_eq!(patient.outcome(&[(0, 1)]), Outcome::Leaves);
}

#[test]
fn the_stack_is_of_the_moment_of_the_registers() {
    let patient = Patient::start("sleep");
    let (_, state) = patient.look();
    let pointer = state.registers.rsp;
    let holds = |address: u64| {
        let page = address & !(flagfinder_replica::PAGE - 1);
        state.stack.iter().any(|(start, _)| *start == page)
    };
    // Both what the frame holds and what a leaf function may write below it.
    assert!(holds(pointer) && holds(pointer - 128));
}

#[test]
fn a_condition_of_two_words_needs_both() {
    let patient = Patient::start("pair");
    assert_eq!(patient.outcome(&[(0, 1)]), Outcome::Returns);
    assert_eq!(patient.outcome(&[(1, 1)]), Outcome::Returns);
    assert_eq!(patient.outcome(&[(0, 1), (1, 1)]), Outcome::Leaves);
}

#[test]
fn the_index_that_the_thread_moves_itself_is_told() {
    let patient = Patient::start("ring");
    let (own, other) = (0, 2);
    let proof = patient.beside(&[(other, 1)], &[own]).expect("it repeats");
    assert_eq!(proof.outcome, Outcome::Returns, "it took one: {proof:?}");
    assert!(proof.instructions.is_some(), "{proof:?}");
    assert_eq!(proof.moves, [patient.words[own]]);
    let proof = patient.beside(&[(own, 1)], &[other]).expect("it repeats");
    assert_eq!(proof.moves, [0; 0]);
}

#[test]
fn what_changes_nothing_is_answered() {
    for way in [
        "sleep", "clock", "poll", "read", "futex", "path", "open", "locks", "gives", "child",
    ] {
        let patient = Patient::start(way);
        assert_eq!(patient.outcome(&[(0, 1)]), Outcome::Leaves, "{way}");
        assert_eq!(patient.outcome(&[(1, 7)]), Outcome::Returns, "{way}");
    }
}

#[test]
fn what_a_copy_has_read_is_ready_no_more() {
    let patient = Patient::start("epoll");
    assert_eq!(patient.outcome(&[(0, 1)]), Outcome::Leaves);
    let (live, state) = patient.look();
    let pages = Pages::new(&live);
    let mut copy = Replica::start(&pages, &state).expect("a process");
    let mut calls = |mood: u8| {
        let written = copy.write(patient.words[1], &[mood]);
        assert!(written.expect("a copy"));
        let round = go_round(&mut copy, 20_000, TIME, |_| false).expect("a copy");
        assert_eq!(round.halt, None);
        let results = round.window.syscalls.into_iter().map(|call| call.result);
        results.collect::<Vec<_>>()
    };
    assert!(calls(5).iter().all(|result| *result == Some(1)));
    // One event, its four bytes, and from then on nothing of either.
    let again = Some(-i64::from(libc::EAGAIN));
    let read = calls(6);
    assert!(
        read.starts_with(&[Some(1), Some(4)]) || read.starts_with(&[Some(4)]),
        "{read:?}"
    );
    assert!(
        read.ends_with(&[Some(0), again]) || read.ends_with(&[again, Some(0)]),
        "{read:?}"
    );
}

#[test]
fn a_child_that_has_ended_is_left_to_its_parent() {
    let patient = Patient::start("zombie");
    let proof = patient.with(&[(0, 1)]).expect("it repeats");
    assert_eq!(proof.outcome, Outcome::Unknown, "{proof:?}");
    let Some(Halt::Call { number, .. }) = proof.halt else {
        panic!("{proof:?}");
    };
    assert_eq!(i64::from(number), libc::SYS_wait4);
    assert!(proof.is_away, "the call is behind the loop: {proof:?}");
}

#[test]
fn vector_registers_are_copied() {
    let patient = Patient::start("vector");
    // The loop ends the process with a fault if its vector register is not what it was.
    assert_eq!(patient.outcome(&[(1, 7)]), Outcome::Returns);
    assert_eq!(patient.outcome(&[(0, 1)]), Outcome::Leaves);
}

#[test]
fn a_value_that_crashes_is_told() {
    let patient = Patient::start("yield");
    let proof = patient.with(&[(2, 1)]).expect("it repeats");
    assert_eq!(proof.outcome, Outcome::Faults, "{proof:?}");
    assert!(matches!(proof.halt, Some(Halt::Fault { number, .. }) if number == libc::SIGSEGV));
}

#[test]
fn a_thread_that_waits_in_the_kernel_is_no_loop() {
    let patient = Patient::start("block");
    let unfit = patient.with(&[(0, 1)]).expect_err("it blocks");
    let Unfit::Halted(Halt::Blocks { number, .. }) = unfit else {
        panic!("{unfit:?}");
    };
    assert_eq!(i64::from(number), libc::SYS_read);
}

#[test]
fn no_call_of_the_copy_is_ever_made() {
    let patient = Patient::start("yield");
    let (live, state) = patient.look();
    let pages = Pages::new(&live);
    let mut replica = Replica::start(&pages, &state).expect("a process");
    // Its process is let loose below, from where the copy stands.
    replica.without_software();
    let mut calls = 0;
    while calls < 3 {
        match replica.step().expect("steps") {
            Event::Call { .. } => calls += 1,
            Event::Step | Event::Tick => {}
            Event::Halt(halt) => panic!("{halt:?}"),
        }
    }
    // Let loose, it would make its next call: the kernel kills it there, as its filter says.
    let pid = replica.process();
    let mut status = 0;
    // SAFETY: our own child, which this thread traces; status is ours.
    unsafe {
        loop {
            let none = std::ptr::null_mut::<libc::c_void>();
            assert_eq!(libc::ptrace(libc::PTRACE_CONT, pid, none, none), 0);
            assert_eq!(libc::waitpid(pid, &mut status, libc::__WALL), pid);
            let at_page = libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGSEGV;
            if !at_page {
                break;
            }
            // It came to a page that was not brought in yet; go on by a step, which brings it.
            assert_eq!(replica.step().expect("steps"), Event::Step);
        }
    }
    let killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSYS;
    assert!(killed, "{status:#x}");
}

#[test]
fn copies_do_not_share_memory() {
    let patient = Patient::start("yield");
    let (live, state) = patient.look();
    let pages = Pages::new(&live);
    let mut first = Replica::start(&pages, &state).expect("a process");
    let word = patient.words[1];
    assert!(first.write(word, &[3, 0, 0, 0]).expect("written"));
    let mut second = first.copy().expect("a process");
    assert!(second.write(word, &[4, 0, 0, 0]).expect("written"));
    let value = |replica: &mut Replica| {
        let mut bytes = [0; 4];
        assert!(replica.read(word, &mut bytes).expect("read"));
        u32::from_le_bytes(bytes)
    };
    assert_eq!((value(&mut first), value(&mut second)), (3, 4));
}

#[test]
fn a_page_that_changes_around_the_stop_is_not_taken_for_that_moments() {
    let capture = |patient: &Patient, wanted: &Wanted| {
        let page = patient.words[2] & !(PAGE - 1);
        let live = Live::open(patient.pid()).expect("readable");
        let captured = live.capture_with(patient.pid(), TIME, Moment::Now, wanted);
        let captured = captured.expect("stops");
        let is_there = captured.state.stack.iter().any(|(at, _)| *at == page);
        assert_ne!(is_there, captured.changed == [page]);
        is_there
    };
    let pages = |patient: &Patient| BTreeSet::from([patient.words[2] & !(PAGE - 1)]);
    let (waits, counts) = (Patient::start("yield"), Patient::start("counts"));
    let around = |patient: &Patient| Wanted {
        around: pages(patient),
        ..Wanted::default()
    };
    let held = Wanted {
        held: pages(&counts),
        around: pages(&counts),
    };
    // Between two looks at a thread that waits for a processor nothing changes.
    while capture(&counts, &around(&counts)) {
        assert!(capture(&waits, &around(&waits)));
        assert!(capture(&counts, &held));
    }
}

/// What the blocked thread does to its first word if this happens, within `time`.
fn supposing(way: &str, how: Supposition, time: Duration) -> (Ran, Vec<Supposed>) {
    let patient = Patient::start(way);
    let live = Live::open(patient.pid()).expect("readable");
    let pages = Pages::new(&live);
    // It has said where its words are a moment before it waits.
    let mut copy = loop {
        let (state, _) = live.capture(patient.pid(), TIME).expect("stops");
        let mut copy = Replica::start(&pages, &state).expect("a process");
        if copy.is_before_call().expect("read") && copy.registers().rax != libc::SYS_write as u64 {
            break copy;
        }
    };
    copy.suppose(how).expect("read");
    let word = Watched::in_copy(&mut copy, patient.words[0], 4).expect("read");
    let mut words = [word.expect("a word")];
    let ran = copy.run(&mut words, Instant::now() + time).expect("runs");
    (ran, copy.supposed().to_vec())
}

/// The value that it writes.
fn written(way: &str, how: Supposition) -> Option<u64> {
    match supposing(way, how, TIME).0 {
        Ran::Wrote { value, .. } => Some(value),
        Ran::Halt(_) | Ran::TimeOver => None,
    }
}

#[test]
fn what_a_blocked_thread_would_write_is_seen() {
    let (ran, supposed) = supposing("reads", Supposition::Line, TIME);
    let Ran::Wrote {
        word,
        value,
        behind,
    } = ran
    else {
        panic!("{ran:?}");
    };
    assert_eq!((word, value), (0, 1));
    assert_ne!(behind, 0);
    let [read] = &supposed[..] else {
        panic!("{supposed:?}");
    };
    assert_eq!(
        (i64::from(read.number), read.arguments[0]),
        (libc::SYS_read, 0)
    );
    assert_eq!(read.result, 1);
    assert_eq!(written("reads", Supposition::End), None);
    assert_eq!(written("reads", Supposition::Nothing), None);
    assert_eq!(written("ends", Supposition::End), Some(7));
    assert_eq!(written("polls", Supposition::Number), Some(4));
    assert_eq!(written("woken", Supposition::Line), Some(3));
    // A file that it waits to open holds one message.
    assert_eq!(written("opens", Supposition::Line), Some(1));
}

#[test]
fn a_store_of_what_the_word_holds_is_none() {
    let (ran, _) = supposing("same", Supposition::Line, TIME);
    assert!(matches!(ran, Ran::Halt(Halt::Blocks { .. })), "{ran:?}");
}

#[test]
fn work_between_the_call_and_the_store_is_done_at_native_speed() {
    // Single steps would take an hour.
    assert_eq!(written("works", Supposition::Line), Some(1));
}

#[test]
fn a_copy_that_computes_for_ever_is_stopped_in_time() {
    let begin = Instant::now();
    let time = Duration::from_millis(200);
    let (ran, _) = supposing("computes", Supposition::Line, time);
    assert_eq!(ran, Ran::TimeOver);
    assert!(
        begin.elapsed() >= time && begin.elapsed() < TIME,
        "{:?}",
        begin.elapsed()
    );
}

#[test]
fn the_processor_watches_four_words_and_no_more() {
    let patient = Patient::start("reads");
    let (live, state) = patient.now();
    let pages = Pages::new(&live);
    let mut copy = Replica::start(&pages, &state).expect("a process");
    let word = patient.words[0];
    // Across two blocks of eight bytes no register reaches.
    let across = (word & !7) + 5;
    assert_eq!(Watched::in_copy(&mut copy, across, 4).expect("read"), None);
    let watched = Watched::in_copy(&mut copy, word, 4)
        .expect("read")
        .expect("a word");
    let mut words = [watched; 5];
    assert!(copy.run(&mut words, Instant::now() + TIME).is_err());
}
