// SPDX-License-Identifier: MIT
//! Names in running programs, against the addresses that the programs print.

use std::path::PathBuf;

use super::support::{folder, source, tool, Running};
use flagfinder_code::{Code, DataHome, DataKind, DataName, Names, NamesInput};

/// Compiles `memory.c`; `None`: no compiler here.
fn memory(test: &str, flags: &[&str]) -> Option<PathBuf> {
    let program = folder(test).join("memory");
    let (text, path) = (source("memory.c"), program.to_string_lossy().into_owned());
    let mut arguments = vec!["-pthread", "-fno-omit-frame-pointer", "-o", &path, &text];
    arguments.extend(flags);
    tool("gcc", &arguments).then_some(program)
}

/// As `spin` does it: the modules are read first, then what is where.
fn both(running: &Running, read_tls: bool) -> Names {
    let mut names = Names::new(NamesInput::from_live(running.pid()).expect("its /proc"));
    names.warm(|| true);
    let mut input = running.input(&["first", "worker"]);
    if read_tls {
        input
            .read_tls_blocks(running.pid())
            .expect("memory can be read");
        assert!(!input.tls_blocks.is_empty());
    }
    names.renew(input);
    names
}

fn parts(name: &DataName) -> (DataKind, Option<&str>, Option<&str>) {
    (name.kind, name.symbol.as_deref(), name.field.as_deref())
}

fn check_mappings(running: &Running, names: &Names) {
    let kind = |what| names.data(running.at(what)).kind;
    assert_eq!(kind("heap"), DataKind::Heap);
    assert_eq!(kind("shared"), DataKind::Shared);
    assert_eq!(kind("private"), DataKind::Anonymous);
    assert_eq!(kind("jit"), DataKind::Code);
    assert_eq!(kind("nowhere"), DataKind::Unknown);
    assert_eq!(kind("limits"), DataKind::ReadOnly);
    assert!(names.is_fixed(running.at("limits")) && !names.is_fixed(running.at("grid")));
    let jit = names.code(running.at("jit"));
    assert!(
        jit.module.is_none() && jit.to_string().contains("no module"),
        "{jit}"
    );
}

/// Stack and thread-local words of both threads, with or without symbols.
fn check_threads(running: &Running, names: &Names, module: &str) {
    for (who, label) in [("first", "thread 0"), ("worker", "thread 1 'worker'")] {
        let tid = running.at(&format!("{who}.tid")) as u32;
        let local = names.data(running.at(&format!("{who}.local")));
        assert_eq!(local.kind, DataKind::Stack, "{}", local.name);
        assert!(local.name.contains(label), "{}", local.name);
        let below = running.at(&format!("{who}.cfa")) - running.at(&format!("{who}.local"));
        assert!(
            matches!(
                &local.home,
                DataHome::Frame { tid: t, below_cfa, .. } if *t == tid && *below_cfa == below
            ),
            "{:?}",
            local.home
        );
        let deeper = names.data(running.at(&format!("{who}.sp")) - 64);
        assert_eq!(deeper.kind, DataKind::Stack, "{}", deeper.name);
        for word in ["own", "big_own"] {
            let own = names.data(running.at(&format!("{who}.{word}")));
            assert_eq!(own.kind, DataKind::Tls, "{}", own.name);
            assert_eq!(own.module.as_deref(), Some(module), "{}", own.name);
            assert!(own.name.contains(label), "{}", own.name);
        }
        let guard = names.data(running.at(&format!("{who}.fs_base")) + 0x28);
        assert_eq!(guard.kind, DataKind::ThreadControl, "{}", guard.name);
    }
}

