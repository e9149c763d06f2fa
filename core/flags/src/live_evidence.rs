// SPDX-License-Identifier: MIT
//! Evidence from a live process, in place of another run: its code around the loop, and its
//! memory as the program's file has it.

use flagfinder_analysis::runtime::{is_runtime_module, is_runtime_symbol};
use flagfinder_analysis::{natural_loop, other_way_stores, own_position, own_wakeup, Analysis};
use flagfinder_code::{AddressSpace, ByPages, DataKind, Names};
use flagfinder_linux::{socket_address, syscalls};
use flagfinder_machine::Window;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::evidence::Outside;

/// Bytes of the address of a Unix socket.
const LONGEST_ADDRESS: u64 = 110;

/// What a live process can be asked.
pub trait LiveMemory {
    /// Reads its memory; returns how many bytes could be read.
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize;
    /// The value that a global had when its module was loaded; `None` elsewhere.
    fn initial(&self, address: u64, bytes: u32) -> Option<u64>;
    /// Is it an eventfd, or a pipe whose other end the process holds itself?
    fn is_own_wakeup(&self, descriptor: i32) -> bool;
    /// Can nobody but its reader write there: no other thread, no other process?
    fn has_one_writer(&self, address: u64) -> bool;
}

pub fn evidence(
    window: &Window,
    analysis: &Analysis,
    names: &Names,
    process: &dyn LiveMemory,
) -> Outside {
    let memory = ByPages::new(|address, buffer| process.read(address, buffer));
    let code = |address: u64, buffer: &mut [u8]| memory.read(address, buffer);
    let as_in_file = analysis.candidates.iter().filter(|candidate| {
        let value = candidate.value.filter(|value| *value != 0);
        candidate.kind == DataKind::Global
            && value.is_some()
            && process.initial(candidate.address, candidate.bytes) == value
    });
    let of_runtime = analysis.candidates.iter().filter(|candidate| {
        let data = names.data(candidate.address);
        let of_go = data.symbol.is_some_and(|symbol| is_runtime_symbol(&symbol));
        let of_libc = data.module.as_deref().is_some_and(is_runtime_module);
        candidate.kind == DataKind::Global && (of_go || of_libc)
    });
    let of_one_thread = analysis
        .candidates
        .iter()
        .filter(|candidate| process.has_one_writer(candidate.address));
    let own_wakeups = match analysis.is_of_machine() {
        true => own_wakeup::steps(window, &|fd| process.is_own_wakeup(fd)),
        false => FxHashSet::default(),
    };
    let other_ways = natural_loop::other_ways(window, analysis, names, &code);
    Outside {
        of_runtime: of_runtime.map(|candidate| candidate.address).collect(),
        as_in_file: as_in_file.map(|candidate| candidate.address).collect(),
        of_one_thread: of_one_thread.map(|candidate| candidate.address).collect(),
        changes: other_way_stores::changes(window, analysis, &other_ways, &code),
        other_ways,
        own_wakeups,
        shared: analysis.interpreted.shared(|at| memory.word(at)),
        own_positions: own_position::own_positions(window, analysis, names, &code),
        live: true,
        paths: paths(window, analysis, process),
        ..Outside::default()
    }
}

/// Of the calls that decide a branch. A loop that opens its file in each round has the path at
/// hand.
fn paths(window: &Window, analysis: &Analysis, process: &dyn LiveMemory) -> FxHashMap<u32, String> {
    let decides = analysis.calls.iter().filter_map(|(step, _)| {
        let call = window.syscall_at(*step)?;
        let opened = || {
            let fd = syscalls::descriptor(call.number, &call.args)?;
            let before = window.syscalls.iter().rev();
            let mut before = before.filter(|other| other.step < *step);
            let open = before.find(|other| {
                syscalls::opens(other.number) && other.result == Some(i64::from(fd))
            })?;
            syscalls::path(open.number, &open.args)
        };
        if i64::from(call.number) == libc::SYS_connect {
            return Some((*step, peer(process, &call.args)?));
        }
        let address = syscalls::path(call.number, &call.args).or_else(opened)?;
        Some((*step, text(process, address)?))
    });
    decides.collect()
}

/// To whom it connects.
fn peer(process: &dyn LiveMemory, args: &[u64; 6]) -> Option<String> {
    let mut bytes = vec![0; args[2].min(LONGEST_ADDRESS) as usize];
    let got = process.read(args[1], &mut bytes);
    socket_address::text(&bytes[..got])
}

fn text(process: &dyn LiveMemory, address: u64) -> Option<String> {
    const LONGEST: usize = 4096;
    let mut bytes = [0; LONGEST];
    let got = process.read(address, &mut bytes);
    let end = bytes[..got].iter().position(|byte| *byte == 0)?;
    // Memory that was freed since holds something else.
    let text = std::str::from_utf8(&bytes[..end]).ok()?;
    let is_path = !text.is_empty() && !text.chars().any(char::is_control);
    is_path.then(|| text.to_owned())
}
