// SPDX-License-Identifier: MIT
//! The pool of the crate fork_union: forkunion normal|spin ROUNDS. Its workers poll the number of
//! the round, and the caller polls how many of them are not done.

use std::hint::black_box;
use std::time::Duration;

extern "C" {
    /// Of freeze.so.
    fn freeze_worker(which: i32);
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let hangs = words.get(1).is_some_and(|word| word == "spin");
    let rounds: usize = words.get(2).map_or(40, |word| word.parse().unwrap());
    let mut pool = fork_union::ThreadPool::try_spawn(4).unwrap();
    for round in 0..=rounds {
        std::thread::sleep(Duration::from_millis(10));
        if hangs && round == rounds {
            unsafe { freeze_worker(1) };
        }
        drop(pool.for_n(4, |_| {
            let terms = 1..20000 + 1000 * (round as u32 % 5);
            black_box(terms.map(|at| 1.0 / f64::from(at)).sum::<f64>());
        }));
    }
    println!("{rounds} rounds");
}
