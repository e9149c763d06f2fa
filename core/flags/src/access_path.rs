// SPDX-License-Identifier: MIT
//! How the code reached a word, in the program's own words: `pool->workers[2].state`.
//!
//! In: the instruction that read the word, the steps before it, debug information where
//! there is any. A register's value is named by the variable that DWARF knows to be in
//! it, innermost scope first, or by following the instruction that computed it.
//! Blind spots: pointers that were computed before the window and that no variable holds
//! any more, pointers kept in vector registers.

use std::cell::{Cell, OnceCell};

use flagfinder_analysis::runtime::is_runtime_module;
use flagfinder_code::{DataKind, Names, StackFrame, TypeRef, ValuePlace};
use flagfinder_machine::decoded::{general, Decoded, MemoryReference, Operand, Segment};
use flagfinder_machine::Window;
use iced_x86::Mnemonic as M;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::naming::short_name;

const RSP: u8 = 4;
/// Most pointers and copies that are followed, one behind the other.
const DEPTH: u32 = 24;
/// Most that are followed for one word.
const BUDGET: u32 = 400;
/// Most steps of the same function in which a variable is looked for that holds a register's value.
const REACH: u32 = 4000;
/// Most elements between the one that a pointer points to and the one that is read.
const ELEMENTS: u64 = 1 << 20;

/// A word by the way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    pub path: String,
    /// The part of the object that the last pointer points to, or of the variable:
    /// `.workers[2].state`.
    pub field: Option<String>,
    kind: Option<TypeRef>,
}

/// The value of a register, as a pointer.
#[derive(Clone, Debug)]
struct Pointer {
    path: String,
    value: u64,
    /// The value of the register that the pointer follows from.
    register: u64,
    /// What it points to.
    kind: Option<TypeRef>,
}

/// A word that is to be reached through a pointer.
#[derive(Clone, Copy, Debug)]
struct Target {
    address: u64,
    /// The register's value, where the instruction adds only a displacement to it.
    base: Option<u64>,
}

pub(crate) struct Explorer<'a> {
    window: &'a Window,
    names: &'a Names,
    left: Cell<u32>,
    /// Steps that stored to an address, in order; found out when first asked for.
    stores: OnceCell<FxHashMap<u64, Vec<u32>>>,
    /// The word is read by the C library itself.
    for_runtime: Cell<bool>,
}

impl<'a> Explorer<'a> {
    pub fn new(window: &'a Window, names: &'a Names) -> Self {
        let left = Cell::new(BUDGET);
        Explorer {
            window,
            names,
            left,
            stores: OnceCell::new(),
            for_runtime: Cell::new(false),
        }
    }

    /// How the step's load of `address` reached it: as a local variable or through a
    /// pointer; `None`: neither is known.
    pub fn reached(&self, step: u32, address: u64) -> Option<Reached> {
        self.left.set(BUDGET);
        self.for_runtime.set(self.is_of_runtime(step));
        self.local(step, address)
            .or_else(|| self.behind(step, address, DEPTH))
    }

    fn is_of_runtime(&self, step: u32) -> bool {
        let code = self.names.code(self.window.pc(step));
        code.module.as_deref().is_some_and(is_runtime_module)
    }

    /// The frame that the step executes in.
    pub fn frame(&self, step: u32) -> Option<StackFrame> {
        let pc = self.window.pc(step);
        let (register, add) = self.names.frame_address(pc)?;
        let cfa = self.register(step, register)?.wrapping_add_signed(add);
        let sp = self.register(step, RSP).filter(|&sp| sp < cfa)?;
        Some(StackFrame { pc, sp, cfa })
    }

    fn word(&self, step: u32, address: u64, depth: u32) -> Option<Reached> {
        let depth = depth.checked_sub(1)?;
        self.fixed(address)
            .or_else(|| self.local(step, address))
            .or_else(|| self.behind(step, address, depth))
    }

    /// A global or thread-local variable.
    fn fixed(&self, address: u64) -> Option<Reached> {
        let data = self.names.data(address);
        let is_fixed = matches!(
            data.kind,
            DataKind::Global | DataKind::Tls | DataKind::ReadOnly
        );
        let of_runtime = data.module.as_deref().is_some_and(is_runtime_module);
        (is_fixed && (self.for_runtime.get() || !of_runtime)).then(|| Reached {
            path: short_name(&data, address),
            field: data.field.clone(),
            kind: self.names.word_at(address).map(|found| found.word.kind),
        })
    }

