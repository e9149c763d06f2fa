// SPDX-License-Identifier: MIT
//! What a thread of Perl has open in its script.
//!
//! In: the key under which each thread has its interpreter (`PL_thr_key`, which Perl exports), what
//! glibc tells debuggers of where such keys lie (`_thread_db_pthread_specific`), and the
//! interpreter's memory. Out: the calls, innermost first. A statement is told by the function that
//! executes it (`Perl_pp_nextstate`), so that no offset within the interpreter need be known: its
//! first word that leads to a statement is the current one, and close behind is the stack of
//! contexts, each of which has the statement it was entered from. The size of a context is the one
//! that fits all of them. Source: `cop.h` and `intrpvar.h`, versions 5.24 to 5.40. Blind spots: a
//! Perl that was built without threads (its files lie behind more words), other C libraries, and
//! functions that have no name of their own.

use flagfinder_code::{AddressSpace, ByPages, Names, Spot, Whose};

/// What the names of files begin with that may hold Perl.
const MODULES: [&str; 2] = ["perl", "libperl"];
/// The words of an interpreter that are searched.
const WORDS: u64 = 64;
/// So many keys of a thread are in one block, each with its number in front of what it has.
const KEYS: u64 = 32;
const KEY_BYTES: u64 = 16;
const KEY_DATA: u64 = 8;
/// Of a statement: what executes it, its line (32 bits), and its file.
const EXECUTES: u64 = 16;
const LINE: u64 = 36;
const FILE: u64 = 48;
/// So many words behind the current statement the stack of contexts is at most.
const BEHIND: u64 = 4;
/// Of a stack: its contexts, the stack below, and the number of the innermost context (32 bits).
const CONTEXTS: u64 = 8;
const BELOW: u64 = 16;
const INNERMOST: u64 = 32;
const MOST_STACKS: usize = 8;
const MOST_CONTEXTS: u64 = 256;
/// Bytes of a context.
const LEAST: u64 = 80;
const MOST: u64 = 128;
/// Where a context has the statement it was entered from; the bits of its first byte that are its
/// kind, and that of a function.
const ENTERED_FROM: [u64; 2] = [16, 24];
const CONTEXT: u64 = 0xf;
const OF_CALL: u64 = 9;
/// Of a value: its body, and its kind in the flags (32 bits); that of functions and of names.
const FLAGS: u64 = 12;
const KIND: u64 = 0xff;
const OF_FUNCTION: u64 = 13;
const OF_NAME: u64 = 9;
/// Where the body of a function has its name, and that of a name its text: behind hash and length.
const NAMED_BY: u64 = 56;
const KEY: u64 = 32;
const LENGTH: u64 = 4;
const TEXT: u64 = 8;
const LONGEST: u64 = 1024;
const LAST_LINE: u64 = 1 << 24;

struct Perl<'a> {
    memory: &'a dyn AddressSpace,
    /// What executes a statement.
    executes: Vec<u64>,
    /// Where the thread's interpreter lies.
    interpreter: u64,
}

/// What a thread with this `fs:0` has open in its script, innermost first.
pub fn calls(names: &Names, memory: &dyn AddressSpace, fs_base: Option<u64>) -> Vec<(Whose, Spot)> {
    let memory = ByPages::new(|address, buffer: &mut [u8]| memory.read(address, buffer));
    let found = fs_base.and_then(|fs_base| Perl::of(names, &memory, fs_base));
    let calls = found.and_then(|perl| perl.calls());
    calls.map_or_else(Vec::new, |calls| {
        let whose = calls.into_iter().map(|spot| (spot.whose(), spot));
        whose.collect()
    })
}

