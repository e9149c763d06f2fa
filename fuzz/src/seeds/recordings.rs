// SPDX-License-Identifier: MIT
//! Recordings of who ran and who woke whom: Perfetto traces, what they become when they are
//! imported, the graphs of
//! that, and perf.data files as `perf record` and the tests' own writer write them.

use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};

use flagfinder_events::{import, EventFile};
use flagfinder_graph::build;
use flagfinder_perfetto::ftrace::{
    Bundle, CompactSched, FtraceEvent, NewTask, Packet, Process, ProcessTree, Switch, SysEnter,
    SysExit, SystemInfo, Thread, Utsname, Waking, What, PACKET_KEY,
};
use prost::Message;

/// That a target reads of an input.
const LONGEST: u64 = 64 << 10;
/// The kernel's tracepoints are in tracefs, which not every machine has mounted.
const RECORD: &str = "mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs \
                      /sys/kernel/tracing;
    exec perf record -q -B -N --synth=no -a -e sched:sched_switch -e sched:sched_waking -o \"$0\" \
    sleep 0.002";
const WRITE: &str = "
import pathlib, sys
from perf_writer import PerfData
perf = PerfData()
perf.comm(0, 0, 100, 'waiter')
perf.sample('sys_enter', 1000, 0, 100, id=0, args=3)
perf.sample('sched_switch', 1100, 0, 100, prev_pid=100, prev_state=1, next_pid=0)
perf.sample('sched_waking', 2100, 1, 200, pid=100, prio=120)
perf.sample('sched_switch', 2300, 0, 0, prev_pid=0, next_pid=100)
perf.sample('sys_exit', 2400, 0, 100, id=0, ret=8)
perf.fork(5000, 0, 100, 101)
perf.comm(5100, 1, 101, 'child', is_exec=True)
perf.lost(6000, 1, 7)
perf.write(pathlib.Path(sys.argv[1]))
";

fn event(timestamp: u64, pid: u32, what: What) -> FtraceEvent {
    FtraceEvent {
        timestamp,
        pid,
        common_flags: None,
        what: Some(what),
    }
}

fn switch(ts: u64, from: i32, to: i32, state: i64) -> FtraceEvent {
    let what = Switch {
        prev_comm: b"before".to_vec(),
        prev_pid: from,
        prev_state: state,
        next_comm: b"after".to_vec(),
        next_pid: to,
    };
    event(ts, from as u32, What::Switch(what))
}

fn waking(ts: u64, by: u32, pid: i32) -> FtraceEvent {
    let what = Waking {
        comm: b"waiter".to_vec(),
        pid,
        prio: 120,
        target_cpu: 0,
    };
    event(ts, by, What::Waking(what))
}

/// A waiter reads what a waker writes, again and again, and starts a thread.
fn whole() -> Bundle {
    let mut events = Vec::new();
    for round in 0..8u64 {
        let ts = 1000 * (round + 1);
        let args = vec![3, 0, 8];
        events.push(event(ts, 100, What::SysEnter(SysEnter { id: 0, args })));
        events.push(switch(ts + 100, 100, 200, 1));
        events.push(waking(ts + 200, 200, 100));
        events.push(switch(ts + 300, 200, 100, 0));
        events.push(event(
            ts + 400,
            100,
            What::SysExit(SysExit { id: 0, ret: 8 }),
        ));
    }
    let task = NewTask {
        pid: 101,
        comm: b"child".to_vec(),
        clone_flags: 0x10000,
    };
    events.push(event(9500, 100, What::NewTask(task)));
    Bundle {
        cpu: 0,
        event: events,
        lost_events: false,
        compact_sched: None,
    }
}

fn compact() -> Bundle {
    let sched = CompactSched {
        switch_timestamp: vec![1000, 100, 100, 100],
        switch_prev_state: vec![1, 0, 1, 0],
        switch_next_pid: vec![100, 200, 100, 0],
        intern_table: vec![b"waiter".to_vec(), b"waker".to_vec()],
        switch_next_comm_index: vec![0, 1, 0, 0],
        waking_timestamp: vec![1050, 100],
        waking_pid: vec![100, 200],
        waking_target_cpu: vec![0, 1],
        waking_prio: vec![120, 120],
        waking_comm_index: vec![0, 1],
        waking_common_flags: vec![0, 8],
    };
    Bundle {
        cpu: 1,
        event: Vec::new(),
        lost_events: true,
        compact_sched: Some(sched),
    }
}

fn trace(bundles: Vec<Bundle>) -> Vec<u8> {
    let mut packets = Vec::new();
    let mut packet = |fill: &dyn Fn(&mut Packet)| {
        let mut packet = Packet::default();
        fill(&mut packet);
        packets.push(PACKET_KEY);
        packets.extend(packet.encode_length_delimited_to_vec());
    };
    let machine = Utsname {
        release: "6.1".into(),
        machine: "x86_64".into(),
    };
    let tree = ProcessTree {
        processes: vec![Process {
            pid: 100,
            ppid: 1,
            cmdline: vec![b"/bin/waiter".to_vec()],
        }],
        threads: vec![Thread {
            tid: 101,
            name: b"helper".to_vec(),
            tgid: 100,
        }],
    };
    packet(&|p| {
        p.system_info = Some(SystemInfo {
            utsname: Some(machine.clone()),
        });
    });
    packet(&|p| p.process_tree = Some(tree.clone()));
    for bundle in bundles {
        packet(&|p| p.ftrace_events = Some(bundle.clone()));
    }
    packets
}

/// A perf.data file at `output`, or none.
fn record(output: &Path) -> std::io::Result<()> {
    let mut perf = Command::new("unshare");
    perf.args(["-m", "sh", "-c", RECORD]).arg(output);
    let ran = perf.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let small = std::fs::metadata(output).is_ok_and(|made| made.len() <= LONGEST);
    if !ran.is_ok_and(|status| status.success()) || !small {
        eprintln!("seeds: no perf.data of `perf record`: it failed, or the file is too large");
        let _ = std::fs::remove_file(output);
    }
    Ok(())
}

pub fn write(directory: &Path) -> Result<(), Box<dyn Error>> {
    let folder = |name: &str| directory.join(name);
    for name in ["perfetto", "events", "graph", "perf"] {
        std::fs::create_dir_all(folder(name))?;
    }
    for (name, bundles) in [
        ("whole", vec![whole()]),
        ("compact", vec![compact()]),
        ("both", vec![whole(), compact()]),
    ] {
        let [perfetto, events, graph] =
            ["perfetto", "events", "graph"].map(|f| folder(f).join(name));
        let mut bytes = trace(bundles);
        std::fs::write(&perfetto, &bytes)?;
        import(&perfetto, &events)?;
        build(&EventFile::open(&events)?, &[]).save(&graph)?;
        if bytes.len() % 2 == 0 {
            // Of odd length it is packed by the target; field 99 is passed over.
            bytes.extend([PACKET_KEY, 4, 0x9a, 0x06, 1, 0, 0]);
            bytes.pop();
        }
        std::fs::write(folder("perfetto").join(format!("packed-{name}")), &bytes)?;
    }
    let written = folder("perf").join("written");
    let writer = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests");
    let mut python = Command::new("python3");
    python.args(["-B", "-c", WRITE]).arg(&written);
    let ran = python.env("PYTHONPATH", writer).status()?;
    if !ran.success() {
        return Err("python3 did not write a perf.data file".into());
    }
    record(&folder("perf").join("recorded"))?;
    Ok(())
}
