// SPDX-License-Identifier: MIT
//! What the kernel told a trace: the part of Perfetto's messages that ftrace and /proc fill, read
//! packet by packet.
//!
//! Field numbers are those of perfetto's protos/perfetto/trace; fields that are not here are passed
//! over. Names are bytes, as the kernel does not care what they are.

use std::io::Read;

use flate2::read::ZlibDecoder;
use prost::{Message, Oneof};

/// Of field 1 of a trace, which is a list of packets and nothing else.
pub const PACKET_KEY: u8 = 1 << 3 | 2;
/// What compressed packets may unpack to: so much, and so much more for each byte of the trace.
/// Real ones unpack to ten times their size.
const UNPACKED: u64 = 1 << 20;
const UNPACKED_PER_BYTE: u64 = 32;

/// One message of a trace; nearly always only one of its fields is set.
#[derive(Clone, PartialEq, Message)]
pub struct Packet {
    /// What a CPU recorded.
    #[prost(message, optional, tag = "1")]
    pub ftrace_events: Option<Bundle>,
    /// Processes and threads that there were at a moment.
    #[prost(message, optional, tag = "2")]
    pub process_tree: Option<ProcessTree>,
    /// On which machine it was recorded.
    #[prost(message, optional, tag = "45")]
    pub system_info: Option<SystemInfo>,
    /// Packets, by zlib.
    #[prost(bytes = "vec", tag = "50")]
    compressed_packets: Vec<u8>,
}

/// The machine.
#[derive(Clone, PartialEq, Message)]
pub struct SystemInfo {
    /// What uname(2) said.
    #[prost(message, optional, tag = "1")]
    pub utsname: Option<Utsname>,
}

/// Of uname(2).
#[derive(Clone, PartialEq, Message)]
pub struct Utsname {
    /// The kernel's, such as `6.1.0-18-amd64`.
    #[prost(string, tag = "3")]
    pub release: String,
    /// `x86_64`, `aarch64`, ..
    #[prost(string, tag = "4")]
    pub machine: String,
}

/// Read from /proc, now and then.
#[derive(Clone, PartialEq, Message)]
pub struct ProcessTree {
    /// Those that are new since the last packet of this kind.
    #[prost(message, repeated, tag = "1")]
    pub processes: Vec<Process>,
    /// Threads that are new since; without the first ones of processes.
    #[prost(message, repeated, tag = "2")]
    pub threads: Vec<Thread>,
}

/// A process as /proc had it.
#[derive(Clone, PartialEq, Message)]
pub struct Process {
    /// The first thread's id, too.
    #[prost(int32, tag = "1")]
    pub pid: i32,
    /// Pid of its parent; 0: it has none.
    #[prost(int32, tag = "2")]
    pub ppid: i32,
    /// Program and arguments; empty for threads of the kernel's.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub cmdline: Vec<Vec<u8>>,
}

/// A thread as /proc had it.
#[derive(Clone, PartialEq, Message)]
pub struct Thread {
    /// Its id.
    #[prost(int32, tag = "1")]
    pub tid: i32,
    /// As the kernel has it (`comm`); may be empty.
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
    /// Pid of its process.
    #[prost(int32, tag = "3")]
    pub tgid: i32,
}

/// Events of one CPU, in order of time.
#[derive(Clone, PartialEq, Message)]
pub struct Bundle {
    /// Number of the CPU.
    #[prost(uint32, tag = "1")]
    pub cpu: u32,
    /// All but those in `compact_sched`.
    #[prost(message, repeated, tag = "2")]
    pub event: Vec<FtraceEvent>,
    /// Before these, nobody knows how many.
    #[prost(bool, tag = "3")]
    pub lost_events: bool,
    /// Switches and wakes, where the recorder was asked to pack them.
    #[prost(message, optional, tag = "4")]
    pub compact_sched: Option<CompactSched>,
}

/// Switches and wakes in columns. Of times each is the difference to the one before, beginning with
/// 0.
#[derive(Clone, PartialEq, Message)]
pub struct CompactSched {
    /// ns, of the trace's clock.
    #[prost(uint64, repeated, tag = "1")]
    pub switch_timestamp: Vec<u64>,
    /// State bits of the thread that leaves, as sched_switch tells them.
    #[prost(int64, repeated, tag = "2")]
    pub switch_prev_state: Vec<i64>,
    /// Thread id of the one that comes.
    #[prost(int32, repeated, tag = "3")]
    pub switch_next_pid: Vec<i32>,
    /// Names of threads, which the columns of indices mean.
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub intern_table: Vec<Vec<u8>>,
    /// Name of the thread that comes.
    #[prost(uint32, repeated, tag = "6")]
    pub switch_next_comm_index: Vec<u32>,
    /// ns, of the trace's clock.
    #[prost(uint64, repeated, tag = "7")]
    pub waking_timestamp: Vec<u64>,
    /// Thread id of the one that is woken.
    #[prost(int32, repeated, tag = "8")]
    pub waking_pid: Vec<i32>,
    /// Number of the CPU on which it will run.
    #[prost(int32, repeated, tag = "9")]
    pub waking_target_cpu: Vec<i32>,
    /// Its kernel priority: below 100 real time, 120 ordinary.
    #[prost(int32, repeated, tag = "10")]
    pub waking_prio: Vec<i32>,
    /// Its name.
    #[prost(uint32, repeated, tag = "11")]
    pub waking_comm_index: Vec<u32>,
    /// Of newer traces.
    #[prost(uint32, repeated, tag = "12")]
    pub waking_common_flags: Vec<u32>,
}

