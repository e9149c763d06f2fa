// SPDX-License-Identifier: MIT
//! What a blocked thread of V8 (node) has open in JavaScript.
//!
//! In: its stack, and the constants by which V8 tells debuggers where its structures keep their
//! fields (`v8dbg_*`; node exports them for llnode and DTrace). Out: the calls, innermost first.
//! V8's frames are told by what they hold: a function, and the context that it runs in. A frame of
//! the interpreter also says at which bytecode it stands. Blind spots: frames of optimised code
//! hold no bytecode, and what was inlined into them is not told; frames that an older call left
//! within buffers of C++; functions that wait for a promise, which are on no stack; V8 without
//! those constants (Chrome, Electron, Deno).

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use flagfinder_code::{AddressSpace, Names, Spot, Whose};
use flagfinder_step::Pause;
use rustc_hash::FxHashMap;

use super::source_map::SourceMap;

/// What the names of files begin with that may hold V8.
const MODULES: [&str; 2] = ["node", "libnode"];
const MOST_FRAMES: usize = 256;
/// Within which a running thread must stop.
const PATIENCE: Duration = Duration::from_millis(20);
/// Most bytes of a stack, of a source, and of a name.
const STACK: u64 = 1 << 20;
const SOURCE: u64 = 1 << 23;
const NAME: u64 = 4096;
/// Most words of a ScopeInfo, fields in front of bytecode, and bytes of a table of positions.
const SCOPE: u64 = 64;
const FIELDS: usize = 16;
const POSITIONS: u64 = 1 << 16;
/// The bits of a position that are a place in the script.
const SCRIPT: i64 = (1 << 30) - 1;
/// The ScopeInfo's fields begin behind its map.
const WORD: u64 = 8;
/// What comes before the scripts of node itself.
const OF_NODE: &str = "node:";

/// By name; `None`: this V8 has none of that name.
pub type Constants = RefCell<FxHashMap<String, Option<u64>>>;

pub(super) struct V8<'a> {
    pub(super) names: &'a Names,
    pub(super) memory: &'a dyn AddressSpace,
    constants: &'a Constants,
    /// The file name of the module that has it.
    module: &'a str,
    sources: RefCell<FxHashMap<u64, Option<Rc<Source>>>>,
}

struct Source {
    text: String,
    /// Of a script that was compiled from another.
    map: Option<SourceMap>,
}

impl Source {
    /// Puts in place of the script the file and line that a character of it was compiled from.
    fn lead_back(&self, spot: &mut Spot, character: usize) {
        let Some(before) = self.text.get(..character) else {
            return;
        };
        let line = before.matches('\n').count();
        let column = character - before.rfind('\n').map_or(0, |at| at + 1);
        spot.line = Some(line as u32 + 1);
        if let Some(map) = &self.map {
            let (file, line) = map.origin(line, column as i64).unzip();
            spot.line = line;
            let folder = spot
                .file
                .as_deref()
                .and_then(|script| script.rsplit_once('/'));
            if let (Some(file), Some((folder, _))) = (file, folder) {
                let is_relative = !file.starts_with('/') && !file.contains("://");
                spot.file = Some(match is_relative {
                    true => format!("{folder}/{file}"),
                    false => file.trim_start_matches("file://").to_owned(),
                });
            }
        }
    }
}

/// What a thread has open in JavaScript whose stack pointer this is, innermost first.
pub fn calls(
    (names, memory): (&Names, &dyn AddressSpace),
    constants: &Constants,
    sp: u64,
) -> Vec<(Whose, Spot)> {
    V8::of(names, memory, constants).map_or_else(Vec::new, |v8| v8.calls(sp))
}

/// The same of a thread that runs: it is held while its stack is read.
pub fn calls_while_running(
    (names, memory): (&Names, &dyn AddressSpace),
    constants: &Constants,
    tid: u32,
) -> Vec<(Whose, Spot)> {
    let read = || {
        // What names need of files is read before.
        V8::of(names, memory, constants)?;
        let pause = Pause::of(tid, PATIENCE).ok()?;
        let begin = pause.tracee().registers_before_call().ok()?.rsp;
        let bytes = stack(names, memory, begin);
        pause.end();
        Some((begin, bytes))
    };
    let Some((begin, bytes)) = read() else {
        return Vec::new();
    };
    let memory = Held {
        memory,
        begin,
        bytes: &bytes,
    };
    calls((names, &memory), constants, begin)
}