    /// The allocator's own variables do not name what it hands out, nor do its globals (`fixed`).
    fn is_of_allocator(&self, step: u32) -> bool {
        !self.for_runtime.get() && self.is_of_runtime(step)
    }

    /// A variable of the frame that the step executes in.
    fn local(&self, step: u32, address: u64) -> Option<Reached> {
        if self.is_of_allocator(step) {
            return None;
        }
        let registers = |register| self.register(step, register);
        let pc = self.window.pc(step);
        let found = self.names.frame_variable(pc, None, &registers, address)?;
        Some(Reached {
            path: format!("{}{}", found.name, found.word.path),
            field: Some(found.word.path).filter(|path| !path.is_empty()),
            kind: Some(found.word.kind),
        })
    }

    /// A word that the step reached through a pointer in a register.
    fn behind(&self, step: u32, address: u64, depth: u32) -> Option<Reached> {
        let reference = self.reference(step, address)?;
        let mut untyped = None;
        let is_plain = reference.index.is_none() && reference.segment == Segment::Flat;
        let base = is_plain.then(|| address.wrapping_sub(reference.displacement));
        let target = Target { address, base };
        for register in [reference.base, reference.index].into_iter().flatten() {
            let Some(pointer) = self.pointer(step, register, target, depth) else {
                continue;
            };
            if let Some(found) = self.follow(&pointer, target) {
                return self
                    .whole(step, address)
                    .filter(|_| found.field.is_none())
                    .or(Some(found));
            }
            let distance = address.wrapping_sub(pointer.value);
            untyped = untyped.or_else(|| {
                (distance < ELEMENTS).then(|| Reached {
                    path: format!("{}->+{distance:#x}", pointer.path),
                    field: None,
                    kind: None,
                })
            });
        }
        self.whole(step, address).or(untyped)
    }

    /// The address was formed before the window: a visible variable that points to an object around
    /// it.
    fn whole(&self, step: u32, address: u64) -> Option<Reached> {
        if self.is_of_allocator(step) {
            return None;
        }
        self.names
            .variables(self.window.pc(step))
            .iter()
            .find_map(|variable| {
                let ValuePlace::Register { register, add } = variable.place else {
                    return None;
                };
                let word = self.names.word(variable.kind, variable.part)?;
                let value = self.register(step, register)?;
                let pointer = Pointer {
                    path: format!("{}{}", variable.name, word.path),
                    kind: Some(self.names.pointee(word.kind)?),
                    value: value.wrapping_add_signed(add),
                    register: value,
                };
                let inside = self
                    .names
                    .word(pointer.kind?, address.checked_sub(pointer.value)?);
                inside.filter(|word| !word.path.is_empty())?;
                let base = None;
                self.follow(&pointer, Target { address, base })
            })
    }

    /// The operand by which the step read the address.
    fn reference(&self, step: u32, address: u64) -> Option<&MemoryReference> {
        let references = self.window.code(step).memory.iter().filter(|m| m.read);
        let accesses = self.window.accesses(step).iter().filter(|a| !a.write);
        let covers = |at: u64, bytes: u32| at <= address && address - at < u64::from(bytes.max(1));
        references
            .zip(accesses)
            .find(|(_, a)| a.address.is_some_and(|at| covers(at, a.bytes)))
            .map(|(reference, _)| reference)
    }

    /// The word at the address by the pointer's type, which may be that of an element.
    fn follow(&self, pointer: &Pointer, target: Target) -> Option<Reached> {
        let (index, field, kind) = self.part(pointer, target)?;
        let path = match (index, field.strip_prefix('.')) {
            (0, Some(member)) => format!("{}->{member}", pointer.path),
            (0, None) if field.is_empty() => format!("*{}", pointer.path),
            (0, None) => format!("(*{}){field}", pointer.path),
            _ => format!("{}[{index}]{field}", pointer.path),
        };
        Some(Reached {
            path,
            field: Some(field).filter(|field| !field.is_empty()),
            kind: Some(kind),
        })
    }

    /// (element, path in it, type of the word). A word at a fixed distance behind a structure is
    /// hardly a member of a later element. It rather belongs to an object of which the structure is
    /// only the head: a derived class, a container's node.
    fn part(&self, pointer: &Pointer, target: Target) -> Option<(u64, String, TypeRef)> {
        let kind = pointer.kind?;
        let offset = target.address.checked_sub(pointer.value)?;
        if let Some(word) = self.names.word(kind, offset) {
            return Some((0, word.path, word.kind));
        }
        let size = self.names.size(kind).filter(|&size| size > 0)?;
        let index = offset / size;
        let word = self.names.word(kind, offset % size)?;
        let is_beyond = target.base == Some(pointer.register) && !word.path.is_empty();
        (index > 0 && index < ELEMENTS && !is_beyond).then_some((index, word.path, word.kind))
    }

