// The longest chain of halves and triples, with a table of what is known.
use std::collections::HashMap;
fn chain(n: u64, known: &mut HashMap<u64, u32>) -> u32 {
    if n == 1 { return 0; }
    if let Some(&k) = known.get(&n) { return k; }
    let next = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
    let found = 1 + chain(next, known);
    if n < 1_000_000 { known.insert(n, found); }
    found
}
fn main() { let mut best = (0, 0); let mut known = HashMap::new(); let mut from = 1u64;
    loop { for n in from..from + 100_000 { let c = chain(n, &mut known); if c > best.1 { best = (n, c); } }
        from += 100_000; if known.len() > 900_000 { known.clear(); } std::hint::black_box(&best); } }