/// Memory, and of the stack what it was while its thread was held.
struct Held<'a> {
    memory: &'a dyn AddressSpace,
    begin: u64,
    bytes: &'a [u8],
}

impl AddressSpace for Held<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let begin = address.checked_sub(self.begin);
        let held = begin.and_then(|at| self.bytes.get(usize::try_from(at).ok()?..));
        match held.and_then(|held| held.get(..buffer.len())) {
            Some(held) => {
                buffer.copy_from_slice(held);
                buffer.len()
            }
            None => self.memory.read(address, buffer),
        }
    }
}

/// What a thread has on its stack, from this stack pointer on.
fn stack(names: &Names, memory: &dyn AddressSpace, sp: u64) -> Vec<u8> {
    let mut maps = names.input().maps.iter();
    let end = maps.find_map(|maps| maps.at(sp)).map_or(sp, |map| map.end);
    let mut bytes = vec![0; end.saturating_sub(sp).min(STACK) as usize];
    let got = memory.read(sp, &mut bytes);
    bytes.truncate(got);
    bytes
}

/// Where its async functions are suspended, the innermost ones.
pub fn awaits(
    (names, memory): (&Names, &dyn AddressSpace),
    constants: &Constants,
) -> Vec<(Whose, Spot)> {
    V8::of(names, memory, constants).map_or_else(Vec::new, |v8| v8.suspended())
}

