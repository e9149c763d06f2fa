// SPDX-License-Identifier: MIT
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::RwLock;

include!(concat!(env!("CPATH"), "/truth.rs"));

#[inline(never)]
fn total(table: &RwLock<Vec<u32>>) -> u32 {
    table.read().iter().sum()
}

fn main() {
    let table = Arc::new(RwLock::new(vec![1, 2, 3]));
    let read = table.clone();
    let reader = thread::spawn(move || {
        role("reader");
        let numbers = read.read();
        thread::sleep(Duration::from_millis(600));
        numbers.len() as u32 + total(&read)
    });
    thread::sleep(Duration::from_millis(200));
    thread::spawn(|| {
        thread::sleep(Duration::from_millis(1000));
        truth("ready");
        thread::park();
    });
    role("waiter");
    table.write().push(4);
    println!("{}", reader.join().unwrap());
}
