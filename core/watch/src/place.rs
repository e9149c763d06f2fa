// SPDX-License-Identifier: MIT
//! Finds what was asked for in this process: a word's address, size and name.

use flagfinder_code::{AddressSpace, DataName, Names, ProcessMemory, VariableAt};

use crate::expression::Path;
use crate::request::WordRequest;
use crate::{Failure, Result, NOTHING_CHANGED};

/// What a debug register can cover.
const SIZES: [u64; 4] = [1, 2, 4, 8];
/// Names listed when one was not found.
const LISTED: usize = 12;

#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub address: u64,
    pub size: u32,
    pub name: DataName,
}

impl Place {
    /// # Errors
    /// In four parts: what can't be found, or can't be watched as it stands.
    pub fn find(request: &WordRequest, names: &Names, memory: &ProcessMemory) -> Result<Place> {
        let (address, size) = match request {
            WordRequest::Address { address, size } => (*address, u64::from(*size)),
            WordRequest::Module {
                module,
                offset,
                size,
            } => {
                let index = module_index(names, module)?;
                let base = names.input().modules[index].base;
                (base.wrapping_add(*offset), u64::from(*size))
            }
            WordRequest::Tls {
                module,
                offset,
                size,
                tid,
            } => {
                let index = module_index(names, module)?;
                let start = thread_block(names, index, *tid)?;
                (start.wrapping_add(*offset), u64::from(*size))
            }
            WordRequest::Symbol {
                module,
                symbol,
                size,
                tid,
            } => {
                let (address, found) = variable(names, module.as_deref(), symbol, *tid)?;
                (address, size.map_or(found.size, u64::from))
            }
            WordRequest::Expression {
                module,
                text,
                size,
                tid,
            } => {
                let found = expression(names, memory, module.as_deref(), text, *tid)?;
                (found.0, size.map_or(found.1, u64::from))
            }
        };
        let name = names.data(address);
        check(address, size, &name)?;
        if memory.number(address, size as usize).is_none() {
            return Err(cannot_watch(
                &name,
                format!("nothing is mapped at {address:#x}"),
                "Check the address; after a restart of the program, look it up again.",
            ));
        }
        Ok(Place {
            address,
            size: size as u32,
            name,
        })
    }
}

fn check(address: u64, size: u64, name: &DataName) -> Result<()> {
    if !SIZES.contains(&size) {
        let found = match size {
            0 => "its size is not known".to_owned(),
            _ => format!("it has {size} bytes; a debug register covers 1, 2, 4 or 8"),
        };
        let fix =
            "Name the field that matters (--expr 'object.field'), or give --size 1, 2, 4 or 8.";
        return Err(cannot_watch(name, found, fix));
    }
    if address % size != 0 {
        return Err(cannot_watch(
            name,
            format!("{address:#x} is not aligned to its {size} bytes, as debug registers need"),
            "Watch an aligned part of it: --address and a smaller --size.",
        ));
    }
    Ok(())
}

fn cannot_watch(name: &DataName, found: String, fix: &str) -> Failure {
    Failure::usage(
        format!("{} can't be watched", name.name),
        found,
        fix,
        NOTHING_CHANGED,
    )
}

fn list<T: AsRef<str>>(all: &[T]) -> String {
    let shown: Vec<&str> = all.iter().take(LISTED).map(AsRef::as_ref).collect();
    let more = if all.len() > LISTED { ", .." } else { "" };
    format!("{}{more}", shown.join(", "))
}

pub(crate) fn module_index(names: &Names, module: &str) -> Result<usize> {
    names.module_named(module).ok_or_else(|| {
        let modules = names.input().modules.iter();
        let all: Vec<String> = modules.map(|m| m.identity.name.to_string()).collect();
        Failure::usage(
            format!("The process has no image {module}"),
            format!("it has {}", list(&all)),
            "Name one of these, by file name or path.",
            NOTHING_CHANGED,
        )
    })
}