/// What a tracepoint told.
#[derive(Clone, PartialEq, Message)]
pub struct FtraceEvent {
    /// ns, of the trace's clock.
    #[prost(uint64, tag = "1")]
    pub timestamp: u64,
    /// The thread that ran.
    #[prost(uint32, tag = "2")]
    pub pid: u32,
    /// Most traces do not have them.
    #[prost(uint32, optional, tag = "5")]
    pub common_flags: Option<u32>,
    /// `None`: a tracepoint that is not known here.
    #[prost(
        oneof = "What",
        tags = "4, 20, 24, 25, 36, 37, 235, 236, 237, 238, 325, 329, 330"
    )]
    pub what: Option<What>,
}

/// By tracepoint.
#[derive(Clone, PartialEq, Oneof)]
pub enum What {
    /// sched_switch.
    #[prost(message, tag = "4")]
    Switch(Switch),
    /// sched_waking.
    #[prost(message, tag = "20")]
    Waking(Waking),
    /// softirq_entry.
    #[prost(message, tag = "24")]
    SoftIrqEntry(Empty),
    /// softirq_exit.
    #[prost(message, tag = "25")]
    SoftIrqExit(Empty),
    /// irq_handler_entry.
    #[prost(message, tag = "36")]
    HardIrqEntry(Empty),
    /// irq_handler_exit.
    #[prost(message, tag = "37")]
    HardIrqExit(Empty),
    /// task_newtask.
    #[prost(message, tag = "235")]
    NewTask(NewTask),
    /// task_rename.
    #[prost(message, tag = "236")]
    Rename(Rename),
    /// sched_process_exec.
    #[prost(message, tag = "237")]
    Exec(Exec),
    /// sched_process_exit.
    #[prost(message, tag = "238")]
    Exit(Exit),
    /// signal_generate.
    #[prost(message, tag = "325")]
    Signal(Signal),
    /// sys_enter.
    #[prost(message, tag = "329")]
    SysEnter(SysEnter),
    /// sys_exit.
    #[prost(message, tag = "330")]
    SysExit(SysExit),
}

/// A tracepoint whose fields nobody needs.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Empty {}

/// A CPU goes from one thread to another.
#[derive(Clone, PartialEq, Message)]
pub struct Switch {
    /// Name of the thread that leaves.
    #[prost(bytes = "vec", tag = "1")]
    pub prev_comm: Vec<u8>,
    /// Thread id of the one that leaves; 0: the CPU was idle.
    #[prost(int32, tag = "2")]
    pub prev_pid: i32,
    /// State bits of the one that leaves; 0: it could go on.
    #[prost(int64, tag = "4")]
    pub prev_state: i64,
    /// Name of the thread that comes.
    #[prost(bytes = "vec", tag = "5")]
    pub next_comm: Vec<u8>,
    /// Thread id of the one that comes; 0: the CPU is idle.
    #[prost(int32, tag = "6")]
    pub next_pid: i32,
}

/// The thread that ran, or an interrupt of it, wakes another.
#[derive(Clone, PartialEq, Message)]
pub struct Waking {
    /// Name of the one that is woken.
    #[prost(bytes = "vec", tag = "1")]
    pub comm: Vec<u8>,
    /// Thread id of the one that is woken.
    #[prost(int32, tag = "2")]
    pub pid: i32,
    /// Its kernel priority: below 100 real time, 120 ordinary.
    #[prost(int32, tag = "3")]
    pub prio: i32,
    /// Number of the CPU on which it will run.
    #[prost(int32, tag = "5")]
    pub target_cpu: i32,
}

/// The thread that ran makes a thread or a process.
#[derive(Clone, PartialEq, Message)]
pub struct NewTask {
    /// Thread id of the new one.
    #[prost(int32, tag = "1")]
    pub pid: i32,
    /// Its name, which is its maker's at first.
    #[prost(bytes = "vec", tag = "2")]
    pub comm: Vec<u8>,
    /// CLONE_*, as the kernel has them.
    #[prost(uint64, tag = "3")]
    pub clone_flags: u64,
}

/// A thread gets another name.
#[derive(Clone, PartialEq, Message)]
pub struct Rename {
    /// Thread id.
    #[prost(int32, tag = "1")]
    pub pid: i32,
    /// The name from now on.
    #[prost(bytes = "vec", tag = "3")]
    pub newcomm: Vec<u8>,
}

/// A process runs another program from now on.
#[derive(Clone, PartialEq, Message)]
pub struct Exec {
    /// Path of the program.
    #[prost(bytes = "vec", tag = "1")]
    pub filename: Vec<u8>,
    /// Pid, and id of the thread that is left.
    #[prost(int32, tag = "2")]
    pub pid: i32,
    /// Id of that thread before.
    #[prost(int32, tag = "3")]
    pub old_pid: i32,
}

