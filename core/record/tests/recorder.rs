// SPDX-License-Identifier: MIT
//! The recorder against a stand-in tracer (`writer.c`): every way a recording ends.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use flagfinder_record::{
    record, Last, Outcome, RecordOptions, TargetExit, Then, TracerCommand, POOL_PLACEHOLDER,
};
use flagfinder_trace::{EndReason, Flow, Level, Note, NoteLevel, Trace};

/// Recordings catch signals, so a process makes one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn writer() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let out = folder.join("ff_writer");
        // One test starts this binary again: it must not remove what others run.
        let new = folder.join(format!("ff_writer.{}", std::process::id()));
        let status = Command::new("cc")
            .args(["-O2", "-std=gnu11", "-I"])
            .arg(root.join("../../include"))
            .arg(root.join("tests/writer.c"))
            .arg("-o")
            .arg(&new)
            .status()
            .expect("a C compiler");
        assert!(status.success());
        std::fs::rename(new, &out).unwrap();
        out
    })
}

fn options(name: &str, mode: &str, count: u64) -> RecordOptions {
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // `timeout` execs nothing itself, so the target must limit itself: see ulimit.
    let script = format!("ulimit -t 60; exec \"$0\" \"$1\" {mode} {count}");
    let argv = [
        "sh",
        "-c",
        &script,
        writer().to_str().unwrap(),
        POOL_PLACEHOLDER,
    ]
    .map(Into::into);
    RecordOptions::new(
        output,
        TracerCommand {
            argv: argv.to_vec(),
        },
        Level::Flow,
    )
}

fn run(options: &RecordOptions) -> (Outcome, Trace) {
    let outcome = record(options, &mut |_| ControlFlow::Continue(())).unwrap();
    (outcome, Trace::open(&options.output).unwrap())
}

/// The blocks of the only thread, which must cycle through 1 2 3 without a gap.
fn cycling_blocks(trace: &Trace) -> u64 {
    let mut count = 0;
    for item in trace.processes()[0].threads()[0].flow() {
        match item.unwrap() {
            Flow::Block { id, .. } => {
                assert_eq!(u64::from(id), 1 + count % 3, "block {count}");
                count += 1;
            }
            Flow::Event { .. } => {}
            Flow::Gap { reason, pos } => panic!("a gap at {pos}: {reason:?}"),
        }
    }
    count
}

#[test]
fn a_target_that_ends_is_recorded_whole() {
    let _alone = alone();
    let (outcome, trace) = run(&options("whole.trace", "count", 20_000_000));
    assert_eq!(outcome.target, TargetExit::Exited(7));
    assert_eq!(outcome.end.reason, EndReason::TargetEnded);
    assert_eq!(trace.end().unwrap().processes[0].status, Some(7));
    assert!(
        trace.is_complete(),
        "{:?} {:?}",
        trace.damage(),
        trace.faults()
    );
    assert_eq!(cycling_blocks(&trace), 20_000_000);
    assert_eq!(trace.processes()[0].blocks().len(), 8);
    assert!(!trace.processes()[0].threads()[0].ended_open());
}

#[test]
fn a_killed_target_keeps_everything_it_executed() {
    let _alone = alone();
    let (outcome, trace) = run(&options("killed.trace", "kill", 3_000_001));
    assert_eq!(outcome.target, TargetExit::Signaled(libc::SIGKILL));
    assert_eq!(cycling_blocks(&trace), 3_000_001);
    assert_eq!(trace.processes()[0].blocks().len(), 8);
    assert!(trace.processes()[0].threads()[0].ended_open());
}

#[test]
fn a_spinning_thread_ends_the_recording() {
    let _alone = alone();
    let mut options = options("spin.trace", "slow", 0);
    options.stop_when_spinning = Some(Duration::from_secs(1));
    options.then = Then::Kill;
    let (outcome, trace) = run(&options);
    assert_eq!(outcome.end.reason, EndReason::Spinning);
    assert_eq!(outcome.end.spinning_threads, [outcome.pid]);
    assert_eq!(outcome.target, TargetExit::Signaled(libc::SIGKILL));
    assert!(cycling_blocks(&trace) > 10_000);
    assert!(!trace.processes()[0].maps().is_empty());
    assert_eq!(trace.processes()[0].threads()[0].name, "ff_writer");
}

