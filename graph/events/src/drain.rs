// SPDX-License-Identifier: MIT
//! From ring records to events of one CPU in order, with losses in their places.

use std::io::Write;

use crate::call;
use crate::error::Result;
use crate::event::{Event, Kind};
use crate::flows::Flows;
use crate::protocol::{
    read, Record, EVENT_ENTER_SHORT, EVENT_EXIT_CALL_SHORT, EVENT_KERNEL, EVENT_PYTHON,
    EVENT_STACK, EVENT_STACK_COPY,
};
use crate::sites::Recorded;
use crate::writer::EventWriter;

/// How many records a CPU keeps back: an interrupt may record between another record's number and
/// its place in the ring.
const HELD_BACK: usize = 64;
/// Events that make a block worth writing.
const BLOCK: usize = 16_384;
/// Bytes of the registers before a copy of a stack: ip, sp, bp.
const REGISTERS: usize = 24;
/// The ring puts so much before each record.
const RING_HEADER: u64 = 8;

#[derive(Debug)]
struct Pending {
    sequence: u32,
    /// How many records it took: one more with a stack, with Python code, with call sites in the
    /// kernel.
    records: u32,
    event: Event,
}

#[derive(Debug, Default)]
struct Cpu {
    /// Records in the order in which they came.
    pending: Vec<Pending>,
    /// The sequence number that comes next.
    next: u32,
    last_ts: u64,
    beside: Beside,
}

/// What came with the newest event, whose stack is to follow: frames of Python code, and call sites
/// in the kernel.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    pub python: Vec<u64>,
    pub kernel: Vec<u64>,
}

/// All CPUs' records on their way into the file.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    cpus: Vec<Cpu>,
    pub flows: Flows,
    pub events: u64,
    pub raw_bytes: u64,
    pub unknown: u64,
    /// Stacks whose event was lost.
    pub orphans: u64,
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes
        .chunks_exact(8)
        .map(|word| word.try_into().map_or(0, u64::from_le_bytes))
}

