// SPDX-License-Identifier: MIT
//! A scope waits for a thread, that for a message, and its sender for a line.

use std::io::BufRead;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::thread;

fn read(lines: Sender<String>) {
    for line in std::io::stdin().lock().lines() {
        lines.send(line.expect("a line")).expect("somebody receives");
    }
}

fn count(lines: &Receiver<String>) -> usize {
    lines.iter().map(|line| line.len()).sum()
}

fn idle(jobs: &Receiver<String>) -> usize {
    jobs.iter().count()
}

fn main() {
    println!("begins");
    let (lines, all) = channel();
    let (keeps, jobs) = channel();
    thread::spawn(move || idle(&jobs));
    thread::spawn(move || read(lines));
    let total = thread::scope(|scope| scope.spawn(move || count(&all)).join());
    println!("{total:?}");
    drop(keeps);
}
