//! What the kernel told a trace: the part of Perfetto's messages that ftrace and /proc fill, read packet by packet.
//!
//! Field numbers are those of perfetto's protos/perfetto/trace; fields that are not here are passed over. Names are bytes, as the kernel does not
//! care what they are.

use std::io::Read;

use flate2::read::ZlibDecoder;
use prost::{Message, Oneof};

/// Of field 1 of a trace, which is a list of packets and nothing else.
pub const PACKET_KEY: u8 = 1 << 3 | 2;
/// Unpacked bytes of one packet; a damaged one must not fill the memory.
const MOST: u64 = 1 << 30;

#[derive(Clone, PartialEq, Message)]
pub struct Packet {
    #[prost(message, optional, tag = "1")]
    pub ftrace_events: Option<Bundle>,
    #[prost(message, optional, tag = "2")]
    pub process_tree: Option<ProcessTree>,
    #[prost(message, optional, tag = "45")]
    pub system_info: Option<SystemInfo>,
    /// Packets, by zlib.
    #[prost(bytes = "vec", tag = "50")]
    compressed_packets: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SystemInfo {
    #[prost(message, optional, tag = "1")]
    pub utsname: Option<Utsname>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Utsname {
    #[prost(string, tag = "3")]
    pub release: String,
    #[prost(string, tag = "4")]
    pub machine: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ProcessTree {
    #[prost(message, repeated, tag = "1")]
    pub processes: Vec<Process>,
    #[prost(message, repeated, tag = "2")]
    pub threads: Vec<Thread>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Process {
    #[prost(int32, tag = "1")]
    pub pid: i32,
    #[prost(int32, tag = "2")]
    pub ppid: i32,
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub cmdline: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Thread {
    #[prost(int32, tag = "1")]
    pub tid: i32,
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
    #[prost(int32, tag = "3")]
    pub tgid: i32,
}

/// Events of one CPU, in order of time.
#[derive(Clone, PartialEq, Message)]
pub struct Bundle {
    #[prost(uint32, tag = "1")]
    pub cpu: u32,
    #[prost(message, repeated, tag = "2")]
    pub event: Vec<FtraceEvent>,
    /// Before these, nobody knows how many.
    #[prost(bool, tag = "3")]
    pub lost_events: bool,
    #[prost(message, optional, tag = "4")]
    pub compact_sched: Option<CompactSched>,
}

/// Switches and wakes in columns. Of times each is the difference to the one before, beginning with 0.
#[derive(Clone, PartialEq, Message)]
pub struct CompactSched {
    #[prost(uint64, repeated, tag = "1")]
    pub switch_timestamp: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub switch_prev_state: Vec<i64>,
    #[prost(int32, repeated, tag = "3")]
    pub switch_next_pid: Vec<i32>,
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub intern_table: Vec<Vec<u8>>,
    #[prost(uint32, repeated, tag = "6")]
    pub switch_next_comm_index: Vec<u32>,
    #[prost(uint64, repeated, tag = "7")]
    pub waking_timestamp: Vec<u64>,
    #[prost(int32, repeated, tag = "8")]
    pub waking_pid: Vec<i32>,
    #[prost(int32, repeated, tag = "9")]
    pub waking_target_cpu: Vec<i32>,
    #[prost(int32, repeated, tag = "10")]
    pub waking_prio: Vec<i32>,
    #[prost(uint32, repeated, tag = "11")]
    pub waking_comm_index: Vec<u32>,
    /// Of newer traces.
    #[prost(uint32, repeated, tag = "12")]
    pub waking_common_flags: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct FtraceEvent {
    #[prost(uint64, tag = "1")]
    pub timestamp: u64,
    /// The thread that ran.
    #[prost(uint32, tag = "2")]
    pub pid: u32,
    /// Most traces do not have them.
    #[prost(uint32, optional, tag = "5")]
    pub common_flags: Option<u32>,
    #[prost(
        oneof = "What",
        tags = "4, 20, 24, 25, 36, 37, 235, 236, 237, 238, 325, 329, 330"
    )]
    pub what: Option<What>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum What {
    #[prost(message, tag = "4")]
    Switch(Switch),
    #[prost(message, tag = "20")]
    Waking(Waking),
    #[prost(message, tag = "24")]
    SoftIrqEntry(Empty),
    #[prost(message, tag = "25")]
    SoftIrqExit(Empty),
    #[prost(message, tag = "36")]
    HardIrqEntry(Empty),
    #[prost(message, tag = "37")]
    HardIrqExit(Empty),
    #[prost(message, tag = "235")]
    NewTask(NewTask),
    #[prost(message, tag = "236")]
    Rename(Rename),
    #[prost(message, tag = "237")]
    Exec(Exec),
    #[prost(message, tag = "238")]
    Exit(Exit),
    #[prost(message, tag = "325")]
    Signal(Signal),
    #[prost(message, tag = "329")]
    SysEnter(SysEnter),
    #[prost(message, tag = "330")]
    SysExit(SysExit),
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub struct Switch {
    #[prost(bytes = "vec", tag = "1")]
    pub prev_comm: Vec<u8>,
    #[prost(int32, tag = "2")]
    pub prev_pid: i32,
    #[prost(int64, tag = "4")]
    pub prev_state: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub next_comm: Vec<u8>,
    #[prost(int32, tag = "6")]
    pub next_pid: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Waking {
    #[prost(bytes = "vec", tag = "1")]
    pub comm: Vec<u8>,
    #[prost(int32, tag = "2")]
    pub pid: i32,
    #[prost(int32, tag = "3")]
    pub prio: i32,
    #[prost(int32, tag = "5")]
    pub target_cpu: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct NewTask {
    #[prost(int32, tag = "1")]
    pub pid: i32,
    #[prost(bytes = "vec", tag = "2")]
    pub comm: Vec<u8>,
    #[prost(uint64, tag = "3")]
    pub clone_flags: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Rename {
    #[prost(int32, tag = "1")]
    pub pid: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub newcomm: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Exec {
    #[prost(bytes = "vec", tag = "1")]
    pub filename: Vec<u8>,
    #[prost(int32, tag = "2")]
    pub pid: i32,
    #[prost(int32, tag = "3")]
    pub old_pid: i32,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Exit {
    #[prost(int32, tag = "2")]
    pub pid: i32,
    #[prost(int32, tag = "3")]
    pub tgid: i32,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Signal {
    #[prost(int32, tag = "4")]
    pub pid: i32,
    #[prost(int32, tag = "5")]
    pub result: i32,
    #[prost(int32, tag = "6")]
    pub sig: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct SysEnter {
    #[prost(int64, tag = "1")]
    pub id: i64,
    #[prost(uint64, repeated, tag = "2")]
    pub args: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct SysExit {
    #[prost(int64, tag = "1")]
    pub id: i64,
    #[prost(int64, tag = "2")]
    pub ret: i64,
}

/// Hands all packets of a trace to `take`, those in compressed ones too.
///
/// # Errors
/// What is wrong with the first that is cut or is no packet; those before were handed out.
pub fn packets(mut trace: &[u8], take: &mut impl FnMut(Packet)) -> Result<(), String> {
    while let Some((&key, rest)) = trace.split_first() {
        if key != PACKET_KEY {
            return Err(format!("a byte {key:#04x} where a packet should begin"));
        }
        let (packet, rest) = delimited(rest).ok_or("a packet that is cut")?;
        trace = rest;
        let packet = Packet::decode(packet).map_err(|error| error.to_string())?;
        if packet.compressed_packets.is_empty() {
            take(packet);
            continue;
        }
        let mut unpacked = Vec::new();
        let inflated = ZlibDecoder::new(&packet.compressed_packets[..]);
        inflated
            .take(MOST)
            .read_to_end(&mut unpacked)
            .map_err(|error| error.to_string())?;
        packets(&unpacked, take)?;
    }
    Ok(())
}

/// A length and so many bytes; what comes after them.
fn delimited(mut bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = prost::decode_length_delimiter(&mut bytes).ok()?;
    bytes.split_at_checked(length)
}
