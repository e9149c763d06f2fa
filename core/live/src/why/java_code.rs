// SPDX-License-Identifier: MIT
//! Which methods code of Java comes to call further on, and which fields it writes.
//!
//! In: the methods that a thread has open, each at a bytecode. Out: the calls on the ways from
//! there to the methods' ends, and those of the methods of the program that are called there.
//! Of a call of which only the object's class tells the method, those of all classes are meant that
//! are loaded by now. Blind spots: handlers of exceptions, and what has no code that can be read;
//! where there is one of these, `is_all` is false.

use flagfinder_code::Whose;
use rustc_hash::{FxHashMap, FxHashSet};

use super::java_frames::{whose, Frames, Open};
use super::java_kinds;
use super::vm_structs::Kinds;

/// Most methods that are searched for one thread, and most calls that are still to be followed.
pub const METHODS: usize = 256;
pub const CALLS: usize = 1 << 14;
/// The longest method that HotSpot compiles (HugeMethodLimit).
const LONGEST: u64 = 8000;
/// Most ancestors of a class.
const ANCESTORS: usize = 64;
/// Most methods of a class, and classes that its code names.
const WIDEST: u64 = 4096;
/// A class whose code runs what it is given: what that calls is not known.
const RUN_ANYTHING: [&str; 5] = [
    "java/lang/Runnable",
    "java/util/function/",
    "java/util/concurrent/Callable",
    "java/util/concurrent/ThreadPoolExecutor",
    "java/util/concurrent/ForkJoin",
];
/// Of these classes of the library the code that is open completes what it runs.
const COMPLETING: [&str; 2] = [
    "java/util/concurrent/CompletableFuture",
    "java/util/concurrent/ForkJoinTask",
];

/// Calls that are ahead.
#[derive(Default)]
pub struct Ahead {
    /// Names of methods of the library.
    pub names: FxHashSet<String>,
    /// Of those that only come if the object is of one of several classes.
    pub assumed: FxHashSet<String>,
    /// May nothing else be called?
    pub is_all: bool,
    /// Fields of the program's.
    pub writes: FxHashSet<Field>,
}

/// A field, by the names of the class that the code names and its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    pub class: String,
    pub name: String,
    /// There is one for all objects.
    pub is_static: bool,
}

pub struct Invoke {
    pub class: String,
    pub name: String,
    /// The class, if it is known by now.
    pub klass: Option<u64>,
    by: By,
}

/// What tells the method that is called: the class that the code names, or the object's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Class,
    Object,
    Interface,
}

/// What an instruction does to what is not the method's own.
pub enum What {
    Calls(Invoke),
    Reads(Field),
    Writes(Field),
    /// Into an array.
    Stores,
}

/// The same as the code has it: with the index of what it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Site {
    Call {
        index: u16,
        by: By,
    },
    /// Where no object is named, it is static.
    Read {
        index: u16,
        is_static: bool,
    },
    Write {
        index: u16,
        is_static: bool,
    },
    Store,
}

