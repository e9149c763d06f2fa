// SPDX-License-Identifier: MIT
//! A core file that we wrote of a living process is read back, and the process goes on.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flagfinder_code::AddressSpace;
use flagfinder_replica::{write_core, CoreFile, Files};

struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Sleeper {
    fn start() -> Sleeper {
        let mut command = Command::new("sleep");
        let child = command.arg("1000").stdout(Stdio::null()).spawn();
        let sleeper = Sleeper(child.expect("sleep"));
        // clock_nanosleep
        sleeper.wait_until("it sleeps", |it| it.proc("syscall").starts_with("230 "));
        sleeper
    }

    fn proc(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.0.id())).unwrap_or_default()
    }

    fn wait_until(&self, what: &str, holds: impl Fn(&Sleeper) -> bool) {
        let begin = Instant::now();
        while !holds(self) {
            assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn is_in_state(&self, state: char) -> bool {
        let stat = self.proc("stat");
        let behind = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        behind.starts_with(state)
    }

    fn core(&self) -> (CoreFile, Vec<String>) {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let notes = write_core(self.0.id(), file.as_file_mut()).expect("a core");
        let core = CoreFile::open(file.path(), Files::default()).expect("it is read");
        (core, notes)
    }
}

#[test]
fn it_holds_registers_memory_and_files_and_the_process_sleeps_on() {
    let sleeper = Sleeper::start();
    let syscall = sleeper.proc("syscall");
    let (core, notes) = sleeper.core();
    assert!(notes.is_empty(), "{notes:?}");
    assert_eq!((core.pid(), core.signal()), (sleeper.0.id(), 0));
    assert!(core.program().ends_with("/sleep") || core.program().ends_with("coreutils"));
    let [thread] = core.threads() else {
        panic!("one thread")
    };
    let (number, args) = thread.call.expect("it was in a call");
    let told: Vec<u64> = syscall.split_whitespace().skip(1).map(hex).collect();
    assert_eq!(
        (i64::from(number), &args[..]),
        (libc::SYS_clock_nanosleep, &told[..6])
    );
    assert_eq!(thread.state.registers.rsp, told[6]);
    // Its stack, its code from its file, and its vector registers.
    let mut time = [0; 16];
    assert_eq!(core.read(args[2], &mut time), 16);
    assert_eq!(time[..8], 1000u64.to_le_bytes());
    let mut code = [0; 2];
    assert_eq!(core.read(thread.state.registers.rip, &mut code), 2);
    assert_eq!(code, [0x0f, 0x05], "the call that it was in");
    assert!(thread.state.extended.len() >= 512 + 64);
    // nanosleep's rest is slept by restart_syscall.
    sleeper.wait_until("it goes on", |it| {
        it.is_in_state('S') && it.proc("syscall").starts_with("219 ")
    });
}

#[test]
fn a_stopped_process_has_a_core_and_stays_stopped() {
    let sleeper = Sleeper::start();
    // SAFETY: a process of ours.
    unsafe { libc::kill(sleeper.0.id() as i32, libc::SIGSTOP) };
    sleeper.wait_until("it stops", |it| it.is_in_state('T'));
    let (core, _) = sleeper.core();
    assert_eq!(core.threads().len(), 1);
    // For a moment it runs, to stop again without a tracer.
    sleeper.wait_until("it is let go, and stopped", |it| {
        it.proc("status").contains("TracerPid:\t0") && it.is_in_state('T')
    });
}

#[test]
fn of_no_process_there_is_no_core() {
    let mut sleeper = Sleeper::start();
    let pid = sleeper.0.id();
    let _ = sleeper.0.kill();
    let _ = sleeper.0.wait();
    let error = write_core(pid, &mut tempfile::tempfile().expect("a file")).expect_err("gone");
    assert!(error.what.contains(&pid.to_string()), "{error}");
}

fn hex(word: &str) -> u64 {
    u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap_or(0)
}