impl Drain {
    /// Takes one record. Returns the event if it is one of its own (a stack belongs to the event
    /// before).
    /// `keep`: the call sites of a thread's stack, and what came with it, that are to be kept.
    pub fn take<W: Write>(
        &mut self,
        bytes: &[u8],
        writer: &mut EventWriter<W>,
        keep: impl FnOnce(u32, &Recorded<'_>, &Beside) -> Vec<u64>,
    ) -> Option<Event> {
        let (record, rest) = read::<Record>(bytes)?;
        self.raw_bytes += bytes.len() as u64 + RING_HEADER;
        let index = usize::from(record.cpu);
        if self.cpus.len() <= index {
            self.cpus.resize_with(index + 1, Cpu::default);
        }
        let cpu = &mut self.cpus[index];
        let mut beside = std::mem::take(&mut cpu.beside);
        if matches!(
            record.kind,
            EVENT_STACK | EVENT_STACK_COPY | EVENT_PYTHON | EVENT_KERNEL
        ) {
            // It is recorded with interrupts off, so nothing comes in between; but the event itself
            // may have been lost.
            let owner = cpu.pending.last_mut().filter(|last| {
                let next = last.sequence.wrapping_add(last.records);
                next == record.sequence && last.event.a == record.a
            });
            match owner {
                Some(owner) if record.kind == EVENT_PYTHON => {
                    owner.records += 1;
                    beside.python = words(rest).take(record.b as usize).collect();
                    cpu.beside = beside;
                }
                // The thread's own stack may not be asked for.
                Some(owner) if record.kind == EVENT_KERNEL => {
                    owner.records += 1;
                    beside.kernel = words(rest).take(record.b as usize).collect();
                    owner.event.stack =
                        writer.stack(&keep(record.a, &Recorded::Words(&[]), &beside));
                    cpu.beside = beside;
                }
                Some(owner) => {
                    let seen: Vec<u64>;
                    let stack = if record.kind == EVENT_STACK {
                        seen = words(rest).take(record.b as usize).collect();
                        Recorded::Words(&seen)
                    } else {
                        let (registers, copy) = rest.split_at_checked(REGISTERS)?;
                        seen = words(registers).collect();
                        let length = copy.len().min(record.b as usize);
                        Recorded::Copy([seen[0], seen[1], seen[2]], &copy[..length])
                    };
                    owner.event.stack = writer.stack(&keep(record.a, &stack, &beside));
                    owner.records += 1;
                }
                None => self.orphans += 1,
            }
            return None;
        }
        let short = match record.kind {
            EVENT_ENTER_SHORT => Some(Kind::Enter),
            EVENT_EXIT_CALL_SHORT => Some(Kind::ExitCall),
            _ => None,
        };
        let Some(kind) = short.or(Kind::from_u8(record.kind)) else {
            self.unknown += 1;
            return None;
        };
        let mut event = Event {
            ts: record.ts,
            a: record.a,
            b: record.b,
            cpu: record.cpu,
            kind,
            flags: record.flags,
            stack: 0,
            words: [0; 3],
        };
        if matches!(kind, Kind::Sent | Kind::Received) {
            event.words = self.flows.words(record.ts, rest)?;
        } else {
            words(rest)
                .zip(&mut event.words)
                .for_each(|(word, to)| *to = word);
        }
        // In the ring every word counts; readers want one argument in each word, and threads in
        // `b`.
        if short.is_some() {
            event.words[0] = call::lengthen(event.flags, event.b);
            (event.flags, event.b) = (0, 0);
        } else if kind == Kind::EnterWide {
            let second = u64::from(std::mem::take(&mut event.b));
            event.words = [event.words[0], second, event.words[1]];
        }
        cpu.pending.push(Pending {
            sequence: record.sequence,
            records: 1,
            event,
        });
        self.events += 1;
        Some(event)
    }

    /// The numbers of stacks of events that are still kept back.
    pub fn stacks(&mut self) -> impl Iterator<Item = &mut u32> {
        let pending = self.cpus.iter_mut().flat_map(|cpu| &mut cpu.pending);
        pending.map(|pending| &mut pending.event.stack)
    }

    /// Writes what is complete; at the end, everything.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn flush<W: Write>(
        &mut self,
        writer: &mut EventWriter<W>,
        old: bool,
        end: bool,
    ) -> Result<()> {
        for (number, cpu) in self.cpus.iter_mut().enumerate() {
            if end || cpu.pending.len() >= BLOCK || (old && cpu.pending.len() > HELD_BACK) {
                let keep = if end { 0 } else { HELD_BACK };
                let events = cpu.complete(keep);
                writer.events(number as u16, &events)?;
            }
        }
        Ok(())
    }

    /// Marks what was lost after a CPU's last record. `totals`: records that each CPU tried.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn finish<W: Write>(
        &mut self,
        writer: &mut EventWriter<W>,
        totals: &[u64],
        now: u64,
    ) -> Result<()> {
        self.flush(writer, true, true)?;
        for (number, total) in totals.iter().enumerate() {
            if self.cpus.len() <= number {
                self.cpus.resize_with(number + 1, Cpu::default);
            }
            let missing = self.cpus[number].missing_at_the_end(number as u16, *total, now);
            if let Some(event) = missing {
                writer.events(number as u16, &[event])?;
            }
        }
        Ok(())
    }
}

impl Cpu {
    fn missing_at_the_end(&self, cpu: u16, total: u64, now: u64) -> Option<Event> {
        let missing = (total as u32).wrapping_sub(self.next) as i32;
        (missing > 0).then(|| lost(cpu, now.max(self.last_ts), missing as u64, self.last_ts))
    }

    /// All but the newest `keep`, in order of number, gaps filled by Lost events.
    fn complete(&mut self, keep: usize) -> Vec<Event> {
        // Numbers wrap around, so their distances from the next one are compared.
        let next = self.next;
        self.pending
            .sort_by_key(|pending| pending.sequence.wrapping_sub(next) as i32);
        let count = self.pending.len().saturating_sub(keep);
        let mut events = Vec::with_capacity(count + 1);
        for Pending {
            sequence,
            records,
            mut event,
        } in self.pending.drain(..count)
        {
            // Numbers are given before times are read, so the record of an interrupt can be a
            // little younger than the next.
            event.ts = event.ts.max(self.last_ts);
            let missing = sequence.wrapping_sub(self.next) as i32;
            if missing > 0 {
                events.push(lost(event.cpu, event.ts, missing as u64, self.last_ts));
            }
            self.next = sequence.wrapping_add(records);
            self.last_ts = event.ts;
            events.push(event);
        }
        events
    }
}

