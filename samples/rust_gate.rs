// SPDX-License-Identifier: MIT
//! A pool shares a gate through an `Arc`; the last worker to finish opens it. In spin mode one
//! worker's channel has no sender that will ever send, so the gate stays shut.
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::Duration;

struct Gate {
    remaining: AtomicUsize,
    name: String,
    open: AtomicU32,
}

#[inline(never)]
fn finish_share(gate: &Gate) {
    if gate.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
        gate.open.store(1, Ordering::Release);
    }
}

#[inline(never)]
fn wait_at(gate: &Gate) {
    while gate.open.load(Ordering::Acquire) == 0 {
        std::hint::spin_loop();
        thread::yield_now();
    }
}

fn main() {
    let hang = std::env::args().nth(1).as_deref() == Some("spin");
    let gate = Arc::new(Gate {
        remaining: AtomicUsize::new(3),
        name: String::from("north"),
        open: AtomicU32::new(0),
    });
    eprintln!("FLAG address={:p} size=4", &gate.open);
    let (sender, receiver) = mpsc::channel::<u64>();
    let slow = Arc::clone(&gate);
    let mut workers = vec![thread::spawn(move || {
        if let Ok(value) = receiver.recv() {
            std::hint::black_box(value);
            finish_share(&slow);
        }
    })];
    for share in 0..2u64 {
        let gate = Arc::clone(&gate);
        workers.push(thread::spawn(move || {
            let squares: Vec<u64> = (0..10_000).map(|n| n * n + share).collect();
            thread::sleep(Duration::from_millis(100));
            std::hint::black_box(squares);
            finish_share(&gate);
        }));
    }
    thread::sleep(Duration::from_millis(150));
    if !hang {
        sender.send(1).expect("the slow worker is there");
    }
    wait_at(&gate);
    for worker in workers {
        worker.join().expect("no worker panics");
    }
    println!("gate {} passed", gate.name);
}