#[test]
fn with_debug_information_fields_are_named() {
    let Some(program) = memory("fields", &["-O1", "-g"]) else {
        return;
    };
    let running = Running::start(&program, "first.big_own");
    let names = both(&running, true);
    let data = |what: &str| names.data(running.at(what));
    let global = |symbol, field| (DataKind::Global, Some(symbol), field);
    assert_eq!(
        parts(&data("state")),
        global("pool", Some(".workers[2].state"))
    );
    assert_eq!(
        parts(&data("bits")),
        global("pool", Some(".workers[1].{ready,done}"))
    );
    assert_eq!(parts(&data("hidden")), global("pool", Some(".hidden")));
    assert_eq!(
        parts(&data("either")),
        global("pool", Some(".either.number"))
    );
    assert_eq!(parts(&data("grid")), global("grid", Some("[1][2]")));
    assert_eq!(parts(&data("counter")), global("counter", None));
    assert!(data("state")
        .name
        .starts_with("pool.workers[2].state (memory+0x"));
    let own = data("worker.own");
    assert_eq!(parts(&own), (DataKind::Tls, Some("own"), Some(".state")));
    assert_eq!(
        parts(&data("first.big_own")),
        (DataKind::Tls, Some("big_own"), Some("[7]"))
    );
    let local = data("worker.local");
    assert_eq!(
        parts(&local),
        (DataKind::Stack, Some("local"), Some(".flags[3]"))
    );
    assert!(
        local.name.contains("frame wait_with, rsp+0x"),
        "{}",
        local.name
    );
    check_mappings(&running, &names);
    check_threads(&running, &names, "memory");

    let code: Code = names.code(running.at("main"));
    assert_eq!(code.module.as_deref(), Some("memory"));
    assert_eq!(code.symbol.as_deref(), Some("main+0x4"));
    let line = code.source.unwrap_or_default();
    assert!(line.starts_with("memory.c:"), "{line}");
    let (start, end) = names.function(running.at("main")).expect("sized");
    assert!(start == running.at("main") - 4 && end > start + 16);

    let state = names.word_at(running.at("state")).expect("typed");
    assert_eq!(
        (
            &state.name[..],
            &state.word.path[..],
            names.size(state.word.kind)
        ),
        ("pool", ".workers[2].state", Some(4))
    );
    let found = names.resolve(Some("memory"), "counter");
    assert_eq!(found, [(running.at("counter"), 4)]);
    assert_eq!(names.notes(), Vec::<String>::new());
}

#[test]
fn the_linker_s_layout_agrees_with_the_dtv() {
    let Some(program) = memory("layout", &["-O1"]) else {
        return;
    };
    let running = Running::start(&program, "first.big_own");
    let (read, computed) = (both(&running, true), both(&running, false));
    for what in ["first.own", "worker.own", "worker.big_own", "errno"] {
        assert_eq!(
            read.data(running.at(what)),
            computed.data(running.at(what)),
            "{what}"
        );
    }
    let errno = computed.data(running.at("errno"));
    assert_eq!(errno.kind, DataKind::Tls);
    assert_eq!(errno.module.as_deref(), Some("libc.so.6"));
}

#[test]
fn stripped_programs_keep_places() {
    let Some(program) = memory("stripped", &["-O2", "-s"]) else {
        return;
    };
    let running = Running::start(&program, "first.big_own");
    let names = both(&running, true);
    let state = names.data(running.at("state"));
    assert_eq!((state.kind, &state.symbol), (DataKind::Global, &None));
    let module = &names.input().modules[0];
    let offset = running.at("state") - module.base;
    assert_eq!(state.offset, Some(offset));
    assert!(
        state.name.starts_with(&format!("memory+{offset:#x}")),
        "{}",
        state.name
    );
    check_mappings(&running, &names);
    check_threads(&running, &names, "memory");
    let code = names.code(running.at("main"));
    assert_eq!(
        (code.symbol, code.offset),
        (None, running.at("main") - module.base)
    );
}

#[test]
fn static_programs_are_named_too() {
    for (test, flag) in [("static", "-static"), ("static-pie", "-static-pie")] {
        let Some(program) = memory(test, &["-O1", "-g", flag]) else {
            return;
        };
        let running = Running::start(&program, "first.big_own");
        let names = both(&running, false);
        let state = names.data(running.at("state"));
        assert_eq!(state.field.as_deref(), Some(".workers[2].state"), "{flag}");
        check_mappings(&running, &names);
        check_threads(&running, &names, "memory");
    }
}