fn thread_block(names: &Names, module: usize, tid: u32) -> Result<u64> {
    let image = &names.input().modules[module].identity.name;
    names.thread_block(module, tid).ok_or_else(|| {
        let known = names.input().threads.iter().any(|thread| thread.tid == tid);
        let found = if known {
            "its thread block was not found in memory, or it has not used the module's variables \
             yet"
            .to_owned()
        } else {
            format!("the process has no thread {tid}")
        };
        Failure::usage(
            format!("The thread-local data of {image} in thread {tid} can't be found"),
            found,
            "Give the run-time address instead: --address 0x.. --size N.",
            NOTHING_CHANGED,
        )
    })
}

/// Run-time address of a variable.
fn variable(
    names: &Names,
    module: Option<&str>,
    symbol: &str,
    tid: Option<u32>,
) -> Result<(u64, VariableAt)> {
    if let Some(module) = module {
        module_index(names, module)?;
    }
    let search = |module: Option<&str>| {
        let globals = names.globals_named(module, symbol);
        (globals, names.thread_locals_named(module, symbol))
    };
    // As debuggers do, the program's own come before those of libraries, whose debug information
    // takes long to read.
    let program = names
        .input()
        .modules
        .first()
        .map(|program| &program.path[..]);
    let (mut globals, mut locals) = search(module.or(program));
    if module.is_none() && globals.is_empty() && locals.is_empty() {
        (globals, locals) = search(None);
    }
    match (&globals[..], &locals[..]) {
        ([one], []) => Ok((one.place, *one)),
        ([], [one]) => {
            let tid = chosen_thread(names, symbol, tid)?;
            let start = thread_block(names, one.module, tid)?;
            Ok((start.wrapping_add(one.place), *one))
        }
        ([], []) => Err(not_found(names, module, symbol)),
        _ => {
            let all = globals.iter().chain(&locals).map(|found| {
                let module = &names.input().modules[found.module];
                let offset = found.place.wrapping_sub(module.base);
                format!(
                    "{} at {:#x} ({}+{offset:#x})",
                    symbol, found.place, module.identity.name
                )
            });
            Err(Failure::usage(
                format!("There is more than one {symbol}"),
                list(&all.collect::<Vec<_>>()),
                "Name the image, or give --address 0x.. --size N.",
                NOTHING_CHANGED,
            ))
        }
    }
}

fn chosen_thread(names: &Names, symbol: &str, tid: Option<u32>) -> Result<u32> {
    let threads = &names.input().threads;
    match (tid, &threads[..]) {
        (Some(tid), _) => Ok(tid),
        (None, [only]) => Ok(only.tid),
        (None, _) => {
            let all = threads.iter().map(|t| format!("{} {}", t.tid, t.name));
            Err(Failure::usage(
                format!("{symbol} is thread-local, and no thread was named"),
                format!(
                    "the process has the threads {}",
                    list(&all.collect::<Vec<_>>())
                ),
                "Add --thread TID.",
                NOTHING_CHANGED,
            ))
        }
    }
}

fn not_found(names: &Names, module: Option<&str>, symbol: &str) -> Failure {
    let place = module.map_or("this process".to_owned(), str::to_owned);
    let notes = names.notes().join("\n");
    let found = match &notes[..] {
        "" => "no variable of this name in its symbols and debug information".to_owned(),
        _ => format!("no variable of this name in its symbols and debug information\n{notes}"),
    };
    Failure::usage(
        format!("{place} has no variable {symbol}"),
        found,
        "In a stripped image use --flag FILE#RANK (from diff or spin), --address 0x.. --size N, or \
         --site MODULE+OFFSET.",
        NOTHING_CHANGED,
    )
}

fn expression(
    names: &Names,
    memory: &ProcessMemory,
    module: Option<&str>,
    text: &str,
    tid: Option<u32>,
) -> Result<(u64, u64)> {
    let failed = |why: String| {
        Failure::usage(
            format!("{text} can't be evaluated"),
            why,
            "Write it like pool->workers[2].state: a global variable, then members and indices.",
            "--address 0x.. --size N watches without evaluating.",
        )
    };
    let path = Path::parse(text).map_err(failed)?;
    let (address, found) = variable(names, module, &path.variable, tid)?;
    let Some(kind) = found.kind else {
        let why = format!("there is no debug information (DWARF) of {}", path.variable);
        return Err(failed(why));
    };
    let found = path.follow(names, memory, address, kind).map_err(failed)?;
    Ok((found.address, found.size))
}