impl Frames<'_> {
    /// What the thread comes to call that has these methods open.
    pub fn ahead(&self, open: &[Open]) -> Ahead {
        let mut ahead = Ahead {
            is_all: !open.is_empty(),
            ..Ahead::default()
        };
        let mut seen = FxHashSet::default();
        for one in open {
            let Some(class) = self.class_of(one.method) else {
                ahead.is_all = false;
                continue;
            };
            let of_library = whose(&class) == Whose::System;
            let begins = |list: &[&str]| list.iter().any(|one| class.starts_with(one));
            if of_library {
                ahead.is_all &= !begins(&RUN_ANYTHING) && !begins(&COMPLETING);
                if !begins(&COMPLETING) {
                    continue;
                }
            }
            let calls = one.bytecode.and_then(|at| self.does(one.method, Some(at)));
            self.add(calls, !of_library, &mut ahead, &mut seen);
        }
        ahead
    }

    /// `follows`: into the methods of the program.
    fn add(
        &self,
        ways: Option<Vec<What>>,
        follows: bool,
        ahead: &mut Ahead,
        seen: &mut FxHashSet<u64>,
    ) {
        let Some(ways) = ways else {
            ahead.is_all = false;
            return;
        };
        // What is sure comes first.
        let (mut todo, mut perhaps) = (ways, Vec::new());
        let mut is_sure = true;
        loop {
            let Some(what) = todo.pop() else {
                if perhaps.is_empty() {
                    return;
                }
                is_sure = false;
                todo.append(&mut perhaps);
                continue;
            };
            let call = match what {
                What::Calls(call) => call,
                What::Writes(field) => {
                    if is_sure {
                        ahead.writes.insert(field);
                    }
                    continue;
                }
                What::Reads(_) | What::Stores => continue,
            };
            let runs = |one: &&str| call.class.starts_with(one);
            if whose(&call.class) == Whose::System {
                ahead.is_all &= !(call.by == By::Interface && RUN_ANYTHING.iter().any(runs));
                match is_sure {
                    true => ahead.names.insert(call.name),
                    false => ahead.assumed.insert(call.name),
                };
                continue;
            }
            let found = match follows {
                true => self.targets(&call),
                false => Vec::new(),
            };
            ahead.is_all &= !found.is_empty();
            let is_one = found.len() == 1;
            for method in found {
                if seen.len() >= METHODS || todo.len() + perhaps.len() >= CALLS {
                    ahead.is_all = false;
                } else if seen.insert(method) {
                    let more = self.does(method, None);
                    ahead.is_all &= more.is_some();
                    let all = if is_one { &mut todo } else { &mut perhaps };
                    all.extend(more.into_iter().flatten());
                }
            }
        }
    }

    fn kinds(&self) -> &Kinds {
        let known = &self.structs.known.kinds;
        known.get_or_init(|| java_kinds::read(self))
    }

    /// The methods that the call may come to.
    fn targets(&self, call: &Invoke) -> Vec<u64> {
        let kinds = self.kinds();
        let Some(class) = call.klass.or_else(|| kinds.called(&call.class)) else {
            return Vec::new();
        };
        // It may have the method from a class that it extends.
        let inherited = |class: u64| {
            let classes = std::iter::successors(Some(class), |class| {
                self.word(*class, "Klass", "_super").filter(|one| *one != 0)
            });
            let methods = classes.take(ANCESTORS);
            let mut methods = methods.map(|class| self.named(class, &call.name));
            methods.find(|all| !all.is_empty()).unwrap_or_default()
        };
        let mut found = inherited(class);
        if call.by != By::Class {
            found.extend(kinds.below(class).iter().flat_map(|one| inherited(*one)));
        }
        found.sort_unstable();
        found.dedup();
        let has_code = |method: &u64| self.code(*method).is_some();
        if found.len() > 1 {
            found.retain(has_code);
        }
        found
    }

    /// The classes that the method's code may name, as far as they are known by now.
    pub fn classes_near(&self, method: u64) -> Vec<u64> {
        let near = || {
            let pool = self.pool(method)?;
            let holder = self.word(pool, "ConstantPool", "_pool_holder")?;
            let resolved = self.word(pool, "ConstantPool", "_resolved_klasses")?;
            let others = self.elements(resolved, "Array<Klass*>").into_iter();
            let is_own = |klass: &u64| {
                let name = self.word(*klass, "Klass", "_name");
                let name = name.and_then(|name| self.symbol(name));
                name.is_some_and(|name| whose(&name) != Whose::System && !name.starts_with('['))
            };
            Some([holder].into_iter().chain(others).filter(is_own).collect())
        };
        near().unwrap_or_default()
    }

    pub fn class_of(&self, method: u64) -> Option<String> {
        let holder = self.word(self.pool(method)?, "ConstantPool", "_pool_holder")?;
        self.symbol(self.word(holder, "Klass", "_name")?)
    }

    pub fn name_of(&self, method: u64) -> Option<String> {
        let constant = self.word(method, "Method", "_constMethod")?;
        let index = self.number(constant, "ConstMethod", "_name_index", 2)?;
        self.symbol(self.constant(self.pool(method)?, index)?)
    }

    fn pool(&self, method: u64) -> Option<u64> {
        let constant = self.word(method, "Method", "_constMethod")?;
        self.word(constant, "ConstMethod", "_constants")
    }

    fn constant(&self, pool: u64, index: u64) -> Option<u64> {
        let first = pool.checked_add(self.structs.size("ConstantPool")?)?;
        self.memory.word(first.checked_add(index.checked_mul(8)?)?)
    }

    pub fn elements(&self, array: u64, kind: &str) -> Vec<u64> {
        let all = || {
            let length = self.number(array, "Array<int>", "_length", 4)?.min(WIDEST);
            let data = self.field(array, kind, "_data")?;
            let words = (0..length).map(|index| self.memory.word(data + index * 8).unwrap_or(0));
            Some(words.filter(|word| *word != 0).collect())
        };
        all().unwrap_or_default()
    }

    /// The methods of the class that have this name, and code.
    pub fn named(&self, klass: u64, name: &str) -> Vec<u64> {
        let methods = self.word(klass, "InstanceKlass", "_methods");
        let methods = methods.map_or_else(Vec::new, |all| self.elements(all, "Array<Method*>"));
        let is_it = |method: &u64| self.name_of(*method).as_deref() == Some(name);
        methods.into_iter().filter(is_it).collect()
    }

    /// What is done on the ways from behind this bytecode, or from the method's beginning. `None`:
    /// it has no code, or its code can't be read.
    pub fn does(&self, method: u64, behind: Option<u32>) -> Option<Vec<What>> {
        let code = self.code(method)?;
        let behind = behind.map(|at| at as usize);
        let (places, named): (Vec<usize>, Vec<Site>) = sites(&code, behind)?.into_iter().unzip();
        let mut found = self.at_sites(method, named)?;
        let called_at = behind.and_then(|at| site(&code, at)?);
        let called_at = called_at.and_then(|site| self.at_sites(method, vec![site])?.pop());
        for pair in &PAIRS {
            if !found.iter().any(|what| what.is_call(pair.gives)) {
                continue;
            }
            let by = |at: usize| {
                let what = places.iter().position(|place| *place == at);
                what.map_or(0, |index| pair.by(&found[index]))
            };
            let taken = called_at.as_ref().map_or(0, |what| pair.by(what).max(0));
            let open = balance(&code, begin(&code, behind)?, taken, &by)?;
            let mut at = places.iter();
            found = found
                .into_iter()
                .map(|what| {
                    let at = at.next().and_then(|at| open.get(at));
                    match what.is_call(pair.gives) && at.is_none_or(|balance| *balance > 0) {
                        true => What::Stores,
                        false => what,
                    }
                })
                .collect();
        }
        Some(found)
    }

    /// What is done in the loops of the method, or in those that it is in.
    pub fn in_loops(&self, open: &Open) -> Option<Vec<What>> {
        let code = self.code(open.method)?;
        let at = open.bytecode.map(|at| at as usize);
        self.at_sites(open.method, in_loops(&code, at)?)
    }

    /// Does the method have a loop that names nothing? `None`: its code can't be read.
    pub fn computes(&self, method: u64) -> Option<bool> {
        computes(&self.code(method)?)
    }

    fn code(&self, method: u64) -> Option<Vec<u8>> {
        let constant = self.word(method, "Method", "_constMethod")?;
        let length = self.number(constant, "ConstMethod", "_code_size", 2)?;
        let mut code = vec![0; length.min(LONGEST) as usize];
        let got = self.memory.read(self.bytecodes(constant)?, &mut code);
        (got > 0 && got == code.len()).then_some(code)
    }

    fn at_sites(&self, method: u64, sites: Vec<Site>) -> Option<Vec<What>> {
        let pool = self.pool(method)?;
        let field = |index, is_static| {
            let (class, name, _) = self.referred(pool, index, true)?;
            Some(Field {
                class,
                name,
                is_static,
            })
        };
        let what = |site| {
            Some(match site {
                Site::Call { index, by } => {
                    let (class, name, klass) = self.referred(pool, index, false)?;
                    What::Calls(Invoke {
                        class,
                        name,
                        klass,
                        by,
                    })
                }
                Site::Read { index, is_static } => What::Reads(field(index, is_static)?),
                Site::Write { index, is_static } => What::Writes(field(index, is_static)?),
                Site::Store => What::Stores,
            })
        };
        sites.into_iter().map(what).collect()
    }

    /// The class and the name of the method or field, and the class itself if it is known by now.
    fn referred(
        &self,
        pool: u64,
        index: u16,
        is_field: bool,
    ) -> Option<(String, String, Option<u64>)> {
        let cache = self.word(pool, "ConstantPool", "_cache")?;
        let index = u64::from(index);
        let entry = |first: u64, kind: &str| {
            first.checked_add(index.checked_mul(self.structs.size(kind)?)?)
        };
        let (list, array, kind) = match is_field {
            true => (
                "_resolved_field_entries",
                "Array<ResolvedFieldEntry>",
                "ResolvedFieldEntry",
            ),
            false => (
                "_resolved_method_entries",
                "Array<ResolvedMethodEntry>",
                "ResolvedMethodEntry",
            ),
        };
        let of_cache = match self.word(cache, "ConstantPoolCache", list) {
            Some(entries) => {
                let data = self.field(entries, array, "_data")?;
                self.number(entry(data, kind)?, kind, "_cpool_index", 2)?
            }
            None => {
                let first = cache.checked_add(self.structs.size("ConstantPoolCache")?)?;
                let entry = entry(first, "ConstantPoolCacheEntry")?;
                self.word(entry, "ConstantPoolCacheEntry", "_indices")? & 0xffff
            }
        };
        let half = |word: u64, upper: bool| match upper {
            true => word >> 16 & 0xffff,
            false => word & 0xffff,
        };
        let reference = self.constant(pool, of_cache)?;
        let class = self.constant(pool, half(reference, false))?;
        let name = self.constant(pool, half(reference, true))?;
        let resolved = self.word(pool, "ConstantPool", "_resolved_klasses");
        let klass = resolved.and_then(|array| {
            let data = self.field(array, "Array<Klass*>", "_data")?;
            self.memory.word(data.checked_add(half(class, false) * 8)?)
        });
        Some((
            self.symbol(self.constant(pool, half(class, true))?)?,
            self.symbol(self.constant(pool, half(name, false))?)?,
            klass.filter(|klass| *klass != 0),
        ))
    }
}

