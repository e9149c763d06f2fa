// SPDX-License-Identifier: MIT
//! The address of a socket, as a program has it in memory, in words.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// `127.0.0.1:80`, or a path; `@` begins a name that is no path. `None`: it is of another kind.
pub fn text(bytes: &[u8]) -> Option<String> {
    let two = |at: usize| bytes.get(at..at + 2)?.try_into().ok();
    let port = || two(2).map(u16::from_be_bytes);
    match i32::from(u16::from_ne_bytes(two(0)?)) {
        libc::AF_INET => {
            let address: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(SocketAddr::from((Ipv4Addr::from(address), port()?)).to_string())
        }
        libc::AF_INET6 => {
            let address: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            let address = Ipv6Addr::from(address).to_canonical();
            Some(SocketAddr::from((address, port()?)).to_string())
        }
        libc::AF_UNIX => {
            let name = bytes.get(2..).filter(|name| !name.is_empty())?;
            let end = name.iter().skip(1).position(|byte| *byte == 0);
            let name = String::from_utf8_lossy(&name[..end.map_or(name.len(), |end| end + 1)]);
            Some(name.replacen('\0', "@", 1))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_has_its_own_form() {
        let of = |family: i32, rest: &[u8]| {
            text(&[&(family as u16).to_ne_bytes()[..], rest].concat()).unwrap_or_default()
        };
        let port = 9u16.to_be_bytes();
        let ip4 = [&port[..], &[127, 0, 0, 1], &[0; 8]].concat();
        assert_eq!(of(libc::AF_INET, &ip4), "127.0.0.1:9");
        let ip6 = |address: [u8; 16]| [&port[..], &[0; 4], &address, &[0; 4]].concat();
        let one = Ipv6Addr::LOCALHOST.octets();
        assert_eq!(of(libc::AF_INET6, &ip6(one)), "[::1]:9");
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
        assert_eq!(of(libc::AF_INET6, &ip6(mapped)), "127.0.0.1:9");
        assert_eq!(of(libc::AF_UNIX, b"/run/bus\0\0"), "/run/bus");
        assert_eq!(of(libc::AF_UNIX, b"\0bus\0"), "@bus");
        assert_eq!(text(&[1]), None);
        assert_eq!(of(libc::AF_INET, &port), "");
    }
}
