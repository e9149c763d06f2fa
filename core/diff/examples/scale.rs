// SPDX-License-Identifier: MIT
//! How time and memory of a diff grow with the traces: `scale [MILLIONS..]` (default 10 30 100
//! 300).
//!
//! Writes a synthetic normal and spin trace of so many million blocks each to a temporary file, and
//! diffs them in a process of its own, so that the peak of resident memory is that of the diff
//! alone. The program is a random call graph of [`FUNCTIONS`] functions with loops and branches,
//! driven by random choices that differ between the two runs.

use flagfinder_diff::{diff, Options, PartingKind};
use flagfinder_trace::{Event, Level, Module, Trace, TraceBuilder};
use std::path::{Path, PathBuf};
use std::time::Instant;

const FUNCTIONS: usize = 3000;
const BASE: [u64; 2] = [0x5555_0000_0000, 0x7f12_3456_0000];
const PID: u32 = 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, normal, spin] = arguments.as_slice() {
        if flag == "--diff" {
            return measure(Path::new(normal), Path::new(spin));
        }
    }
    let sizes: Result<Vec<u64>, _> = arguments.iter().map(|text| text.parse()).collect();
    let sizes = sizes.map(|sizes| {
        if sizes.is_empty() {
            vec![10, 30, 100, 300]
        } else {
            sizes
        }
    })?;
    println!("million blocks each   seconds   peak MiB   file MiB");
    for millions in sizes {
        let paths: [PathBuf; 2] = ["normal", "spin"].map(|name| {
            std::env::temp_dir().join(format!("ff-scale-{}-{name}.trace", std::process::id()))
        });
        for (run, path) in paths.iter().enumerate() {
            write(path, run, millions * 1_000_000)?;
        }
        let bytes: u64 = paths
            .iter()
            .map(|path| std::fs::metadata(path).map_or(0, |facts| facts.len()))
            .sum();
        let output = std::process::Command::new(std::env::current_exe()?)
            .arg("--diff")
            .args(&paths)
            .output()?;
        for path in &paths {
            std::fs::remove_file(path)?;
        }
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        println!(
            "{millions:19}   {}   {:8}",
            String::from_utf8_lossy(&output.stdout).trim(),
            bytes >> 20
        );
    }
    Ok(())
}

fn measure(normal: &Path, spin: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let began = Instant::now();
    let (normal, spin) = (Trace::open(normal)?, Trace::open(spin)?);
    let found = diff(&[&normal], &spin, &Options::default(), &|_| {})?;
    let seconds = began.elapsed().as_secs_f64();
    let parting = found.partings.first().ok_or("no parting")?;
    if parting.kind != PartingKind::LoopExit
        || parting.branch.as_ref().map(|place| place.offset) != Some(WAIT + 2)
    {
        return Err(format!("wrong parting: {parting:?}").into());
    }
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: u64 = peak
        .and_then(|text| text.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0);
    println!("{seconds:7.1}   {:8}", kib >> 10);
    Ok(())
}

/// Offset of the wait loop: `test; je` and a jump back.
const WAIT: u64 = 0x40;
/// Offset of function 0; each has [`STEP`] bytes.
const FIRST: u64 = 0x1000;
const STEP: u64 = 0x40;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// Block ids: main 1..=4, wait 5..=7, then five for each function.
fn id(function: usize, block: u32) -> u32 {
    8 + function as u32 * 5 + block
}

fn callee(function: usize) -> usize {
    // Calls go to higher numbers only: depth is bounded, most functions are leaves' neighbours.
    let mut random = Random(function as u64 * 77 + 1);
    random.below(1 << 20);
    function + 1 + random.below((FUNCTIONS - function) as u64) as usize
}

fn relative(opcode: &[u8], at: u64, target: u64) -> Vec<u8> {
    let mut code = opcode.to_vec();
    let end = at + code.len() as u64 + 4;
    code.extend_from_slice(&(target.wrapping_sub(end) as u32).to_le_bytes());
    code
}

