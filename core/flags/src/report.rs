// SPDX-License-Identifier: MIT
//! What the flags stage hands on: the `flagfinder.diff/1` report.

use flagfinder_analysis::LoopKind;
use flagfinder_code::{Code, Spot};
use flagfinder_diff::ThreadRef;
use flagfinder_machine::Reader;
use serde::{Deserialize, Serialize};

use crate::places::Places;
use crate::standing::Standing;

/// What a report says of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It polls a word that another thread is to write.
    DataFlag,
    /// It makes a system call again and again, whose answer decides.
    SyscallLoop,
    /// It polls a word by an atomic that would change it: it tries to take a lock.
    Lock,
    /// Nothing is sure enough, or the loop makes progress; the reason says which.
    NoFlag,
    /// The two runs nowhere take different ways, so no flag was looked for.
    NoDivergence,
}

/// What holds the flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FlagKind {
    /// A variable, as a rule: memory that a module brought along.
    Global,
    /// An object of the heap, or other private memory.
    Heap,
    /// A thread-local variable, or the C library's thread descriptor.
    Tls,
    /// A thread's stack.
    Stack,
    /// A shared mapping, or one of a file.
    Shared,
    /// No memory: a system call's answer.
    Syscall,
}

/// A thread, as a report names it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ThreadName {
    /// As the trace or /proc has it.
    pub tid: u32,
    /// As the kernel has it (`comm`), at most 15 bytes; empty when unknown.
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Threads {
    pub normal: Option<ThreadName>,
    pub spin: Option<ThreadName>,
}

/// The loop, as a report tells it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct LoopReport {
    /// What it does while it waits.
    pub kind: LoopKind,
    /// The outermost function that holds the loop; `module+0x..` when it has no symbol.
    pub function: Option<String>,
    /// The module of that function; `None`: generated code.
    pub module: Option<String>,
    /// Whole iterations seen (with a diff: since the loop was entered).
    pub iterations: u64,
    /// Where each iteration begins.
    pub header: Code,
    /// The same in code of the program's author; null: it lies elsewhere.
    #[serde(default)]
    pub at: Option<Spot>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct DivergenceReport {
    pub branch: Code,
    pub normal_target: Option<Code>,
    pub spin_target: Code,
}

/// Hex strings, absent as null.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Addresses {
    /// In the normal run; `None`: no counterpart is known, or there was no such run.
    #[serde(with = "hex")]
    pub normal: Option<u64>,
    /// In the spin run, or the live process; `None` for a system call.
    #[serde(with = "hex")]
    pub spin: Option<u64>,
}

/// Hex strings, absent as null.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Values {
    /// What the spinning thread reads; `None` when it is not known.
    #[serde(with = "hex")]
    pub spin: Option<u64>,
    /// A value with which the loop is left.
    #[serde(with = "hex")]
    pub exit: Option<u64>,
    /// What begins there, for values that are addresses.
    pub spin_symbol: Option<String>,
    /// The same for `exit`.
    pub exit_symbol: Option<String>,
}

/// A store to the flag.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Writer {
    /// `normal` or `spin`.
    pub run: String,
    pub tid: u32,
    pub thread: String,
    pub code: Code,
    #[serde(with = "hex")]
    pub value: Option<u64>,
    /// Call sites, innermost first.
    pub stack: Vec<Code>,
    /// How often this instruction wrote there.
    pub count: u64,
    /// Another thread reads there as well, which waits for a word of its own, as each worker of a
    /// pool does; its writer is listed too.
    #[serde(skip)]
    pub foreign: bool,
}

/// How it is known who owes a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Known {
    /// The thread that corresponds to it wrote the word in the normal run.
    Seen,
}

/// The thread of the normal run that wrote, and where.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Seen {
    pub pid: u32,
    pub tid: u32,
    pub name: String,
    /// Number of the image in its process, from 1.
    #[serde(skip)]
    pub image: u32,
    /// Flow position of the block that wrote last.
    #[serde(skip)]
    pub pos: u64,
}

