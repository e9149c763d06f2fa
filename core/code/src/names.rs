// SPDX-License-Identifier: MIT
//! Names of code and of modules' data. Thread-local, stack and heap data: `data.rs`.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use flagfinder_trace::Segment;
use rustc_hash::FxHashMap;

use crate::image::Image;
use crate::input::{ModuleInput, NamesInput, StackFrame};
use crate::maps::Mapping;
use crate::memo::Memo;
use crate::module::ModuleIdentity;
use crate::name::{Code, DataHome, DataKind, DataName};
use crate::scope::Variable;
use crate::shared_image::shared_image;
use crate::symbols::{demangle, with_offset};
use crate::tls::static_layout;

/// Symbols without a size are not asked for.
const NOWHERE: Range<u64> = 0..0;

/// From the first to the last byte of a module, by start.
#[derive(Debug)]
struct Extent {
    start: u64,
    end: u64,
    reach: u64,
    module: usize,
}

fn extents(input: &NamesInput) -> Vec<Extent> {
    let extent = |(module, of): (usize, &ModuleInput)| {
        let start = of.segments.iter().map(|s| s.start).min()?;
        let end = of.segments.iter().map(|s| s.end).max()?;
        let reach = 0;
        Some(Extent {
            start,
            end,
            reach,
            module,
        })
    };
    let modules = input.modules.iter().enumerate();
    let mut extents: Vec<Extent> = modules.filter_map(extent).collect();
    extents.sort_by_key(|e| e.start);
    let mut reach = 0;
    for extent in &mut extents {
        reach = reach.max(extent.end);
        extent.reach = reach;
    }
    extents
}

/// Names every address of one process. Files are opened at first use; lookups after
/// that are logarithmic. Can be shared between threads.
#[derive(Debug)]
pub struct Names {
    pub(crate) input: NamesInput,
    images: Vec<OnceLock<Arc<Image>>>,
    extents: Vec<Extent>,
    layout: OnceLock<Vec<Option<u64>>>,
    /// By allocation's address: callers beyond its site, innermost first.
    outer_callers: FxHashMap<u64, Vec<u64>>,
    /// What [`Names::module_data`] said, by module and offset: each reads through a compilation
    /// unit's types.
    told: Memo<(usize, u64), DataName>,
    /// What [`Names::variables`] said, by address: each answer reads through a function's scopes.
    pub(crate) variables: Memo<u64, Arc<[Variable]>>,
}

impl Names {
    /// ELF files are read when a name in them is first asked for.
    pub fn new(input: NamesInput) -> Self {
        let mut images = Vec::new();
        images.resize_with(input.modules.len(), OnceLock::new);
        let extents = extents(&input);
        Names {
            input,
            images,
            extents,
            layout: OnceLock::new(),
            outer_callers: FxHashMap::default(),
            told: Memo::default(),
            variables: Memo::default(),
        }
    }

    /// Reads what naming code and variables takes, module by module while `goes_on` says so, for
    /// processes that will be forked. Large debug information is read only when it is needed.
    pub fn warm(&self, goes_on: impl Fn() -> bool) {
        let modules = 0..self.images.len();
        for index in modules.take_while(|_| goes_on()) {
            self.image(index).warm();
        }
    }

    /// The same process, later: what is known of modules that are still where they were is kept.
    pub fn renew(&mut self, input: NamesInput) {
        let known = std::mem::take(&mut self.images);
        let mut known: Vec<_> = self.input.modules.iter().zip(known).collect();
        let images = input.modules.iter().map(|module| {
            let at = known.iter().position(|(old, _)| old.is_still(module));
            at.map_or_else(OnceLock::new, |at| known.swap_remove(at).1)
        });
        let images = images.collect();
        *self = Names {
            images,
            ..Names::new(input)
        };
    }

    /// What was told to [`Names::new`], with frames that were set since.
    pub fn input(&self) -> &NamesInput {
        &self.input
    }

