// Three threads add to a map behind a mutex, for moments.
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
fn main() { let map = Arc::new(Mutex::new(BTreeMap::new()));
    let mut threads = Vec::new();
    for me in 0..3u64 { let map = map.clone(); threads.push(std::thread::spawn(move || { let mut x = me + 1; loop {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let mut m = map.lock().unwrap(); *m.entry(x >> 50).or_insert(0u64) += 1; if m.len() > 10000 { m.clear(); } } })); }
    for t in threads { t.join().unwrap(); } }