/// A thread ends.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Exit {
    /// Its thread id.
    #[prost(int32, tag = "2")]
    pub pid: i32,
    /// Pid of its process.
    #[prost(int32, tag = "3")]
    pub tgid: i32,
}

/// The thread that ran, or the kernel, sends a signal.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Signal {
    /// Thread id of the one that gets it.
    #[prost(int32, tag = "4")]
    pub pid: i32,
    /// 0: it is delivered; else why it is not (TRACE_SIGNAL_*).
    #[prost(int32, tag = "5")]
    pub result: i32,
    /// Number of the signal.
    #[prost(int32, tag = "6")]
    pub sig: i32,
}

/// The thread that ran begins a system call.
#[derive(Clone, PartialEq, Message)]
pub struct SysEnter {
    /// Number of the call, as the machine has them.
    #[prost(int64, tag = "1")]
    pub id: i64,
    /// The six arguments.
    #[prost(uint64, repeated, tag = "2")]
    pub args: Vec<u64>,
}

/// The thread's system call returns.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct SysExit {
    /// Number of the call, as the machine has them.
    #[prost(int64, tag = "1")]
    pub id: i64,
    /// The result; failures are -errno.
    #[prost(int64, tag = "2")]
    pub ret: i64,
}

/// Hands all packets of a trace to `take`, those in compressed ones too.
///
/// # Errors
/// What is wrong with the first that is cut or is no packet, or unpacks to far more than the trace
/// holds; those before were handed out.
pub fn packets(trace: &[u8], take: &mut impl FnMut(Packet)) -> Result<(), String> {
    let mut room = UNPACKED.saturating_add((trace.len() as u64).saturating_mul(UNPACKED_PER_BYTE));
    walk(trace, |packet| {
        if packet.compressed_packets.is_empty() {
            take(packet);
            return Ok(());
        }
        let mut unpacked = Vec::new();
        let inflated = ZlibDecoder::new(&packet.compressed_packets[..]);
        inflated
            .take(room + 1)
            .read_to_end(&mut unpacked)
            .map_err(|error| error.to_string())?;
        room = room
            .checked_sub(unpacked.len() as u64)
            .ok_or("packets that unpack to far more than the trace holds")?;
        walk(&unpacked, |packet| {
            if !packet.compressed_packets.is_empty() {
                return Err("compressed packets in a compressed packet".into());
            }
            take(packet);
            Ok(())
        })
    })
}

/// Hands out the packets that stand in `trace` itself.
fn walk(
    mut trace: &[u8],
    mut take: impl FnMut(Packet) -> Result<(), String>,
) -> Result<(), String> {
    while let Some((&key, rest)) = trace.split_first() {
        if key != PACKET_KEY {
            return Err(format!("a byte {key:#04x} where a packet should begin"));
        }
        let (packet, rest) = delimited(rest).ok_or("a packet that is cut")?;
        trace = rest;
        take(Packet::decode(packet).map_err(|error| error.to_string())?)?;
    }
    Ok(())
}

/// A length and so many bytes; what comes after them.
fn delimited(mut bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = prost::decode_length_delimiter(&mut bytes).ok()?;
    bytes.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn packet(body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![PACKET_KEY];
        prost::encoding::encode_varint(body.len() as u64, &mut bytes);
        bytes.extend_from_slice(body);
        bytes
    }

    /// A packet whose inside is `packets`.
    fn compressed(packets: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(packets).unwrap();
        let packed = encoder.finish().unwrap();
        let whole = Packet {
            compressed_packets: packed,
            ..Packet::default()
        };
        packet(&whole.encode_to_vec())
    }

    fn count(trace: &[u8]) -> (usize, Result<(), String>) {
        let mut seen = 0;
        let ended = packets(trace, &mut |_| seen += 1);
        (seen, ended)
    }

    #[test]
    fn compressed_packets_are_handed_out_but_not_such_within_them() {
        let two = [packet(&[]), packet(&[])].concat();
        assert_eq!(
            count(&[packet(&[]), compressed(&two)].concat()),
            (3, Ok(()))
        );
        let mut nested = packet(&[]);
        for _ in 0..1000 {
            nested = compressed(&nested);
        }
        let (seen, ended) = count(&[packet(&[]), nested].concat());
        assert_eq!(seen, 1);
        assert!(ended.unwrap_err().contains("in a compressed packet"));
    }

    #[test]
    fn what_unpacks_to_far_more_than_the_trace_is_refused() {
        // Field 99, of nothing but zeros, is passed over.
        let mut body = vec![0x9a, 0x06];
        prost::encoding::encode_varint(32 << 20, &mut body);
        body.resize(body.len() + (32 << 20), 0);
        let bomb = compressed(&packet(&body));
        assert!(bomb.len() < 64 << 10);
        let (seen, ended) = count(&[packet(&[]), bomb].concat());
        assert_eq!(seen, 1);
        assert!(ended.unwrap_err().contains("far more"));
    }
}
