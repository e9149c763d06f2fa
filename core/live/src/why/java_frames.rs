// SPDX-License-Identifier: MIT
//! What a blocked Java thread has open: methods, with the lines that HotSpot's tables give.
//!
//! In: a thread of HotSpot, which notes the last frame of Java when it leaves Java's code. Out: its
//! calls, innermost first, inlined ones included. A frame of the interpreter holds its method and
//! bytecode; for compiled code a table tells both by the return address. Blind spots: frames whose
//! tables have moved (JDK 22 to 24) are told without lines and without what was inlined into them;
//! a virtual thread shows its carrier.

use flagfinder_code::{AddressSpace, Spot, Whose};

use super::vm_structs::VmStructs;

const MOST_FRAMES: usize = 96;
/// Longest name, table of return addresses, and table of lines.
const NAME: usize = 1 << 10;
const ADDRESSES: u64 = 1 << 20;
const LINES: usize = 1 << 16;
/// Words of an interpreter's frame, by their distance from its frame pointer.
const METHOD: u64 = 24;
const BYTECODE: u64 = 64;
const SENDER: u64 = 8;
/// In a frame by which the machine's code calls Java: what notes the frame before.
const WRAPPER: u64 = 48;
/// The bit of a method's flags that says that it has lines.
const HAS_LINES: u64 = 1;
/// From this version on packed numbers have no byte that is zero.
const WITHOUT_ZEROES: u64 = 19;
/// Classes of the language, of its library, and those made at run time.
const SYSTEM: [&str; 7] = [
    "java/", "javax/", "jdk/", "sun/", "com/sun/", "kotlin/", "scala/",
];
const MADE: [&str; 2] = ["$$Lambda", "+0x"];
/// Those that run tests.
const RUNNERS: [&str; 4] = [
    "org/junit/",
    "org/testng/",
    "org/apache/maven/",
    "org/gradle/",
];

#[derive(Clone, Copy)]
pub struct Frames<'a> {
    pub structs: &'a VmStructs,
    pub memory: &'a dyn AddressSpace,
}

/// A method that is open, and at which of its bytecodes, if that is known.
#[derive(Clone, Copy)]
pub struct Open {
    pub method: u64,
    pub bytecode: Option<u32>,
}

struct Frame {
    /// End of the frame that it called.
    sp: u64,
    fp: u64,
    pc: u64,
}