impl<'a> V8<'a> {
    /// `None`: the process has no V8 that tells of itself.
    fn of(
        names: &'a Names,
        memory: &'a dyn AddressSpace,
        constants: &'a Constants,
    ) -> Option<V8<'a>> {
        let modules = names.input().modules.iter();
        let mut files = modules.filter_map(|module| module.path.rsplit('/').next());
        let module = files.find(|file| MODULES.iter().any(|begins| file.starts_with(begins)))?;
        let it = V8 {
            names,
            memory,
            constants,
            module,
            sources: RefCell::default(),
        };
        it.constant("off_fp_function").is_some().then_some(it)
    }

    /// Of a thread whose stack pointer this is.
    fn calls(&self, sp: u64) -> Vec<(Whose, Spot)> {
        let bytes = stack(self.names, self.memory, sp);
        let end = sp.saturating_add(bytes.len() as u64);
        let words = bytes.chunks_exact(8).zip((sp..).step_by(8));
        let mut frames = words.filter_map(|(word, at)| {
            let outer = u64::from_le_bytes(word.try_into().ok()?);
            (at + 16..end).contains(&outer).then_some(at)
        });
        let mut calls = Vec::new();
        while let Some(at) = frames.next().filter(|_| calls.len() < MOST_FRAMES) {
            calls.extend(self.call(at));
        }
        calls
    }

    /// As V8 has it: an `int`, which may be negative.
    pub(super) fn constant(&self, name: &str) -> Option<u64> {
        if let Some(known) = self.constants.borrow().get(name) {
            return *known;
        }
        let found = self
            .names
            .resolve(Some(self.module), &format!("v8dbg_{name}"));
        let value = found.first().and_then(|at| self.memory.number(at.0, 4));
        let value = value.map(|value| i64::from(value as u32 as i32) as u64);
        let mut constants = self.constants.borrow_mut();
        constants.insert(name.to_owned(), value);
        value
    }

    /// Where the field of an object lies, which is a pointer with a mark.
    pub(super) fn place(&self, object: u64, field: &str) -> Option<u64> {
        let mask = self.constant("HeapObjectTagMask")?;
        let mark = self.constant("HeapObjectTag")?;
        let is_object = object & mask == mark;
        let at = self.constant(&format!("class_{field}"))?;
        is_object.then(|| object.wrapping_sub(mark).wrapping_add(at))
    }

    pub(super) fn field(&self, object: u64, field: &str) -> Option<u64> {
        self.memory.word(self.place(object, field)?)
    }

    /// A small number in a word.
    pub(super) fn small(&self, word: u64) -> Option<u64> {
        let mask = self.constant("SmiTagMask")?;
        let tag = self.constant("SmiTag")?;
        let shift = self.constant("SmiShiftSize")?.checked_add(1)?;
        (word & mask == tag)
            .then(|| word.checked_shr(u32::try_from(shift).ok()?))
            .flatten()
    }

    fn kind(&self, object: u64) -> Option<u64> {
        let map = self.field(object, "HeapObject__map__Map")?;
        let at = self.place(map, "Map__instance_type__uint16_t")?;
        self.memory.number(at, 2)
    }

    pub(super) fn is(&self, object: u64, kind: &str) -> bool {
        let wanted = self.constant(&format!("type_{kind}"));
        wanted.is_some() && self.kind(object) == wanted
    }

    /// The call whose frame pointer this is.
    fn call(&self, fp: u64) -> Option<(Whose, Spot)> {
        let slot = |name: &str| {
            let at = fp.wrapping_add(self.constant(name)?);
            self.memory.word(at)
        };
        let function = slot("off_fp_function")?;
        // The context is an object, too.
        self.kind(slot("off_fp_context")?)?;
        let (code, at) = (
            slot("off_fp_bytecode_array"),
            slot("off_fp_bytecode_offset"),
        );
        self.place_in(function, code, at)
    }

    /// What a function interprets.
    pub(super) fn bytecodes(&self, function: u64) -> Option<u64> {
        let shared = self.field(function, "JSFunction__shared__SharedFunctionInfo")?;
        self.field(shared, "SharedFunctionInfo__function_data__Object")
    }

    /// A place in a function: at this bytecode of its code, or where it begins.
    pub(super) fn place_in(
        &self,
        function: u64,
        code: Option<u64>,
        at: Option<u64>,
    ) -> Option<(Whose, Spot)> {
        let shared = self.field(function, "JSFunction__shared__SharedFunctionInfo")?;
        if !self.is(shared, "SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE") {
            return None;
        }
        let script = self.field(
            shared,
            "SharedFunctionInfo__script_or_debug_info__HeapObject",
        )?;
        if !self.is(script, "Script__SCRIPT_TYPE") {
            return None;
        }
        let file = self.text(self.field(script, "Script__name__Object")?, NAME)?;
        let file = file
            .strip_prefix("file://")
            .map_or(file.clone(), str::to_owned);
        let mut spot = Spot {
            file: Some(file),
            ..Spot::default()
        };
        if spot
            .file
            .as_deref()
            .is_some_and(|file| file.starts_with(OF_NODE))
        {
            return Some((Whose::System, spot));
        }
        let at = self.position(code, at);
        let named = self.field(shared, "SharedFunctionInfo__name_or_scope_info__Object")?;
        let source = self.source(script);
        let text = source.as_ref().map_or("", |source| &source.text);
        let (begin, own) = self.scope(named, at, text).unzip();
        if let (Some(source), Some(character)) = (&source, at.or(begin)) {
            source.lead_back(&mut spot, character);
        }
        let before = || named_before(text.get(..begin?)?);
        let of_shared = || self.text(named, NAME).filter(|name| !name.is_empty());
        spot.function = own.flatten().or_else(before).or_else(of_shared);
        Some((spot.whose(), spot))
    }

    /// Where in its source a call of the interpreter stands, in characters.
    fn position(&self, code: Option<u64>, offset: Option<u64>) -> Option<usize> {
        let (code, offset) = (code?, self.small(offset?)?);
        if !self.is(code, "BytecodeArray__BYTECODE_ARRAY_TYPE") {
            return None;
        }
        let data = self.constant("class_BytecodeArray__data__uintptr_t")?;
        let mark = self.constant("HeapObjectTag")?;
        // The register counts from the object's marked pointer.
        let offset = offset.checked_add(mark)?.checked_sub(data)?;
        let begin = code.wrapping_sub(mark);
        let is_table = |at: &u64| self.is(*at, "ByteArray__BYTE_ARRAY_TYPE");
        let fields = (2..data / WORD)
            .take(FIELDS)
            .filter_map(|at| self.memory.word(begin + at * WORD));
        // Behind the table of handlers.
        let table = fields.filter(is_table).last()?;
        let length = self.small(self.field(table, "FixedArrayBase__length__SMI")?)?;
        let at = self.place(table, "FixedArray__data__uintptr_t")?;
        let mut bytes = vec![0; length.min(POSITIONS) as usize];
        let got = self.memory.read(at, &mut bytes);
        position_at(&bytes[..got], offset as i64)
    }

    /// Where the function begins, and its own name. Its ScopeInfo has begin and end side by side,
    /// between what else the function is called and the scope outside of it. `at`: a place in it.
    fn scope(&self, scope: u64, at: Option<usize>, text: &str) -> Option<(usize, Option<String>)> {
        if !self.is(scope, "ScopeInfo__SCOPE_INFO_TYPE") {
            return None;
        }
        let fields = scope.wrapping_sub(self.constant("HeapObjectTag")?);
        let field = |number: u64| self.memory.word(fields + number * WORD);
        (3..SCOPE).find_map(|number| {
            let place = |number| usize::try_from(self.small(field(number)?)?).ok();
            let (begin, end) = (place(number)?, place(number + 1)?);
            let is_between = self
                .kind(field(number - 1)?)
                .and(self.kind(field(number + 2)?));
            let is_it = match at {
                Some(at) => (begin..end).contains(&at),
                // V8 works out places when they are first asked for.
                None => begin < end && text.get(begin..end)?.ends_with(['}', ')']),
            };
            is_between.filter(|_| is_it)?;
            let name = self
                .text(field(number - 3)?, NAME)
                .filter(|name| !name.is_empty());
            Some((begin, name))
        })
    }

    fn source(&self, script: u64) -> Option<Rc<Source>> {
        let known = self.sources.borrow().get(&script).cloned();
        known.unwrap_or_else(|| {
            let text = self.field(script, "Script__source__Object");
            let text = text.and_then(|text| self.text(text, SOURCE));
            let map = text.as_deref().and_then(SourceMap::of);
            let source = text.map(|text| Rc::new(Source { text, map }));
            self.sources.borrow_mut().insert(script, source.clone());
            source
        })
    }

    /// A string, with one byte for each character that is none of ASCII, so that positions hold.
    fn text(&self, string: u64, most: u64) -> Option<String> {
        let mut string = string;
        for _ in 0..4 {
            let kind = self.kind(string)?;
            let is_string =
                kind & self.constant("IsNotStringMask")? == self.constant("StringTag")?;
            let form = kind & self.constant("StringRepresentationMask")?;
            let inner = if !is_string {
                return None;
            } else if form == self.constant("SeqStringTag")? {
                return self.characters(string, kind, most);
            } else if form == self.constant("ThinStringTag")? {
                "ThinString__actual__String"
            } else if form == self.constant("ConsStringTag")? {
                // A string that was put together has become its first part.
                "ConsString__first__String"
            } else {
                return None;
            };
            string = self.field(string, inner)?;
        }
        None
    }

    fn characters(&self, string: u64, kind: u64, most: u64) -> Option<String> {
        let length = self
            .memory
            .number(self.place(string, "String__length__int32_t")?, 4)?;
        let length = usize::try_from(length.min(most)).ok()?;
        let encoding = kind & self.constant("StringEncodingMask")?;
        let (at, size) = match encoding == self.constant("OneByteStringTag")? {
            true => ("SeqOneByteString__chars__char", 1),
            false => ("SeqTwoByteString__chars__char", 2),
        };
        let mut bytes = vec![0; length * size];
        let got = self.memory.read(self.place(string, at)?, &mut bytes);
        let ascii = |character: &[u8]| match character {
            [one] | [one, 0] if one.is_ascii() => char::from(*one),
            _ => '?',
        };
        (got == bytes.len()).then(|| bytes.chunks_exact(size).map(ascii).collect())
    }
}

