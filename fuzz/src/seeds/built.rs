// SPDX-License-Identifier: MIT
//! Recordings in which threads of two processes wait for each other in all ways that leave edges.

use std::path::Path;

use flagfinder_events::{Call, Event, Kind};
use serde_json::json;

use crate::targets::built::{Recording, WATCHED};

const WAITER: u32 = 100;
const HELPER: u32 = 101;
const SERVER: u32 = 200;

/// A call as an event has it.
fn call(number: i64, first: u64) -> u64 {
    let number = number as u16;
    Call { number, first }.pack()
}

#[derive(Default)]
struct Scene(Recording);

impl Scene {
    fn add(&mut self, kind: Kind, a: u32, b: u32, flags: u8, words: [u64; 3]) {
        let before = self.0.events.last().map_or(1_000_000, |last| last.ts);
        self.0.events.push(Event {
            ts: before + 50_000,
            a,
            b,
            cpu: (self.0.events.len() % 2) as u16,
            kind,
            flags,
            stack: (self.0.events.len() % 9) as u32,
            words,
        });
    }

    /// A thread blocks in a call until another one wakes it.
    fn wait(&mut self, tid: u32, by: u32, word: u64, result: i64) {
        self.add(Kind::Enter, tid, 0, 0, [word, 0, 0]);
        self.add(Kind::Switch, tid, by, 1, [word, 0, 0]);
        self.add(Kind::Waking, by, tid, 1, [120 << 32 | 120 << 40, 0, 0]);
        self.add(Kind::Switch, by, tid, 0, [0; 3]);
        let result = result as u64 & ((1 << 48) - 1);
        let end = word & !((1 << 48) - 1) | result;
        self.add(Kind::ExitCall, tid, 0, 0, [end, 0, 0]);
    }
}

fn scene(rounds: usize) -> Recording {
    let mut scene = Scene::default();
    let name = u64::from_le_bytes(*b"server\0\0");
    scene.add(Kind::Fork, WAITER, HELPER, 0, [u64::from(WAITER), name, 0]);
    scene.add(Kind::Rename, 0, HELPER, 0, [name, 0, 0]);
    for _ in 0..rounds {
        scene.wait(WAITER, HELPER, call(libc::SYS_futex, 0x5000), 0);
        scene.wait(WAITER, SERVER, call(libc::SYS_read, 3), 8);
        scene.wait(SERVER, WAITER, call(libc::SYS_epoll_wait, 5), 1);
        scene.wait(HELPER, SERVER, call(libc::SYS_recvfrom, 4), -11);
        scene.add(Kind::Arm, HELPER, 0, 0, [0x77, 0, 0]);
        scene.add(Kind::Fire, 0, HELPER, 4, [0x77, 0, 0]);
        scene.wait(HELPER, 0, call(libc::SYS_nanosleep, 0), 0);
        scene.add(Kind::Submit, WAITER, 0, 0, [0x88, 0, 0]);
        scene.add(Kind::Complete, SERVER, 0, 0, [0x88, 0, 0]);
        scene.add(Kind::Signal, SERVER, WAITER, 1, [10, 0, 0]);
        for _ in 0..8 {
            scene.add(Kind::Yield, HELPER, 0, 0, [0; 3]);
            scene.add(Kind::Sample, HELPER, 0, 0, [0, 0x40_1000, 0]);
        }
        let sends = call(libc::SYS_sendto, 3);
        scene.add(Kind::EnterWide, WAITER, 0, 0, [sends, 8, 0]);
        scene.add(Kind::Lost, 0, 0, 0, [3, 1_000_000, 0]);
    }
    scene.add(Kind::Exec, SERVER, 0, 0, [name, 0, 0]);
    let last = call(libc::SYS_futex, 0x5000);
    scene.add(Kind::Enter, WAITER, 0, 0, [last, 0, 0]);
    scene.add(Kind::Switch, WAITER, 0, 1, [last, 0, 0]);
    scene.add(Kind::Exit, HELPER, 0, 0, [0; 3]);
    let end = scene.0.events.last().map_or(0, |event| event.ts) + 5_000_000_000;
    scene.0.facts = vec![
        (
            4,
            json!([
                {"tid": WAITER, "pid": WAITER, "name": "waiter"},
                {"tid": SERVER, "pid": SERVER, "name": "server"},
                {"tid": 2, "pid": 2, "name": "kthreadd", "kernel": true},
            ]),
        ),
        (
            6,
            json!([
                {"ts": 1_000_000, "pid": WAITER, "fd": 3, "target": "socket:[7]",
                 "peer": "socket:[8]", "ends": [{"pid": SERVER, "name": "server"}]},
                {"ts": 1_000_000, "pid": SERVER, "fd": 5, "target": "anon_inode:[eventpoll]"},
                {"ts": 1_000_000, "pid": SERVER, "fd": 4, "target": "socket:[8]",
                 "peer": "socket:[7]", "remote": "127.0.0.1:80", "records": true},
            ]),
        ),
        (
            11,
            json!([
                {"ts": end, "tid": WAITER, "pid": WAITER, "name": "waiter", "state": "S",
                 "call": libc::SYS_futex, "first": 0x5000, "how": "lock",
                 "by": [{"pid": WAITER, "tid": HELPER}]},
            ]),
        ),
        (
            12,
            json!([{"number": 1, "name": "run", "file": "/job.py", "line": 3}]),
        ),
        (7, json!({"ts": end - 1000, "text": "here"})),
        (
            WATCHED,
            json!({"event": "data_flag_write", "ts": 2_000_000, "tid": HELPER, "watch": 1,
                   "value": "1"}),
        ),
        (
            WATCHED,
            json!({"event": "data_flag_read", "ts": 2_500_000, "tid": WAITER, "watch": 1,
                   "value": "1"}),
        ),
        (
            9,
            json!({"ts": end, "reason": "interrupted", "exit_status": null, "events": 9,
                   "raw_bytes": 9, "lost": 0, "lost_cpus": {}, "stacks_dropped": 0}),
        ),
    ];
    scene.0
}

pub fn write(directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let folder = directory.join("built");
    std::fs::create_dir_all(&folder)?;
    let (short, long) = (scene(1).bytes(), scene(12).bytes());
    std::fs::write(folder.join("one"), &short)?;
    std::fs::write(folder.join("two"), [long, short].concat())?;
    Ok(())
}