impl What {
    fn is_call(&self, names: &[&str]) -> bool {
        matches!(self, What::Calls(call) if names.contains(&&*call.name))
    }
}

/// What takes something, and what gives it back. One that comes to both in this order does not
/// have it now.
struct Pair {
    takes: &'static [&'static str],
    gives: &'static [&'static str],
}

const PAIRS: [Pair; 2] = [
    Pair {
        takes: &["acquire", "acquireUninterruptibly"],
        gives: &["release"],
    },
    Pair {
        takes: &["lock", "lockInterruptibly"],
        gives: &["unlock", "unlockRead", "unlockWrite"],
    },
];
/// Most of a kind that a way is seen to take.
const MOST_TAKEN: i8 = 4;

impl Pair {
    fn by(&self, what: &What) -> i8 {
        i8::from(what.is_call(self.takes)) - i8::from(what.is_call(self.gives))
    }
}

/// How many of a kind the thread has taken, at least, where it comes to each instruction; `taken`:
/// at first.
fn balance(
    code: &[u8],
    from: Vec<usize>,
    taken: i8,
    by: &dyn Fn(usize) -> i8,
) -> Option<FxHashMap<usize, i8>> {
    let mut todo: Vec<(usize, i8)> = from.into_iter().map(|at| (at, taken)).collect();
    let mut least: FxHashMap<usize, i8> = FxHashMap::default();
    while let Some((at, count)) = todo.pop() {
        if least.get(&at).is_some_and(|known| *known <= count) {
            continue;
        }
        least.insert(at, count);
        let after = (count + by(at)).clamp(0, MOST_TAKEN);
        todo.extend(next(code, at)?.into_iter().map(|to| (to, after)));
    }
    Some(least)
}

