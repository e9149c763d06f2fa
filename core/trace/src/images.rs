// SPDX-License-Identifier: MIT
//! The images of processes: what a process runs from its start, or from an exec, to the next exec.

use std::collections::BTreeMap;

use crate::process::Process;
use crate::thread::Thread;

/// Numbers the images of each process, which are sorted by their start. A process that ended by
/// itself has no further image: its number went to another process.
pub(crate) fn number_images(processes: &mut [Process]) {
    let mut newest: BTreeMap<u32, usize> = BTreeMap::new();
    for index in 0..processes.len() {
        let process = &mut processes[index];
        let (pid, start_ts) = (process.pid, process.start_ts);
        process.image = 1;
        // A vfork child calls exec in its parent's image, which stays.
        let main = process.threads.iter().rev().find(|t| t.tid == pid);
        process.replaced = main.is_some_and(|thread| thread.ended_by_exec);
        let Some(before) = newest.insert(pid, index) else {
            continue;
        };
        let before = &mut processes[before];
        let lives = |t: &Thread| t.ended_by_exec || t.ended_open;
        if before.threads.iter().any(lives) && before.start_ts < start_ts {
            before.replaced = true;
            let number = before.image + 1;
            processes[index].image = number;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::container::Storage;

    #[derive(Clone, Copy)]
    enum Ended {
        Exit,
        Exec,
        Open,
    }

    fn process(pid: u32, start_ts: u64, threads: &[(u32, Ended)]) -> Process {
        let threads = threads.iter().map(|&(tid, ended)| Thread {
            pid,
            tid,
            name: String::new(),
            start: None,
            storage: Arc::new(Storage::memory(Vec::new())),
            blocks: Arc::default(),
            flow_sections: Vec::new(),
            values_sections: Vec::new(),
            ended_open: matches!(ended, Ended::Open),
            ended_by_exec: matches!(ended, Ended::Exec),
        });
        Process {
            pid,
            start_ts,
            threads: threads.collect(),
            ..Process::default()
        }
    }

    fn numbered(mut processes: Vec<Process>) -> Vec<(u32, bool)> {
        number_images(&mut processes);
        processes.iter().map(|p| (p.image, p.replaced)).collect()
    }

    #[test]
    fn each_exec_begins_another_image() {
        let images = numbered(vec![
            process(7, 10, &[(7, Ended::Exec)]),
            // Its other threads end without an event.
            process(7, 20, &[(7, Ended::Open), (8, Ended::Exec)]),
            process(7, 30, &[(7, Ended::Open)]),
        ]);
        assert_eq!(images, [(1, true), (2, true), (3, false)]);
    }

    #[test]
    fn a_reused_number_is_another_process() {
        let images = numbered(vec![
            process(7, 10, &[(7, Ended::Exit), (8, Ended::Exit)]),
            process(7, 20, &[(7, Ended::Open)]),
        ]);
        assert_eq!(images, [(1, false), (1, false)]);
    }

    #[test]
    fn a_vfork_childs_exec_leaves_its_parents_image() {
        let images = numbered(vec![
            process(7, 10, &[(7, Ended::Open), (9, Ended::Exec)]),
            process(9, 20, &[(9, Ended::Open)]),
        ]);
        assert_eq!(images, [(1, false), (1, false)]);
    }
}