/// A thread of the spin run that should write the word.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Owed {
    pub pid: u32,
    pub tid: u32,
    pub name: String,
    pub code: Code,
    /// What it stored in the normal run.
    #[serde(with = "hex")]
    pub value: Option<u64>,
    pub known: Known,
    /// What the thread of the normal run waited for last before.
    pub after: Option<String>,
    pub normal: Seen,
}

/// A write that let the normal run go on, and who owes it in the spin run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Debt {
    pub normal: Seen,
    pub code: Code,
    pub value: Option<u64>,
    /// See [`Owed::after`].
    pub after: Option<String>,
    /// The thread of the spin run that corresponds, and whether it still runs at the end; `None`:
    /// no such thread was started.
    pub debtor: Option<(ThreadRef, bool)>,
}

/// A candidate, as a report tells it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Flag {
    /// From 1, the likeliest; one count for `flags` and `considered`.
    pub rank: u32,
    /// 0..=1; it orders candidates of one standing.
    pub confidence: f64,
    /// How it is known that the loop waits for it.
    #[serde(default)]
    pub standing: Standing,
    /// What holds it.
    pub kind: FlagKind,
    /// Always enough to find it again in a fresh run.
    pub name: String,
    /// File name of the module that owns it; `None` for heap, stack and system calls.
    pub module: Option<String>,
    /// As [`flagfinder_code::DataName::offset`].
    #[serde(with = "hex")]
    pub offset: Option<u64>,
    /// The variable that holds it, demangled; `None` when none is known.
    pub symbol: Option<String>,
    /// Its part of the variable or object, such as `.next`.
    pub field: Option<String>,
    /// Run-time addresses.
    pub address: Addresses,
    /// Bytes; 0 for a system call.
    pub size: u32,
    /// What it was, and what would end the loop.
    pub value: Values,
    /// The test of the exit branch, in words: when it goes the other way.
    pub exit_when: String,
    /// How the code reaches it, from a variable: `queue->head.next`.
    pub access_path: Option<String>,
    /// Instructions that read it for an exit.
    pub readers: Vec<Code>,
    /// Call sites of the last read, innermost first, up to the function that holds the loop.
    pub reader_stack: Vec<Code>,
    /// Who stored to it, in both runs; empty unless asked for.
    pub writers: Vec<Writer>,
    /// Why it ranks so high or low, a line each.
    pub evidence: Vec<String>,
    /// Who is to write it, where a normal run was searched; a live process is asked later on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owed: Option<Vec<Owed>>,
    /// The same, with those that ended or were never started.
    #[serde(skip)]
    pub debts: Vec<Debt>,
    /// Why that is nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owed_by_nobody: Option<String>,
    /// Only where the flag is a system call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<AskedCall>,
}

impl Flag {
    /// A flag of which nothing else is known.
    pub fn new(kind: FlagKind, name: impl Into<String>) -> Flag {
        Flag {
            rank: 0,
            confidence: 0.0,
            standing: Standing::Unsure,
            kind,
            name: name.into(),
            module: None,
            offset: None,
            symbol: None,
            field: None,
            address: Addresses::default(),
            size: 0,
            value: Values::default(),
            exit_when: String::new(),
            access_path: None,
            readers: Vec::new(),
            reader_stack: Vec::new(),
            writers: Vec::new(),
            evidence: Vec::new(),
            owed: None,
            debts: Vec::new(),
            owed_by_nobody: None,
            call: None,
        }
    }
}

/// The system call that a loop makes again and again.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct AskedCall {
    /// As x86-64 Linux counts them.
    pub number: u32,
    /// All six argument registers, used or not.
    #[serde(with = "hex_list")]
    pub args: [u64; 6],
    /// Negative errno; `None`: it is not known.
    pub result: Option<i64>,
    /// What it found ready, where it is asked about several descriptors.
    pub found: Vec<Found>,
    /// Of a live process: the path that it is about, or by which the loop opened its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How often it was made, a second, where the thread's calls alone were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_second: Option<u64>,
}

/// A descriptor that a call found ready.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Found {
    /// Its number, where the call names it.
    pub fd: Option<i32>,
    /// Its place in the array of a poll.
    pub entry: Option<u64>,
    /// POLLIN and so on.
    pub events: Option<u16>,
    /// `read`, `write` or `except`, of a select.
    pub set: Option<String>,
}

