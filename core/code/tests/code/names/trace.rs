// SPDX-License-Identifier: MIT
//! Names from a trace: heap objects by allocation site, threads' memory, files that
//! are no longer the ones that ran.

use super::support::{folder, source, tool};
use flagfinder_code::{AllocationLog, CodeMap, DataHome, DataKind, Names, NamesInput};
use flagfinder_trace::{Event, Level, Module, Segment, Trace, TraceBuilder};
use object::{Object, ObjectSymbol};

const PID: u32 = 70;
const BASE: u64 = 0x5555_0000_0000;
const HEAP: u64 = 0x5555_1000_0000;
const FS_BASE: u64 = 0x7fff_8070_0000;
/// Thread id, fs_base and first stack pointer: as a C library begins a thread, and as Go does.
const WITH_BLOCK: (u32, u64, u64) = (71, 0x7fff_b060_0000, 0x7fff_b05f_f000);
const WITHOUT_BLOCK: (u32, u64, u64) = (72, 0x7fff_a006_0000, 0x7fff_a004_0000);
const MAPS: &str = "\
    555510000000-555510100000 rw-p 00000000 00:00 0    [heap]\n\
    7ffff0000000-7ffff0100000 rw-p 00000000 00:00 0    [stack]\n\
    7fff80000000-7fff80800000 rw-p 00000000 00:00 0 \n\
    7fffa0000000-7fffa0800000 rw-p 00000000 00:00 0 \n\
    7fffb0000000-7fffb0800000 rw-p 00000000 00:00 0 \n\
    7fff90000000-7fff90001000 rw-s 00003000 00:01 42   /dev/shm/ring\n";

struct Program {
    path: String,
    build_id: Vec<u8>,
    main: u64,
    main_code: Vec<u8>,
}

fn program(test: &str, flags: &[&str]) -> Option<Program> {
    let path = folder(test).join("memory").to_string_lossy().into_owned();
    let text = source("memory.c");
    let mut arguments = vec!["-pthread", "-O1", "-o", &path, &text];
    arguments.extend(flags);
    if !tool("gcc", &arguments) {
        return None;
    }
    let bytes = std::fs::read(&path).expect("built");
    let file = object::File::parse(&bytes[..]).expect("ELF");
    let symbol = file.symbols().find(|s| s.name() == Ok("main"));
    let main = symbol.expect("main").address();
    Some(Program {
        build_id: file.build_id().expect("notes").unwrap_or_default().to_vec(),
        main,
        // Position-independent text: file offset and address agree.
        main_code: bytes[main as usize..main as usize + 4].to_vec(),
        path,
    })
}

fn trace(program: &Program, main_code: &[u8]) -> Trace {
    let mut builder = TraceBuilder::new(Level::Values).expect("in memory");
    builder.process(PID, 1, &program.path);
    let module = Module {
        path: program.path.clone(),
        build_id: program.build_id.clone(),
        base: BASE,
        start: BASE,
        end: BASE + 0x5000,
        segments: vec![Segment {
            start: BASE,
            end: BASE + 0x5000,
            file_offset: 0,
            prot: 7,
        }],
        ..Module::default()
    };
    let module = builder.module(PID, module);
    let code = BASE + program.main;
    let block = builder.block(PID, Some(module), code, main_code, 1, &[]);
    builder.maps(PID, MAPS);
    let main = builder.thread(PID, PID, 0, "memory", code);
    builder.run(main, &[block]);
    let set_fs_base = Event::enter(1_500, 158, [0x1002, FS_BASE, 0, 0, 0, 0]);
    builder.event(main, &set_fs_base);
    let alloc = |addr, size, old_addr| Event::Alloc {
        addr,
        size,
        caller_pc: code + 9,
        old_addr,
        kind: 1,
    };
    builder.event(main, &alloc(HEAP + 0x100, 64, 0));
    builder.event(main, &alloc(HEAP + 0x200, 256, 0));
    builder.event(main, &alloc(HEAP + 0x400, 32, HEAP + 0x100));
    let started = |tid, fs_base, stack_pointer| Event::ThreadStart {
        tid,
        creator_tid: PID,
        ts: 2_000,
        fs_base,
        stack_pointer,
        start_pc: code,
    };
    for (tid, fs_base, stack_pointer) in [WITH_BLOCK, WITHOUT_BLOCK] {
        builder.started(PID, tid, "", &started(tid, fs_base, stack_pointer));
    }
    builder.finish().expect("a whole trace")
}

#[test]
fn a_stack_ends_at_the_threads_own_block_and_nowhere_else() {
    let Some(program) = program("memory", &["-Wl,--build-id"]) else {
        return;
    };
    let names = names(&trace(&program, &program.main_code));
    let kind =
        |(_, _, stack_pointer): (u32, u64, u64), below| names.data(stack_pointer - below).kind;
    assert_eq!(kind(WITH_BLOCK, 0x8000), DataKind::Stack);
    assert_eq!(kind(WITHOUT_BLOCK, 0x80), DataKind::Stack);
    assert_eq!(kind(WITHOUT_BLOCK, 0x8000), DataKind::Anonymous);
}

fn names(trace: &Trace) -> Names {
    let process = &trace.processes()[0];
    let log = AllocationLog::from_process(process).expect("in memory");
    Names::new(NamesInput::from_process(process, log))
}

