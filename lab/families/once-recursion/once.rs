// SPDX-License-Identifier: MIT
use std::sync::OnceLock;

include!(concat!(env!("CPATH"), "/truth.rs"));

static TABLE: OnceLock<Vec<u32>> = OnceLock::new();

fn look_up(index: usize) -> u32 {
    TABLE.get_or_init(|| {
        (0..16)
            .map(|one| if one == 0 { 1 } else { look_up(one - 1) })
            .collect()
    })[index]
}

fn main() {
    role("waiter");
    truth("ready");
    println!("{}", look_up(3));
}
