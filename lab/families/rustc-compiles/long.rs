// SPDX-License-Identifier: MIT
const fn longest(last: u64) -> u64 {
    let mut longest = 0;
    let mut start = 1;
    while start < last {
        let (mut number, mut steps) = (start, 0);
        while number != 1 {
            number = if number % 2 == 1 {
                3 * number + 1
            } else {
                number / 2
            };
            steps += 1;
        }
        if steps > longest {
            longest = steps;
        }
        start += 1;
    }
    longest
}

const FOUND: u64 = longest(3_000_000);

fn main() {
    println!("{FOUND}");
}