/// Bytes of an instruction; those from 203 on are the interpreter's own. `None`: none is so.
fn length(code: &[u8], at: usize) -> Option<usize> {
    Some(match *code.get(at)? {
        16 | 18 | 21..=25 | 54..=58 | 169 | 188 | 224 | 230 | 237 => 2,
        17 | 19 | 20 | 132 | 153..=168 | 178..=184 | 187 | 189 | 192 | 193 | 198 | 199 => 3,
        203..=219 | 226 | 227 | 231 | 233..=235 => 3,
        197 | 221..=223 | 225 => 4,
        185 | 186 | 200 | 201 => 5,
        196 => match *code.get(at + 1)? {
            132 => 6,
            _ => 4,
        },
        170 => {
            let (low, high) = (int(code, padded(at) + 4)?, int(code, padded(at) + 8)?);
            let count = usize::try_from(high.checked_sub(low)?.checked_add(1)?).ok()?;
            padded(at) - at + 12 + count.checked_mul(4)?
        }
        171 | 228 | 229 => {
            let count = usize::try_from(int(code, padded(at) + 4)?).ok()?;
            padded(at) - at + 8 + count.checked_mul(8)?
        }
        0..=202 | 220 | 232 | 236 => 1,
        _ => return None,
    })
}

/// Where the numbers of a switch begin.
fn padded(at: usize) -> usize {
    (at + 4) & !3
}

fn int(code: &[u8], at: usize) -> Option<i32> {
    let bytes = code.get(at..at.checked_add(4)?)?;
    Some(i32::from_be_bytes(bytes.try_into().ok()?))
}

