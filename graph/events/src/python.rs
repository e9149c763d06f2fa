// SPDX-License-Identifier: MIT
//! Python functions by the frames that `bpf/ff_python.h` finds.
//!
//! In: where a process has code; the code objects of frames, with their names' addresses. Out:
//! where its interpreter keeps frames; numbers of functions, which stand in stacks behind the call
//! sites. A code object is read when a thread is first found in it, within some ten milliseconds;
//! if it is another by then, as its name tells, the frame is left out. Blind spots: CPython but
//! 3.11 to 3.13 with its lock, on x86-64 with the GNU C library; programs that hold an interpreter
//! under another name; what may not be read (that takes CAP_SYS_PTRACE).

use flagfinder_code::{AddressSpace, Names, NamesInput, ProcessMemory};
use rustc_hash::FxHashMap;

use crate::facts::PythonFact;
use crate::kernel::Kernel;
use crate::processes::span;
use crate::protocol::Python;

/// A bit of a word of a stack that is no call site, but the number of a Python function, or of one
/// of the kernel. User addresses do not have this bit.
pub const PYTHON: u64 = 1 << 62;

/// Most functions that are named, and most processes and code objects of each that are looked at:
/// the target makes them.
const MOST_FUNCTIONS: usize = 1 << 16;
const MOST_PROCESSES: usize = 512;
const MOST_CODE: usize = 1 << 16;
/// Most letters of a name or path that are read.
const LONGEST: usize = 512;
/// What the interpreter calls frames of its own.
const NOT_PYTHON: [&str; 3] = ["<shim>", "<trampoline>", "<interpreter trampoline>"];

/// Offsets in a code object, a string and its record, in bytes.
#[derive(Clone, Copy)]
struct Layout {
    frames: Python,
    first_line: usize,
    /// Where the letters of an ASCII string begin, and those of another.
    ascii: u64,
    other: u64,
}

// The same in all versions that are known.
const TYPE: usize = 8;
const FILE: usize = 112;
const NAME: usize = 128;
const CODE_BYTES: usize = 136;
const LENGTH: usize = 16;
const STATE: usize = 32;
const STRING_BYTES: usize = 36;

/// By PY_VERSION_HEX. From Include/internal of each version: it does not change within one. In
/// `frames`, `interpreter` is the offset of `interpreters.main`.
fn layout(version: u64) -> Option<Layout> {
    let common = Python {
        next: 8,
        name: NAME as u32,
        ..Python::default()
    };
    let (frames, first_line, ascii, other) = match version >> 16 {
        0x030b => (
            Python {
                interpreter: 48,
                threads: 16,
                thread: 152,
                current: 56,
                held: 1,
                frame: 8,
                code: 32,
                previous: 48,
                ..common
            },
            72,
            48,
            72,
        ),
        0x030c => (
            Python {
                interpreter: 48,
                threads: 72,
                thread: 136,
                current: 56,
                held: 1,
                previous: 8,
                ..common
            },
            68,
            40,
            56,
        ),
        0x030d => (
            Python {
                interpreter: 640,
                threads: 7344,
                thread: 152,
                current: 72,
                previous: 8,
                ..common
            },
            68,
            40,
            56,
        ),
        _ => return None,
    };
    Some(Layout {
        frames,
        first_line,
        ascii,
        other,
    })
}

/// Whether a file is CPython's program or library by its name: `python3.11`,
/// `libpython3.11.so.1.0`.
fn is_interpreter(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let name = name.strip_prefix("lib").unwrap_or(name);
    let minor = name.strip_prefix("python3.").unwrap_or("");
    let rest = minor.trim_start_matches(|letter: char| letter.is_ascii_digit());
    minor.len() > rest.len() && (rest.is_empty() || rest.starts_with(".so"))
}

/// An interpreter in a process's memory.
#[derive(Clone, Copy)]
struct Interpreter {
    layout: Layout,
    /// Address of the type of code objects.
    code_type: u64,
}

