// SPDX-License-Identifier: MIT
//! The code that writes a word, for people: of a routine of the standard library its caller.
//!
//! `memset`, `sem_post` or `std::atomic::store` serve any program; their caller says what is
//! owed. Where no caller is known it is the routine itself.

use flagfinder_code::{AddressSpace, Code, Names, Store};
use flagfinder_replica::Replica;

use crate::others::Process;
use crate::owed_look::Seen;
use crate::stack;

/// Bytes of a copy's stack in which callers are looked for.
const LOOKED: usize = 4096;

fn own(code: Code) -> Option<Code> {
    (!code.is_standard_library() && code.module.is_some()).then_some(code)
}

/// Of a store that is ahead of a thread.
pub(crate) fn ahead(names: &Names, seen: &Seen, store: &Store) -> Code {
    let stores = names.code(store.pc);
    if !stores.is_standard_library() {
        return stores;
    }
    let made = store.calls.iter().rev().flatten();
    let made = made.map(|pc| names.code(*pc));
    let open = seen.frames.iter().skip(1).map(|f| names.caller(f.pc));
    made.chain(open).find_map(own).unwrap_or(stores)
}

/// Of a copy that has just stored at `pc`.
pub(crate) fn in_copy(process: &Process, copy: &mut Replica, pc: u64) -> Code {
    let stores = process.names.code(pc);
    if !stores.is_standard_library() {
        return stores;
    }
    let (sp, mut bytes) = (copy.registers().rsp, vec![0; LOOKED]);
    let room = LOOKED - (sp as usize % LOOKED);
    bytes.truncate(room);
    if !copy.read(sp, &mut bytes).unwrap_or(false) {
        return stores;
    }
    let memory = Stack {
        sp,
        bytes,
        rest: process.memory,
    };
    let callers = stack::return_addresses(sp, pc, &memory, process.names);
    let mut callers = callers.into_iter().map(|pc| process.names.caller(pc));
    callers.find_map(own).unwrap_or(stores)
}

/// Memory of the process, with the stack of its copy.
struct Stack<'a> {
    sp: u64,
    bytes: Vec<u8>,
    rest: &'a dyn AddressSpace,
}

impl AddressSpace for Stack<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        if address != self.sp {
            return self.rest.read(address, buffer);
        }
        let got = self.bytes.len().min(buffer.len());
        buffer[..got].copy_from_slice(&self.bytes[..got]);
        got
    }
}
