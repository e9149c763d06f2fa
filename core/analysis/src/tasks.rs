// SPDX-License-Identifier: MIT
//! What single tasks of a scheduler in user space did (goroutines, coroutines), without the
//! scheduler.
//!
//! Such a thread sleeps, is woken, counts and changes tasks; all of that says nothing of the task
//! that polls. A switch loads the stack pointer from memory or moves it farther than a frame is
//! large. A task goes on where it left off, so that its stack pointer is about what it was; Go's
//! scheduler begins anew each time.

use flagfinder_code::Names;
use flagfinder_machine::Window;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use crate::analysis::{Analysis, Candidate};
use crate::loop_kind::LoopKind;
use crate::runtime::is_runtime_symbol;
use crate::spin_loop::SpinLoop;

/// Larger than any frame.
const FRAME_MOST: u64 = 64 << 10;
/// Most bytes that the switch itself may leave on the stack.
const SLACK: u64 = 256;
/// Stretches that a task that recurs has at least.
const LEAST: usize = 3;

/// The window of each recurring task of the thread, the one with most steps first; none if it
/// does not switch stacks.
pub fn windows(window: &Window) -> Vec<Window> {
    let mut tasks: Vec<Vec<(u32, u32)>> = Vec::new();
    // Where each task left off.
    let mut left: Vec<u64> = Vec::new();
    let mut first = 0;
    for end in (1..=window.len()).filter(|&end| end == window.len() || is_switch(window, end)) {
        let enters = window.rsp(first);
        let goes_on = |at: &u64| at.abs_diff(enters) <= SLACK;
        let task = left.iter().position(goes_on).unwrap_or_else(|| {
            left.push(0);
            tasks.push(Vec::new());
            left.len() - 1
        });
        left[task] = window.rsp(end - 1);
        tasks[task].push((first, end));
        first = end;
    }
    tasks.retain(|stretches| stretches.len() >= LEAST);
    let steps = |stretches: &[(u32, u32)]| -> u32 {
        let lengths = stretches.iter().map(|(first, end)| end - first);
        lengths.sum()
    };
    tasks.sort_by_key(|stretches| std::cmp::Reverse(steps(stretches)));
    let joined = tasks.iter().map(|stretches| window.join(stretches));
    joined.collect()
}

/// Does the thread change stacks, so that it may run tasks?
pub fn switches(window: &Window) -> bool {
    (1..window.len()).any(|step| is_switch(window, step))
}

/// Behind the highest word that is seen to be addressed from a frame. Objects of the heap may
/// follow right behind a stack.
fn end_of_stack(window: &Window) -> u64 {
    let reach = |step: u32| {
        let rsp = window.rsp(step);
        let base = window.code(step).instruction.memory_base();
        let of_frame = matches!(base, Register::RSP | Register::RBP);
        let accesses = window.accesses(step).iter().filter(move |_| of_frame);
        let ends = accesses.filter_map(|access| Some(access.address? + u64::from(access.bytes)));
        ends.filter(move |end| end.wrapping_sub(rsp) < FRAME_MOST)
            .fold(rsp, u64::max)
    };
    (0..window.len()).map(reach).max().unwrap_or(0)
}

/// No other thread has anything on a goroutine's stack: a word that is read there and stays the
/// same is a number, and no flag.
fn settle_own_stack(analysis: &mut Analysis, window: &Window) {
    let end = end_of_stack(window);
    let is_own =
        |word: &Candidate| word.steady && (window.rsp(word.step)..end).contains(&word.address);
    let (own, others): (Vec<_>, Vec<_>) = analysis.candidates.drain(..).partition(is_own);
    analysis.candidates = others;
    let is_settled = |address: u64| own.iter().any(|word| word.address == address);
    for condition in analysis.conditions.iter_mut().flatten() {
        condition.left.settle(&is_settled);
        condition.right.settle(&is_settled);
    }
}

