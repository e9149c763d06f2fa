// SPDX-License-Identifier: MIT
//! Events in FLOW, decoded. `decode` and `encode` are each other's inverse.

use bytemuck::{bytes_of, Pod};

use crate::protocol as p;

/// The general registers of a thread at a known place of its flow.
/// Order: rax rcx rdx rbx rsp rbp rsi rdi r8..r15, rip, rflags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// Bit r set: `values[r]` is the application's value.
    pub valid: u32,
    /// By number in the order above; what is not valid means nothing.
    pub values: [u64; p::REG_COUNT],
}

/// A system call as the thread enters it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyscallEnter {
    /// CLOCK_MONOTONIC ns.
    pub ts: u64,
    /// As x86-64 numbers them.
    pub number: u32,
    /// In order: rdi rsi rdx r10 r8 r9.
    pub args: [u64; 6],
    /// At level values: the registers when the syscall instruction was reached.
    pub registers: Option<Registers>,
}

/// What a thread's flow holds besides blocks. Times are CLOCK_MONOTONIC ns, addresses run-time
/// addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The thread begins, or its recording does: what a whole flow begins with.
    ThreadStart {
        /// As the process's own pid namespace has it.
        tid: u32,
        /// 0: the process's first thread, or unknown.
        creator_tid: u32,
        /// Of the thread's first moment under the tracer.
        ts: u64,
        /// 0: unknown.
        fs_base: u64,
        /// At the thread's first instruction; 0: unknown.
        stack_pointer: u64,
        /// The program's entry; 0 for a cloned thread, whose first block tells.
        start_pc: u64,
    },
    /// The thread ends: nothing follows.
    ThreadExit {
        /// Of the end.
        ts: u64,
        /// The argument of exit or exit_group; 0 where it called neither.
        status: i64,
    },
    /// The thread enters a system call.
    SyscallEnter(Box<SyscallEnter>),
    /// The system call that was entered last returns.
    SyscallExit {
        /// Of the return.
        ts: u64,
        /// That of its enter.
        number: u32,
        /// Negative errno, as the kernel returns it.
        result: i64,
    },
    /// A signal was delivered: the next block is the handler's first.
    Signal {
        /// Of the delivery.
        ts: u64,
        /// As `kill -l` numbers it.
        signo: u32,
        /// `si_code`; 0 where the tracer does not tell.
        code: u32,
        /// Where the thread was; 0: unknown.
        interrupted_pc: u64,
        /// Entry of the handler.
        handler_pc: u64,
        /// Stack pointer at the handler's entry.
        handler_sp: u64,
    },
    /// The kernel or the tracer moved control.
    Transfer {
        /// Of the transfer.
        ts: u64,
        /// 0: unknown.
        from_pc: u64,
        /// Where the thread goes on.
        to_pc: u64,
        /// Stack pointer there.
        to_sp: u64,
        /// `protocol::TRANSFER_*`.
        cause: u32,
    },
    /// An allocator returned memory; of nested calls only the outermost is reported.
    Alloc {
        /// Of the memory; 0: realloc failed or freed it.
        addr: u64,
        /// Bytes.
        size: u64,
        /// Return address of the call.
        caller_pc: u64,
        /// realloc's argument, else 0.
        old_addr: u64,
        /// 1 malloc, 2 calloc, 3 realloc, 4 aligned (`enum ff_alloc_kind`).
        kind: u32,
    },
    /// An allocator was given memory back; not reported for a null pointer.
    Free {
        /// Of the memory.
        addr: u64,
        /// Return address of the call.
        caller_pc: u64,
    },
    /// The thread made a process (fork, or clone without CLONE_VM).
    Fork {
        /// Of the call's return in the parent.
        ts: u64,
        /// As the parent's pid namespace has it.
        child_pid: u32,
    },
    /// The thread asks for another program; it may still fail.
    Exec {
        /// Of the request.
        ts: u64,
        /// As the program gave it.
        path: String,
    },
    /// The tracer could not hand over `bytes` of flow here.
    Gap {
        /// Of the loss.
        ts: u64,
        /// Of units and events.
        bytes: u64,
    },
    /// Following blocks have no slots in VALUES, until `ValuesOn`.
    ValuesOff,
    /// Following blocks have their slots in VALUES again.
    ValuesOn,
    /// The thread gave itself this name (prctl).
    ThreadName(String),
    /// The block before was left early at `pc`: slots of instructions from `pc` on
    /// are not valid.
    Fault {
        /// Of the fault.
        ts: u64,
        /// Of the instruction that did not finish.
        pc: u64,
    },
    /// A kind that this version does not know.
    Unknown {
        /// Its number in `enum ff_event` of a newer header.
        kind: u16,
        /// Its bytes without the record's header.
        payload: Vec<u8>,
    },
}

