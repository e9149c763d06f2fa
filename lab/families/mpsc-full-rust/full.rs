// SPDX-License-Identifier: MIT
use std::sync::mpsc::{sync_channel, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

include!(concat!(env!("CPATH"), "/truth.rs"));

fn receive(receiver: Receiver<u32>, total: Arc<Mutex<u64>>) {
    role("receiver");
    for number in receiver {
        thread::sleep(Duration::from_millis(10));
        *total.lock().unwrap() += number as u64;
    }
}

fn main() {
    let (sender, receiver) = sync_channel(4);
    let total = Arc::new(Mutex::new(0));
    let shared = total.clone();
    let thread = thread::spawn(move || receive(receiver, shared));
    role("waiter");
    truth("ready");
    let guard = total.lock().unwrap();
    for number in 0..100 {
        sender.send(number).unwrap();
    }
    drop(guard);
    drop(sender);
    thread.join().unwrap();
}
