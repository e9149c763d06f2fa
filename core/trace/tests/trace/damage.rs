// SPDX-License-Identifier: MIT
//! Damaged, cut, foreign and newer files: an error or a reported gap, never a panic.

use bytemuck::Zeroable;
use flagfinder_trace::container::{checksum, Sealed, SectionHeader, SectionKind, CODEC_ZSTD};
use flagfinder_trace::protocol::{Record, FLOW_EVENT, META_BLOCK, META_PROCESS};
use flagfinder_trace::{
    check, DecodedFlow, Event, Flow, GapReason, Level, Rule, Slot, SlotKind, Trace, TraceBuilder,
};

fn healthy() -> Vec<u8> {
    let mut b = TraceBuilder::new(Level::Values).unwrap();
    b.section_bytes(4096);
    b.process(10, 1, "/bin/x");
    let slot = Slot {
        instruction: 0,
        kind: SlotKind::Load,
        size: 4,
        detail: 0,
    };
    let load = b.block(10, None, 0x1000, &[0x8b, 0x00], 1, &[slot]);
    let other = b.block(10, None, 0x1002, &[0x90], 1, &[]);
    let t = b.thread(10, 10, 0, "main", 0x1000);
    for i in 0..20_000u32 {
        // Values that do not compress away, so that flips hit something.
        b.run_with_values(t, load, &i.wrapping_mul(2_654_435_761).to_le_bytes());
        b.run(t, &[other]);
    }
    b.event(
        t,
        &Event::ThreadExit {
            ts: u64::MAX / 2,
            status: 0,
        },
    );
    b.into_bytes().unwrap()
}

/// Opens, walks, replays and checks; returns the number of blocks and of gaps.
fn exercise(bytes: Vec<u8>) -> Option<(usize, usize)> {
    let trace = Trace::from_bytes(bytes).map_err(|error| {
        assert_eq!(error.exit_code, 65);
        assert!(!error.found.is_empty() && !error.fix.is_empty() && !error.still_works.is_empty());
    });
    let trace = trace.ok()?;
    let (mut blocks, mut gaps) = (0, 0);
    for process in trace.processes() {
        for thread in process.threads() {
            for item in thread.flow() {
                match item.unwrap() {
                    Flow::Block { .. } => blocks += 1,
                    Flow::Gap { .. } => gaps += 1,
                    Flow::Event { .. } => {}
                }
            }
        }
    }
    check(&trace).unwrap();
    Some((blocks, gaps))
}

/// A section that is sound, but for what it says.
fn section(kind: SectionKind, raw: &[u8]) -> Vec<u8> {
    let packed = zstd::bulk::compress(raw, 1).unwrap();
    let mut header = SectionHeader::zeroed();
    header.kind = kind as u16;
    header.codec = CODEC_ZSTD;
    header.pid = 10;
    header.raw_bytes = raw.len() as u64;
    header.stored_bytes = packed.len() as u64;
    header.payload_checksum = checksum(&packed);
    header.seal();
    [bytemuck::bytes_of(&header), &packed].concat()
}

#[test]
fn small_sections_that_unpack_to_much_are_left_out() {
    let text = " ".repeat(15 << 20);
    for kind in [SectionKind::Maps, SectionKind::Meta] {
        let mut bytes = healthy();
        let more = section(kind, text.as_bytes());
        assert!(more.len() < 4096);
        for _ in 0..50 {
            bytes.extend(&more);
        }
        let most = (16 << 20) + 64 * bytes.len();
        let trace = Trace::from_bytes(bytes).unwrap();
        let maps = trace.processes().iter().flat_map(|process| process.maps());
        assert!(maps.map(|maps| maps.text.len()).sum::<usize>() <= most);
        let told = |fault: &String| fault.contains("far more than the file holds");
        assert_eq!(trace.faults().iter().filter(|fault| told(fault)).count(), 1);
        assert!(!trace.is_complete());
    }
}

/// What would be read of it takes a hundred times its room.
#[test]
fn small_sections_of_json_that_hold_much_are_left_out() {
    let list = |name: &str, item: &str| {
        let items = vec![item; (4 << 20) / (item.len() + 1)].join(",");
        format!("{{\"{name}\":[{items}]}}")
    };
    for (kind, text) in [
        (SectionKind::Info, list("command", "\"\"")),
        (SectionKind::Note, list("more", "{}")),
        (SectionKind::End, list("processes", "{}")),
        (
            SectionKind::Names,
            format!("{{\"1\":\"{}\"}}", "a".repeat(4 << 20)),
        ),
    ] {
        let more = section(kind, text.as_bytes());
        assert!(more.len() < 4096);
        let trace = Trace::from_bytes([healthy(), more].concat()).unwrap();
        let told = format!("a {kind:?} section that unpacks to far more than it holds is left out");
        assert_eq!(trace.faults(), [told]);
        assert!(trace.info().command.len() < 10);
        assert!(trace.end().is_some_and(|end| end.processes.len() < 10));
    }
    // Many that are alike, as of a recording of thousands of children.
    let child = r#"{"pid":4711,"status":0,"signal":null,"running":false}"#;
    let children = format!("{{\"processes\":[{}]}}", vec![child; 4000].join(","));
    let bytes = [healthy(), section(SectionKind::End, children.as_bytes())].concat();
    let trace = Trace::from_bytes(bytes).unwrap();
    assert!(trace.end().is_some_and(|end| end.processes.len() == 4000));
}