impl Event {
    /// A system call is entered; its registers are not known.
    pub fn enter(ts: u64, number: u32, args: [u64; 6]) -> Event {
        Event::SyscallEnter(Box::new(SyscallEnter {
            ts,
            number,
            args,
            registers: None,
        }))
    }

    /// Decodes a payload; `None` when it is too short for its kind.
    pub fn decode(kind: u16, payload: &[u8]) -> Option<Event> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(match kind {
            p::EVENT_THREAD_START => {
                let r: p::ThreadStart = p::read(payload)?;
                Event::ThreadStart {
                    tid: r.tid,
                    creator_tid: r.creator_tid,
                    ts: r.ts,
                    fs_base: r.fs_base,
                    stack_pointer: r.stack_pointer,
                    start_pc: r.start_pc,
                }
            }
            p::EVENT_THREAD_EXIT => {
                let r: p::ThreadExit = p::read(payload)?;
                Event::ThreadExit {
                    ts: r.ts,
                    status: r.status,
                }
            }
            p::EVENT_SYSCALL_ENTER => Event::SyscallEnter(Box::new(decode_syscall_enter(payload)?)),
            p::EVENT_SYSCALL_EXIT => {
                let r: p::SyscallExit = p::read(payload)?;
                Event::SyscallExit {
                    ts: r.ts,
                    number: r.number,
                    result: r.result,
                }
            }
            p::EVENT_SIGNAL => {
                let r: p::Signal = p::read(payload)?;
                Event::Signal {
                    ts: r.ts,
                    signo: r.signo,
                    code: r.code,
                    interrupted_pc: r.interrupted_pc,
                    handler_pc: r.handler_pc,
                    handler_sp: r.handler_sp,
                }
            }
            p::EVENT_TRANSFER => {
                let r: p::Transfer = p::read(payload)?;
                Event::Transfer {
                    ts: r.ts,
                    from_pc: r.from_pc,
                    to_pc: r.to_pc,
                    to_sp: r.to_sp,
                    cause: r.cause,
                }
            }
            p::EVENT_ALLOC => {
                let r: p::Alloc = p::read(payload)?;
                Event::Alloc {
                    addr: r.addr,
                    size: r.size,
                    caller_pc: r.caller_pc,
                    old_addr: r.old_addr,
                    kind: r.kind,
                }
            }
            p::EVENT_FREE => {
                let r: p::Free = p::read(payload)?;
                Event::Free {
                    addr: r.addr,
                    caller_pc: r.caller_pc,
                }
            }
            p::EVENT_FORK => {
                let r: p::Fork = p::read(payload)?;
                Event::Fork {
                    ts: r.ts,
                    child_pid: r.child_pid,
                }
            }
            p::EVENT_EXEC => {
                let r: p::Exec = p::read(payload)?;
                Event::Exec {
                    ts: r.ts,
                    path: text(&payload[std::mem::size_of::<p::Exec>()..]),
                }
            }
            p::EVENT_GAP => {
                let r: p::GapRecord = p::read(payload)?;
                Event::Gap {
                    ts: r.ts,
                    bytes: r.bytes,
                }
            }
            p::EVENT_VALUES_OFF => Event::ValuesOff,
            p::EVENT_VALUES_ON => Event::ValuesOn,
            p::EVENT_THREAD_NAME => Event::ThreadName(text(payload)),
            p::EVENT_FAULT => {
                let r: p::Fault = p::read(payload)?;
                Event::Fault { ts: r.ts, pc: r.pc }
            }
            kind => Event::Unknown {
                kind,
                payload: payload.to_vec(),
            },
        })
    }

    /// Appends the event as it stands in FLOW: header, payload, padding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        fn put<T: Pod>(out: &mut Vec<u8>, kind: u16, record: T, tail: &[u8]) {
            encode_record(out, kind, &[bytes_of(&record), tail]);
        }
        match self {
            &Event::ThreadStart {
                tid,
                creator_tid,
                ts,
                fs_base,
                stack_pointer,
                start_pc,
            } => {
                let r = p::ThreadStart {
                    tid,
                    creator_tid,
                    ts,
                    fs_base,
                    stack_pointer,
                    start_pc,
                };
                put(out, p::EVENT_THREAD_START, r, &[]);
            }
            &Event::ThreadExit { ts, status } => {
                put(out, p::EVENT_THREAD_EXIT, p::ThreadExit { ts, status }, &[]);
            }
            Event::SyscallEnter(enter) => {
                let registers = enter.registers.unwrap_or_default();
                let r = p::SyscallEnter {
                    ts: enter.ts,
                    number: enter.number,
                    regs_valid: registers.valid,
                    args: enter.args,
                    regs: registers.values,
                };
                let size = if registers.valid == 0 {
                    p::SYSCALL_ENTER_SHORT
                } else {
                    bytes_of(&r).len()
                };
                encode_record(out, p::EVENT_SYSCALL_ENTER, &[&bytes_of(&r)[..size]]);
            }
            &Event::SyscallExit { ts, number, result } => {
                put(
                    out,
                    p::EVENT_SYSCALL_EXIT,
                    p::SyscallExit {
                        ts,
                        result,
                        number,
                        reserved: 0,
                    },
                    &[],
                );
            }
            &Event::Signal {
                ts,
                signo,
                code,
                interrupted_pc,
                handler_pc,
                handler_sp,
            } => {
                let r = p::Signal {
                    ts,
                    signo,
                    code,
                    interrupted_pc,
                    handler_pc,
                    handler_sp,
                };
                put(out, p::EVENT_SIGNAL, r, &[]);
            }
            &Event::Transfer {
                ts,
                from_pc,
                to_pc,
                to_sp,
                cause,
            } => {
                let r = p::Transfer {
                    ts,
                    from_pc,
                    to_pc,
                    to_sp,
                    cause,
                    reserved: 0,
                };
                put(out, p::EVENT_TRANSFER, r, &[]);
            }
            &Event::Alloc {
                addr,
                size,
                caller_pc,
                old_addr,
                kind,
            } => {
                let r = p::Alloc {
                    addr,
                    size,
                    caller_pc,
                    old_addr,
                    kind,
                    reserved: 0,
                };
                put(out, p::EVENT_ALLOC, r, &[]);
            }
            &Event::Free { addr, caller_pc } => {
                put(out, p::EVENT_FREE, p::Free { addr, caller_pc }, &[])
            }
            &Event::Fork { ts, child_pid } => {
                put(
                    out,
                    p::EVENT_FORK,
                    p::Fork {
                        ts,
                        child_pid,
                        reserved: 0,
                    },
                    &[],
                );
            }
            Event::Exec { ts, path } => {
                put(out, p::EVENT_EXEC, p::Exec { ts: *ts }, path.as_bytes())
            }
            &Event::Gap { ts, bytes } => put(out, p::EVENT_GAP, p::GapRecord { ts, bytes }, &[]),
            Event::ValuesOff => encode_record(out, p::EVENT_VALUES_OFF, &[]),
            Event::ValuesOn => encode_record(out, p::EVENT_VALUES_ON, &[]),
            Event::ThreadName(name) => encode_record(out, p::EVENT_THREAD_NAME, &[name.as_bytes()]),
            &Event::Fault { ts, pc } => put(out, p::EVENT_FAULT, p::Fault { ts, pc }, &[]),
            Event::Unknown { kind, payload } => encode_record(out, *kind, &[payload]),
        }
    }

    /// CLOCK_MONOTONIC ns, for the events that carry a time.
    pub fn ts(&self) -> Option<u64> {
        match self {
            Event::SyscallEnter(enter) => Some(enter.ts),
            Event::ThreadStart { ts, .. }
            | Event::ThreadExit { ts, .. }
            | Event::SyscallExit { ts, .. }
            | Event::Signal { ts, .. }
            | Event::Transfer { ts, .. }
            | Event::Fork { ts, .. }
            | Event::Exec { ts, .. }
            | Event::Gap { ts, .. }
            | Event::Fault { ts, .. } => Some(*ts),
            _ => None,
        }
    }
}