/// Does the thread run on another stack from the step on?
fn is_switch(window: &Window, step: u32) -> bool {
    let (before, after) = (window.rsp(step - 1), window.rsp(step));
    if before == 0 || after == 0 {
        return false;
    }
    let code = &window.code(step - 1).instruction;
    let loads = code.mnemonic() == Mnemonic::Mov
        && code.op_count() == 2
        && code.op0_register() == Register::RSP
        && code.op1_kind() == OpKind::Memory;
    before.abs_diff(after) > FRAME_MOST || (loads && before != after && !gives_back(code))
}

/// Does a function give back an array whose length it computed? It loads the stack pointer from a
/// variable of its own frame, below the frame pointer.
fn gives_back(code: &Instruction) -> bool {
    code.memory_base() == Register::RBP
        && code.memory_index() == Register::None
        && (code.memory_displacement64() as i64) < 0
}

/// By static instruction.
fn functions(window: &Window, names: &Names) -> Vec<Option<String>> {
    let function = |index| {
        let symbol = names.code(window.code_at(index).pc()).symbol?;
        symbol.split("+0x").next().map(str::to_owned)
    };
    (0..window.code_count() as u32).map(function).collect()
}

/// Is the loop one of Go's scheduler alone? It waits for the next goroutine, which is no flag.
pub fn only_schedules(spin: &SpinLoop, window: &Window, names: &Names) -> bool {
    // This test is cheaper than all of them.
    let begins = names.code(window.code_at(spin.marker).pc()).symbol;
    begins.is_some_and(|symbol| symbol.starts_with("runtime."))
        && is_of_scheduler(spin, window, &functions(window, names))
}

fn is_of_scheduler(spin: &SpinLoop, window: &Window, functions: &[Option<String>]) -> bool {
    let mut seen = vec![false; functions.len()];
    for step in spin.first_step()..spin.end {
        seen[window.code_index(step) as usize] = true;
    }
    let named = || {
        let all = functions.iter().zip(&seen);
        all.filter_map(|(function, seen)| function.as_deref().filter(|_| *seen))
    };
    // In a Go program only functions in assembler have no package (`gogo`).
    let is_runtime = |function: &str| is_runtime_symbol(function) || !function.contains('.');
    named().any(|function| function.starts_with("runtime.")) && named().all(is_runtime)
}

/// Does the task give way, or sleep, of its own accord in (nearly) every round? A parked task is
/// woken by others, and one that only calls its scheduler (in Go on the scheduler's stack) goes on
/// at once. The analysis then says how it waits.
pub fn polls(analysis: &mut Analysis, window: &Window, names: &Names) -> bool {
    let spin = &analysis.spin;
    let rounds = spin.starts.len() - 1;
    let functions = functions(window, names);
    if is_of_scheduler(spin, window, &functions) {
        return false;
    }
    let often = |is_it: &dyn Fn(u32) -> bool| {
        let mut rounds_with = vec![false; spin.starts.len()];
        for step in spin.first_step()..spin.end {
            rounds_with[spin.round_of(step)] |= is_it(step);
        }
        rounds_with.into_iter().filter(|&yes| yes).count() * 2 >= rounds
    };
    let calls = |function: &str| {
        often(&|step| functions[window.code_index(step) as usize].as_deref() == Some(function))
    };
    let sleeps = calls("time.Sleep");
    let is_go = functions
        .iter()
        .flatten()
        .any(|function| function.starts_with("runtime."));
    let gives_way = match is_go {
        true => calls("runtime.Gosched") || calls("runtime.mcall") && !calls("runtime.gopark"),
        false => often(&|step| window.comes_from_call(step)),
    };
    analysis.of_task = true;
    if is_go {
        settle_own_stack(analysis, window);
    }
    if matches!(
        analysis.kind,
        LoopKind::Busy | LoopKind::Pause | LoopKind::Lock
    ) {
        analysis.kind = if sleeps {
            LoopKind::Sleep
        } else {
            LoopKind::Yield
        };
    }
    sleeps || gives_way
}

#[cfg(test)]
mod tests {
    use flagfinder_machine::evaluator::Access;
    use flagfinder_machine::value::Value;
    use flagfinder_machine::Interruption;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    const TASK: u64 = 0x10_0000;
    const OTHER_TASK: u64 = 0x20_0000;
    const SCHEDULER: u64 = 0x90_0000;