    /// The pointer in the register before the step, by which `target` is to be reached.
    fn pointer(&self, step: u32, register: u8, target: Target, depth: u32) -> Option<Pointer> {
        let depth = depth.checked_sub(1)?;
        self.left.set(self.left.get().checked_sub(1)?);
        let value = self.register(step, register);
        let held = value.and_then(|value| self.held(step, register, value, target));
        if held.as_ref().is_some_and(|held| self.tells(held, target)) {
            return held;
        }
        let computed = self
            .definition(step, register)
            .and_then(|definition| self.computed(definition, target, depth));
        let is_typed = |p: &Pointer| self.follow(p, target).is_some();
        let is_within = |p: &Pointer| {
            let part = self.part(p, target);
            part.is_some_and(|(element, ..)| element == 0)
        };
        match (held, computed) {
            (Some(held), Some(computed)) if !is_typed(&computed) => Some(held),
            // The caller knows the object by its base class.
            (Some(held), Some(computed))
                if held.value == computed.value && is_within(&held) && !is_within(&computed) =>
            {
                Some(Pointer {
                    path: computed.path,
                    ..held
                })
            }
            (held, computed) => computed.or(held),
        }
    }

    /// Does the pointer's name say what the target is? `this` says less than the variable that the
    /// method was called with, and a pointer to the bare word less than one to its object.
    fn tells(&self, pointer: &Pointer, target: Target) -> bool {
        let is_receiver = matches!(pointer.path.as_str(), "this" | "self");
        let followed = self.follow(pointer, target);
        !is_receiver && followed.is_some_and(|found| found.field.is_some())
    }

    /// The variable that holds the register's value: at the step, or at another step of
    /// the same function since the register got it. Of several the one whose object is
    /// the largest, as an inlined callee's parameter often is a part of its caller's.
    fn held(&self, step: u32, register: u8, value: u64, target: Target) -> Option<Pointer> {
        if self.is_of_allocator(step) {
            return None;
        }
        let since = self.definition(step, register).map_or(0, |at| at + 1);
        let here = self.window.pc(step);
        let function = self.names.function(here).unwrap_or((here, here + 1));
        let mut seen: FxHashSet<u64> = FxHashSet::default();
        let steps = (since.max(step.saturating_sub(REACH))..=step).rev();
        let mut pcs = steps.map(|step| self.window.pc(step));
        pcs.find_map(|pc| {
            let fresh = (function.0..function.1).contains(&pc) && seen.insert(pc);
            fresh.then(|| self.held_at(pc, register, value, target))?
        })
    }

    fn held_at(&self, pc: u64, register: u8, value: u64, target: Target) -> Option<Pointer> {
        let mut best: Option<(u64, Pointer)> = None;
        for variable in self.names.variables(pc).iter() {
            let add = match variable.place {
                ValuePlace::Register { register: at, add } if at == register => add,
                _ => continue,
            };
            let word = self.names.word(variable.kind, variable.part);
            let pointee = word.as_ref().and_then(|w| self.names.pointee(w.kind));
            let Some((word, pointee)) = word.zip(pointee) else {
                continue;
            };
            let pointer = Pointer {
                path: format!("{}{}", variable.name, word.path),
                value: value.wrapping_add_signed(add),
                register: value,
                kind: Some(pointee),
            };
            let size = self.names.size(pointee).unwrap_or(0);
            let better = best.as_ref().is_none_or(|(largest, _)| size > *largest);
            if better && self.follow(&pointer, target).is_some() {
                best = Some((size, pointer));
            }
        }
        best.map(|(_, pointer)| pointer)
    }

    /// What the instruction at `step` put into its register, as a pointer.
    fn computed(&self, step: u32, target: Target, depth: u32) -> Option<Pointer> {
        if self.window.syscall_at(step).is_some() {
            return None;
        }
        let code = self.window.code(step);
        let source = |index: usize| match code.operands[index] {
            Operand::Register {
                number,
                shift: 0,
                bits: 64,
            } => self.pointer(step, number, target, depth),
            _ => None,
        };
        match code.mnemonic {
            M::Mov | M::Pop | M::Cmpxchg | M::Xchg | M::Xadd
                if code.memory.iter().any(|m| m.read) =>
            {
                self.loaded(step, target, depth)
            }
            M::Mov => source(1),
            M::Lea => {
                let instruction = &code.instruction;
                let parts = [instruction.memory_base(), instruction.memory_index()];
                let mut numbers = parts.into_iter().filter_map(full_register);
                numbers.find_map(|number| self.pointer(step, number, target, depth))
            }
            M::Add => source(0).or_else(|| source(1)),
            M::Sub | M::And => source(0),
            _ if is_conditional_move(code) => source(1).or_else(|| source(0)),
            _ => None,
        }
    }

