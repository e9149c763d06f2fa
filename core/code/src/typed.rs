// SPDX-License-Identifier: MIT
//! Variables and types by address: what lies in a register or at an address, and what it
//! is part of.

use std::sync::Arc;

use crate::names::Names;
use crate::scope::{TypeRef, ValuePlace, Variable};

/// A word within something larger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// From the whole to the word: `[2].state`, `.next`, empty for a plain value.
    pub path: String,
    /// The word's own type, without `const` and its like.
    pub kind: TypeRef,
}

/// A word that is a variable, or lies in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableWord {
    /// The variable's, as the source has it.
    pub name: String,
    /// The part of the variable.
    pub word: Word,
}

impl Names {
    /// The variables that are visible before the instruction at an address, those of
    /// the innermost scope first. Empty without debug information.
    pub fn variables(&self, pc: u64) -> Arc<[Variable]> {
        self.variables.get(pc, || self.find_variables(pc).into())
    }

    fn find_variables(&self, pc: u64) -> Vec<Variable> {
        let Some((module, offset)) = self.locate(pc) else {
            return Vec::new();
        };
        let debug = self.image(module).debug();
        let visible = debug.map_or_else(Vec::new, |debug| debug.visible(offset));
        let variable = |found: crate::scope::Visible| Variable {
            name: found.name,
            kind: TypeRef {
                module,
                id: found.kind,
            },
            part: found.part,
            place: found.place,
        };
        visible.into_iter().map(variable).collect()
    }

    /// The canonical frame address before the instruction at an address: a general
    /// register (x86 numbering) and what is to be added.
    pub fn frame_address(&self, pc: u64) -> Option<(u8, i64)> {
        let (module, offset) = self.locate(pc)?;
        self.image(module).unwind()?.frame_address(offset)
    }

    /// The variable of the frame at `pc` that holds the address. `cfa` is the frame's
    /// canonical frame address where it is known, `registers` gives registers' values.
    pub fn frame_variable(
        &self,
        pc: u64,
        cfa: Option<u64>,
        registers: &dyn Fn(u8) -> Option<u64>,
        address: u64,
    ) -> Option<VariableWord> {
        let rule = self.frame_address(pc);
        let at = |register: u8, add: i64| Some(registers(register)?.wrapping_add_signed(add));
        let cfa = cfa.or_else(|| rule.and_then(|(register, add)| at(register, add)));
        // The register that the frame address is counted from is known by it.
        let known = |wanted: u8| {
            registers(wanted).or_else(|| {
                let (register, add) = rule?;
                (register == wanted).then_some(cfa?.wrapping_add_signed(add.checked_neg()?))
            })
        };
        self.variables(pc).iter().find_map(|variable| {
            let start = match variable.place {
                ValuePlace::Memory { register, add } => known(register)?.wrapping_add_signed(add),
                ValuePlace::Frame { add } => cfa?.wrapping_add_signed(add),
                ValuePlace::Register { .. } => return None,
            };
            let offset = address.checked_sub(start)?.checked_add(variable.part)?;
            let word = self.word(variable.kind, offset)?;
            let name = variable.name.clone();
            Some(VariableWord { name, word })
        })
    }

    /// The global or thread-local variable's type at an address, as a word of it.
    pub fn word_at(&self, address: u64) -> Option<VariableWord> {
        let (module, variable, offset) = match self.locate(address) {
            Some((module, offset)) => {
                let variable = self.image(module).debug()?.global(offset)?;
                (module, variable, offset - variable.address)
            }
            None => {
                let (module, _, offset) = self.thread_local(address)?;
                let variable = self.image(module).debug()?.thread_local(offset)?;
                (module, variable, offset - variable.address)
            }
        };
        let id = variable.kind;
        let word = self.word(TypeRef { module, id }, offset)?;
        let name = variable.name.clone();
        Some(VariableWord { name, word })
    }

    /// What a pointer of this type points to; `None` when it is no pointer.
    pub fn pointee(&self, kind: TypeRef) -> Option<TypeRef> {
        let module = kind.module;
        let id = self.image(module).debug()?.pointee(kind.id)?;
        Some(TypeRef { module, id })
    }

    /// In bytes; `None` when the debug information does not tell.
    pub fn size(&self, kind: TypeRef) -> Option<u64> {
        self.image(kind.module).debug()?.size(kind.id)
    }

    /// The word at byte `offset` of a value of this type; `None` in padding and outside.
    pub fn word(&self, kind: TypeRef, offset: u64) -> Option<Word> {
        let module = kind.module;
        let (path, id) = self.image(module).debug()?.word(kind.id, offset)?;
        let kind = TypeRef { module, id };
        Some(Word { path, kind })
    }
}
