// SPDX-License-Identifier: MIT
//! A BPF object file in the kernel: its programs, by name, and its maps.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use aya::maps::{HashMap, MapData, PerCpuArray};
use aya::programs::{Program, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader, Pod};

use crate::error::{chain, unavailable, Failure, Result};
use crate::ring::Ring;

/// The oldest Linux that has what the programs use: bpf_task_pt_regs() is the newest of it.
pub const MINIMUM_KERNEL: &str = "5.15";

// linux/bpf.h
const COMMAND_TEST_RUN: u64 = 10;
const BPF_EXIST: u64 = 2;

/// union bpf_attr as BPF_PROG_TEST_RUN reads it (linux/bpf.h). libc has no struct for it.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    result: u32,
    data: [u64; 3],
    repeat: [u32; 2],
    context: [u64; 3],
    flags: [u32; 4],
}

/// How many lines of the verifier's log are reported.
const LOG_LINES: usize = 12;

/// A loaded object. Its programs stay in the kernel as long as it lives or something is attached to
/// them.
pub struct Object {
    ebpf: Ebpf,
}

impl Object {
    /// Creates the maps, with other sizes for some, by name, and fills in one constant of the
    /// programs and constant tables.
    ///
    /// # Errors
    /// When the bytes are no such object, or the kernel refuses a map.
    pub fn load<T: Pod>(
        bytes: &[u8],
        constant: (&str, &T),
        tables: &[(&str, &[u64])],
        sizes: &[(&str, u32)],
    ) -> Result<Object> {
        // SAFETY: a Pod is plain bytes.
        let bytes_of = unsafe {
            let value = std::ptr::from_ref(constant.1).cast();
            std::slice::from_raw_parts(value, size_of::<T>())
        };
        Object::load_with(bytes, &[(constant.0, bytes_of)], tables, sizes)
    }

    /// The same with several constants, as bytes.
    ///
    /// # Errors
    /// As [`Object::load`].
    pub fn load_with(
        bytes: &[u8],
        constants: &[(&str, &[u8])],
        tables: &[(&str, &[u64])],
        sizes: &[(&str, u32)],
    ) -> Result<Object> {
        let mut loader = EbpfLoader::new();
        for (name, value) in constants {
            loader.set_global(name, *value, true);
        }
        for (name, table) in tables {
            loader.set_global(name, *table, true);
        }
        for (name, entries) in sizes {
            loader.set_max_entries(name, *entries);
        }
        let loaded = loader.load(bytes);
        let ebpf =
            loaded.map_err(|error| refused("The BPF object can't be loaded", chain(&error)))?;
        Ok(Object { ebpf })
    }

