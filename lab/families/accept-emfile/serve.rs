// SPDX-License-Identifier: MIT
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

include!(concat!(env!("CPATH"), "/truth.rs"));

#[repr(C)]
struct Limit(u64, u64);
#[repr(C)]
struct Asked {
    fd: i32,
    events: i16,
    found: i16,
}
extern "C" {
    fn setrlimit(what: i32, limit: *const Limit) -> i32;
    fn poll(asked: *mut Asked, count: u64, limit: i32) -> i32;
}

fn main() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    role("waiter");
    truth(&format!("fd listener {}", listener.as_raw_fd()));
    truth("ready");
    unsafe { setrlimit(7, &Limit(32, 32)) };
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    let mut clients = Vec::new();
    loop {
        let mut asked = Asked {
            fd: listener.as_raw_fd(),
            events: 1,
            found: 0,
        };
        if unsafe { poll(&mut asked, 1, -1) } == 1 {
            if let Ok(client) = listener.accept() {
                clients.push(client);
            }
        }
    }
}