    /// Tells the open calls of a thread, innermost first, so that stack words get the
    /// names of their frames.
    pub fn set_frames(&mut self, tid: u32, frames: Vec<StackFrame>) {
        if let Some(thread) = self.input.threads.iter_mut().find(|t| t.tid == tid) {
            thread.frames = frames;
        }
    }

    /// Tells who called the caller of the allocator for the object at `address`
    /// ([`crate::outer_callers`]).
    pub fn set_outer_callers(&mut self, address: u64, callers: Vec<u64>) {
        self.outer_callers.insert(address, callers);
    }

    /// The caller for whom a standard library allocated: the first one that is not itself such a
    /// library.
    pub(crate) fn beyond(&self, site: &Code, allocation: u64) -> Option<Code> {
        if !site.is_standard_library() {
            return None;
        }
        let callers = self.outer_callers.get(&allocation)?;
        let mut named = callers.iter().map(|&caller| self.caller(caller));
        named.find(|code| !code.is_standard_library())
    }

    /// Why symbols of some modules are missing or unchecked, as far as files were
    /// opened so far.
    pub fn notes(&self) -> Vec<String> {
        let opened = self.images.iter().filter_map(OnceLock::get);
        let notes: BTreeSet<&String> = opened.filter_map(|i| i.note.as_ref()).collect();
        notes.into_iter().cloned().collect()
    }

    /// Of which files the debug information was wanted, and not read as it is too large.
    pub fn without_debug(&self) -> Vec<String> {
        let opened = self.images.iter().filter_map(OnceLock::get);
        let files: BTreeSet<String> = opened.filter_map(|image| image.without_debug()).collect();
        files.into_iter().collect()
    }

    pub(crate) fn image(&self, index: usize) -> &Image {
        self.images[index].get_or_init(|| shared_image(&self.input.modules[index]))
    }

    /// Index of the module that holds the address, and its ELF virtual address there;
    /// of several that were there, the latest.
    pub(crate) fn locate(&self, address: u64) -> Option<(usize, u64)> {
        let after = self.extents.partition_point(|e| e.start <= address);
        let before = self.extents[..after].iter().rev();
        let candidates = before
            .take_while(|e| e.reach > address)
            .filter(|e| e.end > address);
        candidates
            .filter_map(|extent| {
                let module = &self.input.modules[extent.module];
                let image = self.image(extent.module);
                let offset = address.wrapping_sub(module.base);
                let holds = if image.loads.is_empty() {
                    let holds = |s: &Segment| (s.start..s.end).contains(&address);
                    module.segments.iter().any(holds)
                } else {
                    image.load_at(offset).is_some()
                };
                holds.then_some((extent.module, offset))
            })
            .max_by_key(|(module, _)| *module)
    }

    /// The module that holds an address, and the ELF virtual address there.
    pub fn module_place(&self, address: u64) -> Option<(&ModuleIdentity, u64)> {
        let (index, offset) = self.locate(address)?;
        Some((&self.input.modules[index].identity, offset))
    }

    /// Run-time address of a place in a module; `None` when it was not loaded.
    pub fn module_address(&self, module: &ModuleIdentity, offset: u64) -> Option<u64> {
        let mut modules = self.input.modules.iter().rev();
        let found = modules.find(|m| m.identity == *module)?;
        Some(found.base.wrapping_add(offset))
    }

    pub(crate) fn mapping(&self, address: u64) -> Option<&Mapping> {
        let newest_first = self.input.maps.iter().rev();
        newest_first.filter_map(|maps| maps.at(address)).next()
    }

    /// The name of the instruction at the address; [`Names::caller`] is for return addresses.
    pub fn code(&self, address: u64) -> Code {
        self.code_at(address, address)
    }

    /// The name of a return address: function and line of the call before it.
    pub fn caller(&self, return_address: u64) -> Code {
        self.code_at(return_address, return_address.wrapping_sub(1))
    }

    /// The line of the function that holds the call: what was inlined there has lines of its own.
    pub fn source_of_caller(&self, return_address: u64) -> Option<String> {
        let (index, probe) = self.locate(return_address.wrapping_sub(1))?;
        self.image(index).debug()?.source_of_whole(probe)
    }

