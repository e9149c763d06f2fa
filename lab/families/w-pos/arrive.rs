// The main thread yields until four workers have arrived; one reads a silent input.
#[path = "truth.rs"]
mod t;
use std::io::Read; use std::sync::atomic::{AtomicUsize, Ordering::*};
static ARRIVED: AtomicUsize = AtomicUsize::new(0); static WORK: AtomicUsize = AtomicUsize::new(0);
fn main() { let all = std::env::args().count() + 3;
    for n in 0..4 { std::thread::spawn(move || { if n == 3 { t::role("late"); let mut b = [0]; std::io::stdin().read_exact(&mut b).unwrap(); } WORK.fetch_add(n, SeqCst); ARRIVED.fetch_add(1, SeqCst); std::thread::park(); }); }
    t::role("waiter"); t::word("arrived", &ARRIVED); t::truth("ready");
    while ARRIVED.load(SeqCst) < all { std::thread::yield_now(); } println!("{}", WORK.load(SeqCst)); }