/// The position that belongs to the bytecode at this offset. The table holds differences, each
/// folded into an unsigned number with seven bits a byte; that of bytecodes is turned round where
/// it marks an expression.
fn position_at(table: &[u8], offset: i64) -> Option<usize> {
    let mut bytes = table.iter();
    let mut next = || {
        let (mut sum, mut shift) = (0u64, 0);
        loop {
            let byte = *bytes.next()?;
            sum |= u64::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte & 0x80 == 0 {
                return Some((sum >> 1) as i64 ^ -((sum & 1) as i64));
            }
        }
    };
    let (mut at, mut position, mut found) = (0i64, 0i64, None);
    while let (Some(further), Some(more)) = (next(), next()) {
        at += if further < 0 { -(further + 1) } else { further };
        position += more;
        if at > offset {
            break;
        }
        // The lowest bit says that it lies elsewhere; -1 is no position.
        found = usize::try_from((position >> 1 & SCRIPT) - 1).ok();
    }
    found
}

/// What a function is called that begins behind this source: by its own name, by what it is
/// assigned to, or by the call that it is handed to, as in `it('works', () => {..})`.
fn named_before(source: &str) -> Option<String> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '.');
    let word_before = |text: &'_ str| {
        let begin = text.trim_end_matches(is_part).len();
        (text[..begin].to_owned(), text[begin..].to_owned())
    };
    let mut before = source.trim_end().to_owned();
    let mut own = None;
    for _ in 0..3 {
        let (rest, word) = word_before(&before);
        match word.as_str() {
            "function" | "async" => before = rest.trim_end().to_owned(),
            "" => break,
            _ if own.is_none() => {
                own = Some(word);
                break;
            }
            _ => break,
        }
    }
    if own.is_some() {
        return own;
    }
    if let Some(assigned) = before.strip_suffix(['=', ':']) {
        return Some(word_before(assigned.trim_end()).1).filter(|name| !name.is_empty());
    }
    let before = before.strip_suffix(',')?.trim_end();
    let quote = before
        .chars()
        .last()
        .filter(|c| matches!(c, '\'' | '"' | '`'))?;
    let inside = &before[..before.len() - 1];
    let title = &inside[inside.rfind(quote)? + 1..];
    let call = inside[..inside.len() - title.len() - 1]
        .trim_end()
        .strip_suffix('(')?;
    // Compilers write `(0, module.it)` or `__module.it` for what is imported.
    let inside = call.strip_suffix(')');
    let callee = word_before(inside.unwrap_or(call)).1;
    let imported = callee.split_once('.');
    let callee = match imported.filter(|it| inside.is_some() || it.0.starts_with("__")) {
        Some((_, own)) => own.to_owned(),
        None => callee,
    };
    (!callee.is_empty()).then(|| format!("{callee}({quote}{title}{quote})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_named_by_what_stands_before_it() {
        let named = |source| named_before(source).unwrap_or_default();
        assert_eq!(named("x; function load"), "load");
        assert_eq!(named("const load = async "), "load");
        assert_eq!(named("{ load: function "), "load");
        assert_eq!(
            named("describe('a', () => {\n  it('waits, long', "),
            "it('waits, long')"
        );
        assert_eq!(named("test.only(\"adds\", async "), "test.only(\"adds\")");
        assert_eq!(named("(0,__import_0__.it)('fills', "), "it('fills')");
        assert_eq!(
            named("__import_0__.test.only('fills', "),
            "test.only('fills')"
        );
        assert_eq!(named("each("), "");
        assert_eq!(named("items.map("), "");
    }

    #[test]
    fn positions_are_differences_with_seven_bits_a_byte() {
        // Bytecode 0 at 20, 5 (an expression) at 30, 6 at 25, 200 at 525.
        let fold = |number: i64| ((number << 1) ^ (number >> 63)) as u64;
        let mut table = Vec::new();
        for number in [0, 42, -6, 20, 1, -10, 194, 1000] {
            let mut left = fold(number);
            while left > 0x7f {
                table.push(left as u8 | 0x80);
                left >>= 7;
            }
            table.push(left as u8);
        }
        let at = |offset| position_at(&table, offset);
        assert_eq!((at(0), at(4), at(5)), (Some(20), Some(20), Some(30)));
        assert_eq!((at(6), at(199), at(200)), (Some(25), Some(25), Some(525)));
        assert_eq!(position_at(&table[..1], 9), None);
    }
}
