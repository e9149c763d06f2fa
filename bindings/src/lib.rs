// SPDX-License-Identifier: MIT
//! `flagfinder._core`: converts between Python and the engine, nothing more. One file for each
//! type that Python sees; `errors` and `wait` serve them all.

mod check;
mod core_memory;
mod discover;
mod divergence;
mod dump;
mod entry;
mod errors;
mod events;
mod export;
mod files;
mod graph;
mod live;
mod machine;
mod memory;
mod process;
mod recording;
mod registers;
mod report;
mod stepping;
mod thread;
mod trace;
mod values;
mod wait;
mod watch;

use pyo3::prelude::*;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add("MINIMUM_KERNEL", flagfinder_bpf::MINIMUM_KERNEL)?;
    module.add_function(wrap_pyfunction!(machine::check_programs, module)?)?;
    module.add_function(wrap_pyfunction!(machine::check_breakpoints, module)?)?;
    module.add_function(wrap_pyfunction!(machine::has_capability, module)?)?;
    module.add_function(wrap_pyfunction!(machine::how_to_get_capabilities, module)?)?;
    module.add_function(wrap_pyfunction!(machine::how_to_look, module)?)?;
    let rules = flagfinder_flags::RULES.iter();
    let rules = rules.map(|row| (row.name, row.stage.name(), row.weight.to_string(), row.does));
    module.add("RULES", rules.collect::<Vec<_>>())?;
    module.add("ENOUGH", flagfinder_flags::ENOUGH)?;
    module.add("INTERPRETER", flagfinder_flags::INTERPRETER)?;
    module.add("OF_INTERPRETER", flagfinder_flags::OF_INTERPRETER)?;
    module.add_class::<trace::Trace>()?;
    module.add_class::<process::Process>()?;
    module.add_class::<thread::Thread>()?;
    module.add_class::<divergence::Divergence>()?;
    module.add_class::<recording::Outcome>()?;
    module.add_class::<stepping::Stepping>()?;
    module.add_class::<watch::Watch>()?;
    module.add_class::<entry::Entry>()?;
    module.add_class::<events::EventRecorder>()?;
    module.add_class::<events::EventCounting>()?;
    module.add_class::<events::EventFile>()?;
    module.add_function(wrap_pyfunction!(events::import_events, module)?)?;
    module.add_class::<graph::EventGraph>()?;
    module.add_function(wrap_pyfunction!(graph::edge_kinds, module)?)?;
    module.add_function(wrap_pyfunction!(graph::call_name, module)?)?;
    module.add_function(wrap_pyfunction!(graph::profile, module)?)?;
    module.add_function(wrap_pyfunction!(divergence::diff, module)?)?;
    module.add_function(wrap_pyfunction!(registers::registers_before, module)?)?;
    module.add_function(wrap_pyfunction!(report::find_flags, module)?)?;
    module.add_function(wrap_pyfunction!(discover::discover, module)?)?;
    module.add_function(wrap_pyfunction!(live::spin, module)?)?;
    module.add_function(wrap_pyfunction!(live::keep_indexes_in, module)?)?;
    module.add_function(wrap_pyfunction!(live::why, module)?)?;
    module.add_function(wrap_pyfunction!(live::spin_at_first, module)?)?;
    module.add_function(wrap_pyfunction!(live::at_a_glance, module)?)?;
    module.add_function(wrap_pyfunction!(live::why_at_first, module)?)?;
    module.add_function(wrap_pyfunction!(live::why_each, module)?)?;
    module.add_function(wrap_pyfunction!(live::why_of_core, module)?)?;
    module.add_function(wrap_pyfunction!(live::write_core, module)?)?;
    module.add_function(wrap_pyfunction!(live::why_recorded, module)?)?;
    module.add_function(wrap_pyfunction!(live::look_at_core, module)?)?;
    module.add_function(wrap_pyfunction!(live::poke, module)?)?;
    module.add_function(wrap_pyfunction!(live::try_word, module)?)?;
    module.add_function(wrap_pyfunction!(live::resolve, module)?)?;
    module.add_class::<memory::ProcessMemory>()?;
    module.add_class::<core_memory::CoreMemory>()?;
    module.add_function(wrap_pyfunction!(memory::arguments_of, module)?)?;
    module.add_function(wrap_pyfunction!(files::create_private, module)?)?;
    module.add_function(wrap_pyfunction!(files::read_file_of, module)?)?;
    module.add_function(wrap_pyfunction!(files::read_open_file_of, module)?)?;
    module.add_function(wrap_pyfunction!(files::open_named, module)?)?;
    module.add_function(wrap_pyfunction!(files::has_debug_info, module)?)?;
    module.add_function(wrap_pyfunction!(files::silence_of, module)?)?;
    module.add_function(wrap_pyfunction!(files::servers_may_be_silent, module)?)?;
    module.add_function(wrap_pyfunction!(files::file_openers, module)?)?;
    module.add_function(wrap_pyfunction!(files::end_file_openers, module)?)?;
    module.add_function(wrap_pyfunction!(files::end_with_parent, module)?)?;
    module.add_function(wrap_pyfunction!(files::let_trace, module)?)?;
    module.add_function(wrap_pyfunction!(recording::record, module)?)?;
    module.add_function(wrap_pyfunction!(export::export_drcov, module)?)?;
    module.add_function(wrap_pyfunction!(export::export_tenet, module)?)?;
    module.add_function(wrap_pyfunction!(export::export_perfetto, module)?)?;
    module.add_function(wrap_pyfunction!(export::import_tenet, module)?)?;
    Ok(())
}
