// SPDX-License-Identifier: MIT
//! What the diff stage hands on: where two runs part.

use crate::outcomes::BranchOutcome;
use crate::space::CodePlace;
use serde::{Deserialize, Serialize};

/// A thread of a run, as reports name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadRef {
    /// Of its process, as the trace has it.
    pub pid: u32,
    /// Number of the process's image: each exec begins another one. 0 in reports that do not have
    /// it yet.
    #[serde(default)]
    pub image: u32,
    /// File name of the executable.
    #[serde(default)]
    pub program: String,
    /// As the trace has it.
    pub tid: u32,
    /// Name as last seen; empty when unknown.
    pub name: String,
}

/// A thread of the spin run and its counterpart in the normal run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadPair {
    /// In the (first) normal run; `None`: only the spin run has such a thread.
    pub normal: Option<ThreadRef>,
    /// In the spin run; `None`: only the normal run has such a thread.
    pub spin: Option<ThreadRef>,
    /// 0..=1.
    pub confidence: f64,
    /// In a few words.
    pub why: String,
}

/// Whether two runs part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// `partings[0]` says where.
    Parted,
    /// Nothing parts them; `reason` says why.
    NoDivergence,
}

/// How a spinning thread parts from the normal runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartingKind {
    /// Both ran the loop; the normal run left it by `branch`.
    LoopExit,
    /// Both are in the loop to the end (or the normal run never left it), but the normal run took
    /// another way within it at `branch`.
    InsideLoop,
    /// The normal run called the function and never came to the loop: at `branch` it went another
    /// way.
    PathToLoop,
    /// The normal run never made one of the open calls: at `branch` it went another way.
    PathToCall,
    /// The same call site called another function; `branch` is the call.
    Callee,
    /// The normal run has nothing to compare with; only the loop is known.
    OnlyInSpin,
    /// Both ran the loop, and nothing in it tells them apart.
    Alike,
}

/// How the normal run's calls that were compared were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContextMatch {
    /// Same chain of call sites, in the paired thread.
    Paired,
    /// Same chain of call sites, in another thread (roles may change between runs).
    OtherThread,
    /// Same call site, another way there.
    SameCaller,
    /// The same function, called elsewhere.
    SameFunction,
    /// No normal run called the function.
    None,
}

/// An open call of the spinning thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFrame {
    /// The call instruction; `None` for the outermost frame.
    pub call_site: Option<CodePlace>,
    pub function: CodePlace,
    /// The branch or call executed last in this frame.
    pub at: CodePlace,
    /// A signal handler: `call_site` is what it interrupted.
    pub signal_handler: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpinLoop {
    /// Last instruction of the block an iteration begins with.
    pub header: CodePlace,
    /// Last instructions of the loop's own blocks (not callees').
    pub blocks: Vec<CodePlace>,
    /// Iterations of the stay that never ended.
    pub iterations: u64,
    /// Index, in the thread's blocks, of the first of that stay.
    pub entered: u64,
    /// Blocks executed since, callees' too.
    pub length: u64,
    /// Stays of this run that did end, and the longest of them in blocks.
    pub earlier_stays: u64,
    pub longest_earlier: u64,
    /// How long the stay that never ended had lasted at the end, in ns; 0 when unknown.
    pub lasted: u64,
    /// The longest of the earlier stays, in ns.
    pub longest_earlier_ns: u64,
    /// What the normal runs did in this loop; `None`: they never ran it.
    pub normal: Option<NormalLoop>,
}

/// A loop in the normal runs' compared calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NormalLoop {
    /// Stays that ended.
    pub left: u64,
    /// Most iterations of one stay.
    pub most_iterations: u64,
    /// Longest stay that ended, in blocks.
    pub longest: u64,
    /// Longest stay that ended, in ns; 0 when unknown.
    pub longest_ns: u64,
    /// Some normal run ends inside the loop.
    pub ends_inside: bool,
    /// Time (ns) that it had been there then.
    pub open_ns: u64,
    /// How many iterations it had made then.
    pub open_iterations: u64,
    /// One stay, ended or not, took most of its run.
    pub most_of_run: bool,
}

