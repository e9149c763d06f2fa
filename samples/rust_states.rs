// SPDX-License-Identifier: MIT
//! A worker's life is a `match` over dense states, which becomes a jump table. In spin mode nobody
//! ever grants it the lease it waits for.
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

struct Worker {
    name: String,
    state: AtomicU8,
}

#[inline(never)]
fn live(worker: &Worker) -> u64 {
    let mut work = 1u64;
    loop {
        match worker.state.load(Ordering::Acquire) {
            0 => {
                work += worker.name.len() as u64;
                worker.state.store(1, Ordering::Release);
            }
            1 => {
                work <<= 3;
                worker.state.store(2, Ordering::Release);
            }
            2 => thread::yield_now(),
            3 => {
                work = work.wrapping_mul(31);
                worker.state.store(4, Ordering::Release);
            }
            4 => {
                work ^= 0xff;
                worker.state.store(5, Ordering::Release);
            }
            5 => {
                work = work.rotate_left(7);
                worker.state.store(6, Ordering::Release);
            }
            6 => return work,
            _ => panic!("no such state"),
        }
    }
}

fn main() {
    let hang = std::env::args().nth(1).as_deref() == Some("spin");
    let worker = Arc::new(Worker {
        name: String::from("north"),
        state: AtomicU8::new(0),
    });
    eprintln!("FLAG address={:p} size=1", &worker.state);
    let granter = Arc::clone(&worker);
    let broker = thread::spawn(move || {
        thread::sleep(Duration::from_millis(150));
        if !hang {
            granter.state.store(3, Ordering::Release);
        }
    });
    let work = live(&worker);
    broker.join().expect("the broker does not panic");
    println!("{work}");
}