/// The words that decide one exit branch.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Group {
    /// The branch.
    pub branch: Code,
    /// When it leaves the loop.
    pub exit_when: Option<String>,
    /// Ranks of its flags.
    pub flags: Vec<u32>,
    /// Its tests, in the order of execution.
    pub tests: Vec<Test>,
}

/// A test of a branch out of the loop.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Test {
    /// When the branch leaves: `p->n >= p->want`.
    pub text: String,
    /// How its sides are compared: `>=`; `None` of a jump by a table.
    pub operator: Option<String>,
    /// The words that it compares: addresses of flags.
    #[serde(with = "hex_list")]
    pub words: Vec<u64>,
    /// Behind the branch the program tests something else before the loop ends.
    pub tests_more: bool,
}

/// One of the tests, each of which would end the loop.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Part {
    /// As [`Test::text`], or what a call would have to answer.
    pub text: String,
    /// Rank of its likeliest flag: a word or a call.
    pub flag: u32,
    /// The name of that.
    pub word: String,
    /// As [`Test::operator`].
    pub operator: Option<String>,
    /// What the word is.
    #[serde(with = "hex")]
    pub value: Option<u64>,
    /// How it is known of that flag.
    pub standing: Standing,
    /// Threads that would write one of its words.
    pub owed: Vec<u32>,
    /// As [`Test::tests_more`].
    pub tests_more: bool,
}

/// How the parts are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Joined {
    /// Each would end the loop.
    Or,
}

/// The parts are joined by `or`: what is joined by `and` is seen only as far as the loop comes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct LoopCondition {
    /// All parts, the likeliest first.
    pub text: String,
    /// One for each test.
    pub parts: Vec<Part>,
    /// What is between them.
    pub joined: Joined,
}

/// Why a word that a virtual machine's loop tests is one of the machine's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Own {
    /// It is compared with the value it has, as a type is.
    Check,
    /// Bits of it are asked for, or whether a number is below it.
    Bits,
    /// It is a part of the program's code, or one of that code's constants.
    Code,
    /// It lies in the thread's state, to which generated code has a pointer.
    State,
    /// It lies in an object that is a constant of the program's code and the value of a variable: a
    /// thread that writes to the variable copies the object first.
    Shared,
}

/// What is known of the virtual machine whose loop it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct VirtualMachine {
    /// Addresses of words of its own.
    pub own: Vec<(u64, Own)>,
    /// Instructions that read what the interpreted program does next; none: no interpreter was
    /// seen.
    pub readers: Vec<Reader>,
    /// Values that several tests of the loop ask for.
    pub asks: Vec<Ask>,
    /// Addresses of words that an interpreter comes to by pointers, and how many of these lead
    /// there, one behind the other.
    pub hops: Vec<(u64, u32)>,
    /// Its thread counts: it writes one higher value after another to a word, or one lower one.
    pub counts: bool,
}

/// A test that a word's value would end.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Ask {
    /// Run-time address of the word.
    pub address: u64,
    /// Its size.
    pub bytes: u32,
    /// Is the word compared with another one, and not with a number of the code?
    pub with_word: bool,
    /// With which the test would end the loop.
    pub value: u64,
    /// The test, in words.
    pub when: String,
}

/// What is known of a loop beside its flags; later stages judge by it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Facts {
    /// It was seen to make progress: it is handed data, woken by others, or does something else
    /// each time.
    pub gets_on: bool,
    /// It is a virtual machine's, or runs the code that one made.
    pub machine: Option<VirtualMachine>,
    /// Addresses of words that keep it for as long as they are at their distance from others.
    pub apart: Vec<u64>,
    /// Addresses of words that a loop which polls in vain tests only within the call that polls.
    pub within_poll: Vec<u64>,
    /// A round is longer than it takes to ask for a word or two, and no pause interrupts it.
    pub long_rounds: bool,
    /// Where its code lies.
    pub places: Places,
    /// Addresses of words, and values that they get in several rounds.
    pub rewritten: Vec<(u64, u64)>,
    /// Words that it only reads, if these are few: address and size in bytes.
    pub reads: Vec<(u64, u32)>,
    /// Others change one of these nearly all the time.
    pub reads_news: bool,
    /// Why nothing that others write can end its loop.
    pub endless: Option<String>,
    /// Number of the task whose loop it is, which a scheduler hands from thread to thread.
    pub task: Option<u64>,
}

