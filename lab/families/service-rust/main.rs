// SPDX-License-Identifier: MIT
//! Hangs of small services: `service HANG` says that it begins, and stands a moment later.

use std::collections::HashMap;
use std::io::BufRead;
use std::net::TcpListener;
use std::sync::mpsc::{channel, sync_channel, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::thread;
use std::time::Duration;

fn pause(millis: u64) {
    thread::sleep(Duration::from_millis(millis));
}

fn fetch(n: u32, results: &Sender<u32>) {
    pause(u64::from(n) * 20);
    results.send(n).expect("somebody receives");
}

/// The one that receives keeps a sender, so the channel does not end.
fn kept() {
    let (results, all) = channel();
    let workers: Vec<_> = (0..3)
        .map(|n| {
            let results = results.clone();
            thread::spawn(move || fetch(n, &results))
        })
        .collect();
    workers.into_iter().for_each(|one| one.join().expect("it works"));
    println!("{}", all.iter().sum::<u32>());
    drop(results);
}

struct Cache {
    rows: HashMap<String, String>,
}

fn refresh(cache: &Mutex<Cache>, answers: &Receiver<String>) {
    let mut cache = cache.lock().expect("no poison");
    let answer = answers.recv().expect("an answer");
    cache.rows.insert("a".into(), answer);
}

fn answer(cache: &Mutex<Cache>, answers: &Sender<String>) {
    let rows = cache.lock().expect("no poison").rows.len();
    answers.send(rows.to_string()).expect("somebody receives");
}

/// A lock is held while an answer is awaited, which needs the lock.
fn guard() {
    let cache = Arc::new(Mutex::new(Cache { rows: HashMap::new() }));
    let (answers, all) = channel();
    let other = Arc::clone(&cache);
    let refreshes = thread::spawn(move || refresh(&other, &all));
    pause(200);
    answer(&cache, &answers);
    refreshes.join().expect("it works");
}

fn export(rows: &RwLock<Vec<u32>>) {
    let rows = rows.read().expect("no poison");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).expect("a line");
    println!("{line} {}", rows.len());
}

/// A writer waits for a reader that reads a silent pipe.
fn reader() {
    let rows = Arc::new(RwLock::new(Vec::new()));
    let other = Arc::clone(&rows);
    let _exports = thread::spawn(move || export(&other));
    pause(200);
    rows.write().expect("no poison").push(1);
}

fn pump(lines: &std::sync::mpsc::SyncSender<String>, stop: &(Mutex<bool>, Condvar)) {
    for n in 0..10 {
        lines.send(n.to_string()).expect("somebody receives");
    }
    *stop.0.lock().expect("no poison") = true;
    stop.1.notify_all();
}

/// It waits until all is sent before it receives anything.
fn backlog() {
    let (lines, all) = sync_channel(4);
    let stop = Arc::new((Mutex::new(false), Condvar::new()));
    let other = Arc::clone(&stop);
    thread::spawn(move || pump(&lines, &other));
    let mut done = stop.0.lock().expect("no poison");
    while !*done {
        done = stop.1.wait(done).expect("no poison");
    }
    println!("{}", all.iter().count());
}

fn main() {
    println!("begins");
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    thread::spawn(move || server.accept().map(drop));
    thread::spawn(|| loop {
        pause(200);
    });
    match std::env::args().nth(1).as_deref() {
        Some("kept") => kept(),
        Some("guard") => guard(),
        Some("reader") => reader(),
        Some("backlog") => backlog(),
        other => panic!("{other:?}"),
    }
}
