// SPDX-License-Identifier: MIT
//! `try PID TID ADDRESS BYTES VALUE`: does that value there end the thread's loop?

use std::time::{Duration, Instant};

use flagfinder_replica::{Experiment, Live, Pages, Word};

fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).expect("a number"),
        None => text.parse().expect("a number"),
    }
}

fn main() {
    let given: Vec<u64> = std::env::args().skip(1).map(|text| number(&text)).collect();
    let [pid, tid, address, bytes, value] = given[..] else {
        panic!("try PID TID ADDRESS BYTES VALUE");
    };
    let live = Live::open(pid as u32).expect("readable");
    let (state, pause) = live
        .capture(tid as u32, Duration::from_secs(1))
        .expect("stops");
    println!("paused for {pause:?}");
    let pages = Pages::new(&live);
    let begin = Instant::now();
    let time = Duration::from_secs(20);
    match Experiment::prepare(&pages, &state, &[], time).expect("a process") {
        Ok(experiment) => {
            println!("baseline {:?}", begin.elapsed());
            let word = Word {
                address,
                bytes: bytes as usize,
                value,
            };
            println!("{:?}", experiment.try_word(word, time));
        }
        Err(unfit) => println!("{unfit:?}"),
    }
    println!(
        "{:?}, pages (used, changed) {:?}",
        begin.elapsed(),
        pages.changed()
    );
}