/// Where the code may go on behind the instruction.
fn next(code: &[u8], at: usize) -> Option<Vec<usize>> {
    let length = length(code, at)?;
    let to = |by: i32| at.checked_add_signed(by as isize);
    let short = || {
        let bytes = code.get(at + 1..at + 3)?;
        to(i16::from_be_bytes(bytes.try_into().ok()?).into())
    };
    Some(match code[at] {
        167 => vec![short()?],
        200 => vec![to(int(code, at + 1)?)?],
        153..=166 | 168 | 198 | 199 => vec![short()?, at + length],
        172..=177 | 191 => Vec::new(),
        170 | 171 | 228 | 229 => {
            let (first, step) = if code[at] == 170 { (12, 4) } else { (12, 8) };
            let others = (padded(at) + first..at + length).step_by(step);
            let all = [padded(at)].into_iter().chain(others);
            all.map(|place| to(int(code, place)?))
                .collect::<Option<_>>()?
        }
        _ => vec![at + length],
    })
}

/// What the instruction names. The machine writes its own index there, in its own order of bytes.
fn site(code: &[u8], at: usize) -> Option<Option<Site>> {
    let index = |from: usize| {
        let bytes = code.get(at + from..at + from + 2)?;
        Some(u16::from_le_bytes(bytes.try_into().ok()?))
    };
    let opcode = *code.get(at)?;
    let is_static = matches!(opcode, 178 | 179);
    Some(match opcode {
        182..=185 | 227 => Some(Site::Call {
            index: index(1)?,
            by: match opcode {
                182 | 227 => By::Object,
                185 => By::Interface,
                _ => By::Class,
            },
        }),
        178 | 180 | 203..=210 => Some(Site::Read {
            index: index(1)?,
            is_static,
        }),
        221..=223 => Some(Site::Read {
            index: index(2)?,
            is_static,
        }),
        179 | 181 | 211..=219 => Some(Site::Write {
            index: index(1)?,
            is_static,
        }),
        79..=86 => Some(Site::Store),
        _ => None,
    })
}

/// What is reached from there, by place.
fn reached(code: &[u8], from: Vec<usize>) -> Option<FxHashSet<usize>> {
    let (mut todo, mut seen) = (from, FxHashSet::default());
    while let Some(at) = todo.pop() {
        if seen.insert(at) {
            todo.extend(next(code, at)?);
        }
    }
    Some(seen)
}

/// Where the code goes on behind this bytecode, or at its beginning.
fn begin(code: &[u8], behind: Option<usize>) -> Option<Vec<usize>> {
    behind.map_or(Some(vec![0]), |at| next(code, at))
}

/// What is reached from there, and where.
fn sites(code: &[u8], behind: Option<usize>) -> Option<Vec<(usize, Site)>> {
    let all = reached(code, begin(code, behind)?)?;
    let found = all.into_iter().map(|at| Some((at, site(code, at)?)));
    let found: Vec<(usize, Option<Site>)> = found.collect::<Option<_>>()?;
    Some(
        found
            .into_iter()
            .filter_map(|(at, site)| Some((at, site?)))
            .collect(),
    )
}

/// Does the code go round and round somewhere without naming anything? Then it computes there.
fn computes(code: &[u8]) -> Option<bool> {
    let all = reached(code, vec![0])?;
    let asks = |at: usize| Some(site(code, at)?.is_some());
    for &start in &all {
        let (mut todo, mut seen) = (vec![start], FxHashSet::default());
        while let Some(at) = todo.pop() {
            if asks(at)? {
                continue;
            }
            for to in next(code, at)? {
                if to == start {
                    return Some(true);
                }
                if seen.insert(to) {
                    todo.push(to);
                }
            }
        }
    }
    Some(false)
}

