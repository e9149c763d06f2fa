// A thread spins on a gate in an Arc; the one that opens it waits for a channel that stays empty.
#[path = "truth.rs"]
mod t;
use std::sync::{atomic::{AtomicBool, AtomicU64, Ordering::*}, mpsc, Arc};
struct Gate { name: String, open: AtomicBool, passed: AtomicU64 }
fn main() { let gate = Arc::new(Gate { name: "east".into(), open: AtomicBool::new(false), passed: AtomicU64::new(0) });
    let (send, receive) = mpsc::channel::<u32>();
    let g = gate.clone(); std::thread::spawn(move || { t::role("opener"); let n = receive.recv().unwrap(); g.passed.fetch_add(n as u64, Relaxed); g.open.store(true, Release); });
    let g = gate.clone(); std::thread::spawn(move || loop { std::thread::sleep(std::time::Duration::from_millis(5)); g.passed.fetch_add(1, Relaxed); });
    t::role("waiter"); t::word("open", &gate.open); t::truth("ready");
    while !gate.open.load(Acquire) { std::hint::spin_loop(); }
    println!("{} {}", gate.name, gate.passed.load(Relaxed)); drop(send); }
