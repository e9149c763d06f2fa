// SPDX-License-Identifier: MIT
//! Instructions of a copy that need no processor.
//!
//! The evaluator executes here what it knows, many times faster than a step of the copy's process.
//! That process has its registers and memory given before it goes on itself, with all that the
//! evaluator does not know: vector and floating-point instructions, system calls, whatever faults.
//! The auxiliary carry flag is not kept, and of flags that an instruction leaves undefined the old
//! state is.

use std::io::Result;
use std::rc::Rc;

use flagfinder_machine::decoded::Decoded;
use flagfinder_machine::evaluator::{Access, Evaluator, Recorded};
use flagfinder_machine::value::{Value, AF, DF, STATUS};
use flagfinder_step::registers::{load, store};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic};

use crate::ahead::{Held, LONGEST, MOST_DECODED};
use crate::answer::Halt;
use crate::replica::{Event, Replica};
use crate::source::PAGE;

/// What the evaluator takes from memory and gives to it at once.
const WORD: u64 = 8;

impl Replica<'_> {
    /// Leaves every instruction to the processor.
    pub fn without_software(&mut self) {
        self.software.is_off = true;
    }

    /// Executes one instruction, or answers the call that it makes.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn step(&mut self) -> Result<Event> {
        if self.is_too_large() {
            return Ok(Event::Halt(Halt::TooLarge));
        }
        if self.is_short() {
            return Ok(Event::Halt(Halt::Short));
        }
        let code = match self.software.is_off {
            true => None,
            false => self.decode()?,
        };
        if let Some(code) = &code {
            if self.evaluate(code)? {
                return Ok(Event::Step);
            }
        }
        let written = code.and_then(|code| self.written(&code));
        self.hand_over()?;
        let kept = written.map(|_| std::mem::take(&mut self.software.pages));
        let event = loop {
            match self.step_process()? {
                // An instruction that the evaluator left.
                Event::Tick => {}
                event => break event,
            }
        };
        if let (Some(written), Some(kept), Event::Step) = (written, kept, &event) {
            self.software.pages = kept;
            for (address, bytes) in written.into_iter().flatten() {
                self.software.forget(address, bytes);
            }
        }
        Ok(event)
    }

    /// Where the instruction writes, if that is known: at most two stretches.
    fn written(&mut self, code: &Decoded) -> Option<[Option<(u64, u64)>; 2]> {
        let fits = code.memory.len() <= 2 && !code.repeated;
        load(&mut self.software.evaluator.machine, &self.registers);
        let machine = &self.software.evaluator.machine;
        let mut written = [None; 2];
        for (memory, place) in code.memory.iter().zip(&mut written) {
            if memory.write {
                let bytes = (memory.bytes > 0).then_some(u64::from(memory.bytes))?;
                *place = Some((memory.address(machine)?, bytes));
            }
        }
        fits.then_some(written)
    }

    /// Gives the process what it has in an older version. It may change all memory from here on.
    pub(crate) fn hand_over(&mut self) -> Result<()> {
        let mut pages = std::mem::take(&mut self.software.pages);
        for (page, held) in pages.iter_mut().filter(|(_, held)| held.is_newer) {
            self.give_page(*page, &held.content)?;
            held.is_newer = false;
        }
        self.software.pages = pages;
        if std::mem::take(&mut self.software.is_ahead) {
            self.child.set_registers(&self.registers)?;
        }
        Ok(())
    }

    /// The process may have changed all memory.
    pub(crate) fn forget_pages(&mut self) {
        self.software.pages.clear();
    }

    fn held(&mut self, page: u64) -> Result<Option<&mut Held>> {
        if !self.software.pages.contains_key(&page) {
            let Some((content, protection)) = self.page_now(page)? else {
                return Ok(None);
            };
            let held = Held {
                content,
                protection,
                is_newer: false,
            };
            self.software.pages.insert(page, held);
        }
        Ok(self.software.pages.get_mut(&page))
    }

    /// Calls `each` with every page of a stretch that has these rights, and the part of it; `false`
    /// at the first that has not.
    fn each_page(
        &mut self,
        address: u64,
        length: usize,
        rights: i32,
        mut each: impl FnMut(&mut Held, std::ops::Range<usize>, usize),
    ) -> Result<bool> {
        let mut done = 0;
        while done < length {
            let Some(at) = address.checked_add(done as u64) else {
                return Ok(false);
            };
            let offset = (at % PAGE) as usize;
            let part = (PAGE as usize - offset).min(length - done);
            match self.held(at - offset as u64)? {
                Some(held) if held.protection & rights == rights => {
                    each(held, offset..offset + part, done);
                }
                _ => return Ok(false),
            }
            done += part;
        }
        Ok(true)
    }

    /// Reads memory as the copy has it; `false` where part of it isn't there.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn read(&mut self, address: u64, buffer: &mut [u8]) -> Result<bool> {
        let length = buffer.len();
        self.each_page(address, length, libc::PROT_READ, |held, range, done| {
            let part = &held.content[range];
            buffer[done..done + part.len()].copy_from_slice(part);
        })
    }

    /// `None`: nothing there may be executed.
    pub(crate) fn decode(&mut self) -> Result<Option<Rc<Decoded>>> {
        let pc = self.registers.rip;
        let mut bytes = [0; LONGEST];
        let rights = libc::PROT_READ | libc::PROT_EXEC;
        let whole = self.each_page(pc, LONGEST, rights, |held, range, done| {
            let part = &held.content[range];
            bytes[done..done + part.len()].copy_from_slice(part);
        })?;
        // The last instruction of a mapping: the processor reads only the bytes that it needs.
        if !whole {
            return Ok(None);
        }
        let software = &mut self.software;
        let known = software.decoded.get(&pc);
        if let Some((_, code)) = known.filter(|(old, _)| *old == bytes) {
            return Ok(Some(code.clone()));
        }
        let instruction = Decoder::with_ip(64, &bytes, pc, DecoderOptions::NONE).decode();
        let code = Rc::new(Decoded::new(&instruction, &mut software.factory));
        if software.decoded.len() >= MOST_DECODED {
            software.decoded.clear();
        }
        software.decoded.insert(pc, (bytes, code.clone()));
        Ok(Some(code))
    }

    /// `false`: the processor has to do it, nothing was changed.
    fn evaluate(&mut self, code: &Decoded) -> Result<bool> {
        if !is_plain(code) {
            return Ok(false);
        }
        load(&mut self.software.evaluator.machine, &self.registers);
        let mut recorded = Recorded::default();
        let mut slots = recorded.loads.iter_mut();
        for memory in code.memory.iter().filter(|m| m.read || m.write) {
            let bytes = u64::from(memory.bytes);
            let address = memory.address(&self.software.evaluator.machine);
            let Some(address) = address.filter(|_| (1..=WORD).contains(&bytes)) else {
                return Ok(false);
            };
            let length = bytes as usize;
            let nothing = |_: &mut Held, _, _| ();
            if memory.write && !self.each_page(address, length, libc::PROT_WRITE, nothing)? {
                return Ok(false);
            }
            let mut word = [0; WORD as usize];
            if memory.read {
                let (true, Some(slot)) = (self.read(address, &mut word[..length])?, slots.next())
                else {
                    return Ok(false);
                };
                *slot = Some(u64::from_le_bytes(word));
            }
        }
        let evaluator = &mut self.software.evaluator;
        if !evaluator.step(code, &recorded) {
            return Ok(false);
        }
        let all = |value: &Value| value.known == u64::MAX;
        let flags = (STATUS | DF) & !(AF | code.flags_undefined);
        let machine = &evaluator.machine;
        let is_known = machine.registers.iter().all(all) && flags & !machine.flags.known == 0;
        let stores: Vec<Access> = evaluator
            .accesses()
            .iter()
            .filter(|a| a.write)
            .copied()
            .collect();
        let value = |access: &Access| access.value.get(access.bytes * 8);
        let (Some(next), true) = (target(code, evaluator), is_known) else {
            return Ok(false);
        };
        if stores.iter().any(|access| value(access).is_none()) {
            return Ok(false);
        }
        store(&evaluator.machine, &mut self.registers);
        self.registers.rip = next;
        self.software.is_ahead = true;
        for access in &stores {
            let (Some(address), Some(value)) = (access.address, value(access)) else {
                continue;
            };
            let word = value.to_le_bytes();
            self.each_page(
                address,
                access.bytes as usize,
                libc::PROT_WRITE,
                |held, range, done| {
                    let length = range.len();
                    held.content[range].copy_from_slice(&word[done..done + length]);
                    held.is_newer = true;
                },
            )?;
        }
        Ok(true)
    }
}

/// Instructions with more effects than the evaluator reports are not plain.
fn is_plain(code: &Decoded) -> bool {
    use Mnemonic as M;
    let pops_to_memory = code.mnemonic == M::Pop && code.memory.len() > 1;
    !code.repeated
        && !code.touches_others()
        && !pops_to_memory
        && !matches!(code.mnemonic, M::Popf | M::Popfq | M::Enter | M::Lahf)
}

/// Where it goes on; `None`: not known.
fn target(code: &Decoded, evaluator: &Evaluator) -> Option<u64> {
    let next = code.instruction.next_ip();
    match code.instruction.flow_control() {
        FlowControl::Next => Some(next),
        FlowControl::ConditionalBranch => Some(match evaluator.taken()? {
            true => code.instruction.near_branch_target(),
            false => next,
        }),
        FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::Call
        | FlowControl::IndirectCall
        | FlowControl::Return => evaluator.target(),
        _ => None,
    }
}