    /// Loads a program (the verifier checks it) and returns its descriptor.
    ///
    /// # Errors
    /// When there is none of this name, or the kernel refuses it.
    pub fn program(&mut self, name: &str) -> Result<BorrowedFd<'_>> {
        let what = format!("The BPF program {name} can't be loaded");
        let program = self.ebpf.program_mut(name);
        let program = program.ok_or_else(|| refused(&what, "it is not in the object".into()))?;
        let loaded = match program {
            Program::PerfEvent(program) => program.load(),
            Program::UProbe(program) => program.load(),
            Program::RawTracePoint(program) => program.load(),
            _ => return Err(refused(&what, "its section names another kind".into())),
        };
        loaded.map_err(|error| refused(&what, describe(&error)))?;
        let descriptor = program
            .fd()
            .map_err(|error| refused(&what, chain(&error)))?;
        Ok(descriptor.as_fd())
    }

    /// Runs `ff_find_namespace` of `bpf/ff_task.h`, in this thread: from then on the programs tell
    /// and take ids as this process sees them. To be done before anything is attached.
    ///
    /// # Errors
    /// When the kernel refuses, or does not keep its namespaces where it should.
    pub fn find_namespace(&mut self) -> Result<()> {
        let what = "Process ids can't be told as they are here";
        let mut attributes = TestRun {
            program: self.program("ff_find_namespace")?.as_raw_fd() as u32,
            ..TestRun::default()
        };
        // SAFETY: the attributes live through the call, which gets their size and writes the
        // results into them.
        let ran = unsafe {
            let size = size_of::<TestRun>();
            libc::syscall(libc::SYS_bpf, COMMAND_TEST_RUN, &raw mut attributes, size)
        };
        if ran < 0 {
            let error = io::Error::last_os_error();
            return Err(refused(what, format!("BPF_PROG_TEST_RUN: {error}")));
        }
        match attributes.result {
            0 => Ok(()),
            _ => Err(refused(
                what,
                "the kernel's struct pid is not as expected".into(),
            )),
        }
    }

    /// Loads a `tp_btf` program and runs it at the kernel's tracepoint of this name until the
    /// object is dropped.
    ///
    /// # Errors
    /// When there is no such program or tracepoint, or the kernel refuses it.
    pub fn trace(&mut self, name: &str, tracepoint: &str) -> Result<()> {
        let what = format!("The BPF program {name} can't be loaded");
        let program = self.ebpf.program_mut(name);
        let program = program.ok_or_else(|| refused(&what, "it is not in the object".into()))?;
        let Program::BtfTracePoint(program) = program else {
            return Err(refused(&what, "its section names another kind".into()));
        };
        let btf = Btf::from_sys_fs().map_err(|error| refused(&what, chain(&error)))?;
        let loaded = program.load(tracepoint, &btf);
        loaded.map_err(|error| refused(&what, describe(&error)))?;
        let attached = program.attach();
        attached.map_err(|error| refused(&what, describe(&error)))?;
        Ok(())
    }

    fn map(&mut self, name: &str) -> Result<aya::maps::Map> {
        let map = self.ebpf.take_map(name);
        map.ok_or_else(|| {
            refused(
                "A BPF map is missing",
                format!("no map {name} in the object"),
            )
        })
    }

    /// Takes a ring out of the object.
    ///
    /// # Errors
    /// When there is no ring of this name, or it can't be mapped.
    pub fn ring(&mut self, name: &str) -> Result<Ring> {
        let ring = aya::maps::RingBuf::try_from(self.map(name)?);
        Ok(Ring::new(ring.map_err(|error| map_failed(name, &error))?))
    }

    /// Takes a hash map out of the object.
    ///
    /// # Errors
    /// When there is none of this name and these sizes.
    pub fn table<K: Pod, V: Pod>(&mut self, name: &str) -> Result<Table<K, V>> {
        let map = HashMap::try_from(self.map(name)?);
        Ok(Table(map.map_err(|error| map_failed(name, &error))?))
    }

    /// Takes an array of one value per CPU out of the object.
    ///
    /// # Errors
    /// When there is none of this name and size.
    pub fn counts<V: Pod>(&mut self, name: &str) -> Result<Counts<V>> {
        let map = PerCpuArray::try_from(self.map(name)?);
        Ok(Counts(map.map_err(|error| map_failed(name, &error))?))
    }
}

/// A hash map that kernel and user space share.
pub struct Table<K: Pod, V: Pod>(HashMap<MapData, K, V>);

impl<K: Pod, V: Pod> Table<K, V> {
    /// `None` when absent.
    pub fn get(&self, key: &K) -> Option<V> {
        self.0.get(key, 0).ok()
    }

    /// Returns whether there was room.
    pub fn insert(&mut self, key: K, value: V) -> bool {
        self.0.insert(key, value, 0).is_ok()
    }

    /// Replaces the value of a key that is there; one that is absent stays so.
    pub fn replace(&mut self, key: K, value: V) {
        let _ = self.0.insert(key, value, BPF_EXIST);
    }

    /// Does nothing when the key is absent.
    pub fn remove(&mut self, key: &K) {
        let _ = self.0.remove(key);
    }

    /// In no order; those that come or go meanwhile may be missing or doubled.
    pub fn keys(&self) -> Vec<K> {
        self.0.keys().filter_map(|key| key.ok()).collect()
    }
}

/// One value for each possible CPU.
pub struct Counts<V: Pod>(PerCpuArray<MapData, V>);

impl<V: Pod> Counts<V> {
    /// By CPU number.
    pub fn read(&self) -> Vec<V> {
        self.0
            .get(&0, 0)
            .map_or_else(|_| Vec::new(), |all| all.to_vec())
    }
}

fn map_failed(name: &str, error: &aya::maps::MapError) -> Failure {
    refused(
        "A BPF map can't be used",
        format!("{name}: {}", chain(error)),
    )
}

fn refused(what: &str, found: String) -> Failure {
    let fix = format!(
        "It needs Linux {MINIMUM_KERNEL} or newer with BPF and BTF (/sys/kernel/btf/vmlinux), and \
         CAP_BPF and CAP_PERFMON. `flagfinder doctor` tells what works here."
    );
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    unavailable(what, format!("Linux {}: {found}", release.trim()), fix)
}

/// The end of the verifier's log says why.
fn describe(error: &ProgramError) -> String {
    let ProgramError::LoadError {
        io_error,
        verifier_log,
    } = error
    else {
        return chain(error);
    };
    let log = verifier_log.to_string();
    let lines: Vec<&str> = log.lines().collect();
    let tail = &lines[lines.len().saturating_sub(LOG_LINES)..];
    format!("{io_error}\n{}", tail.join("\n"))
}