    /// Names `address` with what is known of `probe`.
    fn code_at(&self, address: u64, probe: u64) -> Code {
        let Some((index, probe)) = self.locate(probe) else {
            return Code {
                module: None,
                offset: address,
                symbol: None,
                source: None,
                near: None,
                inlined: Vec::new(),
                build_id: None,
            };
        };
        let module = &self.input.modules[index];
        let image = self.image(index);
        let offset = address.wrapping_sub(module.base);
        let label = |name: &str, start| with_offset(&demangle(name), offset.wrapping_sub(start));
        let found = image.symbols.code.covering(probe, &image.segment(probe));
        // A symbol without a size does not reach into another function.
        let found = found.filter(|f| {
            let another = |extent: Range<u64>| extent.start > f.start;
            let unwind = image.unwind().filter(|_| f.size == 0);
            !unwind.and_then(|u| u.function(probe)).is_some_and(another)
        });
        let go = image.go.as_ref();
        let go_function = go.and_then(|go| go.function(probe));
        let symbol = found
            .map(|f| label(f.name, f.start))
            .or_else(|| go_function.as_ref().map(|f| label(&f.name, f.start)));
        let near = match &symbol {
            Some(_) => None,
            None => image
                .symbols
                .code
                .before(probe, &image.segment(probe))
                .map(|f| label(f.name, f.start)),
        };
        let debug = image.debug();
        let source = debug.and_then(|d| d.source(probe)).or_else(|| {
            let function = go_function.as_ref()?;
            go?.source(function, probe)
        });
        Code {
            module: Some(module.identity.name.to_string()),
            offset,
            symbol,
            source,
            near,
            inlined: debug.map_or_else(Vec::new, |d| d.inlined(probe)),
            build_id: module.identity.build_id_hex(),
        }
    }

    /// The function or variable that begins at the address, by its symbol.
    pub fn symbol_at(&self, address: u64) -> Option<String> {
        let (index, offset) = self.locate(address)?;
        let symbols = &self.image(index).symbols;
        let only_there = offset..offset.saturating_add(1);
        [&symbols.data, &symbols.code]
            .into_iter()
            .filter_map(|table| table.covering(offset, &only_there))
            .find(|found| found.start == offset)
            .map(|found| demangle(found.name))
    }

    /// Run-time extent of the function that holds the address, when its end is known.
    pub fn function(&self, address: u64) -> Option<(u64, u64)> {
        let (index, offset) = self.locate(address)?;
        let base = self.input.modules[index].base;
        let image = self.image(index);
        let by_symbol = image.symbols.code.covering(offset, &NOWHERE);
        let (start, end) = match by_symbol {
            Some(found) => (found.start, found.start.wrapping_add(found.size)),
            None => match image.go.as_ref().and_then(|go| go.function(offset)) {
                Some(function) => (function.start, function.end),
                None => {
                    let extent = image.unwind()?.function(offset)?;
                    (extent.start, extent.end)
                }
            },
        };
        Some((base.wrapping_add(start), base.wrapping_add(end)))
    }

    /// Extents of the writable data of the program, if it is one of Go: it has Go's table of
    /// functions.
    pub fn go_data(&self) -> Option<Vec<Range<u64>>> {
        let modules = self.input.modules.iter().enumerate();
        let mut of_go = modules.filter(|(index, _)| self.image(*index).go.is_some());
        let (index, module) = of_go.next()?;
        let loads = self.image(index).loads.iter().filter(|load| load.writable);
        let extent = |place: u64| module.base.wrapping_add(place);
        Some(
            loads
                .map(|load| extent(load.start)..extent(load.end))
                .collect(),
        )
    }

    /// Where a function of a Go program begins, by Go's table of functions.
    pub fn go_function(&self, name: &str) -> Option<u64> {
        let modules = self.input.modules.iter().enumerate();
        let mut found = modules.filter_map(|(index, module)| {
            let start = self.image(index).go.as_ref()?.named(name)?;
            Some(module.base.wrapping_add(start))
        });
        found.next()
    }