    /// Each of these stack pointers is that of one instruction, at an address of its own.
    fn window(stack_pointers: impl IntoIterator<Item = u64>) -> Window {
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        for rsp in stack_pointers {
            let mut decoder = Decoder::with_ip(64, &[0x90], rsp, DecoderOptions::NONE);
            let code = window.intern(&decoder.decode(), 0, &mut factory);
            window.push(code, Value::of(rsp));
        }
        window
    }

    #[test]
    fn a_task_goes_on_where_it_left_off_and_the_scheduler_begins_anew() {
        let round = [TASK, TASK - 8, SCHEDULER, SCHEDULER - 0x400];
        let tasks = windows(&window((0..5).flat_map(|_| round)));
        assert_eq!(tasks.len(), 1);
        let task = &tasks[0];
        assert_eq!(task.len(), 10);
        assert!((0..10).all(|step| task.pc(step) >= TASK - 8 && task.pc(step) <= TASK));
        let joined: Vec<u32> = task.interruptions.iter().map(|(at, _)| *at).collect();
        assert_eq!(joined, [2, 4, 6, 8]);
        let what = |(_, what): &(u32, Interruption)| *what == Interruption::CalledOver;
        assert!(task.interruptions.iter().all(what));
    }

    #[test]
    fn tasks_are_told_apart_the_longest_first() {
        let round = [TASK, OTHER_TASK, OTHER_TASK - 8];
        let tasks = windows(&window((0..4).flat_map(|_| round)));
        let lengths: Vec<u32> = tasks.iter().map(Window::len).collect();
        assert_eq!(lengths, [8, 4]);
    }

    #[test]
    fn what_lies_right_behind_a_stack_is_not_on_it() {
        // mov rax, [rsp+0x58]; mov rax, [rcx]
        let codes: [&[u8]; 2] = [&[0x48, 0x8b, 0x44, 0x24, 0x58], &[0x48, 0x8b, 0x01]];
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        for (code, address) in codes.into_iter().zip([TASK + 0x58, TASK + 0x400]) {
            let mut decoder = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE);
            let code = window.intern(&decoder.decode(), address, &mut factory);
            window.push(code, Value::of(TASK));
            window.push_access(Access {
                address: Some(address),
                bytes: 8,
                write: false,
                value: Value::of(0),
            });
        }
        assert_eq!(end_of_stack(&window), TASK + 0x60);
    }

    #[test]
    fn a_thread_that_runs_only_gos_runtime_schedules() {
        let window = window([SCHEDULER, SCHEDULER - 8, SCHEDULER - 16].repeat(5));
        let spin = crate::loop_search::find(&window, &[]).expect("repeats");
        let schedules = |functions: [Option<&str>; 3]| {
            is_of_scheduler(
                &spin,
                &window,
                &functions.map(|name| name.map(str::to_owned)),
            )
        };
        let [schedule, assembler] = ["runtime.schedule", "gogo"].map(Some);
        assert!(schedules([schedule, assembler, None]));
        assert!(!schedules([schedule, assembler, Some("main.wait")]));
        assert!(!schedules([assembler, None, None]), "a C program");
    }

    #[test]
    fn calls_are_no_switches() {
        let round = [TASK, TASK - 0x200, TASK - 0x8000];
        assert!(windows(&window((0..5).flat_map(|_| round))).is_empty());
    }

    #[test]
    fn an_array_that_is_given_back_is_no_switch() {
        let switches = |code: &[u8]| {
            let mut window = Window::default();
            let mut factory = InstructionInfoFactory::new();
            let mut decoder = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE);
            let code = window.intern(&decoder.decode(), 0, &mut factory);
            window.push(code, Value::of(TASK - 0x800));
            window.push(code, Value::of(TASK));
            switches(&window)
        };
        assert!(!switches(&[0x48, 0x8b, 0x65, 0xb8]), "mov rsp, [rbp-0x48]");
        assert!(switches(&[0x48, 0x8b, 0x65, 0x48]), "mov rsp, [rbp+0x48]");
        assert!(switches(&[0x48, 0x8b, 0x67, 0xb8]), "mov rsp, [rdi-0x48]");
    }
}
