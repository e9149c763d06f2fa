// SPDX-License-Identifier: MIT
//! Semaphores and message queues of System V: what a call waits for there, and which process used
//! it last.
//!
//! The kernel keeps no owner. It keeps who changed a semaphore last, and who sent and received last
//! on a queue (semctl(2), msgctl(2)); to ask changes nothing. Ids are those of an IPC namespace, so
//! only processes in ours are told of. Blind spot: all who used it before the last.

use std::fs;

use flagfinder_code::AddressSpace;

use crate::proc::Call;

/// Most operations of one call that are looked at (the kernel's own limit is 500).
const MOST: u64 = 500;
/// Bytes of `struct sembuf`: number, operation, flags.
const OPERATION: u64 = 6;

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// A change of a semaphore.
    Semaphore {
        /// Id of its set.
        set: i32,
        /// Its place there.
        number: u16,
        /// What the call adds; negative where it takes, 0 where the semaphore is to become 0.
        by: i16,
    },
    /// A message on a queue.
    Message {
        /// Id of the queue.
        queue: i32,
    },
    /// Room on a queue.
    Room {
        /// Id of the queue.
        queue: i32,
    },
}

/// What a semaphore or a queue is like now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The semaphore's value, or how many messages there are.
    pub value: u64,
    /// The process that did last what would end the wait (for a semaphore: that changed it).
    pub last: Option<u32>,
}

/// `None`: the call is none of System V, or does not wait.
pub fn waits(call: &Call, memory: &dyn AddressSpace) -> Option<Waits> {
    let id = call.args[0] as i32;
    match i64::from(call.number) {
        libc::SYS_semop | libc::SYS_semtimedop => {
            let all = (0..call.args[2].min(MOST)).map_while(|index| {
                let at = call.args[1].checked_add(index * OPERATION)?;
                let number = memory.number(at, 2)? as u16;
                let by = memory.number(at + 2, 2)? as i16;
                let set = id;
                Some(Waits::Semaphore { set, number, by })
            });
            let all: Vec<Waits> = all.collect();
            let blocks = |one: &&Waits| now(one).is_some_and(|now| one.blocks(now.value));
            all.iter().find(blocks).copied()
        }
        libc::SYS_msgrcv => Some(Waits::Message { queue: id }),
        libc::SYS_msgsnd => Some(Waits::Room { queue: id }),
        _ => None,
    }
}

impl Waits {
    fn blocks(&self, value: u64) -> bool {
        match *self {
            Waits::Semaphore { by: 0, .. } => value != 0,
            Waits::Semaphore { by, .. } => by < 0 && value < u64::from(by.unsigned_abs()),
            _ => true,
        }
    }
}

/// Is the process in our IPC namespace?
pub fn is_ours(pid: u32) -> bool {
    let of = |who: &str| fs::read_link(format!("/proc/{who}/ns/ipc")).ok();
    of(&pid.to_string()).is_some_and(|its| of("self") == Some(its))
}

/// `None`: it is gone, or may not be read.
pub fn now(waits: &Waits) -> Option<Now> {
    // GETPID and GETVAL of <sys/sem.h>.
    const LAST: i32 = 11;
    const VALUE: i32 = 12;
    let known = |pid: i32| u32::try_from(pid).ok().filter(|pid| *pid != 0);
    let queue = |id: i32, last: fn(&libc::msqid_ds) -> i32| {
        // SAFETY: all bits of the structure may be zero.
        let mut stat: libc::msqid_ds = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes the structure, which is large enough for it.
        let done = unsafe { libc::msgctl(id, libc::IPC_STAT, &raw mut stat) } == 0;
        done.then(|| Now {
            value: stat.msg_qnum,
            last: known(last(&stat)),
        })
    };
    match *waits {
        Waits::Semaphore { set, number, .. } => {
            // SAFETY: these commands take no further argument.
            let ask = |what: i32| unsafe { libc::semctl(set, i32::from(number), what) };
            Some(Now {
                value: u64::try_from(ask(VALUE)).ok()?,
                last: known(ask(LAST)),
            })
        }
        Waits::Message { queue: id } => queue(id, |stat| stat.msg_lspid),
        Waits::Room { queue: id } => queue(id, |stat| stat.msg_lrpid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A set of two semaphores, both 0, that is removed again.
    struct Set(i32);

    impl Drop for Set {
        fn drop(&mut self) {
            // SAFETY: the command takes no further argument.
            unsafe { libc::semctl(self.0, 0, libc::IPC_RMID) };
        }
    }

    #[test]
    fn the_first_operation_that_blocks_is_told() {
        // SAFETY: it takes no pointer.
        let set = Set(unsafe { libc::semget(libc::IPC_PRIVATE, 2, 0o600) });
        assert!(set.0 >= 0);
        // Wait for 0 on the first, which is 0; take 1 from the second.
        let operations: [u16; 6] = [0, 0, 0, 1, (-1i16) as u16, 0];
        let bytes: Vec<u8> = operations
            .iter()
            .flat_map(|one| one.to_le_bytes())
            .collect();
        let memory = flagfinder_code::ByPages::new(|address: u64, buffer: &mut [u8]| {
            let part = bytes.get(address as usize..address as usize + buffer.len());
            part.map_or(0, |part| {
                buffer.copy_from_slice(part);
                part.len()
            })
        });
        let call = Call {
            number: libc::SYS_semop as u32,
            args: [set.0 as u64, 0, 2, 0, 0, 0],
            sp: 0,
            pc: 0,
        };
        let (number, by) = (1, -1);
        let waits = waits(&call, &memory).expect("the second blocks");
        assert_eq!(
            waits,
            Waits::Semaphore {
                set: set.0,
                number,
                by
            }
        );
        assert_eq!(
            now(&waits),
            Some(Now {
                value: 0,
                last: None
            })
        );
        assert!(is_ours(std::process::id()));
    }
}