impl<'a> Perl<'a> {
    fn of(names: &Names, memory: &'a dyn AddressSpace, fs_base: u64) -> Option<Perl<'a>> {
        let modules = names.input().modules.iter();
        let mut files = modules.map(|module| &*module.identity.name);
        files.find(|file| MODULES.iter().any(|begins| file.starts_with(begins)))?;
        let at = |name: &str| names.resolve(None, name).first().map(|found| found.0);
        let key = memory.number(at("PL_thr_key")?, 4)?;
        // Of a thread's keys there are how many bits, how often, and where.
        let keys = at("_thread_db_pthread_specific")?.wrapping_add(8);
        let keys = fs_base.wrapping_add(memory.number(keys, 4)?);
        let block = memory.word(keys.wrapping_add(key / KEYS * 8))?;
        let executes = ["Perl_pp_nextstate", "Perl_pp_dbstate"];
        Some(Perl {
            memory,
            executes: executes.into_iter().filter_map(at).collect(),
            interpreter: memory.word(block.wrapping_add(key % KEYS * KEY_BYTES + KEY_DATA))?,
        })
    }

    fn calls(&self) -> Option<Vec<Spot>> {
        let place = |number: u64| self.interpreter.wrapping_add(number * 8);
        let is_current = |number: &u64| self.statement(self.memory.word(place(*number))).is_some();
        let current = (0..WORDS).find(is_current)?;
        let mut stacks = (1..=BEHIND).filter_map(|more| {
            let stack = self.memory.word(place(current + more))?;
            self.callers(stack)
        });
        // Each function's own name, and where it was called: it stands where the next one inside
        // was called, the innermost one where the thread is now.
        let entered = stacks.next().unwrap_or_default();
        let mut at = self.statement(self.memory.word(place(current)))?;
        let mut calls = Vec::new();
        for (function, from) in entered {
            at.function = function;
            calls.push(std::mem::replace(&mut at, from));
        }
        calls.push(at);
        Some(calls)
    }

    /// The functions that are open and where each was called, innermost first.
    fn callers(&self, stack: u64) -> Option<Vec<(Option<String>, Spot)>> {
        let (mut stack, mut all) = (stack, self.of_stack(stack)?);
        for _ in 1..MOST_STACKS {
            let below = self.memory.word(stack.wrapping_add(BELOW));
            let Some(more) = below.and_then(|below| self.of_stack(below)) else {
                break;
            };
            all.extend(more);
            stack = below.unwrap_or_default();
        }
        Some(all)
    }

    /// The same of one stack. `None`: it is none, or its contexts are not known.
    fn of_stack(&self, stack: u64) -> Option<Vec<(Option<String>, Spot)>> {
        let innermost = self.memory.number(stack.wrapping_add(INNERMOST), 4)?;
        let contexts = self.memory.word(stack.wrapping_add(CONTEXTS))?;
        let count = u64::from((innermost as u32).wrapping_add(1));
        let told = count.saturating_sub(MOST_CONTEXTS)..count;
        let context = |size: u64, number: u64| contexts.wrapping_add(size * number);
        let fits = |(at, size): &(u64, u64)| {
            told.clone().all(|number| {
                let from = self.memory.word(context(*size, number).wrapping_add(*at));
                self.is_while_compiling(from) || self.statement(from).is_some()
            })
        };
        // A word behind the right one leads to a statement, too: the one that comes next. It
        // passes for the right one of a larger context.
        let sizes = (LEAST..=MOST).step_by(8);
        let mut all = sizes.flat_map(|size| ENTERED_FROM.map(|at| (at, size)));
        let (at, size) = all.find(fits)?;
        let calls = told.clone().rev().filter_map(|number| {
            let begin = context(size, number);
            let kind = self.memory.number(begin, 1)? & CONTEXT;
            if kind != OF_CALL {
                return None;
            }
            let mut words = (at + 8..size).step_by(8);
            let function = words.find_map(|word| {
                let value = self.memory.word(begin.wrapping_add(word))?;
                (self.kind(value)? == OF_FUNCTION).then_some(value)
            })?;
            let from = self.statement(self.memory.word(begin.wrapping_add(at)))?;
            Some((self.name(function), from))
        });
        Some(calls.collect())
    }

    /// While a script is compiled, the statement lies in the interpreter itself.
    fn is_while_compiling(&self, statement: Option<u64>) -> bool {
        const INTERPRETER: u64 = 8192;
        statement.is_some_and(|at| at.wrapping_sub(self.interpreter) < INTERPRETER)
    }

    fn statement(&self, at: Option<u64>) -> Option<Spot> {
        let at = at.filter(|at| at % 8 == 0)?;
        let executes = self.memory.word(at.wrapping_add(EXECUTES))?;
        if !self.executes.contains(&executes) {
            return None;
        }
        let line = self.memory.number(at.wrapping_add(LINE), 4)?;
        let file = self.memory.word(at.wrapping_add(FILE))?;
        Some(Spot {
            file: Some(self.text(file, LONGEST)?),
            line: Some(line as u32).filter(|_| (1..LAST_LINE).contains(&line)),
            ..Spot::default()
        })
    }

    fn kind(&self, value: u64) -> Option<u64> {
        let value = Some(value).filter(|value| *value % 8 == 0 && *value != 0)?;
        Some(self.memory.number(value.wrapping_add(FLAGS), 4)? & KIND)
    }

    fn name(&self, function: u64) -> Option<String> {
        let body = self.memory.word(function)?;
        let named = self.memory.word(body.wrapping_add(NAMED_BY))?;
        // A function has the text of its name itself, or the name of the symbol table.
        let key = match self.kind(named) {
            Some(OF_NAME) => self
                .memory
                .word(self.memory.word(named)?.wrapping_add(KEY))?,
            _ => named,
        };
        let length = self.memory.number(key.wrapping_add(LENGTH), 4)?;
        let text = self.text(key.wrapping_add(TEXT), LONGEST)?;
        let is_word = |text: &str| text.chars().all(|c| c == '_' || c.is_alphanumeric());
        (text.len() as u64 == length && is_word(&text)).then_some(text)
    }

    /// Up to the zero behind it.
    fn text(&self, at: u64, longest: u64) -> Option<String> {
        let mut bytes = vec![0; longest as usize];
        let got = self.memory.read(at, &mut bytes);
        let end = bytes[..got].iter().position(|byte| *byte == 0)?;
        let text = std::str::from_utf8(&bytes[..end]).ok()?;
        let is_told = !text.is_empty() && !text.chars().any(char::is_control);
        is_told.then(|| text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    struct Words(BTreeMap<u64, u64>);

    impl AddressSpace for Words {
        fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
            for (at, byte) in buffer.iter_mut().enumerate() {
                let place = address.wrapping_add(at as u64);
                let Some(word) = self.0.get(&(place & !7)) else {
                    return at;
                };
                *byte = word.to_le_bytes()[place as usize % 8];
            }
            buffer.len()
        }
    }

    const INTERPRETER: u64 = 0x1_0000;
    const EXECUTOR: u64 = 0x2_0000;
    const OUTER: u64 = 0x3_0000;
    const INNER: u64 = 0x3_1000;
    const NEXT: u64 = 0x3_2000;
    const STACK: u64 = 0x4_0000;
    const ALL: u64 = 0x5_0000;
    const FUNCTION: u64 = 0x6_0000;
    const NAMED: u64 = 0x7_0000;

    /// An interpreter in `take()` at line 7, called at line 21 from the script, in contexts of this
    /// size: one of the script, one of the function, and one of a loop in it that still holds what
    /// an earlier call left there.
    fn script(size: u64) -> BTreeMap<u64, u64> {
        let mut words: BTreeMap<u64, u64> = (0..3 * size / 8).map(|at| (ALL + at * 8, 0)).collect();
        let mut statement = |at: u64, line: u64| {
            words.insert(at + EXECUTES, EXECUTOR);
            words.insert(at + LINE - 4, line << 32);
            words.insert(at + FILE, 0x8_0000);
        };
        statement(OUTER, 21);
        statement(INNER, 7);
        statement(NEXT, 22);
        let at = ENTERED_FROM[0];
        words.extend([
            (0x8_0000, u64::from_le_bytes(*b"waits.pl")),
            (0x8_0008, 0),
            (INTERPRETER, 0x99),
            (INTERPRETER + 8, INNER),
            (INTERPRETER + 24, STACK),
            (STACK + CONTEXTS, ALL),
            (STACK + BELOW, 0),
            (STACK + INNERMOST, 2),
            (ALL + at, INTERPRETER + 0x800),
            (ALL + size, OF_CALL),
            (ALL + size + at, OUTER),
            (ALL + size + at + 32, NEXT),
            (ALL + size + at + 40, FUNCTION),
            (ALL + 2 * size, 6),
            (ALL + 2 * size + at, INNER),
            (ALL + 2 * size + at + 40, FUNCTION),
            (FUNCTION, 0x6_1000),
            (FUNCTION + 8, OF_FUNCTION << 32),
            (0x6_1000 + NAMED_BY, NAMED),
            (NAMED, 0x7_1000),
            (NAMED + 8, OF_NAME << 32),
            (0x7_1000 + KEY, 0x7_2000),
            (0x7_2000, 4 << 32),
            (0x7_2008, u64::from_le_bytes(*b"take\0\0\0\0")),
        ]);
        words
    }

    fn told(words: BTreeMap<u64, u64>) -> Vec<(String, u32)> {
        let memory = Words(words);
        let perl = Perl {
            memory: &memory,
            executes: vec![EXECUTOR],
            interpreter: INTERPRETER,
        };
        let calls = perl.calls().unwrap_or_default().into_iter();
        calls
            .map(|spot| {
                assert_eq!(spot.file.as_deref(), Some("waits.pl"));
                let function = spot.function.unwrap_or_default();
                (function, spot.line.unwrap_or_default())
            })
            .collect()
    }

    #[test]
    fn functions_that_are_open_are_told_with_where_they_were_called() {
        for size in [96, 104, 112] {
            let both = [("take".to_owned(), 7), (String::new(), 21)];
            assert_eq!(told(script(size)), both, "{size}");
        }
    }

    #[test]
    fn without_the_stack_the_statement_alone_is_told() {
        let mut words = script(104);
        words.insert(STACK + INNERMOST, u64::from(u32::MAX) - 1);
        assert_eq!(told(words), [(String::new(), 7)]);
        let mut words = script(104);
        words.insert(INTERPRETER + 8, 0);
        assert_eq!(told(words), []);
    }

    #[test]
    fn stacks_that_lead_back_to_themselves_end() {
        let mut words = script(104);
        words.insert(STACK + BELOW, STACK);
        assert_eq!(told(words).len(), MOST_STACKS + 1);
    }
}
