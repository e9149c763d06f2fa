// SPDX-License-Identifier: MIT
//! A synthetic trace through the encoder and back through every cursor.

use flagfinder_trace::{
    DecodedFlow, Event, Flow, Level, Module, Registers, ReplayItem, Slot, SlotKind, TraceBuilder,
};

const LOAD8: Slot = Slot {
    instruction: 0,
    kind: SlotKind::Load,
    size: 8,
    detail: 0,
};

fn sample() -> (Vec<u8>, Vec<(u32, Option<u64>)>) {
    let mut b = TraceBuilder::new(Level::Values).unwrap();
    b.section_bytes(512);
    b.process(100, 1, "/bin/sample");
    let module = b.module(
        100,
        Module {
            path: "/bin/sample".into(),
            base: 0x1000,
            start: 0x1000,
            end: 0x9000,
            build_id: vec![7; 20],
            ..Module::default()
        },
    );
    let load = b.block(100, Some(module), 0x1000, &[0x48, 0x8b, 0x00], 1, &[LOAD8]);
    let plain = b.block(100, Some(module), 0x1003, &[0x90], 1, &[]);
    let long = b.block_with_id(100, 0x12_0000, None, 0x2000, &[0x90], 1, &[]);
    let t = b.thread(100, 100, 0, "main", 0x1000);
    let mut expected = Vec::new();
    for i in 0..1000u64 {
        if i == 500 {
            b.checkpoint(
                t,
                Registers {
                    valid: 1,
                    values: [i; 18],
                },
            );
        }
        b.run_with_values(t, load, &i.to_le_bytes());
        expected.push((load, Some(i)));
        b.run(t, &[plain, long]);
        expected.push((plain, None));
        expected.push((long, None));
        if i % 100 == 7 {
            b.event(t, &Event::ThreadName(format!("n{i}")));
        }
    }
    (b.into_bytes().unwrap(), expected)
}

#[test]
fn flow_and_bulk_decoding_agree() {
    let (bytes, expected) = sample();
    let trace = flagfinder_trace::Trace::from_bytes(bytes).unwrap();
    assert!(trace.is_complete());
    let process = &trace.processes()[0];
    let thread = &process.threads()[0];
    assert_eq!(
        (thread.name.as_str(), thread.start.unwrap().start_pc),
        ("main", 0x1000)
    );
    let mut events = 0;
    let mut walked = Vec::new();
    for item in thread.flow() {
        match item.unwrap() {
            Flow::Block { id, .. } => walked.push(id),
            Flow::Event { .. } => events += 1,
            Flow::Gap { .. } => panic!("no gap was written"),
        }
    }
    assert_eq!(walked, expected.iter().map(|e| e.0).collect::<Vec<_>>());
    assert_eq!(events, 11);
    let (mut bulk, mut section, mut decoder) =
        (Vec::new(), DecodedFlow::default(), thread.flow_decoder());
    for index in 0..thread.flow_section_count() {
        decoder.decode(index, &mut section).unwrap();
        assert_eq!(section.gap, None);
        bulk.extend_from_slice(&section.blocks);
    }
    assert!(thread.flow_section_count() > 10);
    assert_eq!(bulk, walked);
    assert_eq!(process.module_at(0x1003).unwrap().path, "/bin/sample");
}

/// Folded or not, a section holds the same blocks; rounds of short and long ids, of one block, cut
/// anywhere, and flow that almost repeats.
#[test]
fn folded_sections_hold_the_same_blocks() {
    let rounds: [&[u32]; 4] = [&[3], &[1, 2, 0x12_0000], &[0x12_0000, 2], &[4; 600]];
    for round in rounds {
        for odd_one in [None, Some(1_500), Some(3_999)] {
            let mut b = TraceBuilder::new(Level::Flow).unwrap();
            b.section_bytes(1024);
            b.process(100, 1, "/bin/spin");
            for id in [1, 2, 3, 4, 5, 0x12_0000] {
                let at = 0x1000 + u64::from(id) * 16;
                b.block_with_id(100, id, None, at, &[0x90], 1, &[]);
            }
            let t = b.thread(100, 100, 0, "main", 0x1000);
            let mut written: Vec<u32> = round.iter().copied().cycle().take(4_000).collect();
            if let Some(index) = odd_one {
                written[index] = 5;
            }
            b.run(t, &written);
            let trace = flagfinder_trace::Trace::from_bytes(b.into_bytes().unwrap()).unwrap();
            let thread = &trace.processes()[0].threads()[0];
            let (mut folded, mut spelled) = (DecodedFlow::default(), DecodedFlow::default());
            let (mut decoder, mut read, mut cycles) = (thread.flow_decoder(), Vec::new(), 0);
            for index in 0..thread.flow_section_count() {
                decoder.decode(index, &mut spelled).unwrap();
                decoder.decode_folded(index, &mut folded).unwrap();
                assert_eq!(folded.block_count(), spelled.blocks.len() as u64);
                assert_eq!(folded.events.len(), spelled.events.len());
                cycles += usize::from(folded.cycled.is_some());
                let blocks = folded.blocks.iter().copied().cycle();
                read.extend(blocks.take(folded.block_count() as usize));
            }
            assert_eq!(read, written);
            assert!(cycles > 0, "{} blocks a round", round.len());
        }
    }
}