impl Interpreter {
    fn find(maps: &str, recorded: i64, memory: &impl AddressSpace) -> Option<Interpreter> {
        let is_meant = |line: &&str| span(line).is_some_and(|(.., path)| is_interpreter(path));
        let lines: Vec<&str> = maps.lines().filter(is_meant).collect();
        if lines.is_empty() {
            return None;
        }
        let names = Names::new(NamesInput::from_code_maps(&lines.join("\n"), recorded));
        let address = |symbol| Some(names.resolve(None, symbol).first()?.0);
        let version = memory.word(address("Py_Version")?)?;
        let mut layout = layout(version)?;
        let runtime = address("_PyRuntime")?;
        layout.frames.interpreter = layout.frames.interpreter.checked_add(runtime)?;
        Some(Interpreter {
            layout,
            code_type: address("PyCode_Type")?,
        })
    }

    /// Name, file and first line of a code object whose name is at `name`.
    fn function(
        &self,
        memory: &impl AddressSpace,
        code: u64,
        name: u64,
    ) -> Option<(String, String, u32)> {
        let mut object = [0; CODE_BYTES];
        if memory.read(code, &mut object) != CODE_BYTES {
            return None;
        }
        let word = |at: usize| {
            let bytes = object[at..at + 8].try_into();
            bytes.map_or(0, u64::from_le_bytes)
        };
        if word(TYPE) != self.code_type || word(NAME) != name {
            return None;
        }
        let file = self.text(memory, word(FILE))?;
        let line = word(self.layout.first_line) as u32;
        Some((self.text(memory, name)?, file, line))
    }

    /// The first [`LONGEST`] letters of a string.
    fn text(&self, memory: &impl AddressSpace, at: u64) -> Option<String> {
        let mut head = [0; STRING_BYTES];
        if memory.read(at, &mut head) != STRING_BYTES {
            return None;
        }
        let length = u64::from_le_bytes(head[LENGTH..LENGTH + 8].try_into().ok()?);
        let length = usize::try_from(length).ok()?.min(LONGEST);
        // interned: 2 bits, kind: 3 (bytes of a letter), compact, ascii.
        let state = u32::from_le_bytes(head[STATE..STATE + 4].try_into().ok()?);
        let (width, compact, ascii) = ((state >> 2 & 7) as usize, state >> 5 & 1, state >> 6 & 1);
        if compact == 0 || !matches!(width, 1 | 2 | 4) {
            return None;
        }
        let data = at.checked_add(if ascii == 1 {
            self.layout.ascii
        } else {
            self.layout.other
        })?;
        let mut bytes = vec![0; length * width];
        if memory.read(data, &mut bytes) != bytes.len() {
            return None;
        }
        let letter = |bytes: &[u8]| {
            let number = bytes.iter().rev().fold(0, |n, &b| n << 8 | u32::from(b));
            char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER)
        };
        Some(bytes.chunks_exact(width).map(letter).collect())
    }
}

struct Process {
    interpreter: Interpreter,
    /// `None`: not opened yet.
    memory: Option<ProcessMemory>,
    /// Numbers of functions by their code objects and names. `None`: it can't be read.
    known: FxHashMap<(u64, u64), Option<u32>>,
}

impl Process {
    fn new(interpreter: Interpreter, memory: Option<ProcessMemory>) -> Process {
        Process {
            interpreter,
            memory,
            known: FxHashMap::default(),
        }
    }
}

/// The Python functions of all processes, and functions of the kernel.
#[derive(Default)]
pub(crate) struct Pythons {
    kernel: Option<Kernel>,
    processes: FxHashMap<u32, Process>,
    functions: Vec<PythonFact>,
    numbers: FxHashMap<(String, String, u32), u32>,
    /// How many functions were handed out by [`Pythons::take`].
    taken: usize,
}

