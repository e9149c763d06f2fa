// SPDX-License-Identifier: MIT
//! Coverage as DynamoRIO's drcov writes it (version 2 of its module table).

use std::io::Write;

use flagfinder_trace::{BlockId, DecodedFlow, ModuleId, Process};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::ExportError;

/// The kind of tool that wrote the file: any text.
const FLAVOR: &str = "flagfinder";

/// What the file holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Blocks of modules that ran, each once.
    pub blocks: u64,
    /// Modules of the process, also those of which no block ran.
    pub modules: u64,
    /// Blocks that ran but have no place in the format: generated code, the vdso.
    pub outside: u64,
}

/// Writes the blocks that the process's threads ran.
///
/// # Errors
/// When the recording can't be read or the output can't be written.
pub fn drcov(process: &Process, out: &mut dyn Write) -> Result<Coverage, ExportError> {
    let mut executed: FxHashSet<BlockId> = FxHashSet::default();
    let mut flow = DecodedFlow::default();
    for thread in process.threads() {
        let mut decoder = thread.flow_decoder();
        for section in 0..thread.flow_section_count() {
            decoder.decode_folded(section, &mut flow)?;
            executed.extend(flow.blocks.iter().copied());
        }
    }
    let modules = process.modules();
    let numbers: FxHashMap<ModuleId, u16> = modules.iter().map(|m| m.id).zip(0..).collect();
    let mut table: Vec<u8> = Vec::new();
    let mut coverage = Coverage {
        modules: modules.len() as u64,
        ..Coverage::default()
    };
    for block in process.blocks().iter().filter(|b| executed.contains(&b.id)) {
        let number = block.module.and_then(|id| numbers.get(&id));
        let Some((&number, module)) = number.and_then(|n| Some((n, modules.get(usize::from(*n))?)))
        else {
            coverage.outside += 1;
            continue;
        };
        // struct { u32 start; u16 size; u16 module; }
        let start = block.pc.wrapping_sub(module.start) as u32;
        table.extend_from_slice(&start.to_le_bytes());
        table.extend_from_slice(&(block.code.len() as u16).to_le_bytes());
        table.extend_from_slice(&number.to_le_bytes());
        coverage.blocks += 1;
    }
    writeln!(out, "DRCOV VERSION: 2\nDRCOV FLAVOR: {FLAVOR}")?;
    writeln!(out, "Module Table: version 2, count {}", modules.len())?;
    writeln!(out, "Columns: id, base, end, entry, path")?;
    for (module, number) in modules.iter().zip(0..) {
        let (start, end) = (module.start, module.end);
        let path = &module.path;
        writeln!(
            out,
            "{number:3}, {start:#018x}, {end:#018x}, {:#018x}, {path}",
            0
        )?;
    }
    writeln!(out, "BB Table: {} bbs", coverage.blocks)?;
    out.write_all(&table)?;
    out.flush()?;
    Ok(coverage)
}