#[test]
fn separate_debug_files_are_found_and_checked() {
    let Some(program) = memory("separate", &["-O1", "-g", "-Wl,--build-id"]) else {
        return;
    };
    let path = program.to_string_lossy().into_owned();
    let debug = format!("{path}.debug");
    let link = format!("--add-gnu-debuglink={debug}");
    if !tool("objcopy", &["--only-keep-debug", &path, &debug]) {
        return;
    }
    assert!(tool("objcopy", &["--strip-all", &link, &path]));
    let running = Running::start(&program, "first.big_own");
    let state = both(&running, false).data(running.at("state"));
    assert_eq!(state.field.as_deref(), Some(".workers[2].state"));

    // Another program's debug information, under the right name.
    let text = source("memory.c");
    let other = [
        "-pthread",
        "-O3",
        "-g",
        "-DOTHER",
        "-Wl,--build-id=0xabcdef",
        "-o",
        &debug,
        &text,
    ];
    assert!(tool("gcc", &other));
    let state = both(&running, false).data(running.at("state"));
    assert_eq!((state.symbol, state.field), (None, None));
}

#[test]
fn a_replaced_file_is_not_believed() {
    let Some(program) = memory("replaced", &["-O1", "-g", "-Wl,--build-id"]) else {
        return;
    };
    let running = Running::start(&program, "first.big_own");
    let path = program.to_string_lossy().into_owned();
    std::fs::remove_file(&program).expect("removed");
    let text = source("memory.c");
    assert!(tool(
        "gcc",
        &[
            "-pthread",
            "-O3",
            "-g",
            "-Wl,--build-id=0xabcdef",
            "-o",
            &path,
            &text
        ]
    ));

    // The live process still has the old file, and its names.
    let names = both(&running, false);
    assert_eq!(
        names.data(running.at("counter")).symbol.as_deref(),
        Some("counter")
    );

    // A trace has only the path.
    let mut input: NamesInput = running.input(&[]);
    input.modules[0].file = program;
    let names = Names::new(input);
    let counter = names.data(running.at("counter"));
    assert_eq!((counter.kind, &counter.symbol), (DataKind::Global, &None));
    assert!(counter.name.starts_with("memory+0x"), "{}", counter.name);
    let notes = names.notes();
    assert!(
        notes.iter().any(|n| n.contains("build-id abcdef")),
        "{notes:?}"
    );
}

#[test]
fn cpp_names_are_readable() {
    let program = folder("cpp").join("shapes");
    let path = program.to_string_lossy().into_owned();
    if !tool(
        "g++",
        &[
            "-std=c++17",
            "-O1",
            "-g",
            "-o",
            &path,
            &source("shapes.cpp"),
        ],
    ) {
        return;
    }
    let running = Running::start(&program, "ready");
    let names = Names::new(running.input(&[]));
    let data = |what: &str| names.data(running.at(what));
    let done = data("done");
    assert_eq!(done.symbol.as_deref(), Some("app::server"));
    assert!(
        done.field
            .as_deref()
            .is_some_and(|f| f.starts_with(".done")),
        "{done:?}"
    );
    let shared = data("count");
    assert_eq!(shared.symbol.as_deref(), Some("app::Server::count"));
    assert_eq!(data("base").field.as_deref(), Some(".version"));
    let code = names.code(running.at("method"));
    assert_eq!(code.symbol.as_deref(), Some("app::Server::poll(int)"));
    assert!(code.inlined.is_empty(), "{:?}", code.inlined);
    // All of them, not just the innermost, which is often the library's.
    let nested = names.caller(running.at("inlined"));
    assert!(
        matches!(&nested.symbol, Some(main) if main.starts_with("main+")),
        "{nested:?}"
    );
    assert_eq!(nested.inlined, ["here", "app::Server::place()"]);
}

#[test]
fn stripped_go_keeps_its_functions() {
    let program = folder("go").join("spin");
    let path = program.to_string_lossy().into_owned();
    if !tool(
        "go",
        &[
            "build",
            "-ldflags",
            "-s -w",
            "-o",
            &path,
            &source("spin.go"),
        ],
    ) {
        return;
    }
    let running = Running::start(&program, "ready");
    let names = Names::new(running.input(&[]));
    let code = names.code(running.at("function"));
    assert_eq!(code.symbol.as_deref(), Some("main.waitReady"));
    let line = names
        .code(running.at("function") + 1)
        .source
        .unwrap_or_default();
    assert!(line.starts_with("spin.go:"), "{line}");
    assert!(names.function(running.at("function")).is_some());
}
