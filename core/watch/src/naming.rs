// SPDX-License-Identifier: MIT
//! Names of code and stacks as JSON, each made once: a hot writer makes the same ones a hundred
//! thousand times a second.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flagfinder_code::{AddressSpace, CallSites, Names, NamesInput, ProcessMemory};
use flagfinder_files::facts_of;
use rustc_hash::FxHashMap;

use crate::access::{self, Access, Registers};
use crate::place::Place;
use crate::protocol::Hit;

/// Libraries loaded later are looked for at most this often.
const REFRESH: Duration = Duration::from_secs(1);
/// `syscall` is two bytes long.
const SYSCALL_BYTES: u64 = 2;
/// More stacks than this are made again: a program may have endlessly many.
const STACKS_KEPT: usize = 1 << 16;

/// Everything that is known of the process's code.
pub(crate) struct Naming {
    pid: u32,
    pub names: Names,
    pub memory: ProcessMemory,
    read: Instant,
    accesses: FxHashMap<(u64, u16), Option<Access>>,
    codes: FxHashMap<u64, Arc<str>>,
    callers: FxHashMap<u64, Arc<str>>,
    /// By the instruction and the return addresses above it.
    stacks: FxHashMap<Vec<u64>, Arc<str>>,
    key: Vec<u64>,
    sites: CallSites,
}

/// The files' own paths where those lead to the same files: what the process sees goes away with
/// it, and the last events are named after that.
fn outlive_process(input: &mut NamesInput) {
    for module in &mut input.modules {
        let inode = |path: &Path| facts_of(path).map(|m| (m.device, m.inode)).ok();
        let own = Path::new(&module.path);
        let found = inode(own);
        if found.is_some() && found == inode(&module.file) {
            module.file = own.to_owned();
        }
    }
}

fn read_names(pid: u32) -> io::Result<Names> {
    let mut input = NamesInput::from_live(pid)?;
    outlive_process(&mut input);
    input.read_tls_blocks(pid)?;
    Ok(Names::new(input))
}

impl Naming {
    /// # Errors
    /// When the process is gone, or its memory may not be read.
    pub fn new(pid: u32) -> io::Result<Naming> {
        let memory = ProcessMemory::open(pid)?;
        Ok(Naming {
            pid,
            names: read_names(pid)?,
            memory,
            read: Instant::now(),
            accesses: FxHashMap::default(),
            codes: FxHashMap::default(),
            callers: FxHashMap::default(),
            stacks: FxHashMap::default(),
            key: Vec::new(),
            sites: CallSites::default(),
        })
    }

    /// Looks for libraries that were loaded meanwhile when code is in no known one.
    fn refresh_for(&mut self, ip: u64) {
        let known = self.names.code(ip).module.is_some();
        if known || self.read.elapsed() < REFRESH {
            return;
        }
        self.read = Instant::now();
        if let Ok(names) = read_names(self.pid) {
            self.names = names;
            self.accesses.clear();
            self.codes.clear();
            self.callers.clear();
            self.stacks.clear();
            self.sites = CallSites::default();
        }
    }

    /// The instruction behind a hit of a watch: `place` is its number, `word` its address and size.
    pub fn access(
        &mut self,
        ip: u64,
        registers: &Registers,
        place: u16,
        word: (u64, u32),
    ) -> Option<Access> {
        if let Some(known) = self.accesses.get(&(ip, place)) {
            return known.clone();
        }
        self.refresh_for(ip);
        let function = self.names.function(ip - 1).map(|(start, _)| start);
        let (names, memory) = (&self.names, &self.memory);
        let found = access::find(ip, registers, word, function, |at, count| {
            code(names, memory, at, count)
        });
        self.accesses.insert((ip, place), found.clone());
        found
    }

    /// JSON of the code at an address.
    pub fn code(&mut self, ip: u64) -> Arc<str> {
        if !self.codes.contains_key(&ip) {
            self.refresh_for(ip);
        }
        let names = &self.names;
        let made = self
            .codes
            .entry(ip)
            .or_insert_with(|| json(&names.code(ip)));
        Arc::clone(made)
    }

    /// JSON of the `syscall` instruction that returns to `ip`.
    pub fn syscall_code(&mut self, ip: u64) -> Arc<str> {
        self.code(ip.wrapping_sub(SYSCALL_BYTES))
    }

    /// JSON array of the call sites above code at `ip`, with these words above its stack pointer.
    pub fn stack(&mut self, ip: u64, words: &[u64]) -> Arc<str> {
        let (names, memory) = (&self.names, &self.memory);
        let read = |at: u64, count: usize| code(names, memory, at, count);
        self.key.clear();
        self.key.push(ip);
        self.sites.candidates(names, words, read, &mut self.key);
        if let Some(known) = self.stacks.get(&self.key) {
            return Arc::clone(known);
        }
        let callers = self.sites.callers(names, ip, &self.key[1..]);
        let parts = callers.iter().map(|&address| {
            let made = self.callers.entry(address);
            Arc::clone(made.or_insert_with(|| json(&names.caller(address))))
        });
        let parts: Vec<Arc<str>> = parts.collect();
        let stack: Arc<str> = format!("[{}]", parts.join(",")).into();
        if self.stacks.len() >= STACKS_KEPT {
            self.stacks.clear();
        }
        self.stacks.insert(self.key.clone(), Arc::clone(&stack));
        stack
    }
}

/// Which word a hit accessed; the first of those that its registers don't exclude.
pub(crate) fn place_of(hit: &Hit, words: &[Place], naming: &Naming) -> u16 {
    let (names, memory) = (&naming.names, &naming.memory);
    let function = names.function(hit.ip - 1).map(|(start, _)| start);
    let mut possible = None;
    for (word, place) in words.iter().zip(0..) {
        let word = (word.address, word.size);
        let read = |at, count| code(names, memory, at, count);
        let found = access::find(hit.ip, &hit.registers, word, function, read);
        match found.map(|access| access::covers(&access, &hit.registers, word)) {
            Some(Some(true)) => return place,
            Some(None) => possible = possible.or(Some(place)),
            _ => {}
        }
    }
    possible.unwrap_or(0)
}

/// Code as it is in memory; in the module's file once the process is gone.
pub(crate) fn code(names: &Names, memory: &ProcessMemory, address: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    match memory.read(address, &mut bytes) {
        0 => names.file_code(address, count),
        read => {
            bytes.truncate(read);
            bytes
        }
    }
}

fn json(code: &flagfinder_code::Code) -> Arc<str> {
    // Serialising strings and numbers into memory can't fail.
    serde_json::to_string(code).unwrap_or_default().into()
}