impl Pythons {
    /// A process has code there: lines of its maps. Returns where its interpreter keeps frames, if
    /// it is one that is known.
    pub fn learn(&mut self, pid: u32, maps: &str, recorded: i64) -> Option<Python> {
        let memory = ProcessMemory::open(pid).ok()?;
        let interpreter = Interpreter::find(maps, recorded, &memory)?;
        let is_known = self.processes.contains_key(&pid);
        if !is_known && self.processes.len() >= MOST_PROCESSES {
            return None;
        }
        self.processes
            .insert(pid, Process::new(interpreter, Some(memory)));
        Some(interpreter.layout.frames)
    }

    /// A process starts with its parent's interpreter.
    pub fn forked(&mut self, pid: u32, parent: u32) {
        let parent = self.processes.get(&parent).filter(|_| pid != parent);
        if let Some(interpreter) = parent.map(|parent| parent.interpreter) {
            if self.processes.len() < MOST_PROCESSES {
                self.processes.insert(pid, Process::new(interpreter, None));
            }
        }
    }

    /// Its memory is another from now on.
    pub fn executed(&mut self, pid: u32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            *process = Process::new(process.interpreter, None);
        }
    }

    pub fn ended(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    /// What a stack has for frames, at most `budget` of them, innermost first.
    pub fn keep(&mut self, pid: Option<u32>, frames: &[u64], budget: usize) -> Vec<u64> {
        let process = pid.and_then(|pid| Some((pid, self.processes.get_mut(&pid)?)));
        let Some((pid, process)) = process else {
            return Vec::new();
        };
        if process.known.len() >= MOST_CODE {
            process.known.clear();
        }
        let (functions, numbers) = (&mut self.functions, &mut self.numbers);
        let pairs = frames.chunks_exact(2);
        let found = pairs.filter_map(|pair| {
            let (code, name) = (pair[0], pair[1]);
            let Process {
                interpreter,
                memory,
                known,
            } = &mut *process;
            *known.entry((code, name)).or_insert_with(|| {
                if memory.is_none() {
                    *memory = ProcessMemory::open(pid).ok();
                }
                let found = interpreter.function(memory.as_ref()?, code, name)?;
                number(functions, numbers, found)
            })
        });
        let words = found.map(|number| PYTHON | u64::from(number));
        words.take(budget).collect()
    }

    /// What a stack has for functions of the kernel that wait, of the call sites there.
    pub fn keep_kernel(&mut self, sites: &[u64]) -> Vec<u64> {
        if sites.is_empty() {
            return Vec::new();
        }
        let kernel = self.kernel.get_or_insert_with(Kernel::read);
        let (functions, numbers) = (&mut self.functions, &mut self.numbers);
        let names = kernel.waiting(sites).into_iter();
        let found = names.filter_map(|name| {
            let found = (name.to_owned(), String::new(), 0);
            number(functions, numbers, found)
        });
        found.map(|number| PYTHON | u64::from(number)).collect()
    }

    /// Functions that were not handed out yet.
    pub fn take(&mut self) -> &[PythonFact] {
        let first = std::mem::replace(&mut self.taken, self.functions.len());
        &self.functions[first..]
    }

    pub fn known(&self) -> &[PythonFact] {
        &self.functions
    }
}