impl Frames<'_> {
    /// Of the `JavaThread` at this address.
    pub fn of(&self, thread: u64) -> Vec<(Whose, Spot)> {
        let open = self.open(thread).into_iter();
        open.map_while(|one| self.call(one.method, one.bytecode))
            .collect()
    }

    /// The methods that it has open, innermost first.
    pub fn open(&self, thread: u64) -> Vec<Open> {
        let mut calls = Vec::new();
        let Some(mut frame) = self.last(thread) else {
            return calls;
        };
        let entry = self
            .structs
            .place("StubRoutines", "_call_stub_return_address");
        let entry = entry.and_then(|at| self.memory.word(at));
        while calls.len() < MOST_FRAMES {
            let before = frame.sp;
            let next = if entry == Some(frame.pc) {
                self.before_entry(&frame)
            } else if self.is_interpreted(frame.pc) == Some(true) {
                self.interpreted(&frame, &mut calls)
            } else {
                self.compiled(&frame, &mut calls)
            };
            match next.filter(|next| next.sp > before) {
                Some(next) => frame = next,
                None => break,
            }
        }
        calls
    }

    /// The methods whose compiled code holds the address, innermost first.
    pub fn compiled_at(&self, pc: u64) -> Vec<Open> {
        let found = || {
            let blob = self.blob(pc).filter(|blob| self.is_of_method(*blob))?;
            let method = self.method_of(blob);
            let bytecode = None;
            let outermost = || Some(vec![method.map(|method| Open { method, bytecode })?]);
            self.scopes(blob, pc).or_else(outermost)
        };
        found().unwrap_or_default()
    }

    /// Where it is open.
    pub fn spot(&self, open: &Open) -> Option<Spot> {
        Some(self.call(open.method, open.bytecode)?.1)
    }

    pub fn field(&self, base: u64, kind: &str, field: &str) -> Option<u64> {
        base.checked_add(self.structs.place(kind, field)?)
    }

    pub fn word(&self, base: u64, kind: &str, field: &str) -> Option<u64> {
        self.memory.word(self.field(base, kind, field)?)
    }

    pub fn number(&self, base: u64, kind: &str, field: &str, size: usize) -> Option<u64> {
        self.memory.number(self.field(base, kind, field)?, size)
    }

    fn last(&self, thread: u64) -> Option<Frame> {
        self.noted(self.field(thread, "JavaThread", "_anchor")?)
    }

    /// Where its open calls begin on its stack.
    pub fn last_sp(&self, thread: u64) -> Option<u64> {
        Some(self.last(thread)?.sp)
    }

    /// The frame of Java from which the machine's own code was called that called Java again, as
    /// reflection does.
    fn before_entry(&self, entry: &Frame) -> Option<Frame> {
        let wrapper = self.memory.word(entry.fp.checked_sub(WRAPPER)?)?;
        self.noted(self.field(wrapper, "JavaCallWrapper", "_anchor")?)
    }

    /// As it was noted when the thread left Java's code.
    fn noted(&self, anchor: u64) -> Option<Frame> {
        let of = |field| self.word(anchor, "JavaFrameAnchor", field);
        let sp = of("_last_Java_sp").filter(|sp| *sp != 0)?;
        let pc = of("_last_Java_pc").filter(|pc| *pc != 0);
        Some(Frame {
            sp,
            fp: of("_last_Java_fp")?,
            pc: pc.or_else(|| self.memory.word(sp.checked_sub(8)?))?,
        })
    }

    fn is_interpreted(&self, pc: u64) -> Option<bool> {
        let code = self.structs.place("AbstractInterpreter", "_code")?;
        let queue = self.memory.word(code)?;
        let begin = self.word(queue, "StubQueue", "_stub_buffer")?;
        let length = self.number(queue, "StubQueue", "_buffer_limit", 4)?;
        Some((begin..begin.checked_add(length)?).contains(&pc))
    }

    fn interpreted(&self, frame: &Frame, calls: &mut Vec<Open>) -> Option<Frame> {
        let word = |at: Option<u64>| self.memory.word(at?);
        let method = word(frame.fp.checked_sub(METHOD))?;
        let at = word(frame.fp.checked_sub(BYTECODE))?;
        let begin = self.bytecodes(self.word(method, "Method", "_constMethod")?)?;
        let bytecode = at.checked_sub(begin).and_then(|at| u32::try_from(at).ok());
        calls.push(Open { method, bytecode });
        Some(Frame {
            sp: word(frame.fp.checked_sub(SENDER))?,
            fp: word(Some(frame.fp))?,
            pc: word(frame.fp.checked_add(8))?,
        })
    }

    fn compiled(&self, frame: &Frame, calls: &mut Vec<Open>) -> Option<Frame> {
        let blob = self.blob(frame.pc)?;
        if self.is_of_method(blob) {
            match self.scopes(blob, frame.pc) {
                Some(scopes) => calls.extend(scopes),
                None => calls.push(Open {
                    method: self.method_of(blob)?,
                    bytecode: None,
                }),
            }
        }
        let size = self.number(blob, "CodeBlob", "_frame_size", 4)?;
        // The stub by which Java is called has none: there Java ends.
        let sp = frame
            .sp
            .checked_add(u64::from(u32::try_from(size).ok()?) * 8)?;
        Some(Frame {
            sp,
            fp: self.memory.word(sp.checked_sub(16)?)?,
            pc: self.memory.word(sp.checked_sub(8)?)?,
        })
    }

    /// The piece of generated code that holds the address.
    fn blob(&self, pc: u64) -> Option<u64> {
        let heaps = self
            .memory
            .word(self.structs.place("CodeCache", "_heaps")?)?;
        let count = self.number(heaps, "GrowableArrayBase", "_len", 4)?;
        let data = self.word(heaps, "GrowableArray<int>", "_data")?;
        let heap = (0..count.min(8)).find_map(|index| {
            let heap = self.memory.word(data.checked_add(index * 8)?)?;
            let memory = self.field(heap, "CodeHeap", "_memory")?;
            let low = self.word(memory, "VirtualSpace", "_low")?;
            let high = self.word(memory, "VirtualSpace", "_high")?;
            (low..high).contains(&pc).then_some((heap, low))
        });
        let (heap, low) = heap?;
        let segments = self.field(heap, "CodeHeap", "_segmap")?;
        let segments = self.word(segments, "VirtualSpace", "_low")?;
        let shift = self.number(heap, "CodeHeap", "_log2_segment_size", 4)?;
        let mut at = (pc - low).checked_shr(u32::try_from(shift).ok()?)?;
        loop {
            // How far back the block begins, or a part of that; 255: it is free.
            match self.memory.number(segments.checked_add(at)?, 1)? {
                0 => break,
                255 => return None,
                back => at = at.checked_sub(back)?,
            }
        }
        let block = low.checked_add(at.checked_shl(u32::try_from(shift).ok()?)?)?;
        block.checked_add(self.structs.size("HeapBlock")?)
    }

    fn is_of_method(&self, blob: u64) -> bool {
        let name = self.word(blob, "CodeBlob", "_name");
        name.is_some_and(|name| self.text(name).ends_with("nmethod"))
    }

    fn method_of(&self, blob: u64) -> Option<u64> {
        let old = self.word(blob, "CompiledMethod", "_method");
        old.or_else(|| self.word(blob, "nmethod", "_method"))
    }

    /// The methods that are open at this return address, innermost first.
    fn scopes(&self, blob: u64, pc: u64) -> Option<Vec<Open>> {
        let offset = |field: &str| self.number(blob, "nmethod", field, 4);
        // To JDK 21 all tables lie in the code's own block, from JDK 25 on elsewhere.
        let (code, begin, end, scopes, metadata) =
            match self.word(blob, "CompiledMethod", "_scopes_data_begin") {
                Some(scopes) => (
                    self.word(blob, "CodeBlob", "_code_begin")?,
                    blob.checked_add(offset("_scopes_pcs_offset")?)?,
                    blob.checked_add(offset("_dependencies_offset")?)?,
                    scopes,
                    blob.checked_add(offset("_metadata_offset")?)?,
                ),
                None => {
                    let tables = self.word(blob, "nmethod", "_immutable_data")?;
                    let scopes = tables.checked_add(offset("_scopes_data_offset")?)?;
                    let code = self.number(blob, "CodeBlob", "_code_offset", 4)?;
                    let mutable = self.word(blob, "CodeBlob", "_mutable_data")?;
                    let relocations = self.number(blob, "CodeBlob", "_relocation_size", 4)?;
                    (
                        blob.checked_add(code)?,
                        tables.checked_add(offset("_scopes_pcs_offset")?)?,
                        scopes,
                        scopes,
                        mutable.checked_add(relocations)?,
                    )
                }
            };
        let length = end
            .checked_sub(begin)
            .filter(|length| *length < ADDRESSES)?;
        let mut table = vec![0; length as usize];
        let got = self.memory.read(begin, &mut table);
        let size = usize::try_from(self.structs.size("PcDesc")?).ok()?;
        let at = u32::try_from(pc.checked_sub(code)?).ok()?;
        let number = |entry: &[u8], from: usize| {
            let bytes = entry.get(from..from + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        let mut entries = table[..got].chunks_exact(size.max(8));
        let entry = entries.find(|entry| number(entry, 0) == Some(at))?;
        let mut scope = number(entry, 4)?;
        let mut calls = Vec::new();
        while scope != 0 && calls.len() < MOST_FRAMES {
            let mut bytes = vec![0; 16];
            let got = self
                .memory
                .read(scopes.checked_add(u64::from(scope))?, &mut bytes);
            let mut packed = self.packed(&bytes[..got])?;
            scope = packed.number()?;
            let index = u64::from(packed.number()?).checked_sub(1)?;
            let bytecode = packed.number()?.checked_sub(1);
            let method = self.memory.word(metadata.checked_add(index * 8)?)?;
            calls.push(Open { method, bytecode });
        }
        (!calls.is_empty()).then_some(calls)
    }

    /// Where the bytecodes of a method begin.
    pub fn bytecodes(&self, constant: u64) -> Option<u64> {
        constant.checked_add(self.structs.size("ConstMethod")?)
    }

    fn call(&self, method: u64, bytecode: Option<u32>) -> Option<(Whose, Spot)> {
        let constant = self.word(method, "Method", "_constMethod")?;
        let pool = self.word(constant, "ConstMethod", "_constants")?;
        let entry = |index: u64| {
            let first = pool.checked_add(self.structs.size("ConstantPool")?)?;
            self.symbol(self.memory.word(first.checked_add(index * 8)?)?)
        };
        let holder = self.word(pool, "ConstantPool", "_pool_holder")?;
        let class = self.symbol(self.word(holder, "Klass", "_name")?)?;
        let name = entry(self.number(constant, "ConstMethod", "_name_index", 2)?)?;
        let file = self.number(pool, "ConstantPool", "_source_file_name_index", 2)?;
        let file = (file != 0).then(|| entry(file)).flatten();
        let package = class.rsplit_once('/').map_or("", |(package, _)| package);
        let file = file.map(|file| match package {
            "" => file,
            _ => format!("{package}/{file}"),
        });
        let spot = Spot {
            function: Some(format!("{}.{name}", class.replace('/', "."))),
            line: bytecode.and_then(|at| self.line(constant, at)),
            file,
            ..Spot::default()
        };
        Some((whose(&class), spot))
    }

    fn line(&self, constant: u64, bytecode: u32) -> Option<u32> {
        let flags = self.number(constant, "ConstMethod", "_flags", 2);
        let flags = flags.or_else(|| self.number(constant, "ConstMethod", "_flags._flags", 2))?;
        if flags & HAS_LINES == 0 {
            return None;
        }
        let length = self.number(constant, "ConstMethod", "_code_size", 2)?;
        let table = self.bytecodes(constant)?.checked_add(length)?;
        let mut bytes = vec![0; LINES];
        let got = self.memory.read(table, &mut bytes);
        self.packed(&bytes[..got])?.line(bytecode)
    }

    fn packed<'b>(&self, bytes: &'b [u8]) -> Option<Packed<'b>> {
        let version = self
            .structs
            .place("Abstract_VM_Version", "_vm_major_version")?;
        let least = u32::from(self.memory.number(version, 4)? >= WITHOUT_ZEROES);
        Some(Packed { bytes, least })
    }

    pub fn symbol(&self, symbol: u64) -> Option<String> {
        let length = self.number(symbol, "Symbol", "_length", 2)? as usize;
        let mut bytes = vec![0; length.min(NAME)];
        let got = self
            .memory
            .read(self.field(symbol, "Symbol", "_body")?, &mut bytes);
        let name = String::from_utf8(bytes).ok()?;
        let is_name = got > 0 && got == name.len() && !name.chars().any(char::is_control);
        is_name.then_some(name)
    }

    fn text(&self, address: u64) -> String {
        let mut bytes = [0; 64];
        let got = self.memory.read(address, &mut bytes);
        let end = bytes[..got].iter().position(|byte| *byte == 0);
        String::from_utf8_lossy(&bytes[..end.unwrap_or(got)]).into_owned()
    }
}

