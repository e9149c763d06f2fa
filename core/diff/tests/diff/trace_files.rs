// SPDX-License-Identifier: MIT
//! From trace files to a divergence: module identities, code without modules, positions.

use flagfinder_diff::{diff, CodePlace, Divergence, Options, PartingKind, Verdict};
use flagfinder_trace::{Event, Flow, Level, Module, Trace, TraceBuilder};

/// One process: `main` (module) calls a function (module or JIT) that polls.
struct Layout {
    base: u64,
    jit: Option<u64>,
}

const PID: u32 = 7;
const WAIT: u64 = 0x40;

fn build(
    layout: &Layout,
    write: impl FnOnce(&mut TraceBuilder, flagfinder_trace::ThreadHandle),
) -> Trace {
    build_as("/opt/x/prog", 3, layout, write)
}

fn build_as(
    program: &str,
    version: u8,
    layout: &Layout,
    write: impl FnOnce(&mut TraceBuilder, flagfinder_trace::ThreadHandle),
) -> Trace {
    let mut builder = TraceBuilder::new(Level::Flow).expect("in memory");
    builder.section_bytes(512);
    builder.process(PID, 1, program);
    let module = Module {
        path: program.into(),
        build_id: vec![1, 2, version],
        base: layout.base,
        start: layout.base,
        end: layout.base + 0x1000,
        ..Module::default()
    };
    let module = builder.module(PID, module);
    let base = layout.base;
    let (home, wait) = match layout.jit {
        None => (Some(module), base + WAIT),
        Some(address) => (None, address),
    };
    builder.block(PID, Some(module), base, &[0xff, 0xd0], 1, &[]); // 1: call *rax
    builder.block(PID, Some(module), base + 2, &[0xc3], 1, &[]); // 2: ret
    builder.block(PID, home, wait, &[0x85, 0xc0, 0x74, 0x02], 2, &[]); // 3: test; je +8
    builder.block(PID, home, wait + 4, &[0x90, 0xeb, 0xf9], 2, &[]); // 4: nop; jmp wait
    builder.block(PID, home, wait + 6, &[0xc3], 1, &[]); // 5: ret
    let thread = builder.thread(PID, PID, 0, "prog", base);
    write(&mut builder, thread);
    builder.finish().expect("in memory")
}

fn good(layout: &Layout) -> Trace {
    build(layout, |builder, thread| {
        builder.run(thread, &[1, 3, 4, 3, 4, 3, 5, 2]);
        builder.event(thread, &Event::ThreadExit { ts: 3, status: 0 });
    })
}

fn bad(layout: &Layout) -> Trace {
    build(layout, |builder, thread| {
        builder.run(thread, &[1, 3, 4, 3, 5]);
        builder.run(thread, &[1]);
        builder.run(thread, &[3, 4].repeat(2000));
        builder.killed(thread);
    })
}

fn at(module: &str, offset: u64) -> Option<CodePlace> {
    Some(CodePlace {
        module: module.into(),
        offset,
    })
}

fn compare(normal: &Trace, spin: &Trace) -> Divergence {
    diff(&[normal], spin, &Options::default(), &|_| {}).expect("readable")
}

const PLAIN: Layout = Layout {
    base: 0x5555_0000_0000,
    jit: None,
};

#[test]
fn another_build_or_program_is_said() {
    let once = |builder: &mut TraceBuilder, thread| builder.run(thread, &[1, 3, 5, 2]);
    let unlike = |normal: &Trace, spin: &Trace| compare(normal, spin).unlike;
    let (old, new) = (
        build(&PLAIN, once),
        build_as("/opt/x/prog", 4, &PLAIN, once),
    );
    let tool = build_as("/opt/x/tool", 9, &PLAIN, once);
    assert_eq!(unlike(&old, &old), Vec::<String>::new());
    assert_eq!(
        unlike(&old, &new),
        ["not the same build in both runs: prog; no code of it can be compared"]
    );
    assert_eq!(
        unlike(&old, &tool),
        ["the recordings are of different programs: prog and tool"]
    );
}

#[test]
fn the_wrong_order_is_suspected() {
    let reason = |normal: &Trace, spin: &Trace| {
        let found = compare(normal, spin);
        assert_eq!(found.verdict, Verdict::NoDivergence);
        found.reason
    };
    let (good, bad) = (good(&PLAIN), bad(&PLAIN));
    assert!(reason(&bad, &good).ends_with("are the two in the wrong order?"));
    assert_eq!(
        reason(&good, &good),
        "every thread of the spin run ended by itself"
    );
}