/// A call site of an open frame whose finished calls did what no normal run's did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedDifference {
    /// Index into the stack.
    pub frame: usize,
    pub call_site: CodePlace,
    /// Shapes (calls with loops folded) seen in the spin run only / in a normal run only / in both.
    pub spin_only: u64,
    /// See `spin_only`.
    pub normal_only: u64,
    /// See `spin_only`.
    pub shared: u64,
}

/// Where one spinning thread parts from the normal runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parting {
    /// The thread, in the spin run.
    pub thread: ThreadRef,
    /// The thread of the first normal run whose calls were compared.
    pub normal_thread: Option<ThreadRef>,
    /// How they part.
    pub kind: PartingKind,
    /// The branch (for `Callee` the call), if one was found.
    pub branch: Option<CodePlace>,
    /// First instruction of the block that ends in the branch, as last executed.
    pub block: Option<CodePlace>,
    /// Where the normal run went; `None` also when it left the function.
    pub normal_target: Option<CodePlace>,
    /// Where the spin run went; `None`: out of the function, or no branch was found.
    pub spin_target: Option<CodePlace>,
    /// Which execution of the branch in this thread (from 1) it is: the first that does not return
    /// to what the normal run does.
    pub occurrence: u64,
    /// Its index in the spinning thread's blocks.
    pub spin_index: u64,
    /// Its position in the spinning thread's flow (as `core/trace` counts it), for a recorded
    /// trace.
    pub spin_pos: Option<u64>,
    /// In the normal thread: index of the block in which the branch went the other way.
    pub normal_index: Option<u64>,
    /// The frame (index into `stack`) in which they part.
    pub frame: usize,
    /// The frame that runs the loop.
    pub loop_frame: usize,
    /// How the compared calls were found.
    pub context: ContextMatch,
    /// Calls open at the end of the spin run, outermost first.
    pub stack: Vec<OpenFrame>,
    /// The loop that the thread is in at the end.
    pub spin_loop: SpinLoop,
    /// Other branches at which the normal runs leave what the spinning thread repeats.
    pub others: Vec<BranchOutcome>,
    /// Branches by which this run itself left the loop in earlier stays, most often taken first.
    pub own_exits: Vec<BranchOutcome>,
    /// Finished calls that differ: an earlier cause may be there.
    pub closed: Vec<ClosedDifference>,
    /// The thread has another parting, in a loop around this one, which holds it with more
    /// certainty.
    pub second_guess: bool,
    /// 0..=1.
    pub confidence: f64,
    /// The reasoning, step by step.
    pub why: Vec<String>,
}

/// A thread that is alive at the end of the spin run, and waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedThread {
    /// The thread, in the spin run.
    pub thread: ThreadRef,
    /// Number of the call that it waits in, as x86-64 Linux counts them.
    pub syscall: u32,
    /// For how long, in ns; 0 when unknown.
    pub waiting: u64,
    /// Its open calls, outermost first.
    pub stack: Vec<OpenFrame>,
}

/// What two (or more) runs show about each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Divergence {
    /// Whether they part.
    pub verdict: Verdict,
    /// In one sentence.
    pub reason: String,
    /// Threads of the spin run with their likes in the first normal run, and those without.
    pub threads: Vec<ThreadPair>,
    /// One for each spinning thread (and second guesses), the most telling first.
    pub partings: Vec<Parting>,
    /// Threads that wait at the end of the spin run: one of them may owe the write.
    pub blocked: Vec<BlockedThread>,
    /// What the reader should know of the input: gaps, unpaired returns, fallbacks.
    pub notes: Vec<String>,
    /// Reasons why the runs may not be of the same program.
    pub unlike: Vec<String>,
}