/// The number of a function; `None`: it is the interpreter's own, or there are too many.
fn number(
    functions: &mut Vec<PythonFact>,
    numbers: &mut FxHashMap<(String, String, u32), u32>,
    found: (String, String, u32),
) -> Option<u32> {
    if NOT_PYTHON.contains(&&found.0[..]) {
        return None;
    }
    if let Some(&number) = numbers.get(&found) {
        return Some(number);
    }
    let number = functions.len() as u32;
    if functions.len() >= MOST_FUNCTIONS {
        return None;
    }
    let (name, file, line) = found.clone();
    functions.push(PythonFact {
        number,
        name,
        file,
        line,
    });
    numbers.insert(found, number);
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory from address 0x1000 on.
    struct Made(Vec<u8>);

    const BASE: u64 = 0x1000;
    const CODE_TYPE: u64 = 0x77;

    impl AddressSpace for Made {
        fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
            let from = address.checked_sub(BASE).map(|at| at as usize);
            let from = from.and_then(|at| self.0.get(at..)).unwrap_or(&[]);
            let count = from.len().min(buffer.len());
            buffer[..count].copy_from_slice(&from[..count]);
            count
        }
    }

    impl Made {
        fn put(&mut self, at: u64, bytes: &[u8]) {
            let at = (at - BASE) as usize;
            let needed = self.0.len().max(at + bytes.len());
            self.0.resize(needed, 0);
            self.0[at..at + bytes.len()].copy_from_slice(bytes);
        }

        fn string(&mut self, at: u64, letters: &[u8], count: u64, state: u32, data: u64) {
            self.put(at + LENGTH as u64, &count.to_le_bytes());
            self.put(at + STATE as u64, &state.to_le_bytes());
            self.put(at + data, letters);
        }

        fn code(&mut self, at: u64, file: u64, name: u64, line: u32) {
            self.put(at + TYPE as u64, &CODE_TYPE.to_le_bytes());
            self.put(at + FILE as u64, &file.to_le_bytes());
            self.put(at + NAME as u64, &name.to_le_bytes());
            self.put(at + 72, &line.to_le_bytes());
        }
    }

    const ASCII: u32 = 1 << 2 | 1 << 5 | 1 << 6;

    fn interpreter() -> Interpreter {
        Interpreter {
            layout: layout(0x030b_02f0).unwrap(),
            code_type: CODE_TYPE,
        }
    }

    #[test]
    fn a_function_has_its_name_its_file_and_its_first_line() {
        let mut memory = Made(Vec::new());
        let (code, file, name) = (BASE, BASE + 0x200, BASE + 0x300);
        memory.code(code, file, name, 12);
        memory.string(file, b"/app/job.py", 11, ASCII, 48);
        let greek: Vec<u8> = "αβ".encode_utf16().flat_map(u16::to_le_bytes).collect();
        memory.string(name, &greek, 2, 2 << 2 | 1 << 5, 72);
        let found = interpreter().function(&memory, code, name);
        let expected = ("αβ".to_owned(), "/app/job.py".to_owned(), 12);
        assert_eq!(found, Some(expected));
        // By the time it is read, another code object may be there, or none.
        assert_eq!(interpreter().function(&memory, code, name + 8), None);
        assert_eq!(interpreter().function(&memory, BASE + 0x10, name), None);
        assert_eq!(interpreter().function(&memory, 0, name), None);
    }

    #[test]
    fn interpreters_are_known_by_their_files() {
        for path in [
            "/usr/bin/python3.11",
            "/lib/libpython3.12.so.1.0",
            "python3.9",
        ] {
            assert!(is_interpreter(path), "{path}");
        }
        for path in [
            "/usr/bin/python3",
            "/usr/bin/python3.11-config",
            "/x/libpython3.so",
            "",
        ] {
            assert!(!is_interpreter(path), "{path}");
        }
        assert!(layout(0x030a_00f0).is_none() && layout(0x030e_00f0).is_none());
    }

    #[test]
    fn a_function_has_one_number_and_the_interpreter_s_own_have_none() {
        let (mut functions, mut numbers) = (Vec::new(), FxHashMap::default());
        let mut of = |name: &str, line| {
            let found = (name.to_owned(), "a.py".to_owned(), line);
            number(&mut functions, &mut numbers, found)
        };
        let told = [of("f", 1), of("f", 7), of("f", 1), of("<shim>", 1)];
        assert_eq!(told, [Some(0), Some(1), Some(0), None]);
    }
}
