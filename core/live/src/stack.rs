// SPDX-License-Identifier: MIT
//! The call stack of a blocked thread, without touching it: its stack pointer is known from
//! /proc, its other registers are not.
//!
//! Code says in `.eh_frame` where its caller's frame lies, mostly by the stack pointer alone. Where
//! that takes a register that is not known, or nothing is said (Go, JIT), the return address is
//! looked for: a word that points behind a call instruction in executable memory. Where that call
//! is direct, its target must be the function of the frame below, or a linkage stub; where the
//! function keeps its caller's frame pointer, the code tells how large its frame is, else the word
//! below must lead up the stack. Blind spot: a stale word of an indirect call, from which on
//! nothing is sure.

use flagfinder_code::{AddressSpace, Code, Frame, Names, NoCaller, Registers, Spot, Whose};

use flagfinder_waits::proc::Call;

const SCANNED: usize = 64 << 10;
const MOST_FRAMES: usize = 64;
const LONGEST_CALL: usize = 7;
/// No frame is larger.
const LARGEST_FRAME: u64 = 8 << 20;
/// In x86 numbering.
const RSP: usize = 4;

/// The open calls of a thread, innermost first; the first is where the system call was made.
#[derive(Clone, Debug, Default)]
pub struct Stack {
    /// Where each goes on.
    addresses: Vec<u64>,
    /// How many of them are sure.
    sure: usize,
}

impl Stack {
    pub fn of(call: &Call, memory: &dyn AddressSpace, names: &Names) -> Stack {
        Stack::begin(call.sp, call.pc, memory, names)
    }

    fn begin(sp: u64, pc: u64, memory: &dyn AddressSpace, names: &Names) -> Stack {
        let mut stack = Stack {
            addresses: vec![pc],
            sure: 1,
        };
        let mut registers: Registers = [None; 16];
        registers[RSP] = Some(sp);
        let (mut probe, mut is_sure) = (pc, true);
        let mut words = vec![0u8; SCANNED];
        let got = memory.read(sp, &mut words);
        let words = Words {
            sp,
            bytes: &words[..got],
        };
        while stack.addresses.len() < MOST_FRAMES {
            let outer = match names.outer(probe, &registers, None, memory) {
                Err(NoCaller::Nobody) => break,
                Ok(frame) if is_executable(names, frame.pc) => frame,
                _ => {
                    let from = registers[RSP].unwrap_or(sp);
                    let inner = stack.addresses.last().copied().unwrap_or(pc);
                    let Some((top, how)) = words.next(from, inner, probe, memory, names) else {
                        break;
                    };
                    is_sure &= how == Found::ByCode;
                    let by_rules = names.outer(probe, &registers, Some(top), memory);
                    by_rules.unwrap_or_else(|_| {
                        let mut registers = [None; 16];
                        registers[RSP] = Some(top);
                        let pc = memory.word(top - 8).unwrap_or_default();
                        Frame { pc, registers }
                    })
                }
            };
            stack.addresses.push(outer.pc);
            stack.sure += usize::from(is_sure);
            // A return address may lie behind its function's end.
            probe = outer.pc.wrapping_sub(1);
            registers = outer.registers;
        }
        stack
    }

    pub fn codes(&self, names: &Names) -> Vec<Code> {
        let addresses = self.addresses.iter();
        addresses.map(|address| names.caller(*address)).collect()
    }

    /// Where each goes on, innermost first.
    pub fn addresses(&self) -> &[u64] {
        &self.addresses
    }

    /// Whose the function of each is, and what it is called; `false`: the call may be an old one.
    pub fn calls(&self, names: &Names) -> Vec<(Whose, String, bool)> {
        let addresses = self.addresses.iter().enumerate();
        let each = addresses.map(|(at, address)| {
            let outer = names.spots(*address).pop();
            let (whose, spot) = outer.unwrap_or((Whose::System, Spot::default()));
            (whose, spot.function.unwrap_or_default(), at < self.sure)
        });
        each.collect()
    }

    /// All places, those of inlined functions included; `false`: the call may be an old one.
    pub fn spots(&self, names: &Names) -> Vec<(Whose, Spot, bool)> {
        let addresses = self.addresses.iter().enumerate();
        let each = addresses.flat_map(|(at, address)| {
            let sure = at < self.sure;
            let spots = names.spots(*address).into_iter();
            spots.map(move |(whose, spot)| (whose, spot, sure))
        });
        each.collect()
    }

    /// The library's function that the author's code is in, and that made the system call by
    /// others. `None`: there is none, or one of them has no name.
    pub fn library_call(&self, names: &Names) -> Option<String> {
        let spots = self.spots(names);
        let own = spots
            .iter()
            .position(|(whose, _, _)| *whose == Whose::Own)?;
        let is_sure = spots[..=own].iter().all(|(_, _, sure)| *sure);
        let (_, entry, _) = spots[..own].last().filter(|_| is_sure && own > 1)?;
        Some(format!(
            "{}()",
            entry.function.as_deref()?.trim_end_matches("()")
        ))
    }

    /// The innermost place of the program's author.
    pub fn own(&self, names: &Names) -> Option<Spot> {
        let spots = self.spots(names);
        let sure = spots.iter().take_while(|(_, _, sure)| *sure);
        Spot::first_own(sure.map(|(whose, spot, _)| (*whose, spot)))
    }
}