fn decode_syscall_enter(payload: &[u8]) -> Option<SyscallEnter> {
    let mut whole = [0u8; std::mem::size_of::<p::SyscallEnter>()];
    let size = payload.len().min(whole.len());
    if size < p::SYSCALL_ENTER_SHORT {
        return None;
    }
    whole[..size].copy_from_slice(&payload[..size]);
    let r: p::SyscallEnter = p::read(&whole)?;
    let registers = (r.regs_valid != 0 && size == whole.len()).then_some(Registers {
        valid: r.regs_valid,
        values: r.regs,
    });
    Some(SyscallEnter {
        ts: r.ts,
        number: r.number,
        args: r.args,
        registers,
    })
}

/// Appends `struct ff_record` with a payload made of `parts`, padded to 2 bytes.
pub(crate) fn encode_record(out: &mut Vec<u8>, kind: u16, parts: &[&[u8]]) {
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    let record = p::Record {
        magic: p::FLOW_EVENT,
        kind,
        bytes: bytes as u32,
    };
    out.extend_from_slice(bytes_of(&record));
    for part in parts {
        out.extend_from_slice(part);
    }
    if bytes % 2 == 1 {
        out.push(0);
    }
}

/// One record at the front of `bytes`: kind, payload, and the bytes it takes in all.
/// `None`: no record, or it does not fit (the chunk ends inside it).
pub(crate) fn decode_record(bytes: &[u8]) -> Option<(u16, &[u8], usize)> {
    let record: p::Record = p::read(bytes)?;
    if record.magic != p::FLOW_EVENT {
        return None;
    }
    let header = std::mem::size_of::<p::Record>();
    let payload = bytes.get(header..header.checked_add(record.bytes as usize)?)?;
    let taken = header + payload.len() + payload.len() % 2;
    Some((record.kind, payload, taken.min(bytes.len())))
}
