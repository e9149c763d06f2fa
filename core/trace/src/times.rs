// SPDX-License-Identifier: MIT
//! Times of system calls, kept apart from the flow they stand in (codec 2).
//!
//! A thread that polls with a system call writes the same two events again and again, but for
//! their times. In place those cost more on disk than all the rest: each interrupts a
//! repetition. So they are taken out, as differences, byte by byte:
//!
//! ```text
//! flow with zeros for these times | enters: 1st bytes, 2nd bytes, .. 8th bytes | exits: the same
//! ```
//!
//! A difference is to the time before it in the section, of either kind; the first is to 0.

use crate::event::decode_record;
use crate::protocol as p;

/// Sections with fewer of these events are left as they are.
const WORTH_IT: usize = 64;
/// Units looked at together.
const LANES: usize = 16;
const TIME_BYTES: usize = 8;
/// No event with a time is shorter, so `separate` adds at most this part.
const MOST_ADDED: usize = 4;

#[derive(Clone, Copy)]
struct Time {
    is_exit: bool,
    offset: usize,
}

/// How long the separated form of `raw_bytes` of flow can be.
pub fn longest(raw_bytes: usize) -> usize {
    raw_bytes + raw_bytes / MOST_ADDED
}

/// Takes the times out of a section of flow. `None`: there are too few.
pub fn separate(raw: &[u8]) -> Option<Vec<u8>> {
    let times = find(raw);
    if times.len() < WORTH_IT {
        return None;
    }
    let mut separated = Vec::with_capacity(raw.len() + times.len() * TIME_BYTES);
    separated.extend_from_slice(raw);
    let mut before = 0u64;
    let differences: Vec<(bool, [u8; TIME_BYTES])> = times
        .iter()
        .map(|time| {
            let place = time.offset..time.offset + TIME_BYTES;
            let now: u64 = p::read(&raw[place.clone()]).unwrap_or_default();
            separated[place].fill(0);
            let difference = now.wrapping_sub(before);
            before = now;
            (time.is_exit, difference.to_le_bytes())
        })
        .collect();
    for is_exit in [false, true] {
        for byte in 0..TIME_BYTES {
            let of_kind = differences.iter().filter(|(kind, _)| *kind == is_exit);
            separated.extend(of_kind.map(|(_, difference)| difference[byte]));
        }
    }
    Some(separated)
}

/// Undoes [`separate`] in place. `None`: these are not `raw_bytes` of flow and their times.
pub fn unite(separated: &mut Vec<u8>, raw_bytes: usize) -> Option<()> {
    let columns = separated.split_off(raw_bytes.min(separated.len()));
    let times = find(separated);
    if separated.len() != raw_bytes || columns.len() != times.len() * TIME_BYTES {
        return None;
    }
    let exits = times.iter().filter(|time| time.is_exit).count();
    let enters = times.len() - exits;
    let (enter_columns, exit_columns) = columns.split_at(enters * TIME_BYTES);
    let (mut next_enter, mut next_exit) = (0, 0);
    let mut before = 0u64;
    for time in times {
        let (column, count, next) = if time.is_exit {
            (exit_columns, exits, &mut next_exit)
        } else {
            (enter_columns, enters, &mut next_enter)
        };
        let difference = std::array::from_fn(|byte| column[byte * count + *next]);
        *next += 1;
        before = before.wrapping_add(u64::from_le_bytes(difference));
        separated[time.offset..time.offset + TIME_BYTES].copy_from_slice(&before.to_le_bytes());
    }
    Some(())
}

/// The places of the times of system calls. The search ends where the bytes are no flow.
fn find(raw: &[u8]) -> Vec<Time> {
    let mut times = Vec::new();
    let short = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]);
    let mut at = 0;
    while at + 2 <= raw.len() {
        while let Some(group) = raw.get(at..at + 2 * LANES) {
            let is_plain = |unit: u16| unit.wrapping_sub(1) < p::FLOW_LONG - 1;
            if !group
                .chunks_exact(2)
                .fold(true, |plain, unit| plain & is_plain(short(unit)))
            {
                break;
            }
            at += 2 * LANES;
        }
        let Some(unit) = raw.get(at..at + 2).map(short) else {
            break;
        };
        match unit {
            p::FLOW_PAD => break,
            p::FLOW_EVENT => {
                let Some((kind, payload, taken)) = decode_record(&raw[at..]) else {
                    break;
                };
                let is_exit = kind == p::EVENT_SYSCALL_EXIT;
                let smallest = std::mem::size_of::<p::SyscallExit>();
                if (is_exit || kind == p::EVENT_SYSCALL_ENTER) && payload.len() >= smallest {
                    let offset = at + std::mem::size_of::<p::Record>();
                    times.push(Time { is_exit, offset });
                }
                at += taken;
            }
            id if id < p::FLOW_LONG => at += 2,
            _ => at += 4,
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(raw: &mut Vec<u8>, kind: u16, ts: u64) {
        let payload = [&ts.to_le_bytes()[..], &[7; 16]].concat();
        raw.extend([0xff, 0xff]);
        raw.extend(kind.to_le_bytes());
        raw.extend((payload.len() as u32).to_le_bytes());
        raw.extend(payload);
    }

    fn polling(calls: u64) -> Vec<u8> {
        let mut raw = Vec::new();
        for call in 0..calls {
            let ts = 5_000_000_000_000 + call * 1900 + call * call % 300;
            raw.extend(1u16.to_le_bytes());
            event(&mut raw, p::EVENT_SYSCALL_ENTER, ts);
            event(&mut raw, p::EVENT_SYSCALL_EXIT, ts + 400 + call % 50);
            raw.extend([0x05, 0xf0, 0xff, 0xff]); // a long id whose low half looks like an event
        }
        raw
    }

    #[test]
    fn separated_times_are_put_back() {
        for tail in [
            &[][..],
            &[0, 0, 0, 9, 9, 9],
            &[0xff],
            &[0xff, 0xff, 3, 0, 200, 0, 0, 0],
        ] {
            let raw = [polling(100), tail.to_vec()].concat();
            let mut separated = separate(&raw).expect("there are times");
            assert!(separated.len() <= longest(raw.len()));
            assert_ne!(separated[..raw.len()], raw[..]);
            unite(&mut separated, raw.len()).expect("it is whole");
            assert_eq!(separated, raw);
        }
    }

    #[test]
    fn times_pay() {
        let raw = polling(20_000);
        let plain = zstd::bulk::compress(&raw, 1).expect("zstd works").len();
        let apart = zstd::bulk::compress(&separate(&raw).expect("times"), 1).expect("zstd works");
        assert!(apart.len() * 2 < plain, "{} and {plain}", apart.len());
    }

    #[test]
    fn few_times_stay_and_damage_is_noticed() {
        assert!(separate(&polling(5)).is_none());
        let raw = polling(100);
        let separated = separate(&raw).expect("there are times");
        for bytes in [0, 10, raw.len(), separated.len() - 1] {
            assert!(unite(&mut separated[..bytes].to_vec(), raw.len()).is_none());
        }
        assert!(unite(&mut separated.clone(), raw.len() + 2).is_none());
    }
}