/// Where the calls go on after they return; the innermost call, which stands at `pc`, is left out.
pub fn return_addresses(sp: u64, pc: u64, memory: &dyn AddressSpace, names: &Names) -> Vec<u64> {
    let mut found = Stack::begin(sp, pc, memory, names).addresses;
    found.remove(0);
    found
}

/// How a return address is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// It stands behind a call of just this function, or where the function's frame ends.
    ByCode,
    /// It stands behind some call.
    Perhaps,
}

/// A part of a stack.
struct Words<'w> {
    sp: u64,
    bytes: &'w [u8],
}

impl Words<'_> {
    /// The end of the frame whose return address comes next from `from` on.
    fn next(
        &self,
        from: u64,
        inner: u64,
        probe: u64,
        memory: &dyn AddressSpace,
        names: &Names,
    ) -> Option<(u64, Found)> {
        let skipped = usize::try_from(from.checked_sub(self.sp)?).ok()?;
        let keeps = names.keeps_frame_pointer(probe);
        if let Some(size) = keeps.then(|| names.frame_size(probe, memory)).flatten() {
            let top = from.wrapping_add(size);
            let word = memory.word(top.wrapping_sub(8));
            let word = word.filter(|word| is_executable(names, *word));
            if word.is_some_and(|word| returns(word, inner, memory, names).is_some()) {
                return Some((top, Found::ByCode));
            }
        }
        let words = self.bytes.get(skipped..)?.chunks_exact(8);
        let words = words.map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        let mut below = None;
        let mut other = None;
        for (index, word) in words.enumerate() {
            let at = from + index as u64 * 8;
            let leads_up = below.is_some_and(|fp: u64| fp > at && fp - at < LARGEST_FRAME);
            below = Some(word);
            if !is_executable(names, word) {
                continue;
            }
            match returns(word, inner, memory, names) {
                Some(how) if leads_up || !keeps => return Some((at + 8, how)),
                // The caller may use the register for something else.
                Some(_) => other = other.or(Some((at + 8, Found::Perhaps))),
                None => {}
            }
        }
        other
    }
}

fn is_executable(names: &Names, address: u64) -> bool {
    let maps = &names.input().maps;
    let mapping = maps.iter().rev().find_map(|maps| maps.at(address));
    mapping.is_some_and(|m| m.executable)
}

/// Is it a return address, and how is that known?
fn returns(address: u64, inner: u64, memory: &dyn AddressSpace, names: &Names) -> Option<Found> {
    let mut bytes = [0u8; LONGEST_CALL];
    if memory.read(address.wrapping_sub(LONGEST_CALL as u64), &mut bytes) != LONGEST_CALL {
        return None;
    }
    let distance = || i32::from_le_bytes([bytes[3], bytes[4], bytes[5], bytes[6]]);
    let place = || address.wrapping_add_signed(i64::from(distance()));
    let target = match bytes {
        [_, _, 0xe8, ..] => Some(place()),
        // call *disp(rip)
        [_, 0xff, 0x15, ..] => memory.word(place()),
        _ => None,
    };
    let target = target.filter(|target| is_executable(names, *target));
    if let Some(target) = target {
        let target = behind_stub(target, memory).unwrap_or(target);
        let known = names
            .function(target)
            .zip(names.function(inner.wrapping_sub(1)));
        return match known {
            Some((called, inside)) => (called.0 == inside.0).then_some(Found::ByCode),
            None => Some(Found::Perhaps),
        };
    }
    // call *reg, call *disp(reg), ..: FF /2.
    let is_indirect = (2..=LONGEST_CALL).any(|length| {
        let code = &bytes[LONGEST_CALL - length..];
        let shape = (code[1] >> 3) & 7 == 2 && form_length(code) == Some(length);
        code[0] == 0xff && shape
    });
    is_indirect.then_some(Found::Perhaps)
}

/// Where a linkage stub goes on: `jmp *disp(rip)`, perhaps behind endbr64 and a bnd prefix. Before
/// the first call that may be the linker, whose code has no function of that name.
fn behind_stub(target: u64, memory: &dyn AddressSpace) -> Option<u64> {
    const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    let mut bytes = [0u8; 16];
    let got = memory.read(target, &mut bytes);
    let code = bytes[..got].strip_prefix(&ENDBR64).unwrap_or(&bytes[..got]);
    let code = code.strip_prefix(&[0xf2]).unwrap_or(code);
    let distance = code.strip_prefix(&[0xff, 0x25])?.first_chunk()?;
    let skipped = (got - code.len() + 6) as u64;
    let next = target.wrapping_add(skipped);
    memory.word(next.wrapping_add_signed(i64::from(i32::from_le_bytes(*distance))))
}

/// Length of an FF /2 instruction by its ModRM byte.
fn form_length(code: &[u8]) -> Option<usize> {
    let modrm = *code.get(1)?;
    let sib = usize::from(modrm & 7 == 4);
    Some(match modrm >> 6 {
        3 => 2,
        0 if modrm & 7 == 5 => 6,
        0 if sib == 1 && code.get(2)? & 7 == 5 => 7,
        0 => 2 + sib,
        1 => 3 + sib,
        _ => 6 + sib,
    })
}
