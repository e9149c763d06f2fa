// SPDX-License-Identifier: MIT
//! Whose turn it is on a TCP connection: what the kernel tells of its last data (tcp_info, tcp(7)).
//!
//! Blind spots: a peer may answer in several parts, or send without being asked; times are as
//! coarse as the kernel's clock of interrupts, so of a quick exchange the order is not told.

use std::os::fd::AsRawFd;

use flagfinder_linux::descriptors::duplicate;

/// Who sent last on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentLast {
    /// This process: it is the other end's turn.
    Own,
    /// The other end: it has answered, or asks for something.
    Peer,
    /// Both did within a moment.
    Unclear,
    /// The kernel keeps no time of it, as of a Unix socket.
    Untold,
}

/// Offsets in `struct tcp_info` of linux/tcp.h: ms since data were sent and came, bytes that came.
const SENT: usize = 44;
const CAME: usize = 52;
const BYTES: usize = 128;
const WHOLE: usize = BYTES + 8;

/// Who sent last there. `None`: nothing came yet, or it is no TCP connection that we may ask about.
pub fn sent_last(pid: u32, fd: i32) -> Option<SentLast> {
    let socket = duplicate(pid, fd).ok()?;
    let mut info = [0u8; WHOLE];
    let mut bytes = WHOLE as libc::socklen_t;
    // SAFETY: a buffer of ours, and its size.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut bytes,
        )
    };
    (got == 0 && bytes as usize == WHOLE).then(|| told(&info))?
}

fn told(info: &[u8; WHOLE]) -> Option<SentLast> {
    let number =
        |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    let came = info[BYTES..].iter().any(|byte| *byte != 0);
    came.then(|| match number(SENT).cmp(&number(CAME)) {
        std::cmp::Ordering::Less => SentLast::Own,
        std::cmp::Ordering::Equal => SentLast::Unclear,
        std::cmp::Ordering::Greater => SentLast::Peer,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_has_answered_sent_last() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("it")).expect("a client");
        let (mut server, _) = listener.accept().expect("a connection");
        let asked = |socket: &TcpStream| sent_last(std::process::id(), socket.as_raw_fd());
        let pause = || std::thread::sleep(Duration::from_millis(60));
        let mut byte = [0];
        pause();
        client.write_all(b"?").expect("a question");
        server.read_exact(&mut byte).expect("the question");
        assert_eq!(
            (asked(&client), asked(&server)),
            (None, Some(SentLast::Peer))
        );
        pause();
        server.write_all(b"!").expect("an answer");
        client.read_exact(&mut byte).expect("the answer");
        assert_eq!(asked(&client), Some(SentLast::Peer));
        assert_eq!(asked(&server), Some(SentLast::Own));
        let (here, _there) = std::os::unix::net::UnixStream::pair().expect("a pair");
        assert_eq!(sent_last(std::process::id(), here.as_raw_fd()), None);
    }
}
