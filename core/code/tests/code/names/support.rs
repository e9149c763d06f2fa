// SPDX-License-Identifier: MIT
//! Programs compiled and started by tests. A started program is killed when dropped,
//! and by its own alarm.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use flagfinder_code::{NamesInput, StackFrame};

/// A folder of this test, new on every call.
pub fn folder(test: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a folder for the test");
    path
}

/// Runs a tool; `false`: it is not installed, the test is to be skipped.
pub fn tool(name: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(name);
    match command.args(arguments).output() {
        Ok(done) => {
            let errors = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "{name} {arguments:?}: {errors}");
            true
        }
        Err(error) => {
            let required = std::env::var_os("FF_REQUIRE_LIVE").is_some_and(|v| v == "1");
            assert!(!required, "{name} is required: {error}");
            eprintln!("skipped: {name}: {error}");
            false
        }
    }
}

pub fn source(name: &str) -> String {
    format!("{}/tests/programs/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A running program and the addresses that it printed.
pub struct Running {
    child: Child,
    addresses: HashMap<String, u64>,
}

impl Running {
    /// Starts it and reads "name address" lines until `last` was printed.
    pub fn start(program: &Path, last: &str) -> Running {
        let mut child = Command::new(program)
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let output = child.stdout.take().expect("piped");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut running = Running {
            child,
            addresses: HashMap::new(),
        };
        while !running.addresses.contains_key(last) {
            let line = lines.recv_timeout(Duration::from_secs(20));
            let line = line.expect("the program prints in time");
            let (name, address) = line.split_once(' ').expect("name address");
            let digits = address.trim_start_matches("0x");
            let address = u64::from_str_radix(digits, 16).unwrap_or(0);
            running.addresses.insert(name.to_owned(), address);
        }
        running
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn at(&self, name: &str) -> u64 {
        *self
            .addresses
            .get(name)
            .unwrap_or_else(|| panic!("{name} was printed"))
    }

    /// What /proc tells, and what a debugger would know of the threads `who`.
    pub fn input(&self, who: &[&str]) -> NamesInput {
        let mut input = NamesInput::from_live(self.pid()).expect("its /proc can be read");
        for who in who {
            let tid = self.at(&format!("{who}.tid")) as u32;
            let mut threads = input.threads.iter_mut();
            let thread = threads.find(|t| t.tid == tid).expect("the thread is there");
            thread.fs_base = Some(self.at(&format!("{who}.fs_base")));
            thread.stack_pointer = Some(self.at(&format!("{who}.sp")));
            thread.frames = vec![StackFrame {
                pc: self.at(&format!("{who}.pc")),
                sp: self.at(&format!("{who}.sp")),
                cfa: self.at(&format!("{who}.cfa")),
            }];
        }
        input
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
