// SPDX-License-Identifier: MIT
//! How near the exits of a loop are to the loop itself.

use flagfinder_analysis::exit::Exit;
use flagfinder_analysis::runtime::{is_runtime_module, is_runtime_symbol};
use flagfinder_analysis::{idle_call, Analysis, Candidate, LoopKind};
use flagfinder_code::{DataHome, DataKind, Names};
use flagfinder_machine::Window;

/// Words that decide exits in generated code of one loop; more are mostly guards: a JIT compiler
/// tests types, lengths and assumptions in every iteration, in the same way as a program tests its
/// flags.
pub(crate) const GUARDS: usize = 3;

/// How near each exit is to the loop itself.
pub(crate) struct ExitDepths {
    /// Number of different stack levels between the loop's frame and the exit's.
    pub depth: Vec<u32>,
    pub runtime: Vec<bool>,
    /// By exit: it lies in generated code that has many such tests.
    pub guard: Vec<bool>,
    /// By exit: it lies in the program's own code.
    pub own: Vec<bool>,
    /// Within a call whose result the loop does not use.
    pub idle: Vec<bool>,
    /// The loop is that of a language's scheduler.
    pub schedules: bool,
    /// The C library does nothing but wait: pthread_spin_lock.
    pub library_waits: bool,
}

impl ExitDepths {
    pub fn new(window: &Window, analysis: &Analysis, names: &Names, tid: u32) -> ExitDepths {
        let program = names.input().modules.first().map(|module| &module.identity);
        let made = &analysis.generated;
        let in_program = |pc: u64| {
            let place = names.module_place(pc);
            place.is_none_or(|(module, _)| !made.holds_loop && Some(module) == program)
        };
        let exits = analysis.exits.iter().map(|exit| window.pc(exit.step));
        let own: Vec<bool> = exits.map(in_program).collect();
        // A function that a library calls back has its own way to tell the library to stop.
        let marker_is_own = in_program(window.code_at(analysis.spin.marker).pc());
        let is_idle = |(exit, own): (&Exit, &bool)| {
            (marker_is_own || !own) && idle_call::is_within(window, &analysis.spin, made, exit)
        };
        let idle = analysis.exits.iter().zip(&own).map(is_idle).collect();
        // The levels of a library that calls the program back lie between.
        let levels = |of_program: bool| -> Vec<u64> {
            let exits = analysis.exits.iter().zip(&own);
            let among = exits.filter(|(_, own)| **own || !of_program);
            let mut levels: Vec<u64> = among.map(|(exit, _)| window.rsp(exit.step)).collect();
            levels.sort_unstable_by(|a, b| b.cmp(a));
            levels.dedup();
            levels
        };
        let (all, program) = (levels(false), levels(true));
        let depth = |(exit, own): (&Exit, &bool)| {
            let rsp = window.rsp(exit.step);
            let levels = if *own { &program } else { &all };
            levels.iter().position(|&l| l == rsp).unwrap_or(0) as u32
        };
        let runtime = |exit: &Exit| {
            let code = names.code(window.pc(exit.step));
            let own_runtime = code.symbol.as_deref().is_some_and(is_runtime_symbol);
            own_runtime || code.module.as_deref().is_some_and(is_runtime_module)
        };
        let generated = |exit: &Exit| made.is_at(window, exit.step);
        let is_own_state = |word: &Candidate| {
            made.is_context(word.address) || analysis.interpreted.holds(word.address)
        };
        let asked = |word: &&Candidate| usable(word, names, tid) && !is_own_state(word);
        let words: Vec<&Candidate> = analysis.candidates.iter().filter(asked).collect();
        // A called function checks its operands; what the loop tests of its result is no such
        // check.
        let is_guard = |exit: &Exit| {
            let level = window.rsp(exit.step);
            let decides_there = |&exit: &usize| {
                let exit = &analysis.exits[exit];
                generated(exit) && window.rsp(exit.step) >= level
            };
            let there = |word: &&&Candidate| word.exits.iter().any(decides_there);
            generated(exit) && words.iter().filter(there).count() > GUARDS
        };
        let marker = names.code(window.code_at(analysis.spin.marker).pc());
        let pauses = matches!(analysis.kind, LoopKind::Pause | LoopKind::Rmw);
        ExitDepths {
            library_waits: pauses && marker.module.as_deref().is_some_and(is_runtime_module),
            guard: analysis.exits.iter().map(is_guard).collect(),
            depth: analysis.exits.iter().zip(&own).map(depth).collect(),
            idle,
            own,
            runtime: analysis.exits.iter().map(runtime).collect(),
            schedules: marker.symbol.as_deref().is_some_and(is_runtime_symbol),
        }
    }
}

impl ExitDepths {
    /// Does the word decide nothing in the program itself, which tests others in the loop?
    pub fn is_of_library(&self, candidate: &Candidate) -> bool {
        self.own.contains(&true) && !candidate.exits.iter().any(|&exit| self.own[exit])
    }
}

/// May its value change at all, and is it the program's?
pub(crate) fn usable(candidate: &Candidate, names: &Names, tid: u32) -> bool {
    let fixed = match candidate.kind {
        DataKind::ReadOnly | DataKind::Linkage | DataKind::Kernel => true,
        // Some virtual machines keep code and data together.
        DataKind::Code => !names.is_writable(candidate.address),
        // The word of another thread tells whether that thread has ended: pthread_tryjoin_np.
        DataKind::ThreadControl => match names.data(candidate.address).home {
            DataHome::ThreadControl { tid: owner, .. } => owner == tid,
            _ => true,
        },
        _ => false,
    };
    // What the C library tells programs about themselves lies in the program if that refers to it;
    // and the value that Go's maps give for missing keys stays zero.
    let symbol = names.data(candidate.address).symbol;
    let is_told = symbol.is_some_and(|symbol| {
        symbol.starts_with("__libc_") || symbol.starts_with("runtime.zeroVal")
    });
    !fixed && !is_told && !names.is_fixed(candidate.address)
}