#[test]
fn a_section_of_nothing_but_faults_is_told_in_few_words() {
    let empty = |kind| {
        let record = Record {
            magic: FLOW_EVENT,
            kind,
            bytes: 0,
        };
        bytemuck::bytes_of(&record).to_vec()
    };
    let raw = [empty(META_BLOCK), empty(META_PROCESS)]
        .concat()
        .repeat(100_000);
    let bytes = [healthy(), section(SectionKind::Meta, &raw)].concat();
    assert_eq!(Trace::from_bytes(bytes).unwrap().faults().len(), 1000);
}

#[test]
fn a_healthy_trace_breaks_no_rule() {
    let trace = Trace::from_bytes(healthy()).unwrap();
    assert_eq!(check(&trace).unwrap(), []);
    assert_eq!(exercise(healthy()), Some((40_000, 0)));
}

#[test]
fn a_killed_thread_may_lack_its_last_values() {
    let mut b = TraceBuilder::new(Level::Values).unwrap();
    b.process(10, 1, "/bin/x");
    let slot = Slot {
        instruction: 0,
        kind: SlotKind::Load,
        size: 4,
        detail: 0,
    };
    let load = b.block(10, None, 0x1000, &[0x8b, 0x00], 1, &[slot]);
    let t = b.thread(10, 10, 0, "main", 0x1000);
    b.run_with_values(t, load, &[1, 2, 3, 4]);
    b.run(t, &[load]);
    b.killed(t);
    let trace = b.finish().unwrap();
    let thread = &trace.processes()[0].threads()[0];
    assert!(thread.ended_open());
    assert_eq!(check(&trace).unwrap(), []);
    let mut replay = thread.replay(&thread.value_spans()[0]);
    let mut seen = Vec::new();
    while let Some(item) = replay.next() {
        if let flagfinder_trace::ReplayItem::Block(block) = item.unwrap() {
            seen.push((block.values.map(<[u8]>::to_vec), block.partial));
        }
    }
    assert_eq!(seen, [(Some(vec![1, 2, 3, 4]), false), (None, true)]);
}

#[test]
fn a_trace_cut_anywhere_is_read_up_to_the_cut() {
    let bytes = healthy();
    let mut most = 0;
    for size in (0..bytes.len()).step_by(997) {
        if let Some((blocks, gaps)) = exercise(bytes[..size].to_vec()) {
            assert!(
                blocks >= most || gaps > 0,
                "{size}: {blocks} blocks after {most}"
            );
            most = most.max(blocks);
        } else {
            assert!(size < 1000, "{size} bytes hold a section");
        }
    }
    assert!(most > 30_000);
}

#[test]
fn flipped_bits_cost_at_most_what_they_hit() {
    let bytes = healthy();
    let mut noticed = 0;
    for at in (64..bytes.len()).step_by(1009) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        let trace = Trace::from_bytes(flipped.clone()).unwrap();
        noticed += usize::from(!check(&trace).unwrap().is_empty());
        let (blocks, gaps) = exercise(flipped).unwrap();
        assert!(blocks > 33_000, "offset {at}: {blocks} blocks");
        assert!(blocks == 40_000 || gaps > 0, "offset {at}: a silent loss");
    }
    let tried = (64..bytes.len()).step_by(1009).count();
    assert_eq!(noticed, tried, "every flip is noticed by the checker");
}

/// Where the headers of FLOW sections stand.
fn flow_headers(bytes: &[u8]) -> Vec<usize> {
    (64..bytes.len() - 96)
        .filter(|&at| bytes[at..at + 4] == *b"FFSC" && bytes[at + 4] == 3)
        .collect()
}

/// Sections of nothing but the same rounds are alike in the file: all but the damaged one are read.
#[test]
fn a_damaged_section_of_rounds_is_not_taken_for_those_before_it() {
    let mut b = TraceBuilder::new(Level::Flow).unwrap();
    b.section_bytes(4096);
    b.process(10, 1, "/bin/x");
    let spin = b.block(10, None, 0x1000, &[0xeb, 0xfe], 1, &[]);
    let t = b.thread(10, 10, 0, "main", 0x1000);
    b.run(t, &[spin; 20_000]);
    let mut bytes = b.into_bytes().unwrap();
    let sixth = flow_headers(&bytes)[5];
    bytes[sixth + 97] ^= 0xff;
    let trace = Trace::from_bytes(bytes).unwrap();
    let thread = &trace.processes()[0].threads()[0];
    let (mut decoder, mut flow) = (thread.flow_decoder(), DecodedFlow::default());
    let damaged: Vec<usize> = (0..thread.flow_section_count())
        .filter(|&index| {
            decoder.decode_folded(index, &mut flow).unwrap();
            let is_damaged = flow.gap == Some(GapReason::Damaged);
            assert_eq!(is_damaged, flow.block_count() == 0);
            is_damaged
        })
        .collect();
    assert_eq!(damaged, [5]);
}