#[test]
fn replay_gives_every_block_its_values() {
    let (bytes, expected) = sample();
    let trace = flagfinder_trace::Trace::from_bytes(bytes).unwrap();
    let thread = &trace.processes()[0].threads()[0];
    let spans = thread.value_spans();
    assert_eq!(spans.len(), 1);
    let mut replay = thread.replay(&spans[0]);
    let (mut seen, mut checkpoints) = (Vec::new(), Vec::new());
    while let Some(item) = replay.next() {
        if let ReplayItem::Block(block) = item.unwrap() {
            let values = block.values.expect("values everywhere");
            seen.push((block.id, values.try_into().ok().map(u64::from_le_bytes)));
            let known = block.checkpoint.filter(|r| r.valid & 1 == 1);
            checkpoints.extend(known.map(|r| r.values[0]));
            assert!(!block.partial);
        }
    }
    assert_eq!(replay.mismatches(), 0);
    assert_eq!(seen, expected);
    assert_eq!(checkpoints, [500]);
}

/// A loop that loads nothing has no VALUES sections for many chunks of flow; chunks begin with
/// blocks or events.
#[test]
fn stretches_without_slots_are_pieces_of_their_own() {
    let mut b = TraceBuilder::new(Level::Values).unwrap();
    b.section_bytes(512);
    b.process(100, 1, "/bin/compute");
    let load = b.block(100, None, 0x1000, &[0x48, 0x8b, 0x00], 1, &[LOAD8]);
    let plain = b.block(100, None, 0x1003, &[0x90], 1, &[]);
    let t = b.thread(100, 100, 0, "main", 0x1000);
    let registers = |number| Registers {
        valid: 1,
        values: [number; 18],
    };
    b.checkpoint(t, registers(1));
    b.run_with_values(t, load, &7u64.to_le_bytes());
    for round in 0..3_000u32 {
        b.run(t, &[plain]);
        if round % 7 == 0 {
            b.event(t, &Event::ThreadName("computes".into()));
        }
    }
    b.checkpoint(t, registers(2));
    b.run_with_values(t, load, &8u64.to_le_bytes());
    b.run(t, &[plain, plain]);
    let trace = flagfinder_trace::Trace::from_bytes(b.into_bytes().unwrap()).unwrap();
    let thread = &trace.processes()[0].threads()[0];
    let spans = thread.value_spans();
    assert_eq!(spans.len(), 1);
    let pieces = thread.value_pieces(&spans[0]);
    assert!(pieces.len() > 10, "{} pieces", pieces.len());
    assert!(pieces[1..pieces.len() - 1]
        .iter()
        .all(|piece| piece.sections == 0));

    let walk = |span| {
        let mut replay = thread.replay(&span);
        let (mut blocks, mut values) = (Vec::new(), Vec::new());
        while let Some(item) = replay.next() {
            if let ReplayItem::Block(block) = item.unwrap() {
                blocks.push(block.id);
                let bytes = block.values.expect("known, if nothing");
                values.extend(bytes.first().copied());
            }
        }
        (blocks, values, replay.successor())
    };
    let whole = walk(spans[0]);
    assert_eq!((whole.0.len(), &whole.1[..]), (3_004, &[7, 8][..]));
    let (mut blocks, mut values) = (Vec::new(), Vec::new());
    for (index, piece) in pieces.iter().enumerate() {
        let part = walk(*piece);
        blocks.extend(part.0);
        values.extend(part.1);
        assert_eq!(
            part.2.is_some(),
            index + 1 < pieces.len(),
            "what comes next is known"
        );
    }
    assert_eq!((blocks, values), (whole.0, whole.1));
    // The end of it begins where nothing is known, rather than with the first checkpoint.
    let tail = thread.value_tail(u64::MAX, 1_000).unwrap();
    assert!(tail.start_pos > spans[0].start_pos && tail.bytes == 8);
    let head = thread.value_head(&spans[0], 8, u64::MAX).unwrap();
    assert!(head.bytes == 8 && head.end_pos == pieces.last().unwrap().start_pos);
}
