// SPDX-License-Identifier: MIT
//! Prints the shared structs as the Rust side lays them out, for `tests/unit/test_protocol.py`:
//! `NAME SIZE`, then `NAME.FIELD OFFSET`.

fn main() {
    for layout in flagfinder_watch::layouts() {
        println!("{} {}", layout.name, layout.size);
        for (field, offset) in &layout.fields {
            println!("{}.{field} {offset}", layout.name);
        }
    }
}