#[test]
fn a_target_can_be_left_running() {
    let _alone = alone();
    let mut options = options("left.trace", "slow", 0);
    options.stop_after = Some(Duration::from_millis(500));
    let (outcome, trace) = run(&options);
    let running = Path::new("/proc").join(outcome.pid.to_string()).exists();
    unsafe { libc::kill(outcome.pid as i32, libc::SIGKILL) };
    assert!(running);
    assert_eq!(outcome.target, TargetExit::Running);
    assert!(trace.end().unwrap().processes[0].running);
    assert!(cycling_blocks(&trace) > 1000);
}

#[test]
fn the_flight_recorder_keeps_the_newest_flow() {
    let _alone = alone();
    let mut options = options("last.trace", "flood", 20_000_000);
    options.last = Some(Last {
        bytes: 1 << 20,
        flow: true,
    });
    let (outcome, trace) = run(&options);
    assert_eq!(outcome.target, TargetExit::Exited(7));
    assert!(outcome.end.dropped_sections > 0);
    let size = std::fs::metadata(&options.output).unwrap().len();
    assert!(size < 2 << 20, "{size} bytes are kept");
    let thread = &trace.processes()[0].threads()[0];
    let first = thread.flow().next().unwrap().unwrap();
    assert!(
        matches!(first, Flow::Gap { .. }),
        "the loss shows: {first:?}"
    );
    let blocks = thread
        .flow()
        .filter(|i| matches!(i, Ok(Flow::Block { .. })))
        .count();
    assert!(
        (1_000_000..20_000_000).contains(&blocks),
        "{blocks} blocks are kept"
    );
    let gaps = thread
        .flow()
        .filter(|i| matches!(i, Ok(Flow::Gap { .. })))
        .count();
    assert_eq!(gaps, 1);
    assert!(trace.is_complete());
}

/// Output goes nowhere until this is dropped.
struct Quiet([OwnedFd; 2]);

impl Quiet {
    fn begin() -> Quiet {
        let nowhere = File::options().write(true).open("/dev/null").unwrap();
        let (out, err) = (std::io::stdout(), std::io::stderr());
        let kept = [out.as_fd(), err.as_fd()].map(|one| one.try_clone_to_owned().unwrap());
        for number in [libc::STDOUT_FILENO, libc::STDERR_FILENO] {
            assert!(unsafe { libc::dup2(nowhere.as_raw_fd(), number) } == number);
        }
        Quiet(kept)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        for (kept, number) in self
            .0
            .iter()
            .zip([libc::STDOUT_FILENO, libc::STDERR_FILENO])
        {
            unsafe { libc::dup2(kept.as_raw_fd(), number) };
        }
    }
}

/// Records on a disk that is full from the first report on: the pool's file is there by then.
/// `marked`: whether a mark asks for the end after so long.
fn run_on_full_disk(options: &RecordOptions, bytes: u64, marked: Option<Duration>) -> Outcome {
    let unlimited = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    let limited = libc::rlimit {
        rlim_cur: bytes,
        ..unlimited
    };
    let began = Instant::now();
    // What the tests print may go to a file, too, which is longer than that already.
    let quiet = Quiet::begin();
    let outcome = record(options, &mut |_| {
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limited) };
        match marked.is_some_and(|after| began.elapsed() > after) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &unlimited) };
    drop(quiet);
    let outcome = outcome.unwrap();
    assert_eq!(outcome.end.reason, EndReason::WriteFailed);
    let lost = |note: &Note| note.level == NoteLevel::Lost;
    assert!(outcome.notes.iter().any(lost), "{:?}", outcome.notes);
    let trace = Trace::open(&options.output).unwrap();
    assert!(trace.is_complete() && trace.notes() == outcome.notes);
    assert_eq!(trace.end().unwrap().reason, EndReason::WriteFailed);
    outcome
}

