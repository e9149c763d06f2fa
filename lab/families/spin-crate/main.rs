// SPDX-License-Identifier: MIT
use std::thread;
use std::time::Duration;

include!(concat!(env!("CPATH"), "/truth.rs"));

static ONCE: spin::Once<u64> = spin::Once::new();
static TABLE: spin::RwLock<u64> = spin::RwLock::new(0);

#[inline(never)]
fn settle() -> u64 {
    role("maker");
    thread::sleep(Duration::from_secs(100_000));
    7
}

fn main() {
    let once = std::env::args().nth(1).unwrap() == "once";
    thread::spawn(move || {
        if once {
            ONCE.call_once(settle);
        } else {
            let value = TABLE.read();
            println!("{}", settle() + *value);
        }
    });
    thread::sleep(Duration::from_millis(200));
    role("waiter");
    if once {
        word("cell", &ONCE);
        truth("ready");
        println!("{}", ONCE.call_once(settle));
    } else {
        word("cell", &TABLE);
        truth("ready");
        *TABLE.write() += 1;
    }
}
