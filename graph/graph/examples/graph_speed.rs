// SPDX-License-Identifier: MIT
//! How fast events are loaded, made into a graph and asked: `graph_speed MILLIONS FILE`
//! (bench/events_speed.py runs it).
//!
//! The recording is made up: on each of two CPUs a hundred threads wake each other in turn, in no
//! order, and wait in `read`. Every eighth wake comes from a timer. Prints `NAME VALUE` lines:
//! seconds, or events a second.

use std::path::Path;
use std::time::Instant;

use flagfinder_events::{Call, Event, EventFile, EventWriter, Info, Kind, ThreadFact};
use flagfinder_graph::{build, critical_path, diagnose, Graph, PathRequest, Request};

const CPUS: u16 = 2;
const THREADS: u64 = 100;
const BATCH: usize = 32_000;
const TASK: u8 = 1;
const TIMER: u8 = 4;
const SLEEPS: u8 = 1;
const READ: u16 = 0;
const WRITE: u16 = 1;

struct Cpu {
    number: u16,
    ts: u64,
    random: u64,
    running: u32,
}

impl Cpu {
    fn draw(&mut self) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        self.random >> 33
    }

    fn event(&mut self, kind: Kind, flags: u8, b: u32, word: u64) -> Event {
        self.ts += 200 + self.draw() % 4000;
        Event {
            ts: self.ts,
            a: self.running,
            b,
            cpu: self.number,
            kind,
            flags,
            stack: 0,
            words: [word, 0, 0],
        }
    }

    /// The running thread wakes another, or a timer does, and waits.
    fn turn(&mut self) -> [Event; 2] {
        let first = u64::from(self.number) * THREADS + 1;
        let others = self.draw() % (THREADS - 1);
        let place = (u64::from(self.running) - first + 1 + others) % THREADS;
        let next = (first + place) as u32;
        let context = if self.draw() % 8 == 0 { TIMER } else { TASK };
        let waking = self.event(Kind::Waking, context, next, u64::from(WRITE) + 1);
        let call = Call {
            number: READ,
            first: 3,
        };
        let switch = self.event(Kind::Switch, SLEEPS, next, call.pack());
        self.running = next;
        [waking, switch]
    }
}

fn write(path: &Path, events: usize) -> flagfinder_events::Result<()> {
    let info = Info {
        everything: true,
        ..Info::default()
    };
    let mut writer = EventWriter::create(path, &info)?;
    let threads = 1..=u64::from(CPUS) * THREADS;
    let facts: Vec<ThreadFact> = threads
        .map(|tid| ThreadFact {
            tid: tid as u32,
            pid: tid as u32,
            name: format!("thread-{tid}"),
            ..ThreadFact::default()
        })
        .collect();
    writer.fact(flagfinder_events::container::BlockKind::Threads, &facts)?;
    let mut cpus: Vec<Cpu> = (0..CPUS)
        .map(|number| Cpu {
            number,
            ts: 1_000_000,
            random: u64::from(number) + 1,
            running: u32::from(number) * THREADS as u32 + 1,
        })
        .collect();
    for _ in 0..events.div_ceil(BATCH * usize::from(CPUS)) {
        for cpu in &mut cpus {
            let batch: Vec<Event> = (0..BATCH / 2).flat_map(|_| cpu.turn()).collect();
            writer.events(cpu.number, &batch)?;
        }
    }
    writer.finish()?;
    Ok(())
}

/// Seconds that this process was on CPUs, its threads that have ended included, to 10 ms.
fn on_cpus() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let fields = after_name.split_whitespace().skip(11).take(2);
    fields
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum::<f64>()
        / 100.0
}

/// The same of this thread alone, to the nanosecond.
fn on_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = stat.split_whitespace().next();
    first.and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

fn timed<T>(name: &str, work: impl FnOnce() -> T) -> (T, f64) {
    let (before, own) = (on_cpus(), on_cpu());
    let began = Instant::now();
    let done = work();
    let seconds = began.elapsed().as_secs_f64();
    println!("{name}_s {seconds:.3}");
    println!("{name}_cpu_s {:.2}", on_cpus() - before);
    println!("{name}_own_thread_cpu_s {:.3}", on_cpu() - own);
    (done, seconds)
}

fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

fn main() -> flagfinder_events::Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let [_, millions, path] = &words[..] else {
        panic!("graph_speed MILLIONS FILE");
    };
    let events = (millions.parse::<f64>().expect("millions of events") * 1e6) as usize;
    let path = Path::new(path);
    write(path, events)?;
    let file = EventFile::open(path)?;
    let count = file.event_count();
    println!("events {count}");
    println!(
        "bytes_per_event {:.2}",
        file.disk_bytes() as f64 / count as f64
    );
    let mut seen = 0u64;
    let (_, load) = timed("load", || {
        file.events(|event| seen += u64::from(event.b != 0))
    });
    println!("load_per_s {:.0}", count as f64 / load);
    let (graph, built) = timed("build", || build(&file, &[]));
    println!("build_per_s {:.0}", count as f64 / built);
    println!("vertices {}", graph.vertices.len());
    let saved = path.with_extension("graph");
    timed("save", || graph.save(&saved)).0?;
    drop(graph);
    println!("peak_mib {}", peak_mib());
    let (graph, _) = timed("open", || Graph::open(&saved));
    let graph = graph?;
    let thread = graph.meta.threads[0].tid;
    let request = Request {
        thread: Some(thread),
        ..Request::default()
    };
    timed("diagnose", || diagnose(&graph, &request));
    let (from, to) = (
        graph.meta.last - (graph.meta.last - graph.meta.first) / 10,
        graph.meta.last,
    );
    let part = PathRequest {
        thread,
        host: None,
        from: Some(from),
        to: Some(to),
        most: None,
    };
    timed("critical_path", || critical_path(&graph, &part));
    let _ = std::fs::remove_file(saved);
    Ok(())
}