    /// Run-time addresses and sizes (0: unknown) of a symbol, functions and variables,
    /// in the modules whose file name or path is `module` (all when `None`).
    pub fn resolve(&self, module: Option<&str>, symbol: &str) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        for (index, input) in self.input.modules.iter().enumerate() {
            if module.is_none_or(|name| input.is_called(name)) {
                let symbols = &self.image(index).symbols;
                let both = symbols
                    .data
                    .by_name(symbol)
                    .chain(symbols.code.by_name(symbol));
                found.extend(both.map(|f| (input.base.wrapping_add(f.start), f.size)));
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// A word in a module's segment.
    pub(crate) fn module_data(&self, index: usize, offset: u64) -> DataName {
        self.told
            .get((index, offset), || self.find_module_data(index, offset))
    }

    fn find_module_data(&self, index: usize, offset: u64) -> DataName {
        let module = &self.input.modules[index];
        let image = self.image(index);
        let kind = self.module_kind(index, offset);
        let table = match kind {
            DataKind::Code => &image.symbols.code,
            _ => &image.symbols.data,
        };
        // A variable without a size is named where it starts only.
        let found = table.covering(offset, &(offset..offset.saturating_add(1)));
        let debug = image.debug();
        let variable = debug.and_then(|d| Some((d, d.global(offset)?)));
        let field = variable.and_then(|(d, v)| d.field(v.kind, offset - v.address));
        let (symbol, start) = match (found, variable) {
            (Some(found), None) => (Some(demangle(found.name)), found.start),
            (Some(found), Some((_, v))) if found.start == v.address => {
                (Some(demangle(found.name)), found.start)
            }
            (_, Some((_, variable))) => (Some(variable.name.clone()), variable.address),
            (None, None) => (None, 0),
        };
        let near = match symbol {
            Some(_) => None,
            None => table.before(offset, &image.segment(offset)),
        };
        let near = near.map(|f| with_offset(&demangle(f.name), offset - f.start));
        let section = match image.section(offset) {
            Some(section) if symbol.is_none() => format!(" in {section}"),
            _ => String::new(),
        };
        let place = format!("{}+{offset:#x}{section}", module.identity.name);
        let name = match (&symbol, &field, &near) {
            (Some(symbol), Some(field), _) => format!("{symbol}{field} ({place})"),
            (Some(symbol), None, _) => {
                format!("{} ({place})", with_offset(symbol, offset - start))
            }
            (None, _, Some(near)) => format!("{place} (after {near})"),
            (None, _, None) => place,
        };
        DataName {
            kind,
            name,
            module: Some(module.identity.name.to_string()),
            offset: Some(offset),
            symbol,
            field: field.filter(|f| !f.is_empty()),
            near,
            home: DataHome::Module {
                module: module.identity.name.to_string(),
                offset,
            },
        }
    }

    pub(crate) fn module_kind(&self, index: usize, offset: u64) -> DataKind {
        let image = self.image(index);
        let module = &self.input.modules[index];
        if !module.path.starts_with('/') {
            return DataKind::Kernel;
        }
        let within = |ranges: &[Range<u64>]| ranges.iter().any(|r| r.contains(&offset));
        if within(&image.linkage) {
            return DataKind::Linkage;
        }
        let (writable, executable) = match image.load_at(offset) {
            Some(load) => (load.writable, load.executable),
            None => {
                let address = module.base.wrapping_add(offset);
                let segment = module
                    .segments
                    .iter()
                    .find(|s| (s.start..s.end).contains(&address));
                segment.map_or((true, false), |s| (s.prot & 2 != 0, s.prot & 4 != 0))
            }
        };
        match (writable, executable) {
            (_, true) => DataKind::Code,
            (true, _) if !within(&image.relocated) => DataKind::Global,
            _ => DataKind::ReadOnly,
        }
    }

    /// Distance of each module's static thread-local block below fs_base.
    pub(crate) fn layout(&self) -> &[Option<u64>] {
        self.layout.get_or_init(|| {
            let segments: Vec<_> = (0..self.input.modules.len())
                .map(|index| self.image(index).tls)
                .collect();
            static_layout(&segments)
        })
    }
}
