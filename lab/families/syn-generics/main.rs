// SPDX-License-Identifier: MIT
include!(concat!(env!("CPATH"), "/truth.rs"));

fn main() {
    role("waiter");
    truth("ready");
    let found = syn::parse_str::<syn::File>("#[a=a=a<a<]");
    println!("{}", found.is_ok());
}