/// Blocks as (offset, code, instructions), in order of their ids.
fn blocks() -> Vec<(u64, Vec<u8>, u16)> {
    let test =
        |target: u64, at: u64| [vec![0x85, 0xc0], relative(&[0x0f, 0x84], at + 2, target)].concat();
    let mut list = vec![
        (0x0, vec![0xff, 0xd0], 1),             // 1 main: call *rax
        (0x2, relative(&[0xe8], 0x2, WAIT), 1), // 2 call wait
        (0x7, test(0x0, 0x7), 2),               // 3 again?
        (0xf, vec![0xc3], 1),                   // 4 ret
        (WAIT, test(WAIT + 0x10, WAIT), 2),     // 5 flag?
        (WAIT + 8, vec![0xeb, 0xf6], 1),        // 6 jmp wait
        (WAIT + 0x10, vec![0xc3], 1),           // 7 ret
    ];
    for function in 0..FUNCTIONS {
        let at = FIRST + function as u64 * STEP;
        let next = callee(function);
        if next < FUNCTIONS {
            list.push((at, relative(&[0xe8], at, FIRST + next as u64 * STEP), 1));
        } else {
            list.push((at, vec![0xe9, 0, 0, 0, 0], 1));
        }
        list.push((at + 5, test(at, at + 5), 2)); // loop
        list.push((at + 13, test(at + 26, at + 13), 2)); // skip
        list.push((at + 21, vec![0xe9, 0, 0, 0, 0], 1));
        list.push((at + 26, vec![0xc3], 1));
    }
    list
}

fn write(path: &Path, run: usize, total: u64) -> Result<(), Box<dyn std::error::Error>> {
    let mut builder = TraceBuilder::new(Level::Flow)?;
    builder.process(PID, 1, "/usr/bin/synthetic");
    let base = BASE[run];
    let end = base + FIRST + FUNCTIONS as u64 * STEP;
    let module = Module {
        path: "/usr/bin/synthetic".into(),
        base,
        start: base,
        end,
        ..Module::default()
    };
    let module = builder.module(PID, module);
    for (offset, code, instructions) in blocks() {
        builder.block(PID, Some(module), base + offset, &code, instructions, &[]);
    }
    let thread = builder.thread(PID, PID, 0, "main", base);
    let mut random = Random(0x1234_5678_9abc + run as u64);
    let mut flow: Vec<u32> = Vec::new();
    let mut written = 0u64;
    let busy = if run == 0 { total } else { total / 10 * 7 };
    while written < busy {
        flow.push(1);
        call(
            &mut flow,
            random.below(FUNCTIONS as u64) as usize,
            &mut random,
        );
        flow.push(2);
        for _ in 0..random.below(4) {
            flow.extend([5, 6]);
        }
        flow.extend([5, 7, 3]);
        if flow.len() > 1 << 16 {
            written += flow.len() as u64;
            builder.run(thread, &flow);
            flow.clear();
        }
    }
    if run == 0 {
        flow.push(4);
        builder.run(thread, &flow);
        builder.event(thread, &Event::ThreadExit { ts: 2, status: 0 });
    } else {
        flow.extend([1]);
        call(&mut flow, 17, &mut random);
        flow.push(2);
        builder.run(thread, &flow);
        let laps = [5, 6].repeat(1 << 15);
        while written < total {
            builder.run(thread, &laps);
            written += laps.len() as u64;
        }
        builder.killed(thread);
    }
    std::fs::write(path, builder.into_bytes()?)?;
    Ok(())
}

fn call(flow: &mut Vec<u32>, function: usize, random: &mut Random) {
    let next = callee(function);
    loop {
        flow.push(id(function, 0));
        if next < FUNCTIONS {
            call(flow, next, random);
        }
        flow.push(id(function, 1));
        if random.below(4) != 0 {
            break;
        }
    }
    flow.push(id(function, 2));
    if random.below(2) == 0 {
        flow.push(id(function, 3));
    }
    flow.push(id(function, 4));
}
