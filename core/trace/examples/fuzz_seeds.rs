//! Writes small sound traces into the directory given, as a start for `fuzz/`.

use std::path::PathBuf;

use flagfinder_trace::{
    Event, Level, Module, Registers, Slot, SlotKind, SyscallEnter, TraceBuilder, TraceError,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = PathBuf::from(
        std::env::args()
            .nth(1)
            .ok_or("usage: fuzz_seeds DIRECTORY")?,
    );
    std::fs::create_dir_all(&directory)?;
    for (name, rounds, killed) in [
        ("short", 3, false),
        ("sections", 400, false),
        ("killed", 40, true),
    ] {
        std::fs::write(directory.join(name), seed(rounds, killed)?)?;
    }
    Ok(())
}

fn seed(rounds: u64, killed: bool) -> Result<Vec<u8>, TraceError> {
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
            let enter = SyscallEnter {
                ts,
                number: 24,
                args: [i; 6],
                registers: None,
            };
            b.event(thread, &Event::SyscallEnter(Box::new(enter)));
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