#[test]
fn a_damaged_section_is_a_gap_and_the_rest_is_read() {
    let mut bytes = healthy();
    let trace = Trace::from_bytes(bytes.clone()).unwrap();
    let extents: Vec<_> = trace.processes()[0].threads()[0]
        .flow_section_extents()
        .collect();
    assert!(extents.len() > 5);
    // Damages its payload.
    let third = flow_headers(&bytes)[2];
    bytes[third + 100] ^= 0xff;
    let trace = Trace::from_bytes(bytes).unwrap();
    let thread = &trace.processes()[0].threads()[0];
    let gaps: Vec<Flow> = thread
        .flow()
        .map(Result::unwrap)
        .filter(|item| matches!(item, Flow::Gap { .. }))
        .collect();
    let end = extents[2].0 + extents[2].1;
    assert_eq!(
        gaps,
        [Flow::Gap {
            reason: GapReason::Damaged,
            pos: end
        }]
    );
    let rules: Vec<Rule> = check(&trace).unwrap().iter().map(|v| v.rule).collect();
    assert_eq!(rules, [Rule::Intact]);
}

#[test]
fn empty_foreign_newer_and_random_files_are_refused() {
    let found = |bytes: &[u8]| Trace::from_bytes(bytes.to_vec()).unwrap_err().found;
    assert!(found(b"").contains("empty"));
    assert!(found(b"\x7fELF and so on").contains("ELF"));
    assert!(found(b"FFTRACE\n").contains("cut"));
    let mut newer = healthy();
    newer[12] = 9;
    assert!(found(&newer).contains("version"));
    assert!(found(&healthy()[..64]).contains("without one whole section"));
}

#[test]
fn broken_rules_are_found() {
    let rules = |build: &dyn Fn(&mut TraceBuilder)| {
        let mut b = TraceBuilder::new(Level::Values).unwrap();
        b.process(10, 1, "/bin/x");
        build(&mut b);
        let trace = b.finish().unwrap();
        check(&trace)
            .unwrap()
            .iter()
            .map(|v| v.rule)
            .collect::<Vec<_>>()
    };
    let slot = Slot {
        instruction: 0,
        kind: SlotKind::Load,
        size: 4,
        detail: 0,
    };
    let unknown = rules(&|b| {
        let t = b.thread(10, 10, 0, "main", 0);
        b.run(t, &[77]);
    });
    assert_eq!(unknown, [Rule::BlockKnown]);
    let unpaired = rules(&|b| {
        let block = b.block(10, None, 0x1000, &[0x90], 1, &[]);
        let t = b.thread(10, 10, 0, "main", 0);
        let enter = Event::enter(9_000, 7, [0; 6]);
        b.event(t, &enter);
        b.run(t, &[block]);
    });
    assert_eq!(unpaired, [Rule::SyscallPaired]);
    let backwards = rules(&|b| {
        let t = b.thread(10, 10, 0, "main", 0);
        b.event(t, &Event::ThreadExit { ts: 1, status: 0 });
    });
    assert_eq!(backwards, [Rule::TimeMonotone]);
    let misfit = rules(&|b| {
        let block = b.block(10, None, 0x1000, &[0x8b, 0], 1, &[slot]);
        let t = b.thread(10, 10, 0, "main", 0);
        b.run_with_values(t, block, &[1, 2, 3, 4]);
        b.run_with_values(t, block, &[1, 2]);
    });
    assert_eq!(misfit, [Rule::ValuesFit]);
    let uncounted = rules(&|b| {
        let block = b.block(10, None, 0x1000, &[0x8b, 0], 1, &[slot]);
        let t = b.thread(10, 10, 0, "main", 0);
        b.run_with_values(t, block, &[1, 2, 3, 4]);
        b.lose_values(t, 3);
        b.run_with_values(t, block, &[1, 2, 3, 4]);
    });
    assert_eq!(uncounted, [Rule::LossCounted]);
    let fault = rules(&|b| {
        let block = b.block(10, None, 0x1000, &[0x90], 1, &[]);
        let t = b.thread(10, 10, 0, "main", 0);
        b.run(t, &[block]);
        b.event(
            t,
            &Event::Fault {
                ts: 5_000,
                pc: 0x9999,
            },
        );
    });
    assert_eq!(fault, [Rule::FaultInBlock]);
}