pub fn whose(class: &str) -> Whose {
    let begins = |list: &[&str]| list.iter().any(|one| class.starts_with(one));
    if begins(&SYSTEM) || MADE.iter().any(|one| class.contains(one)) {
        Whose::System
    } else if begins(&RUNNERS) {
        Whose::Package
    } else {
        Whose::Own
    }
}

/// HotSpot's packed numbers: six bits more with each byte. `least`: of a byte.
struct Packed<'b> {
    bytes: &'b [u8],
    least: u32,
}

impl Packed<'_> {
    fn byte(&mut self) -> Option<u32> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(u32::from(*first))
    }

    fn number(&mut self) -> Option<u32> {
        let mut sum = 0u32;
        for shift in [0, 6, 12, 18, 24] {
            let byte = self.byte()?;
            let part = byte.checked_sub(self.least)?;
            sum = sum.wrapping_add(part << shift);
            // The upper 64 values say that another byte follows.
            if byte < 192 {
                break;
            }
        }
        Some(sum)
    }

    fn signed(&mut self) -> Option<i64> {
        let number = self.number()?;
        Some(i64::from(number >> 1) ^ -i64::from(number & 1))
    }

    /// Of the bytecode at this offset. The table holds differences: of small ones both in a byte.
    fn line(&mut self, bytecode: u32) -> Option<u32> {
        let (mut at, mut line, mut found) = (0i64, 0i64, None);
        loop {
            let (further, more) = match self.byte()? {
                0 => return found,
                255 => (self.signed()?, self.signed()?),
                both => (i64::from(both >> 3), i64::from(both & 7)),
            };
            at += further;
            line += more;
            if at > i64::from(bytecode) {
                return found;
            }
            found = u32::try_from(line).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_packed_by_differences() {
        // Line 5 at 0, 6 at 4, 306 at 9, 300 at 12.
        let table = [5, 4 << 3 | 1, 255, 10, 216, 6, 255, 6, 11, 0];
        let of = |at| {
            Packed {
                bytes: &table,
                least: 0,
            }
            .line(at)
        };
        assert_eq!(
            (of(0), of(3), of(4), of(8)),
            (Some(5), Some(5), Some(6), Some(6))
        );
        assert_eq!((of(9), of(12), of(99)), (Some(306), Some(300), Some(300)));
        let mut numbers = Packed {
            bytes: &[216, 6, 3],
            least: 0,
        };
        assert_eq!(
            (numbers.number(), numbers.number()),
            (Some(216 + 6 * 64), Some(3))
        );
        let mut newer = Packed {
            bytes: &[1, 192, 2],
            least: 1,
        };
        assert_eq!((newer.number(), newer.number()), (Some(0), Some(191 + 64)));
        assert_eq!(
            Packed {
                bytes: &[255, 1],
                least: 0
            }
            .line(0),
            None,
            "a part of a table"
        );
    }

    #[test]
    fn classes_of_the_language_are_not_the_authors() {
        assert_eq!(whose("java/util/concurrent/FutureTask"), Whose::System);
        assert_eq!(whose("app/Main$$Lambda$1+0x00007f"), Whose::System);
        assert_eq!(whose("org/junit/runners/ParentRunner"), Whose::Package);
        assert_eq!(whose("app/Main$Inner"), Whose::Own);
    }
}
