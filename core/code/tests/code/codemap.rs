// SPDX-License-Identifier: MIT
//! CodeMap over synthetic traces: places that survive ASLR, lazily decoded blocks,
//! and the check of a flow against the code.

use flagfinder_code::{CodeMap, Ending, FlowBreak};
use flagfinder_trace::{Event, Level, Module, Segment, Trace, TraceBuilder};

const PID: u32 = 7;

/// A loop `nop; je -3`, a `ret`, and a block without a module; flow as given.
fn trace(base: u64, flow: &[&[u32]]) -> Trace {
    let mut builder = TraceBuilder::new(Level::Flow).expect("in memory");
    builder.process(PID, 1, "/bin/x");
    let module = Module {
        path: "/lib/libx.so".into(),
        build_id: vec![0xab; 20],
        base,
        start: base + 0x1000,
        end: base + 0x2000,
        segments: vec![Segment {
            start: base + 0x1000,
            end: base + 0x2000,
            file_offset: 0x1000,
            prot: 5,
        }],
        ..Module::default()
    };
    let id = builder.module(PID, module);
    let code = base + 0x1000;
    builder.block(PID, Some(id), code, &[0x90, 0x74, 0xfd], 2, &[]);
    builder.block(PID, Some(id), code + 3, &[0xc3], 1, &[]);
    builder.block(PID, None, 0x10, &[0xeb, 0xfe], 1, &[]);
    let thread = builder.thread(PID, PID, 0, "x", code);
    for (index, blocks) in flow.iter().enumerate() {
        if index > 0 {
            let signal = Event::Signal {
                ts: 5_000,
                signo: 10,
                code: 0,
                interrupted_pc: 0,
                handler_pc: 0,
                handler_sp: 0,
            };
            builder.event(thread, &signal);
        }
        builder.run(thread, blocks);
    }
    builder.finish().expect("a whole trace")
}

#[test]
fn places_agree_between_runs() {
    let (a, b) = (trace(0x5000_0000, &[&[1]]), trace(0x7000_0000, &[&[1]]));
    let (a, b) = (&a.processes()[0], &b.processes()[0]);
    let (map_a, map_b) = (CodeMap::new(a), CodeMap::new(b));
    let place = map_a.place(a.blocks()[0].pc);
    assert_eq!(place, map_b.place(b.blocks()[0].pc));
    assert_eq!(place.to_string(), "libx.so+0x1000");
    assert_eq!(map_b.address(&place), Some(0x7000_1000));
    let nowhere = map_a.place(0x10);
    assert_eq!((nowhere.module.is_none(), nowhere.offset), (true, 0x10));
}

#[test]
fn blocks_decode_from_the_trace() {
    let trace = trace(0x5000_0000, &[&[1]]);
    let map = CodeMap::new(&trace.processes()[0]);
    let block = map.block(1).expect("block 1");
    let target = 0x5000_1000;
    assert_eq!(block.ending, Ending::Conditional { target });
    assert_eq!(block.branch_pc(), Some(0x5000_1001));
    assert_eq!(map.block(2).map(|b| b.ending), Some(Ending::Return));
    assert!(map.block(99).is_none());
}

#[test]
fn only_unexplained_steps_are_breaks() {
    let trace = trace(0x5000_0000, &[&[1, 1, 2, 3, 3, 1], &[2, 1]]);
    let process = &trace.processes()[0];
    let breaks = CodeMap::new(process).flow_breaks(&process.threads()[0], 10);
    let steps: Vec<(u32, u32)> = breaks.iter().map(|b: &FlowBreak| (b.from, b.to)).collect();
    // 2 -> 3 is a return, 3 -> 1 cannot be, and the signal hides 1 -> 2.
    assert_eq!(steps, [(3, 1)]);
}
