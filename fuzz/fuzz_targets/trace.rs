//! Opens arbitrary bytes as a trace and walks all of it: no panic, bounded memory.

#![no_main]

use flagfinder_trace::container::{SectionHeader, CODEC_RAW, FILE_MAGIC, SECTION_HEADER_BYTES};
use flagfinder_trace::{check, dump, DecodedFlow, DumpKind, DumpOptions, Trace};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    // Checksums would keep nearly every mutation out; repair them for most inputs.
    if data.len() % 8 != 0 {
        repair(&mut bytes);
    }
    let Ok(trace) = Trace::from_bytes(bytes) else {
        return;
    };
    let mut section = DecodedFlow::default();
    for process in trace.processes() {
        let _ = process.module_at(0x1000);
        for thread in process.threads() {
            let walked = thread.flow().count();
            let tail = thread.flow_tail(4096).count();
            assert!(tail <= walked + 1);
            let _ = (thread.value_tail(64), thread.values_from(100));
            let mut decoder = thread.flow_decoder();
            for index in 0..thread.flow_section_count() {
                decoder.decode(index, &mut section).unwrap();
            }
        }
    }
    check(&trace).unwrap();
    for kind in [
        DumpKind::Flow,
        DumpKind::Values,
        DumpKind::Blocks,
        DumpKind::Modules,
    ] {
        let options = DumpOptions {
            kind,
            pid: None,
            tid: None,
            from: 0,
            limit: 200,
        };
        dump(&trace, &options, &mut std::io::sink()).unwrap();
    }
});

/// Makes the file header and every section header found by walking valid again.
fn repair(bytes: &mut [u8]) {
    if bytes.len() < 64 + SECTION_HEADER_BYTES {
        return;
    }
    bytes[..8].copy_from_slice(&FILE_MAGIC);
    bytes[12..16].copy_from_slice(&1u32.to_le_bytes());
    let mut at = 64;
    while at + SECTION_HEADER_BYTES <= bytes.len() {
        let Some(mut header) = flagfinder_trace::protocol::read::<SectionHeader>(&bytes[at..])
        else {
            return;
        };
        let payload = at + SECTION_HEADER_BYTES;
        header.stored_bytes = header.stored_bytes.min((bytes.len() - payload) as u64);
        header.raw_bytes = header.raw_bytes.min(1 << 20);
        header.kind = header.kind % 9;
        // Few distinct owners, so that streams meet.
        header.pid %= 3;
        header.tid %= 4;
        header.seq %= 16;
        let end = payload + header.stored_bytes as usize;
        if header.codec == CODEC_RAW {
            header.raw_bytes = header.stored_bytes;
        }
        header.payload_checksum = flagfinder_trace::container::checksum(&bytes[payload..end]);
        header.seal();
        bytes[at..payload].copy_from_slice(header.as_bytes());
        at = end;
    }
}
