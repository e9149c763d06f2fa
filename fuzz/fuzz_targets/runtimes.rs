// SPDX-License-Identifier: MIT
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flagfinder_fuzz::targets::runtimes::run(data));
