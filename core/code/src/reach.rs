// SPDX-License-Identifier: MIT
//! Which functions the code ahead of an open call may call.
//!
//! In: a return address. Out: the names of functions that the code ahead of it calls, and whether
//! that is all. Functions of the author and of packages are followed, those of the system are
//! followed in open calls and their closures only. Blind spots: calls of functions that are only
//! known later (an interface, a variable) are told as not all.

use std::cell::RefCell;
use std::rc::Rc;

use iced_x86::{FlowControl, Instruction, Mnemonic};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::address_space::AddressSpace;
use crate::ahead::CodeReader;
use crate::names::Names;
use crate::own::Whose;

/// Most instructions of one function that are followed, and deepest calls within calls.
const INSTRUCTIONS: usize = 20_000;
const DEPTH: usize = 4;
/// What begins a goroutine.
const BEGINS: &str = "runtime.newproc";
/// What is called while a closure is made.
const BARRIER: &str = "runtime.gcWriteBarrier";
const MAKES: &str = "runtime.newobject";

/// What may be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallsAhead {
    /// Names of functions, with their packages.
    pub names: FxHashSet<String>,
    /// There is no call of a function that is only known later.
    pub is_all: bool,
}

/// Looks at each function once.
pub struct Reach<'a> {
    names: &'a Names,
    memory: &'a dyn AddressSpace,
    code: RefCell<CodeReader<'a>>,
    known: RefCell<FxHashMap<u64, Rc<Function>>>,
}

/// What one function calls from an address on.
#[derive(Debug, Default)]
struct Function {
    /// Where called functions begin, and whether that is known of all.
    targets: FxHashSet<u64>,
    is_all: bool,
    /// The same of closures that it makes.
    closures: FxHashSet<u64>,
}

impl<'a> Reach<'a> {
    /// Of this process.
    pub fn new(names: &'a Names, memory: &'a dyn AddressSpace) -> Reach<'a> {
        Reach {
            names,
            memory,
            code: RefCell::new(CodeReader::new(memory)),
            known: RefCell::default(),
        }
    }

    /// From these return addresses on, and in the deferred functions, which begin there.
    pub fn calls(&self, frames: &[u64], deferred: &[u64]) -> CallsAhead {
        let mut found = CallsAhead {
            is_all: true,
            ..CallsAhead::default()
        };
        let mut seen = FxHashSet::default();
        for from in frames.iter().chain(deferred) {
            self.follow(*from, DEPTH, &mut seen, &mut found);
        }
        found
    }

    fn follow(&self, from: u64, depth: usize, seen: &mut FxHashSet<u64>, found: &mut CallsAhead) {
        if !seen.insert(from) {
            return;
        }
        let function = self.function(from);
        found.is_all &= function.is_all;
        for target in function.targets.union(&function.closures) {
            found.names.insert(self.name(*target));
            let spots = self.names.spots(target.wrapping_add(1));
            let is_system = spots.iter().all(|(whose, _)| *whose == Whose::System);
            if is_system && !function.closures.contains(target) {
                continue;
            }
            match depth {
                0 => found.is_all = false,
                _ => self.follow(*target, depth - 1, seen, found),
            }
        }
    }

    /// Of the function that holds the address, with its package.
    fn name(&self, address: u64) -> String {
        let symbol = self.names.code(address).symbol.unwrap_or_default();
        symbol.split('+').next().unwrap_or_default().to_owned()
    }

    fn function(&self, from: u64) -> Rc<Function> {
        if let Some(known) = self.known.borrow().get(&from) {
            return known.clone();
        }
        let read = Rc::new(self.read(from));
        self.known.borrow_mut().insert(from, read.clone());
        read
    }

    fn read(&self, from: u64) -> Function {
        let mut function = Function {
            is_all: true,
            ..Function::default()
        };
        let Some((start, end)) = self.names.function(from) else {
            return Function::default();
        };
        let mut seen = FxHashSet::default();
        let mut todo = vec![from];
        let mut code = self.code.borrow_mut();
        // What was deferred is called at the end, by a closure that was made before.
        let (mut at, mut made) = (start, Vec::new());
        while let Some(one) = code.decode(at).filter(|_| at < from) {
            self.closures(&one, &mut made, &mut function);
            at = one.next_ip();
        }
        function.closures.extend(made.drain(..));
        while let Some(mut at) = todo.pop() {
            while (start..end).contains(&at) && seen.len() < INSTRUCTIONS && seen.insert(at) {
                let Some(one) = code.decode(at) else {
                    break;
                };
                at = one.next_ip();
                self.closures(&one, &mut made, &mut function);
                match one.flow_control() {
                    FlowControl::Call => {
                        function.targets.insert(one.near_branch_target());
                    }
                    FlowControl::IndirectCall => function.is_all = false,
                    FlowControl::ConditionalBranch => todo.push(one.near_branch_target()),
                    FlowControl::UnconditionalBranch => {
                        let target = one.near_branch_target();
                        if (start..end).contains(&target) {
                            at = target;
                        } else {
                            function.targets.insert(target);
                            break;
                        }
                    }
                    // A table of a `switch`: what follows is as likely as any.
                    FlowControl::IndirectBranch => todo.push(at),
                    FlowControl::Next | FlowControl::XbeginXabortXend => {}
                    FlowControl::Return | FlowControl::Interrupt | FlowControl::Exception => break,
                }
            }
            function.closures.extend(made.drain(..));
        }
        function
    }

    /// A closure that is made is called, unless it begins a goroutine. `made`: since the last call.
    fn closures(&self, one: &Instruction, made: &mut Vec<u64>, function: &mut Function) {
        made.extend(self.closure(one));
        let is_call = one.flow_control() == FlowControl::Call;
        if is_call && !made.is_empty() {
            let name = self.name(one.near_branch_target());
            if name == BEGINS {
                made.clear();
            } else if !name.starts_with(BARRIER) && name != MAKES {
                function.closures.extend(made.drain(..));
            }
        }
    }

    /// The function whose address, or whose closure, an instruction takes.
    fn closure(&self, one: &Instruction) -> Option<u64> {
        if one.mnemonic() != Mnemonic::Lea || !one.is_ip_rel_memory_operand() {
            return None;
        }
        let place = one.ip_rel_memory_address();
        let begins = |at: u64| {
            self.names
                .function(at)
                .is_some_and(|(start, _)| start == at)
        };
        let pointed = || self.memory.word(place).filter(|at| begins(*at));
        Some(place).filter(|at| begins(*at)).or_else(pointed)
    }
}
