// SPDX-License-Identifier: MIT
//! From names to places: the variables, fields and thread-local blocks that someone names, in one
//! process.

use crate::debug::{Debug, TypeId, Variable};
use crate::names::Names;
use crate::scope::TypeRef;

/// A variable found by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariableAt {
    /// Run-time address; thread-local: offset in the module's block.
    pub place: u64,
    /// Bytes; 0: unknown.
    pub size: u64,
    /// `None` without debug information.
    pub kind: Option<TypeRef>,
    /// Index of the module that defines it.
    pub module: usize,
}

impl Names {
    /// Global and static variables of this name, in the modules whose file name or path is `module`
    /// (all when `None`).
    pub fn globals_named(&self, module: Option<&str>, name: &str) -> Vec<VariableAt> {
        self.found(module, name, false)
    }

    /// Thread-local variables of this name; `module` as for [`Names::globals_named`].
    pub fn thread_locals_named(&self, module: Option<&str>, name: &str) -> Vec<VariableAt> {
        self.found(module, name, true)
    }

    fn found(&self, module: Option<&str>, name: &str, tls: bool) -> Vec<VariableAt> {
        let mut found: Vec<VariableAt> = Vec::new();
        for (index, input) in self.input.modules.iter().enumerate() {
            if !module.is_none_or(|name| input.is_called(name)) {
                continue;
            }
            let image = self.image(index);
            let base = if tls { 0 } else { input.base };
            let at = |place: u64, size, kind: Option<TypeId>| VariableAt {
                place: base.wrapping_add(place),
                size,
                kind: kind.map(|id| TypeRef { module: index, id }),
                module: index,
            };
            let typed = image.debug().map_or(&[][..], |d| d.all(tls));
            let typed = typed.iter().filter(|v| v.name == name);
            found.extend(typed.map(|v: &Variable| at(v.address, v.size, Some(v.kind))));
            let table = if tls {
                &image.symbols.tls
            } else {
                &image.symbols.data
            };
            for symbol in table.by_name(name) {
                let symbol = at(symbol.start, symbol.size, None);
                if !found
                    .iter()
                    .any(|v| v.module == index && v.place == symbol.place)
                {
                    found.push(symbol);
                }
            }
        }
        found
    }

    /// Where a module's thread-local block starts in a thread whose `fs_base` is known.
    pub fn thread_block(&self, module: usize, tid: u32) -> Option<u64> {
        let mut read = self.input.tls_blocks.iter();
        if let Some(block) = read.find(|b| b.module == module && b.tid == tid) {
            return Some(block.start);
        }
        let thread = self.input.threads.iter().find(|t| t.tid == tid)?;
        thread.fs_base?.checked_sub((*self.layout().get(module)?)?)
    }

    /// Index of the module with this file name or path.
    pub fn module_named(&self, name: &str) -> Option<usize> {
        let mut modules = self.input.modules.iter();
        modules.position(|module| module.is_called(name))
    }

    /// Bytes of a value of this type.
    pub fn type_size(&self, kind: TypeRef) -> Option<u64> {
        self.debug_of(kind)?.size(kind.id)
    }

    /// A member of a structure or union, by name: its offset and type.
    pub fn member(&self, kind: TypeRef, name: &str) -> Option<(u64, TypeRef)> {
        let (offset, id) = self.debug_of(kind)?.member_named(kind.id, name)?;
        Some((offset, TypeRef { id, ..kind }))
    }

    /// The type of an array's elements, and how many each dimension has.
    pub fn array(&self, kind: TypeRef) -> Option<(TypeRef, Vec<u64>)> {
        let (id, counts) = self.debug_of(kind)?.array(kind.id)?;
        Some((TypeRef { id, ..kind }, counts))
    }

    fn debug_of(&self, kind: TypeRef) -> Option<&Debug> {
        self.image(kind.module).debug()
    }
}
