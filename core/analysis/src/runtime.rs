// SPDX-License-Identifier: MIT
//! Names of code and words that belong to a language's runtime, not to the program.

/// Is it the C library, the loader, or one of their parts? By the module's file name.
pub fn is_runtime_module(name: &str) -> bool {
    [
        "libc.so",
        "libc-2.",
        "ld-linux",
        "libpthread",
        "ld-musl",
        "libm.so",
        "[vdso]",
    ]
    .iter()
    .any(|prefix| name.starts_with(prefix))
}

/// Functions and variables of Go's scheduler (`time.Sleep` is one of them) and memory management,
/// which every Go program has, and of Rust's panics, whose count every lock of its library reads.
pub fn is_runtime_symbol(symbol: &str) -> bool {
    // Channels and maps are the program's own, whatever package their functions are in.
    let of_program = [
        "runtime.chan",
        "runtime.selectnb",
        "runtime.empty",
        "runtime.full",
        "runtime.map",
        "internal/runtime/maps.",
        "internal/sync.(*HashTrieMap",
    ];
    if of_program.iter().any(|prefix| symbol.starts_with(prefix)) {
        return false;
    }
    // The jump by which Go's scheduler goes on with a goroutine: private to its assembler file, so
    // without the package's name.
    let jumps = ["gogo", "gosave_systemstack_switch"];
    jumps.contains(&symbol.split('+').next().unwrap_or(symbol))
        || ["runtime.", "internal/", "time.Sleep", "std::panicking::"]
            .iter()
            .any(|prefix| symbol.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtimes_own_is_told_by_its_name() {
        assert!(is_runtime_symbol("runtime.netpoll"));
        assert!(is_runtime_symbol(
            "std::panicking::panic_count::GLOBAL_PANIC_COUNT"
        ));
        assert!(!is_runtime_symbol(
            "std::sync::mpmc::list::Channel<T>::try_recv"
        ));
        assert!(!is_runtime_symbol("main.runtime"));
        assert!(!is_runtime_symbol("runtime.chanrecv"), "a channel's");
        assert!(!is_runtime_symbol("internal/runtime/maps.ctrlGroupMatchH2"));
        assert!(is_runtime_symbol("gogo"), "to the next goroutine");
        assert!(!is_runtime_symbol("gogopher"));
    }
}