fn lost(cpu: u16, ts: u64, count: u64, since: u64) -> Event {
    Event {
        ts,
        a: 0,
        b: 0,
        cpu,
        kind: Kind::Lost,
        flags: 0,
        stack: 0,
        words: [count, since, 0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Info;
    use crate::protocol::{EVENT_ENTER_WIDE, EVENT_SWITCH, EVENT_WAKING};

    fn record(sequence: u32, ts: u64, kind: u8, words: &[u64]) -> Vec<u8> {
        let mut bytes = ts.to_le_bytes().to_vec();
        bytes.extend(sequence.to_le_bytes());
        bytes.extend([1, 0, kind, 1]);
        let b = if matches!(kind, EVENT_STACK | EVENT_PYTHON | EVENT_KERNEL) {
            words.len() as u32
        } else {
            9
        };
        bytes.extend(7u32.to_le_bytes());
        bytes.extend(b.to_le_bytes());
        words
            .iter()
            .for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes
    }

    fn as_seen(_: u32, stack: &Recorded<'_>, beside: &Beside) -> Vec<u64> {
        match stack {
            Recorded::Words(words) => [words, &beside.kernel[..]].concat(),
            Recorded::Copy(registers, bytes) => vec![registers[0], bytes.len() as u64],
        }
    }

    fn drained(records: &[Vec<u8>], total: u64) -> Vec<Event> {
        let mut writer = EventWriter::new(Vec::new(), &Info::default()).unwrap();
        let mut drain = Drain::default();
        for bytes in records {
            drain.take(bytes, &mut writer, as_seen);
        }
        let mut events = drain.cpus[1].complete(0);
        events.extend(drain.cpus[1].missing_at_the_end(1, total, 99));
        events
    }

    #[test]
    fn gaps_in_the_numbers_become_lost_events_in_their_places() {
        let events = drained(
            &[
                record(0, 10, EVENT_SWITCH, &[]),
                record(4, 50, EVENT_WAKING, &[1]),
                // An interrupt's record that came out of order.
                record(1, 11, EVENT_WAKING, &[1]),
            ],
            7,
        );
        let kinds: Vec<_> = events.iter().map(|e| (e.kind, e.ts, e.words[0])).collect();
        assert_eq!(
            kinds,
            [
                (Kind::Switch, 10, 0),
                (Kind::Waking, 11, 1),
                (Kind::Lost, 50, 2),
                (Kind::Waking, 50, 1),
                (Kind::Lost, 99, 2),
            ]
        );
    }

    #[test]
    fn a_stack_belongs_to_the_event_before_and_is_no_gap() {
        let events = drained(
            &[
                record(0, 10, EVENT_SWITCH, &[1 << 48]),
                record(1, 10, EVENT_STACK, &[0x1000, 0x2000]),
                record(2, 12, EVENT_WAKING, &[1]),
            ],
            3,
        );
        assert_eq!(events.len(), 2);
        assert_eq!((events[0].stack, events[1].stack), (1, 0));
    }

    #[test]
    fn python_code_comes_between_an_event_and_its_stack() {
        let mut seen = Vec::new();
        let mut writer = EventWriter::new(Vec::new(), &Info::default()).unwrap();
        let mut drain = Drain::default();
        let records = [
            record(0, 10, EVENT_SWITCH, &[1 << 48]),
            record(1, 10, EVENT_PYTHON, &[0x5000, 0x6000]),
            record(2, 10, EVENT_STACK, &[0x1000]),
            record(3, 12, EVENT_SWITCH, &[1 << 48]),
            // Its own event was lost.
            record(5, 13, EVENT_PYTHON, &[0x5000, 0x6000]),
            record(6, 13, EVENT_STACK, &[0x2000]),
            record(7, 14, EVENT_WAKING, &[1]),
        ];
        for bytes in &records {
            drain.take(bytes, &mut writer, |_, stack, beside| {
                let Recorded::Words(words) = stack else {
                    return Vec::new();
                };
                seen.push((words.to_vec(), beside.python.clone()));
                words.to_vec()
            });
        }
        assert_eq!(seen, [(vec![0x1000], vec![0x5000, 0x6000])]);
        let events = drain.cpus[1].complete(0);
        let told: Vec<_> = events.iter().map(|e| (e.kind, e.stack)).collect();
        let expected = [
            (Kind::Switch, 1),
            (Kind::Switch, 0),
            (Kind::Lost, 0),
            (Kind::Waking, 0),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn call_sites_in_the_kernel_are_kept_with_a_stack_and_without() {
        let records = [
            record(0, 10, EVENT_SWITCH, &[1 << 48]),
            record(1, 10, EVENT_KERNEL, &[0x8000]),
            record(2, 12, EVENT_SWITCH, &[1 << 48]),
            record(3, 12, EVENT_KERNEL, &[0x9000]),
            record(4, 12, EVENT_STACK, &[0x1000]),
        ];
        let mut writer = EventWriter::new(Vec::new(), &Info::default()).unwrap();
        let (mut drain, mut seen) = (Drain::default(), Vec::new());
        for bytes in &records {
            drain.take(bytes, &mut writer, |tid, stack, beside| {
                seen.push(as_seen(tid, stack, beside));
                as_seen(tid, stack, beside)
            });
        }
        assert_eq!(seen, [vec![0x8000], vec![0x9000], vec![0x1000, 0x9000]]);
        let events = drain.cpus[1].complete(0);
        let stacks: Vec<u32> = events.iter().map(|event| event.stack).collect();
        assert_eq!(stacks, [1, 3]);
    }

    #[test]
    fn a_copy_has_registers_and_what_lies_at_the_stack_pointer() {
        let mut copy = record(1, 10, EVENT_STACK_COPY, &[0x1000, 0x7000, 0x7010, 5, 6]);
        copy[20..24].copy_from_slice(&16u32.to_le_bytes());
        let mut writer = EventWriter::new(Vec::new(), &Info::default()).unwrap();
        let mut drain = Drain::default();
        let mut seen = Vec::new();
        drain.take(&record(0, 10, EVENT_SWITCH, &[1]), &mut writer, as_seen);
        drain.take(&copy, &mut writer, |tid, stack, beside| {
            seen = as_seen(tid, stack, beside);
            seen.clone()
        });
        assert_eq!(seen, [0x1000, 16]);
        assert_eq!(drain.cpus[1].complete(0)[0].stack, 1);
    }

    #[test]
    fn short_calls_are_like_long_ones() {
        let mut short = record(0, 10, EVENT_EXIT_CALL_SHORT, &[]);
        let number: u32 = 435;
        short[15] = number as u8;
        let timed_out = (-110i32) as u32 & ((1 << 30) - 1);
        short[20..24].copy_from_slice(&(number >> 8 << 30 | timed_out).to_le_bytes());
        let [event] = drained(&[short], 1)[..] else {
            panic!("one record, one event");
        };
        assert_eq!((event.kind, event.b, event.flags), (Kind::ExitCall, 0, 0));
        let end = event.call_end().unwrap();
        assert_eq!((end.number, end.result), (435, -110));
    }

    #[test]
    fn a_wide_call_has_an_argument_a_word() {
        let [event] = drained(&[record(0, 10, EVENT_ENTER_WIDE, &[203 << 48, 5])], 1)[..] else {
            panic!("one record, one event");
        };
        assert_eq!((event.a, event.b), (7, 0));
        assert_eq!(event.words, [203 << 48, 9, 5]);
    }

    #[test]
    fn records_that_are_cut_are_left_out() {
        let mut writer = EventWriter::new(Vec::new(), &Info::default()).unwrap();
        let mut drain = Drain::default();
        let whole = record(0, 10, EVENT_SWITCH, &[]);
        assert_eq!(drain.take(&whole[..20], &mut writer, as_seen), None);
    }
}
