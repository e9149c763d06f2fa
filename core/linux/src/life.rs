// SPDX-License-Identifier: MIT
//! System calls by which threads and processes begin, end, and wait for each other's end.

/// It makes a thread or a process: clone, fork, vfork, clone3.
pub fn creates(number: u32) -> bool {
    matches!(
        i64::from(number),
        libc::SYS_clone | libc::SYS_fork | libc::SYS_vfork | libc::SYS_clone3
    )
}

/// It ends the thread or its process: exit, exit_group.
pub fn exits(number: u32) -> bool {
    i64::from(number) == libc::SYS_exit || exits_process(number)
}

/// It ends the whole process: exit_group.
pub fn exits_process(number: u32) -> bool {
    i64::from(number) == libc::SYS_exit_group
}

/// It puts another program in the process's place: execve, execveat.
pub fn executes(number: u32) -> bool {
    matches!(i64::from(number), libc::SYS_execve | libc::SYS_execveat)
}

/// It waits for the end of a child: wait4, waitid.
pub fn waits_for_child(number: u32) -> bool {
    matches!(i64::from(number), libc::SYS_wait4 | libc::SYS_waitid)
}

/// The thread pointer (fs_base) that this call sets.
pub fn thread_pointer(number: u32, args: &[u64; 6]) -> Option<u64> {
    const SET_FS: u64 = 0x1002;
    (i64::from(number) == libc::SYS_arch_prctl && args[0] == SET_FS).then_some(args[1])
}