#[test]
fn load_addresses_do_not_matter() {
    let normal = good(&PLAIN);
    let spin = bad(&Layout {
        base: 0x7f00_1234_0000,
        jit: None,
    });
    let found = compare(&normal, &spin);
    let parting = &found.partings[0];
    assert_eq!(parting.kind, PartingKind::LoopExit);
    assert_eq!(parting.branch, at("prog", WAIT + 2));
    assert_eq!(
        (parting.block.clone(), parting.normal_target.clone()),
        (at("prog", WAIT), at("prog", WAIT + 6))
    );
    assert_eq!((parting.spin_index, parting.occurrence), (6, 3));
    // The position is that of the seventh block in the trace.
    let thread = &spin.processes()[0].threads()[0];
    let blocks: Vec<u64> = thread
        .flow()
        .filter_map(|item| match item {
            Ok(Flow::Block { pos, .. }) => Some(pos),
            _ => None,
        })
        .collect();
    assert_eq!(parting.spin_pos, Some(blocks[6]));
    assert_eq!(parting.normal_index, Some(5));
}

#[test]
fn generated_code_is_known_by_its_likeness() {
    let normal = good(&Layout {
        base: 0x5555_0000_0000,
        jit: Some(0x7f10_0000_1000),
    });
    let spin = bad(&Layout {
        base: 0x7f00_1234_0000,
        jit: Some(0x7f22_3333_4000),
    });
    let found = compare(&normal, &spin);
    let parting = &found.partings[0];
    assert_eq!(parting.kind, PartingKind::LoopExit, "{parting:?}");
    assert_eq!(
        parting.branch.as_ref().map(|place| place.module.as_str()),
        Some("")
    );
    assert!(parting
        .spin_loop
        .normal
        .is_some_and(|normal| normal.most_iterations == 3));
}

#[test]
fn waiting_is_not_spinning() {
    let spin = build(&PLAIN, |builder, thread| {
        builder.run(thread, &[1]);
        // Long waits of another kind before do not make this one usual.
        let poll = Event::enter(1, 7, [0; 6]);
        builder.event(thread, &poll);
        let woken = Event::SyscallExit {
            ts: 30_000_000_000,
            number: 7,
            result: 0,
        };
        builder.event(thread, &woken);
        builder.run(thread, &[3, 4].repeat(50));
        let enter = Event::enter(30_000_000_005, 0, [0; 6]);
        builder.event(thread, &enter);
        let other = builder.thread(PID, PID + 1, PID, "clock", PLAIN.base);
        builder.event(
            other,
            &Event::ThreadExit {
                ts: 90_000_000_000,
                status: 0,
            },
        );
        builder.killed(thread);
    });
    let found = compare(&good(&PLAIN), &spin);
    assert_eq!(found.verdict, Verdict::NoDivergence, "{}", found.reason);
    assert_eq!(found.blocked.len(), 1);
    assert_eq!(found.blocked[0].stack.len(), 2);
}

#[test]
fn a_yield_on_a_busy_machine_is_spinning() {
    let spin = build(&PLAIN, |builder, thread| {
        builder.run(thread, &[1]);
        builder.run(thread, &[3, 4].repeat(50));
        let enter = Event::enter(30_000_000_000, 24, [0; 6]);
        builder.event(thread, &enter);
        let other = builder.thread(PID, PID + 1, PID, "clock", PLAIN.base);
        let exit = Event::ThreadExit {
            ts: 90_000_000_000,
            status: 0,
        };
        builder.event(other, &exit);
        builder.killed(thread);
    });
    let found = compare(&good(&PLAIN), &spin);
    assert!(found.blocked.is_empty(), "{:?}", found.blocked);
    assert_eq!(found.partings.len(), 1, "{}", found.reason);
}

#[test]
fn a_process_that_ended_does_not_spin() {
    let spin = build(&PLAIN, |builder, thread| {
        builder.run(thread, &[1]);
        let enter = Event::enter(5, 231, [0; 6]);
        builder.event(thread, &enter);
        let other = builder.thread(PID, PID + 1, PID, "busy", PLAIN.base);
        builder.run(other, &[3, 4].repeat(500));
        builder.killed(other);
    });
    let found = compare(&good(&PLAIN), &spin);
    assert_eq!(
        (found.verdict, found.partings.len()),
        (Verdict::NoDivergence, 0)
    );
}
