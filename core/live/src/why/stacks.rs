// SPDX-License-Identifier: MIT
//! All open calls of all threads of a process, those of an interpreter among the machine's.
//!
//! In: a process, and what its interpreter says. Out: [`ThreadStack`]s. A thread that runs is only
//! stopped for V8's: of it the interpreter's calls and its loop are told. Blind spot: where C code
//! that Python called calls Python again, Python's calls are told together, innermost.

use flagfinder_code::{Spot, Whose};
use flagfinder_linux::syscalls;

use super::asked::InSource;
use super::java;
use super::process::{Process, Processes};
use super::report::{OpenCall, ThreadStack};
use crate::stack::Stack;

/// What executes Python's functions.
const EVALUATES: &str = "_PyEval_EvalFrameDefault";
/// What calls that, to the beginning of the thread.
const INTERPRETS: [&str; 4] = ["Py", "_Py", "py", "run_mod"];

/// Of each living thread. `in_loop`: the loop that a thread is in, if it is known.
pub fn stacks(
    processes: &mut Processes,
    pid: u32,
    in_source: &InSource,
    in_loop: impl Fn(u32) -> Option<Spot>,
) -> Vec<ThreadStack> {
    let Some(process) = processes.get(pid) else {
        return Vec::new();
    };
    let of = |tid: u32| {
        let activity = process.activity(tid)?;
        let of_source = in_source.stacks.get(&tid).map_or(&[][..], Vec::as_slice);
        let machine = machine(process, tid);
        let of_java = match activity.call {
            Some(_) => java::calls(process, tid),
            None => Vec::new(),
        };
        let of_runtime = match of_java.is_empty() && of_source.is_empty() {
            true => process.calls_of_runtime(tid),
            false => of_java,
        };
        let mut frames = match of_runtime.is_empty() {
            true => merged(&machine, of_source),
            false => above(&machine, of_runtime),
        };
        if frames.is_empty() {
            let found = in_loop(tid).map(|spot| OpenCall {
                spot,
                own: true,
                sure: true,
            });
            frames.extend(found);
        }
        Some(ThreadStack {
            tid,
            name: activity.name.clone(),
            call: activity.call.map(|call| syscalls::name(call.number)),
            frames,
        })
    };
    process.tids().into_iter().filter_map(of).collect()
}

fn machine(process: &Process, tid: u32) -> Vec<OpenCall> {
    let call = process.activity(tid).and_then(|activity| activity.call);
    let Some((call, inside)) = call.zip(process.inside.as_ref()) else {
        return Vec::new();
    };
    let stack = Stack::of(&call, &*inside.memory, &inside.names);
    let spots = stack.spots(&inside.names).into_iter();
    let told = spots.map(|(whose, spot, sure)| OpenCall {
        spot,
        own: whose == Whose::Own,
        sure,
    });
    told.collect()
}

/// A runtime's calls stand behind what they called: frames of its code tell the machine nothing.
fn above(machine: &[OpenCall], of_runtime: Vec<(Whose, Spot)>) -> Vec<OpenCall> {
    let is_native = |call: &&OpenCall| call.sure && call.spot.module.is_some();
    let native = machine.iter().take_while(is_native).cloned();
    let of_runtime = of_runtime.into_iter().map(|(whose, spot)| OpenCall {
        spot,
        own: whose == Whose::Own,
        sure: true,
    });
    native.chain(of_runtime).collect()
}

/// Calls of Python stand where the machine's code evaluates them, in place of that.
fn merged(machine: &[OpenCall], source: &[Spot]) -> Vec<OpenCall> {
    let of_source = source.iter().map(|spot| OpenCall {
        spot: spot.clone(),
        own: spot.whose() == Whose::Own,
        sure: true,
    });
    let function = |call: &OpenCall| call.spot.function.clone().unwrap_or_default();
    let Some(at) = machine.iter().position(|call| function(call) == EVALUATES) else {
        return of_source.chain(machine.iter().cloned()).collect();
    };
    if source.is_empty() {
        return machine.to_vec();
    }
    let is_of_interpreter = |call: &&OpenCall| {
        let name = function(call);
        INTERPRETS.iter().any(|begins| name.starts_with(begins))
            || call.spot.module == machine[at].spot.module
    };
    let outer = machine[at..].iter().filter(|call| !is_of_interpreter(call));
    let inner = machine[..at].iter().cloned();
    inner.chain(of_source).chain(outer.cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(function: &str, module: &str) -> OpenCall {
        OpenCall {
            spot: Spot {
                function: Some(function.into()),
                module: Some(module.into()),
                ..Spot::default()
            },
            own: false,
            sure: true,
        }
    }

    #[test]
    fn calls_of_python_stand_where_they_are_evaluated() {
        let machine = [
            call("futex", "libc.so.6"),
            call("lock_acquire", "python3.11"),
            call(EVALUATES, "python3.11"),
            call("thread_run", "python3.11"),
            call("start_thread", "libc.so.6"),
        ];
        let forth = Spot {
            function: Some("forth".into()),
            file: Some("/app/work.py".into()),
            line: Some(6),
            ..Spot::default()
        };
        let names = |calls: Vec<OpenCall>| -> Vec<String> {
            let names = calls.into_iter().map(|call| call.spot.function);
            names.map(Option::unwrap_or_default).collect()
        };
        let both = merged(&machine, std::slice::from_ref(&forth));
        assert!(both[2].own);
        assert_eq!(
            names(both),
            ["futex", "lock_acquire", "forth", "start_thread"]
        );
        assert_eq!(merged(&machine, &[]), machine);
        assert_eq!(names(merged(&[], &[forth])), ["forth"]);
    }
}