/// What is printed as JSON.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Report {
    /// [`Report::SCHEMA`].
    #[serde(skip_deserializing, default = "Report::schema")]
    pub schema: &'static str,
    /// What is said of the loop.
    pub verdict: Verdict,
    /// The verdict in a sentence.
    pub reason: String,
    /// Those that the report is about.
    pub threads: Threads,
    /// `None`: nothing repeats, or there is no divergence.
    #[serde(rename = "loop")]
    pub spin_loop: Option<LoopReport>,
    /// Where the spin run went another way than a normal one; `None` of a live process.
    pub divergence: Option<DivergenceReport>,
    /// Those that are sure enough to be listed, the likeliest first.
    pub flags: Vec<Flag>,
    /// Words that were not sure enough: all, where there is no flag; else those that help an expert
    /// of the interpreter.
    pub considered: Vec<Flag>,
    /// The exit branches, with the flags that decide each.
    pub groups: Vec<Group>,
    /// What would end the loop.
    pub condition: Option<LoopCondition>,
    /// What limits the verdict, a line each.
    pub notes: Vec<String>,
    /// Which threads wait for the one that is reported, and by which words: a line for each.
    pub chains: Vec<String>,
    /// The reasoning, step by step.
    pub explain: Vec<String>,
    /// What else is known of it.
    #[serde(skip)]
    pub facts: Facts,
    /// For how many seconds the thread has not run, though nothing that it did could have made it
    /// wait.
    #[serde(skip)]
    pub stood_still: Option<u64>,
}

impl Report {
    /// The name and version of its JSON format.
    pub const SCHEMA: &'static str = "flagfinder.diff/1";

    fn schema() -> &'static str {
        Self::SCHEMA
    }

    /// Does it name what is waited for?
    pub fn names_a_flag(&self) -> bool {
        !matches!(self.verdict, Verdict::NoFlag | Verdict::NoDivergence) && !self.flags.is_empty()
    }

    /// Nothing found, and why.
    pub fn nothing(verdict: Verdict, reason: impl Into<String>) -> Report {
        Report {
            schema: Self::SCHEMA,
            verdict,
            reason: reason.into(),
            threads: Threads::default(),
            spin_loop: None,
            divergence: None,
            flags: Vec::new(),
            considered: Vec::new(),
            groups: Vec::new(),
            condition: None,
            notes: Vec::new(),
            chains: Vec::new(),
            explain: Vec::new(),
            facts: Facts::default(),
            stood_still: None,
        }
    }
}

/// A number as text, as in `0x1f`; null where there is none.
pub mod hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(value: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(&format_args!("{value:#x}")),
            None => serializer.serialize_none(),
        }
    }

    /// # Errors
    /// It is no such text.
    pub fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Option<u64>, D::Error> {
        Option::<String>::deserialize(from)?
            .map(|text| parsed(&text).ok_or_else(|| D::Error::custom("no hex number")))
            .transpose()
    }

    pub(super) fn parsed(text: &str) -> Option<u64> {
        u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    }
}

/// A list of numbers, each as [`hex`].
pub(crate) mod hex_list {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(
        values: &impl AsRef<[u64]>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let values = values.as_ref().iter();
        serializer.collect_seq(values.map(|value| format!("{value:#x}")))
    }

    pub fn deserialize<'d, D, T>(from: D) -> Result<T, D::Error>
    where
        D: Deserializer<'d>,
        T: TryFrom<Vec<u64>>,
    {
        let texts = Vec::<String>::deserialize(from)?;
        let values: Option<Vec<u64>> = texts.iter().map(|text| super::hex::parsed(text)).collect();
        values
            .and_then(|values| values.try_into().ok())
            .ok_or_else(|| D::Error::custom("no such hex numbers"))
    }
}
