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
        "dllthreads.so",
        "[vdso]",
    ]
    .iter()
    .any(|prefix| name.starts_with(prefix))
}

/// Functions and variables of Go's scheduler (`time.Sleep` is one of them) and memory management,
/// which every Go program has, of Rust's panics, whose count every lock of its library reads, and
/// of the thread that ticks for OCaml's.
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
        || [
            "runtime.",
            "internal/",
            "time.Sleep",
            "std::panicking::",
            "caml_tick",
        ]
        .iter()
        .any(|prefix| symbol.starts_with(prefix))
}

/// Does the function raise an error, or end the program for one? A loop that is left through it is
/// not left by its own exit: a check failed. (Python raises errors in what its programs do all the
/// time: only those count that the interpreter words itself.)
pub fn is_error_exit(symbol: &str) -> bool {
    let whole = [
        "abort",
        "__assert",
        "__assert_fail",
        "__assert_perror_fail",
        "__stack_chk_fail",
        "__fortify_fail",
        "__chk_fail",
        "__libc_fatal",
        "__cxa_throw",
        "__cxa_rethrow",
        "__cxa_bad_cast",
        "__cxa_pure_virtual",
        "_Unwind_RaiseException",
        "_Unwind_Resume_or_Rethrow",
        "std::terminate()",
        "longjmp",
        "_longjmp",
        "siglongjmp",
        "__longjmp_chk",
        "luaD_throw",
        "luaG_runerror",
        "rust_panic",
        "__rust_start_panic",
        "rust_begin_unwind",
        "rb_raise",
        "rb_exc_raise",
        "runtime.gopanic",
        "runtime.throw",
        "PyErr_Format",
        "_PyErr_Format",
        "_PyErr_FormatV",
        "PyErr_BadInternalCall",
        "_Py_FatalErrorFunc",
    ];
    let begins = [
        "std::__throw_",
        "core::panicking::",
        "core::option::unwrap_failed",
        "core::option::expect_failed",
        "core::result::unwrap_failed",
        "core::slice::index::slice_",
        "std::panicking::",
        "runtime.fatal",
        "runtime.panic",
        "runtime.goPanic",
        "g_assertion_message",
        "lj_err_",
        "Perl_croak",
        "Perl_die",
        "zend_throw_",
        "caml_raise",
        "scm_throw",
        "Exceptions::_throw",
        "v8::internal::Isolate::Throw",
    ];
    whole.contains(&symbol) || begins.iter().any(|begin| symbol.starts_with(begin))
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
        assert!(is_runtime_symbol("caml_tick_thread_stop"));
        assert!(is_runtime_symbol("gogo"), "to the next goroutine");
        assert!(!is_runtime_symbol("gogopher"));
    }

    #[test]
    fn errors_are_raised_by_functions_of_these_names() {
        for symbol in [
            "abort",
            "__cxa_throw",
            "runtime.gopanic",
            "runtime.panicIndex",
        ] {
            assert!(is_error_exit(symbol), "{symbol}");
        }
        for symbol in ["runtime.goready", "PyErr_CheckSignals", "abort_transaction"] {
            assert!(!is_error_exit(symbol), "{symbol}");
        }
    }
}
