// SPDX-License-Identifier: MIT
//! Whom blocked threads wait for, as /proc and the kernel's tables of sockets and locks tell.
//!
//! In: threads of live processes. Out: the owner of a lock, the processes at the other ends of
//! descriptors, children, threads to be joined ([`look`]). Nothing is stopped and nothing is
//! changed. Blind spots: who will signal a condition or post a semaphore; locks that do not name
//! their owner (only glibc's mutexes and priority-inheriting ones do); peers in other network
//! namespaces.

pub mod call;
pub mod descriptor;
pub mod futex;
pub mod hot_call;
mod inherited;
pub mod internet;
pub mod ipc;
pub mod locks;
mod look;
mod owners;
pub mod proc;
mod ready;
mod relatives;
mod sockets;
pub mod turn;
pub mod unix;

pub use inherited::{Inherited, Sure};
pub use look::{look, Holder, How, Look, Looked};
pub use owners::{eventfd, is_fifo, is_queue, Owner, Owners};
pub use ready::{untaken, Because, Untaken};
pub use relatives::{awaited, children, descendants};
pub use sockets::Sockets;
