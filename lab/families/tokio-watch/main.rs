// SPDX-License-Identifier: MIT
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;
use tokio::sync::watch;

include!(concat!(env!("CPATH"), "/truth.rs"));

/// A server that stops before it answers.
fn server(end: UnixStream) {
    match unsafe { libc::fork() } {
        0 => unsafe {
            libc::raise(libc::SIGSTOP);
            drop(end);
            libc::_exit(0);
        },
        pid => {
            let mut status = 0;
            unsafe { libc::waitpid(pid, &mut status, libc::WUNTRACED) };
            truth(&format!("role server {pid}"));
        }
    }
}

fn main() {
    let (mut own, other) = UnixStream::pair().unwrap();
    server(other);
    let (sender, receiver) = watch::channel(1u64);
    thread::spawn(move || {
        role("sender");
        let mut answer = Vec::new();
        own.read_to_end(&mut answer).unwrap();
        sender.send(2).unwrap();
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        thread::sleep(Duration::from_millis(200));
        role("waiter");
        truth(&format!(
            "word state {:#x} 8",
            &*receiver.borrow() as *const u64 as usize
        ));
        truth("ready");
        while *receiver.borrow() != 2 {
            tokio::task::yield_now().await;
        }
    });
    thread::sleep(Duration::from_secs(5));
}