#[test]
fn a_full_disk_ends_the_recording_but_not_the_target() {
    let _alone = alone();
    let options = options("full.trace", "flood", 8_000_000_000);
    let outcome = run_on_full_disk(&options, 512 << 10, None);
    // 9: the stand-in noticed that nobody takes its chunks any more.
    assert_eq!(outcome.target, TargetExit::Exited(9));
    let trace = Trace::open(&options.output).unwrap();
    assert_eq!(trace.processes()[0].blocks().len(), 8);
    assert!(trace.processes()[0].threads()[0].flow().count() > 100_000);
    assert_eq!(flagfinder_trace::check(&trace).unwrap(), []);
}

/// The program would go on for a minute: `ulimit -t` does not end one that sleeps.
#[test]
fn a_full_disk_leaves_every_end_as_it_was_asked_for() {
    let _alone = alone();
    let name = "full-ends.trace";
    let mut limited = options(name, "slow", 0);
    limited.stop_after = Some(Duration::from_secs(3));
    let mut spinning = options(name, "slow", 0);
    spinning.stop_when_spinning = Some(Duration::from_secs(2));
    let marked = options(name, "slow", 0);
    let mut printed = options(name, "slow", 0);
    printed.until = Some(b"the text".to_vec());
    let said = printed.tracer.argv[2].to_str().unwrap();
    printed.tracer.argv[2] = format!("(sleep 3; echo the text) & {said}").into();
    let after = Some(Duration::from_secs(3));
    for (mut options, mark, why) in [
        (limited, None, "the time was over"),
        (spinning, None, "a thread spun"),
        (marked, after, "a mark asked for the end"),
        (printed, None, "the text was printed"),
    ] {
        for then in [Then::Kill, Then::Leave] {
            options.then = then;
            let outcome = run_on_full_disk(&options, 2048, mark);
            let pid = outcome.pid as i32;
            let runs = unsafe { libc::kill(pid, 0) } == 0;
            unsafe { libc::kill(pid, libc::SIGKILL) };
            let (expected, left) = match then {
                Then::Kill => (TargetExit::Signaled(libc::SIGKILL), false),
                Then::Leave => (TargetExit::Running, true),
            };
            assert_eq!((outcome.target, runs), (expected, left), "{why}");
            let told = |note: &Note| note.text.ends_with(why);
            assert!(outcome.notes.iter().any(told), "{:?}", outcome.notes);
        }
    }
}

#[test]
fn a_killed_recorder_leaves_a_readable_trace_and_the_target_running() {
    let _alone = alone();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("launcher");
    std::fs::create_dir_all(&directory).unwrap();
    let launcher = directory.join("ff_launch");
    let script = "#!/bin/sh\nulimit -t 60; exec FF \"$2\" slow\n";
    std::fs::write(&launcher, script.replace("FF", writer().to_str().unwrap())).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&launcher, executable).unwrap();
    let output = directory.join("orphan.trace");
    // cargo test builds the examples beside the tests.
    let tests = std::env::current_exe().unwrap();
    let example = tests.ancestors().nth(2).unwrap().join("examples/record");
    let mut recorder = Command::new(example)
        .arg("-o")
        .arg(&output)
        .arg("--tracer-dir")
        .arg(&directory)
        .args(["--level", "flow", "--", "slow"])
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let trace = Trace::open(&output).unwrap();
    let pid = trace.processes()[0].pid;
    let running = Path::new("/proc").join(pid.to_string()).exists();
    unsafe { libc::kill(pid as i32, libc::SIGKILL) };
    assert!(running, "the target outlives its recorder");
    assert!(trace.end().is_none() && !trace.is_complete());
    assert!(cycling_blocks(&trace) > 10_000);
    assert_eq!(flagfinder_trace::check(&trace).unwrap(), []);
}

#[test]
fn a_tracer_that_cannot_start_is_an_error_in_four_parts() {
    let _alone = alone();
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join("none.trace");
    let command = TracerCommand {
        argv: vec!["/nonexistent/tracer".into()],
    };
    let error = record(
        &RecordOptions::new(output, command, Level::Flow),
        &mut |_| ControlFlow::Continue(()),
    )
    .unwrap_err();
    assert_eq!(error.exit_code, 69);
    assert!(error.what.contains("/nonexistent/tracer") && !error.fix.is_empty());
}