#[test]
fn heap_objects_are_named_by_site_and_ordinal() {
    let Some(program) = program("heap", &["-Wl,--build-id"]) else {
        return;
    };
    let names = names(&trace(&program, &program.main_code));
    let word = names.data(HEAP + 0x204);
    let expected = format!(
        "offset 4 of heap object of 256 bytes allocated by main+0x9 (memory+{:#x}) (its number 2)",
        program.main + 9
    );
    assert_eq!((word.kind, word.name), (DataKind::Heap, expected));
    assert!(matches!(
        word.home,
        DataHome::Heap {
            ordinal: 2,
            size: 256,
            offset: 4,
            ..
        }
    ));
    let moved = names.data(HEAP + 0x100).name;
    assert!(moved.ends_with("freed since"), "{moved}");
    let unknown = names.data(HEAP + 0x300);
    assert!(unknown.kind == DataKind::Heap && unknown.name.contains("[heap]+0x300"));
    let stack = names.data(0x7fff_f000_1000);
    assert!(
        stack.kind == DataKind::Stack && stack.name.contains("thread 0"),
        "{stack:?}"
    );
    // The executable's block ends at fs_base; `own` is 16 bytes, big_own 800.
    let own = names.data(FS_BASE - 8);
    assert_eq!(
        (own.kind, own.symbol.as_deref()),
        (DataKind::Tls, Some("big_own"))
    );
    assert_eq!(names.data(0x7fff_8000_1000).kind, DataKind::Anonymous);
    let shared = names.data(0x7fff_9000_0010);
    assert_eq!(
        (shared.kind, &shared.name[..]),
        (DataKind::Shared, "/dev/shm/ring+0x3010")
    );
    assert_eq!(names.notes(), Vec::<String>::new());
}

#[test]
fn code_is_the_check_where_there_is_no_build_id() {
    let Some(program) = program("unidentified", &["-Wl,--build-id=none"]) else {
        return;
    };
    let symbol = |names: &Names| names.code(BASE + program.main).symbol;
    let same = names(&trace(&program, &program.main_code));
    assert_eq!(symbol(&same).as_deref(), Some("main"));
    let other = names(&trace(&program, &[0xcc, 0xcc]));
    assert_eq!(symbol(&other), None);
    assert!(
        other.notes()[0].contains("it was replaced"),
        "{:?}",
        other.notes()
    );
}

#[test]
fn names_serialise_as_reports_need_them() {
    let Some(program) = program("json", &["-Wl,--build-id"]) else {
        return;
    };
    let names = names(&trace(&program, &program.main_code));
    let code = serde_json::to_value(names.code(BASE + program.main)).expect("JSON");
    assert_eq!(code["module"], "memory");
    assert_eq!(code["offset"], format!("{:#x}", program.main));
    assert_eq!(code["symbol"], "main");
    assert!(code["source"].is_null());
    let data = serde_json::to_value(names.data(0x10)).expect("JSON");
    assert!(data["module"].is_null() && data["offset"].is_null());
    assert_eq!(data["kind"], "unknown");
}

#[test]
fn damaged_files_do_no_harm() {
    let Some(program) = program("damaged", &["-g", "-Wl,--build-id=none"]) else {
        return;
    };
    let whole = std::fs::read(&program.path).expect("built");
    let trace = trace(&program, &[]);
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut named = 0;
    for round in 0..200 {
        let mut bytes = whole.clone();
        for _ in 0..1 + round % 32 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = random as usize % bytes.len();
            // Half of the damage in the headers.
            let at = if round % 2 == 0 { at % 1024 } else { at };
            bytes[at] = (random >> 32) as u8;
        }
        bytes.truncate(if round % 8 == 7 {
            random as usize % whole.len()
        } else {
            whole.len()
        });
        std::fs::write(&program.path, &bytes).expect("written");
        let names = names(&trace);
        for address in (BASE..BASE + 0x5000).step_by(0x71) {
            named += usize::from(names.code(address).symbol.is_some());
            named += usize::from(names.data(address).field.is_some());
        }
        names.data(FS_BASE - 8);
    }
    assert!(named > 200, "most damage leaves something to name: {named}");
}

#[test]
fn lookups_can_be_shared_between_threads() {
    let Some(program) = program("shared", &["-g", "-Wl,--build-id"]) else {
        return;
    };
    let trace = trace(&program, &program.main_code);
    let (names, code) = (names(&trace), CodeMap::new(&trace.processes()[0]));
    let both = || {
        let block = code.block(1).expect("block 1");
        names.code(block.pc().expect("an instruction")).to_string()
    };
    let (here, there) = std::thread::scope(|scope| {
        let other = scope.spawn(both);
        (both(), other.join().expect("no panic"))
    });
    assert!(here == there && here.starts_with("main ("), "{here}");
}

#[test]
fn a_missing_file_is_told() {
    let Some(program) = program("gone", &["-Wl,--build-id"]) else {
        return;
    };
    let trace = trace(&program, &program.main_code);
    std::fs::remove_file(&program.path).expect("removed");
    let names = names(&trace);
    let code = names.code(BASE + program.main);
    assert_eq!(
        (code.module.as_deref(), code.symbol),
        (Some("memory"), None)
    );
    assert!(
        names.notes()[0].contains("not available"),
        "{:?}",
        names.notes()
    );
}