/// What leads back to itself, in the order of the code; `around`: and to this bytecode.
fn in_loops(code: &[u8], around: Option<usize>) -> Option<Vec<Site>> {
    let behind = |at: usize| reached(code, next(code, at)?);
    let from_there = around.map(behind);
    let mut places: Vec<usize> = reached(code, vec![0])?.into_iter().collect();
    places.sort_unstable();
    let mut found = Vec::new();
    for at in places {
        let Some(site) = site(code, at)? else {
            continue;
        };
        let from_here = behind(at)?;
        let is_round = match (around, &from_there) {
            (Some(around), Some(from_there)) => {
                from_here.contains(&around) && from_there.as_ref()?.contains(&at)
            }
            _ => from_here.contains(&at),
        };
        found.extend(is_round.then_some(site));
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// nop; invokestatic 7; ifeq back to 0; goto behind the call of 8; invokevirtual 8; return.
    const LOOP: [u8; 14] = [0, 184, 7, 0, 153, 255, 252, 167, 0, 6, 182, 8, 0, 177];

    #[test]
    fn calls_are_found_on_the_ways_that_code_may_go() {
        let indices = |behind| {
            let found = sites(&LOOP, behind).expect("code").into_iter();
            let index = |(_, site)| match site {
                Site::Call { index, .. } => Some(index),
                _ => None,
            };
            found.filter_map(index).collect::<Vec<u16>>()
        };
        assert_eq!(indices(None), [7]);
        assert_eq!(indices(Some(1)), [7], "round the loop");
        assert!(indices(Some(7)).is_empty());
        assert_eq!(sites(&[203], None), None, "a part of an instruction");
        assert_eq!(sites(&[255], None), None);
    }

    #[test]
    fn what_is_taken_on_the_way_is_given_back_first() {
        // nop; acquire; release; release; return, with calls of three bytes.
        let code = [0, 182, 1, 0, 182, 2, 0, 182, 2, 0, 177];
        let by = |at: usize| match at {
            1 => 1,
            4 | 7 => -1,
            _ => 0,
        };
        let at = |from: usize, taken| {
            let found = balance(&code, vec![from], taken, &by).expect("code");
            [found.get(&4).copied(), found.get(&7).copied()]
        };
        assert_eq!(at(0, 0), [Some(1), Some(0)]);
        assert_eq!(at(4, 0), [Some(0), Some(0)]);
        assert_eq!(at(4, 1), [Some(1), Some(0)], "it waits to take one");
    }

    #[test]
    fn what_stands_before_or_behind_a_loop_is_not_in_it() {
        // putstatic 3; getstatic 7; ifeq back to that; getfield 9; return.
        let code = [179, 3, 0, 178, 7, 0, 153, 255, 253, 180, 9, 0, 177];
        let read = |index, is_static| Site::Read { index, is_static };
        assert_eq!(in_loops(&code, None), Some(vec![read(7, true)]));
        assert_eq!(in_loops(&code, Some(6)), Some(vec![read(7, true)]));
        assert_eq!(in_loops(&code, Some(9)), Some(vec![]));
        assert!(sites(&code, Some(3)).is_some_and(|all| all.contains(&(9, read(9, false)))));
    }

    #[test]
    fn a_loop_that_names_nothing_computes() {
        // iinc; goto back to that.
        assert_eq!(computes(&[132, 1, 1, 167, 255, 253]), Some(true));
        // getstatic 7; ifeq back to that; return.
        assert_eq!(computes(&[178, 7, 0, 153, 255, 253, 177]), Some(false));
    }

    #[test]
    fn a_switch_leads_to_each_of_its_places() {
        let mut table = vec![170, 0, 0, 0];
        for number in [20i32, 1, 2, 24, 25] {
            table.extend(number.to_be_bytes());
        }
        table.extend([177; 4]);
        assert_eq!(length(&table, 0), Some(24));
        assert_eq!(next(&table, 0), Some(vec![20, 24, 25]));
        let mut pairs = vec![0, 171, 0, 0];
        for number in [19i32, 1, 5, 20] {
            pairs.extend(number.to_be_bytes());
        }
        assert_eq!(length(&pairs, 1), Some(19));
        assert_eq!(next(&pairs, 1), Some(vec![20, 21]));
    }

    /// Each word is the address of one place.
    struct Circle;

    impl flagfinder_code::AddressSpace for Circle {
        fn read(&self, _: u64, buffer: &mut [u8]) -> usize {
            for chunk in buffer.chunks_mut(8) {
                chunk.copy_from_slice(&0x100u64.to_le_bytes()[..chunk.len()]);
            }
            buffer.len()
        }
    }

    #[test]
    fn a_class_that_descends_from_itself_is_searched_to_an_end() {
        let structs = super::super::vm_structs::VmStructs::of(&[
            ("Klass", "_super", 8),
            ("InstanceKlass", "_methods", 16),
            ("Array<int>", "_length", 0),
            ("Array<Method*>", "_data", 8),
        ]);
        let frames = Frames {
            structs: &structs,
            memory: &Circle,
        };
        let call = Invoke {
            class: "app/Main".into(),
            name: "work".into(),
            klass: Some(0x100),
            by: By::Class,
        };
        assert!(frames.targets(&call).is_empty());
    }
}