/// The words that run a command in a pid namespace of its own, where signals to everybody reach
/// nobody else. `None` where that is not allowed.
fn in_a_pid_namespace() -> Option<Command> {
    const AS_USER: [&str; 2] = ["--user", "--map-root-user"];
    for more in [&AS_USER[..0], &AS_USER] {
        let mut command = Command::new("unshare");
        command
            .args(more)
            .args(["--pid", "--fork", "--mount-proc", "--"]);
        let words = command.get_args().collect::<Vec<_>>();
        let works = Command::new("unshare").args(words).arg("true").output();
        if works.is_ok_and(|done| done.status.success()) {
            return Some(command);
        }
    }
    None
}

#[test]
fn a_pid_in_the_pool_ends_no_other_process() {
    const INSIDE: &str = "FF_INSIDE_PID_NAMESPACE";
    let inside = std::env::var_os(INSIDE).is_some();
    if let (false, Some(mut command)) = (inside, in_a_pid_namespace()) {
        command
            .arg(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "a_pid_in_the_pool_ends_no_other_process",
                "--nocapture",
            ])
            .env(INSIDE, "1");
        let done = command.output().unwrap();
        assert!(done.status.success(), "{done:?}");
        return;
    }
    let _alone = alone();
    let mut stranger = Command::new("sleep").arg("60").spawn().unwrap();
    // Outside of a namespace "everybody" would be the tester's own session.
    let mode = if inside { "claim-all" } else { "claim" };
    let mut options = options("claims.trace", mode, u64::from(stranger.id()));
    options.follow_children = true;
    options.stop_after = Some(Duration::from_millis(500));
    options.then = Then::Kill;
    let (outcome, trace) = run(&options);
    let ended = stranger.try_wait().unwrap();
    let _ = stranger.kill();
    let _ = stranger.wait();
    assert_eq!(ended, None, "the stranger was ended");
    assert_eq!(outcome.target, TargetExit::Signaled(libc::SIGKILL));
    let pids: Vec<u32> = trace
        .end()
        .unwrap()
        .processes
        .iter()
        .map(|p| p.pid)
        .collect();
    assert_eq!(pids, [outcome.pid], "only what the kernel vouches for");
}

#[test]
fn a_child_is_known_by_the_kernel_and_ended_with_its_parent() {
    let _alone = alone();
    let mut options = options("family.trace", "family", 0);
    options.follow_children = true;
    options.stop_after = Some(Duration::from_millis(800));
    options.then = Then::Kill;
    let (outcome, trace) = run(&options);
    let ends = &trace.end().unwrap().processes;
    assert_eq!(ends.len(), 2, "{ends:?}");
    assert_eq!(ends[0].pid, outcome.pid);
    assert!(!ends[1].running, "{ends:?}");
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", ends[1].pid)).unwrap_or_default();
    assert!(
        stat.is_empty() || stat.contains(") Z"),
        "the child runs: {stat}"
    );
    let mut recorded: Vec<u32> = trace
        .processes()
        .iter()
        .map(|process| process.pid)
        .collect();
    recorded.sort_unstable();
    let mut known = [ends[0].pid, ends[1].pid];
    known.sort_unstable();
    assert_eq!(recorded, known);
}

#[test]
fn a_child_that_spins_ends_the_recording_and_is_named() {
    let _alone = alone();
    let mut options = options("child.trace", "child", 0);
    options.follow_children = true;
    options.stop_when_spinning = Some(Duration::from_secs(1));
    options.then = Then::Kill;
    let (outcome, trace) = run(&options);
    assert_eq!(outcome.end.reason, EndReason::Spinning);
    let child = trace.end().unwrap().processes[1].pid;
    assert_eq!(outcome.end.spinning_threads, [child]);
    let has = |level, text: &str| {
        let mut notes = outcome.notes.iter();
        notes.any(|note| note.level == level && note.text.contains(text))
    };
    let named = format!("process {child} (ff_writer)");
    assert!(has(NoteLevel::Warning, &named), "{:?}", outcome.notes);
    assert!(has(NoteLevel::Lost, "left"), "{:?}", outcome.notes);
}