    /// A pointer that the step loaded from memory.
    fn loaded(&self, step: u32, target: Target, depth: u32) -> Option<Pointer> {
        let access = self.window.accesses(step).iter().find(|a| !a.write)?;
        let (address, value) = (access.address?, access.value.get(64)?);
        let reached = self.word(step, address, depth);
        let pointer = reached.map(|reached| Pointer {
            path: reached.path,
            value,
            register: value,
            kind: reached.kind.and_then(|kind| self.names.pointee(kind)),
        });
        if pointer.as_ref().is_some_and(|p| self.tells(p, target)) {
            return pointer;
        }
        // A register that was saved on the stack comes back.
        let saved = self.stored(step, address).and_then(|store| {
            let code = self.window.code(store);
            let index = usize::from(code.mnemonic == M::Mov);
            let Operand::Register {
                number, bits: 64, ..
            } = code.operands[index]
            else {
                return None;
            };
            matches!(code.mnemonic, M::Mov | M::Push)
                .then(|| self.pointer(store, number, target, depth))?
        });
        let is_typed = |p: &Pointer| self.follow(p, target).is_some();
        match (saved, pointer) {
            (Some(saved), Some(pointer)) if !is_typed(&saved) => Some(pointer),
            (saved, pointer) => saved.or(pointer),
        }
    }

    /// The last step before that stored to exactly this address.
    fn stored(&self, before: u32, address: u64) -> Option<u32> {
        let stores = self.stores.get_or_init(|| {
            let mut stores: FxHashMap<u64, Vec<u32>> = FxHashMap::default();
            for step in 0..self.window.len() {
                let written = self.window.accesses(step).iter().filter(|a| a.write);
                for address in written.filter_map(|a| a.address) {
                    stores.entry(address).or_default().push(step);
                }
            }
            stores
        });
        let steps = stores.get(&address)?;
        let later = steps.partition_point(|&step| step < before);
        later.checked_sub(1).map(|at| steps[at])
    }

    /// The last step before that wrote the register.
    fn definition(&self, before: u32, register: u8) -> Option<u32> {
        let set = general(register);
        (0..before)
            .rev()
            .find(|&step| self.window.code(step).writes & set != 0)
    }

    fn register(&self, step: u32, register: u8) -> Option<u64> {
        if register == RSP {
            return Some(self.window.rsp(step)).filter(|&rsp| rsp != 0);
        }
        if let Some(definition) = self.definition(step, register) {
            return self.window.result(definition, register).get(64);
        }
        // Nothing has written the register yet. A copy of it tells its value, or an address that is
        // formed with it.
        let unchanged = |at: &u32| self.window.code(*at).writes & general(register) == 0;
        let mut steps = (0..self.window.len()).take_while(unchanged);
        let revealed = steps.find_map(|at| self.revealed(at, register));
        revealed.or_else(|| self.window.kept(register))
    }

    /// A register's value before the step, if the step shows it.
    fn revealed(&self, step: u32, register: u8) -> Option<u64> {
        let code = self.window.code(step);
        if let (
            M::Mov,
            Operand::Register {
                number, bits: 64, ..
            },
        ) = (code.mnemonic, code.operands[0])
        {
            let whole = Operand::Register {
                number: register,
                shift: 0,
                bits: 64,
            };
            if code.operands[1] == whole {
                return self.window.result(step, number).get(64);
            }
        }
        let reference = code.memory.first()?;
        let access = self.window.accesses(step).first()?;
        let plain = reference.base == Some(register)
            && reference.index.is_none()
            && !reference.short
            && reference.segment == Segment::Flat;
        let address = access.address.filter(|_| plain)?;
        Some(address.wrapping_sub(reference.displacement))
    }
}

fn full_register(register: iced_x86::Register) -> Option<u8> {
    register.is_gpr64().then(|| register.number() as u8)
}

fn is_conditional_move(code: &Decoded) -> bool {
    code.instruction.mnemonic() != M::Mov
        && code.instruction.condition_code() != iced_x86::ConditionCode::None
        && !code.instruction.is_jcc_short_or_near()
}
