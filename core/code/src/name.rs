// SPDX-License-Identifier: MIT
//! What a name is, of code and of data. Serialised as reports need it: addresses and
//! offsets as hex strings, absent knowledge as null.

use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::symbols::without_arguments;

/// The name of a place in code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Code {
    /// File name of the module; `None`: JIT or remapped code.
    pub module: Option<String>,
    /// ELF virtual address in the module; without one the run-time address.
    #[serde(serialize_with = "hex", deserialize_with = "of_hex")]
    pub offset: u64,
    /// `thread_isolate+0x68`: the function that holds the address.
    pub symbol: Option<String>,
    /// `file.c:123`.
    pub source: Option<String>,
    /// Without a `symbol`: the closest one before, which does not hold the address.
    pub near: Option<String>,
    /// The functions whose bodies were inlined here, innermost first: `store`, `connect`.
    pub inlined: Vec<String>,
    /// Build-id of the module, in hex.
    pub build_id: Option<String>,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(module) = &self.module else {
            return write!(f, "{:#x} (no module: JIT or remapped code)", self.offset);
        };
        match &self.symbol {
            Some(symbol) => write!(f, "{symbol} ({module}+{:#x})", self.offset)?,
            None => write!(f, "{module}+{:#x}", self.offset)?,
        }
        if let Some(near) = &self.near {
            write!(f, " (after {near})")?;
        }
        match &self.source {
            Some(source) => write!(f, " at {source}"),
            None => Ok(()),
        }
    }
}

/// Modules of the C and C++ libraries, by what their file names begin with.
const STANDARD_MODULES: &[&str] = &["libc.so", "libstdc++.so", "libc++.so", "libgcc_s.so", "ld-"];
/// Names in the C++ and Rust libraries, which programs hold copies of.
const STANDARD_NAMES: &[&str] = &[
    "std::",
    "__gnu_cxx::",
    "operator new",
    "alloc::",
    "core::",
    "<alloc::",
    "<core::",
    "<std::",
    "__rust_",
    "__rustc",
];

fn begins(text: &str, list: &[&str]) -> bool {
    list.iter().any(|one| text.starts_with(one))
}

/// See [`Code::is_standard_library`]; of a module's file name.
pub(crate) fn is_standard_module(name: &str) -> bool {
    begins(name, STANDARD_MODULES)
}

/// The same of a function's name.
pub(crate) fn is_standard_name(name: &str) -> bool {
    begins(name, STANDARD_NAMES) || begins(&without_arguments(name), STANDARD_NAMES)
}

impl Code {
    /// Code that serves any program: what it does, it does for its caller.
    pub fn is_standard_library(&self) -> bool {
        self.module.as_deref().is_some_and(is_standard_module)
            || self.symbol.as_deref().is_some_and(is_standard_name)
    }
}

/// What sort of memory an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DataKind {
    /// Writable data of a module.
    Global,
    /// A module's data that nobody can write once the program runs.
    ReadOnly,
    /// GOT and PLT: the dynamic linker's own words.
    Linkage,
    /// Executable memory.
    Code,
    /// An object that the log of allocations knows, or the kernel's `[heap]`.
    Heap,
    /// A module's thread-local block.
    Tls,
    /// The C library's thread descriptor (`fs:0` and up).
    ThreadControl,
    /// A thread's stack.
    Stack,
    /// A shared mapping, of a file or of none.
    Shared,
    /// A private mapping of a file that is no module.
    File,
    /// A private mapping without a file (what `mmap` gives allocators and runtimes).
    Anonymous,
    /// The kernel's pages (`[vvar]`, `[vdso]`).
    Kernel,
    /// Mapped nowhere, as far as known.
    Unknown,
}

/// How to find the word again in a fresh run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "in", rename_all = "kebab-case")]
pub enum DataHome {
    /// `offset` is an ELF virtual address of the module.
    Module {
        /// The module's file name.
        module: String,
        /// In bytes.
        #[serde(serialize_with = "hex")]
        offset: u64,
    },
    /// `offset` bytes into the `ordinal`-th object allocated behind `site`.
    Heap {
        /// The call of the allocator.
        site: Box<Code>,
        /// 1 for the first object of this site.
        ordinal: u64,
        /// Bytes asked for.
        size: u64,
        /// In bytes from the object's start.
        #[serde(serialize_with = "hex")]
        offset: u64,
    },
    /// `offset` bytes into the module's thread-local block.
    Tls {
        /// The module's file name.
        module: String,
        /// In bytes.
        #[serde(serialize_with = "hex")]
        offset: u64,
        /// Whose block it is.
        tid: u32,
    },
    /// `offset` bytes above fs_base.
    ThreadControl {
        /// Whose descriptor it is.
        tid: u32,
        /// In bytes; negative below fs_base.
        offset: i64,
    },
    /// In the frame of `function`, `below_cfa` bytes below its canonical frame address.
    Frame {
        /// Whose stack it is.
        tid: u32,
        /// Named by the return address into it (or where it stands, if innermost).
        function: Box<Code>,
        /// In bytes.
        below_cfa: u64,
    },
    /// `offset` bytes into a file or shared-memory object.
    Mapping {
        /// As /proc/PID/maps has it.
        path: String,
        /// In bytes from the start of the file.
        #[serde(serialize_with = "hex")]
        offset: u64,
    },
    /// Only the run-time address is known.
    Address {
        /// In the run that was looked at; another run may have it elsewhere.
        #[serde(serialize_with = "hex")]
        address: u64,
    },
}

/// The name of a word of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DataName {
    /// What sort of memory holds it.
    pub kind: DataKind,
    /// For people; always enough to find the word again.
    pub name: String,
    /// File name of the module that owns it (global, thread-local).
    pub module: Option<String>,
    /// Global: ELF virtual address. Thread-local: offset in the module's block. Heap:
    /// offset in the object. Mapping: offset in the file.
    #[serde(serialize_with = "hex_option")]
    pub offset: Option<u64>,
    /// The variable that holds it, demangled; `None`: none is known.
    pub symbol: Option<String>,
    /// The part of the variable, to be appended to `symbol`: `[2].state`, `.next`.
    pub field: Option<String>,
    /// Without a `symbol`: the closest one before, which does not hold the address.
    pub near: Option<String>,
    /// How another run finds it.
    pub home: DataHome,
}

fn hex<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{value:#x}"))
}

fn of_hex<'d, D: Deserializer<'d>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    let digits = text.strip_prefix("0x").unwrap_or_default();
    u64::from_str_radix(digits, 16).map_err(|_| D::Error::custom("no hex number"))
}

pub(crate) fn hex_option<S: Serializer>(
    value: &Option<u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => hex(value, serializer),
        None => serializer.serialize_none(),
    }
}

pub(crate) fn of_hex_option<'d, D: Deserializer<'d>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    struct Hex(#[serde(deserialize_with = "of_hex")] u64);
    Ok(Option::<Hex>::deserialize(deserializer)?.map(|hex| hex.0))
}
