// SPDX-License-Identifier: MIT
//! Small sound traces, and pairs of them.

use std::path::Path;

use flagfinder_trace::container::{
    checksum, Sealed, SectionHeader, CODEC_RAW, CODEC_ZSTD, SECTION_HEADER_BYTES,
};
use flagfinder_trace::{Event, Failure, Level, Module, Registers, Slot, SlotKind, TraceBuilder};

pub fn write(directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let [traces, pairs, same] = ["trace", "engine", "recorded"].map(|name| directory.join(name));
    for folder in [&traces, &pairs, &same] {
        std::fs::create_dir_all(folder)?;
    }
    for (name, rounds, killed) in [
        ("short", 3, false),
        ("sections", 400, false),
        ("killed", 40, true),
    ] {
        std::fs::write(traces.join(name), unpack(&seed(rounds, killed)?)?)?;
    }
    for (name, yields) in [("busy", false), ("yields", true)] {
        let mut pair = poll(3, yields, true)?;
        pair.extend(poll(if yields { 150 } else { 600 }, yields, false)?);
        let pair = unpack(&pair)?;
        std::fs::write(pairs.join(name), &pair)?;
        std::fs::write(same.join(name), pair)?;
    }
    Ok(())
}

/// The same with sections that are not compressed: a change of a byte is then a change of what it
/// says.
fn unpack(trace: &[u8]) -> std::io::Result<Vec<u8>> {
    let (mut rest, mut plain) = (trace, Vec::new());
    while let Some((&first, others)) = rest.split_first() {
        let Some(mut header) = SectionHeader::parse(rest) else {
            plain.push(first);
            rest = others;
            continue;
        };
        let end = SECTION_HEADER_BYTES + header.stored_bytes as usize;
        let mut payload = rest[SECTION_HEADER_BYTES..end].to_vec();
        rest = &rest[end..];
        if header.codec == CODEC_ZSTD {
            payload = zstd::bulk::decompress(&payload, header.raw_bytes as usize)?;
            header.codec = CODEC_RAW;
            header.stored_bytes = header.raw_bytes;
            header.payload_checksum = checksum(&payload);
            header.seal();
        }
        plain.extend_from_slice(bytemuck::bytes_of(&header));
        plain.extend_from_slice(&payload);
    }
    Ok(plain)
}

/// One thread polls a word that another writes, or does not.
fn poll(rounds: usize, yields: bool, done: bool) -> Result<Vec<u8>, Failure> {
    const FLAG: u64 = 0x5000;
    const POLL: u64 = 0x1000;
    let mut b = TraceBuilder::new(Level::Values)?;
    b.section_bytes(512);
    b.process(1, 0, "/bin/seed");
    let module = Module {
        path: "/bin/seed".into(),
        base: POLL,
        start: POLL,
        end: 0x2000,
        ..Module::default()
    };
    let module = Some(b.module(1, module));
    let load = [Slot {
        instruction: 0,
        kind: SlotKind::Load,
        size: 8,
        detail: 0,
    }];
    // mov rax, [rbx]; test rax, rax; jne +6
    let look = [0x48, 0x8b, 0x03, 0x48, 0x85, 0xc0, 0x75, 0x06];
    let look = b.block(1, module, POLL, &look, 3, &load);
    // mov al, 24; syscall, then: jmp POLL, or only the latter behind nops
    let call = b.block(1, module, POLL + 8, &[0xb0, 24, 0x0f, 0x05], 2, &[]);
    let again = b.block(1, module, POLL + 12, &[0xeb, 0xf2], 1, &[]);
    let pause = b.block(
        1,
        module,
        POLL + 8,
        &[0xf3, 0x90, 0x90, 0x90, 0xeb, 0xf2],
        4,
        &[],
    );
    let leave = b.block(1, module, POLL + 14, &[0x90, 0xc3], 2, &[]);
    // mov [rbx], rdx; ret
    let write = b.block(1, module, POLL + 32, &[0x48, 0x89, 0x13, 0xc3], 2, &[]);
    let registers = |rdx| Registers {
        valid: 0xffff,
        values: std::array::from_fn(|number| match number {
            2 => rdx,
            3 => FLAG,
            4 => 0x7000,
            _ => number as u64,
        }),
    };
    let reader = b.thread(1, 1, 0, "reader", POLL);
    let writer = b.thread(1, 2, 1, "writer", POLL + 32);
    for round in 0..rounds {
        if round % 100 == 0 {
            b.checkpoint(reader, registers(0));
        }
        b.run_with_values(reader, look, &0u64.to_le_bytes());
        if !yields {
            b.run(reader, &[pause]);
            continue;
        }
        let ts = 10_000 + 1000 * round as u64;
        b.run(reader, &[call]);
        let enter = Event::enter(ts, 24, [0; 6]);
        b.event(reader, &enter);
        let exit = Event::SyscallExit {
            ts: ts + 300,
            number: 24,
            result: 0,
        };
        b.event(reader, &exit);
        b.run(reader, &[again]);
    }
    if done {
        b.checkpoint(writer, registers(1));
        b.run(writer, &[write]);
        b.run_with_values(reader, look, &1u64.to_le_bytes());
        b.run(reader, &[leave]);
    } else {
        b.killed(reader);
    }
    b.into_bytes()
}

fn seed(rounds: u64, killed: bool) -> Result<Vec<u8>, Failure> {
    let mut b = TraceBuilder::new(Level::Values)?;
    b.section_bytes(512);
    for pid in [1, 2] {
        b.process(pid, 0, "/bin/seed");
        let module = Module {
            path: "/bin/seed".into(),
            base: 0x1000,
            start: 0x1000,
            end: 0x2000,
            ..Module::default()
        };
        let module = b.module(pid, module);
        let slots = [Slot {
            instruction: 0,
            kind: SlotKind::Load,
            size: 4,
            detail: 0,
        }];
        let load = b.block(pid, Some(module), 0x1000, &[0x8b, 0x00], 1, &slots);
        let long = b.block_with_id(pid, 0x1_0000, None, 0x3000, &[0x90], 1, &[]);
        let thread = b.thread(pid, pid, 0, "seed", 0x1000);
        b.maps(pid, "1000-2000 r-xp 00000000 00:00 0 /bin/seed\n");
        for i in 0..rounds {
            if i % 64 == 1 {
                b.checkpoint(
                    thread,
                    Registers {
                        valid: 0xffff,
                        values: [i; 18],
                    },
                );
            }
            b.run_with_values(thread, load, &(i as u32).to_le_bytes());
            b.run(thread, &[long]);
            let ts = 10_000 + i;
            let enter = Event::enter(ts, 24, [i; 6]);
            b.event(thread, &enter);
            b.event(
                thread,
                &Event::SyscallExit {
                    ts,
                    number: 24,
                    result: -11,
                },
            );
        }
        b.lose_values(thread, 2);
        b.run_with_values(thread, load, &[1, 2, 3, 4]);
        if killed {
            b.killed(thread);
        } else {
            b.event(
                thread,
                &Event::ThreadExit {
                    ts: 1 << 40,
                    status: 0,
                },
            );
        }
    }
    b.into_bytes()
}
