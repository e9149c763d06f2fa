// SPDX-License-Identifier: MIT
//! What keeps one thread.

use std::path::Path;
use std::time::Duration;

use flagfinder_code::{Code, Spot, Whose};
use flagfinder_files::{facts_of, path_of_process};
use flagfinder_flags::Flag;
use flagfinder_linux::clock;
use flagfinder_linux::proc::{is_over, link, Stat};
use flagfinder_linux::syscalls::{self, Role};
use flagfinder_linux::timeout::shown;
use flagfinder_linux::traits;

use super::asked::Asked;
use super::go::Tasks;
use super::obstacle::{Debtor, End, Obstacle, Side, State, Who};
use super::process::{name, Process, Processes};
use super::report::{Kind, RootKind, WaitsFor};
use super::{
    children, files, flags, go, held, in_core, ipc, java, locked, mounts, ruby, stopped, unread,
};
use crate::report::ThreadReport;
use crate::sample::Activity;
use crate::thread_ways::{self, Way};
use flagfinder_waits::call::{self, Timeout, SOON};
use flagfinder_waits::descriptor;
use flagfinder_waits::locks::takes_file_lock;
use flagfinder_waits::proc::Call;

/// What was found of one thread.
#[derive(Clone, Debug)]
pub struct Examined {
    pub state: State,
    /// Calls that it has open, innermost first.
    pub stack: Vec<Code>,
    /// The innermost place of the program's author.
    pub at: Option<Spot>,
    /// What keeps the thread is what keeps the last of these.
    pub tasks: Option<Tasks>,
    /// Functions of its program are suspended, as that tells.
    pub awaits: Option<End>,
}

impl Examined {
    fn of(state: State, stack: Vec<Code>, at: Option<Spot>) -> Examined {
        Examined {
            state,
            stack,
            at,
            tasks: None,
            awaits: None,
        }
    }

    fn of_tasks(found: go::Looked) -> Examined {
        Examined {
            tasks: Some(found.tasks),
            ..Examined::of(found.state, found.stack, found.at)
        }
    }

    fn bare(state: State) -> Examined {
        Examined::of(state, Vec::new(), None)
    }

    fn end(end: End) -> Examined {
        Examined::bare(State::End(end))
    }

    /// Where it stands: the innermost call site outside of the C library.
    pub fn code(&self) -> Option<Code> {
        let own = |code: &&Code| !code.is_standard_library() && code.module.is_some();
        self.stack.iter().find(own).or(self.stack.first()).cloned()
    }
}

/// `stepped`: what `spin` saw of it, where that was looked at; `asked`: what its source polls.
/// `begins`: the chain begins here.
pub fn examine(
    processes: &mut Processes,
    pid: u32,
    tid: u32,
    (stepped, asked): (Option<&ThreadReport>, Option<&Asked>),
    begins: bool,
) -> Examined {
    let Some(process) = processes.get(pid) else {
        let end = End::fault(RootKind::Ended, format!("process {pid} has ended"));
        return Examined::end(end);
    };
    let Some(activity) = process.activity(tid).cloned() else {
        let what = format!("thread {tid} of process {pid} has ended");
        return Examined::end(End::fault(RootKind::Ended, what));
    };
    if is_over(activity.state) {
        return over(process, pid, tid);
    }
    let is_dead = process.is_dead;
    let frozen = || (!is_dead).then(|| stopped::frozen(pid)).flatten();
    if let Some(end) = stopped::stopped(pid, &activity).or_else(frozen) {
        return Examined::end(end);
    }
    if let Some(end) = java::collects(process, &activity) {
        return Examined::end(end);
    }
    if activity.wants < thread_ways::HOT {
        let owed = java::owed(process, tid).or_else(|| ruby::owed(process, tid));
        if let Some(obstacle) = owed {
            let (stack, at) = stack(process, &activity);
            return Examined::of(State::Waits(vec![obstacle]), stack, at);
        }
    }
    let asks = stepped.is_some_and(ThreadReport::has_flag)
        || activity.wants >= thread_ways::HOT
        || activity.sleeps >= POLLS
        || activity.call.is_some_and(|call| is_for_child(&call));
    if let Some(asked) = asked.filter(|asked| asks && !asked.blocks) {
        let (stack, at) = stack(process, &activity);
        let state = State::Waits(vec![flags::in_source(pid, asked)]);
        return Examined::of(state, stack, at);
    }
    // The statement of a source says more than the word at which its interpreter sleeps.
    let sleeps = activity.call.is_some_and(|call| is_futex(&call));
    let is_told = sleeps && asked.is_some_and(|asked| asked.blocks);
    if let Some(found) = stepped.filter(|thread| thread.has_flag() && !is_told) {
        let (stack, at) = stack(process, &activity);
        let obstacles = flags::obstacles(processes, pid, found);
        let words = found.flags.iter().filter(|one| one.is_word());
        let words: Vec<&Flag> = words.map(|one| &one.flag).collect();
        let debtors = || obstacles.iter().flat_map(|one| &one.debtors);
        // Which goroutine a thread of the scheduler runs next tells more than the thread.
        let schedules = processes
            .get(pid)
            .is_some_and(|process| debtors().all(|debtor| schedules(process, debtor)));
        let in_go = match schedules {
            true => go::polled(processes, (pid, tid), &words, (stack.clone(), at.clone())),
            false => None,
        };
        let in_java = match debtors().next().is_none() {
            true => processes
                .get(pid)
                .and_then(|process| java::polls(process, tid, Some(found))),
            false => None,
        };
        return match (in_go, in_java) {
            (Some(found), _) => Examined::of_tasks(found),
            (_, Some((obstacle, own))) => {
                Examined::of(State::Waits(vec![obstacle]), stack, own.or(at))
            }
            _ => Examined::of(State::Waits(obstacles), stack, at),
        };
    }
    if let Some((obstacle, at)) = java::polls(process, tid, stepped) {
        return Examined::of(State::Waits(vec![obstacle]), Vec::new(), at);
    }
    // More of a processor would not end such a loop.
    if stepped.is_some_and(|thread| thread.facts.endless.is_some()) {
        return Examined::end(busy(&activity, stepped));
    }
    // Who had the processors then is not in a core.
    if is_dead && activity.call.is_none() {
        return Examined::end(in_core::runs(stepped));
    }
    let starved = || stopped::starved(pid, &activity);
    if let Some(obstacle) = (!is_dead).then(starved).flatten() {
        let at = in_runtime(process, &activity);
        return Examined::of(State::Waits(vec![obstacle]), Vec::new(), at);
    }
    if activity.wants >= thread_ways::HOT && !is_dead {
        return Examined {
            at: in_runtime(process, &activity),
            ..Examined::end(busy(&activity, stepped))
        };
    }
    let (stack, at) = stack(process, &activity);
    let in_go = activity
        .call
        .and_then(|_| go::look(processes, (pid, tid), &stack, begins));
    let mut at = at;
    let tasks = match in_go {
        Some(found) if found.is_own => {
            // Go keeps frame pointers; without the tables of a stripped program the thread's own
            // stack may be told in part only.
            at = at.or(found.at);
            Some(found.tasks)
        }
        Some(found) => return Examined::of_tasks(found),
        None => None,
    };
    let Some(process) = processes.get(pid) else {
        let end = End::fault(RootKind::Ended, format!("process {pid} has ended"));
        return Examined::end(end);
    };
    let mut awaits = None;
    let state = match activity.call {
        // The sleep of another thread is a heartbeat. This thread is said to hang, or is alone in
        // its process, so it asks for something.
        Some(call)
            if (begins || is_alone(process))
                && is_sleep(&call)
                && (polls(process, &activity, &call)
                    || slept_before(process, &activity, &call))
                && !may_ask_about_children(process) =>
        {
            let what = "it sleeps again and again, and what it asks in between was not found";
            let between = asked.filter(|asked| asked.of_task.is_some());
            State::End(End::unknown(between.map_or(what, |asked| &asked.nobody)))
        }
        Some(call) => {
            let state = in_call(processes, pid, &activity, &call, &stack);
            if at.is_none() && !is_dead && traits::looks(call.number) {
                awaits = processes
                    .get(pid)
                    .and_then(|process| in_await(process, &mut at));
            }
            match asked.filter(|asked| asked.blocks) {
                Some(asked) if is_futex(&call) => flags::blocked_in_source(pid, asked, state),
                Some(asked) => flags::blocked_in_task(pid, asked, state),
                None => state,
            }
        }
        None => State::End(End::unknown(format!(
            "thread {tid} is in no system call that could be told"
        ))),
    };
    Examined {
        tasks,
        awaits,
        ..Examined::of(state, stack, at)
    }
}

/// Where async functions of JavaScript are suspended. `at`: where the author's only one is.
fn in_await(process: &Process, at: &mut Option<Spot>) -> Option<End> {
    const TOLD: usize = 3;
    let all = process.awaits_of_v8().into_iter();
    let own = all.filter(|(whose, _)| *whose == Whose::Own);
    let mut own: Vec<Spot> = own.map(|(_, spot)| spot).collect();
    own.dedup();
    if let [only] = &own[..] {
        *at = Some(only.clone());
    }
    let told = own.iter().take(TOLD).map(|spot| {
        let file = spot.file.as_deref().unwrap_or_default();
        let file = file.rsplit('/').next().unwrap_or_default();
        let line = spot.line.map_or(String::new(), |line| format!(":{line}"));
        let function = spot.function.as_deref().unwrap_or("a function");
        format!("{function}() at {file}{line}")
    });
    let told = told.collect::<Vec<_>>().join(", ");
    let more = match own.len().saturating_sub(TOLD) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let what = format!(
        "{told}{more} is suspended in `await`, and no descriptor and no child of the process is \
         known to end that"
    );
    (!own.is_empty()).then(|| End::unknown(what))
}

/// A shell sleeps by a child for which it waits.
fn is_for_child(call: &Call) -> bool {
    matches!(
        i64::from(call.number),
        libc::SYS_wait4 | libc::SYS_waitid | libc::SYS_vfork
    )
}

fn is_futex(call: &Call) -> bool {
    i64::from(call.number) == libc::SYS_futex
}

fn is_alone(process: &Process) -> bool {
    !process.is_dead && process.tids().len() == 1
}

/// Is it a sleep, or a poll of nothing?
fn is_sleep(call: &Call) -> bool {
    let is_pause = i64::from(call.number) == libc::SYS_pause;
    syscalls::role(call.number, &call.args) == Role::Sleep && !is_pause
}

/// A process of one thread that started others and sleeps again and again looks after them in
/// between.
fn may_ask_about_children(process: &Process) -> bool {
    is_alone(process) && !flagfinder_waits::children(process.pid).is_empty()
}

/// Does it go to sleep again and again? A core does not tell, but so short a sleep is followed by
/// another, and a sleep that is over soon does not keep the thread.
fn polls(process: &Process, activity: &Activity, call: &Call) -> bool {
    let timeout = process
        .inside
        .as_ref()
        .and_then(|inside| call::timeout(call, &*inside.memory));
    let is_over_soon = timeout.is_some_and(|timeout| match (timeout.absolute, process.is_dead) {
        (false, true) => is_short(timeout),
        (true, false) => clock(call).is_some_and(|now| timeout.time.saturating_sub(now) <= SOON),
        _ => false,
    });
    activity.sleeps >= POLLS || is_over_soon
}

/// It has lived so long that this is not its first sleep; in between it asks for what it waits for.
fn slept_before(process: &Process, activity: &Activity, call: &Call) -> bool {
    let inside = process.inside.as_ref().filter(|_| !process.is_dead);
    let timeout = inside.and_then(|inside| call::timeout(call, &*inside.memory));
    let timeout = timeout.filter(|timeout| !timeout.absolute);
    timeout.is_some_and(|timeout| {
        let life = life(process.pid, activity.tid);
        life.is_some_and(|life| life > timeout.time.saturating_mul(SLEEPS))
    })
}

/// A thread that sleeps again and again has lived for so many of its sleeps.
const SLEEPS: u32 = 3;

/// How long the thread has existed.
fn life(pid: u32, tid: u32) -> Option<Duration> {
    let started: u64 = Stat::of_thread(pid, tid)?.field(Stat::STARTED)?;
    // SAFETY: it takes no pointer.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    let started = Duration::from_secs_f64(started as f64 / ticks as f64);
    clock::now(libc::CLOCK_BOOTTIME)?.checked_sub(started)
}

fn is_short(timeout: Timeout) -> bool {
    timeout.time <= SOON && !timeout.absolute
}

fn stack(process: &Process, activity: &Activity) -> (Vec<Code>, Option<Spot>) {
    let Some(call) = activity.call else {
        return (Vec::new(), in_runtime(process, activity));
    };
    let (stack, at) = process.stack(&call);
    let of_java = || java::place(process, activity.tid);
    (
        stack,
        at.or_else(of_java)
            .or_else(|| in_runtime(process, activity)),
    )
}

/// Where the author's code is in what the thread's runtime executes.
fn in_runtime(process: &Process, activity: &Activity) -> Option<Spot> {
    let calls = process.calls_of_runtime(activity.tid);
    Spot::first_own(calls.iter().map(|(whose, spot)| (*whose, spot)))
}

/// Is it a thread of the process that only looks for a goroutine to run?
fn schedules(process: &Process, debtor: &Debtor) -> bool {
    let Who::Thread(pid, tid) = debtor.who else {
        return false;
    };
    let mut threads = process.activities.iter().filter(|_| pid == process.pid);
    let thread = threads.find(|one| one.tid == tid);
    thread.is_some_and(|activity| go::is_idle(&stack(process, activity).0))
}

fn over(process: &Process, pid: u32, tid: u32) -> Examined {
    let living = process.tids();
    if !living.is_empty() {
        let debtors = living.into_iter().map(|other| {
            let reason = "the first thread has ended, and the process lives on in this one";
            Debtor::seen(Who::Thread(pid, other), reason)
        });
        let name = format!("the end of process {pid}");
        let obstacle = Obstacle::owed(Kind::Child, name, debtors.collect());
        return Examined::bare(State::Waits(vec![obstacle]));
    }
    let parent = super::process::status_number(pid, "PPid:").unwrap_or(0);
    let what = format!(
        "process {pid} ({}) has ended, and process {parent} ({}) has not asked for its status",
        name(pid, tid),
        name(parent, parent)
    );
    Examined::end(End::fault(RootKind::Ended, what))
}

/// It uses the processor, or wakes again and again: it may poll.
pub fn is_busy(process: &Process, activity: &Activity) -> bool {
    let Some(inside) = &process.inside else {
        return activity.wants >= thread_ways::HOT;
    };
    match thread_ways::way(activity, &*inside.memory) {
        Way::Hot => true,
        // One short turn is a wake-up only, and a time limit that is over soon tells how the thread
        // waits.
        Way::Repeats => activity.sleeps >= 2,
        _ => false,
    }
}

fn busy(activity: &Activity, stepped: Option<&ThreadReport>) -> End {
    let at = stepped.and_then(|thread| thread.spin_loop.as_ref()?.function.as_deref());
    let place = at.map_or(String::new(), |function| format!(" in {function}"));
    let share = activity.cpu.max(activity.wants) * 100.0;
    let endless = stepped.and_then(|thread| thread.facts.endless.as_deref());
    let gets_on = stepped.is_some_and(|thread| thread.facts.gets_on);
    let what = match endless {
        Some(why) => {
            format!("nothing ends its loop{place}: {why}; it uses {share:.0} % of a processor")
        }
        None if gets_on => format!("it computes{place}, and uses {share:.0} % of a processor"),
        None => format!(
            "it uses {share:.0} % of a processor{place}; whether it waits for anything is not known"
        ),
    };
    let is_seen = endless.is_some() || gets_on;
    End::computes(what, is_seen)
}

/// How often a thread that polls goes to sleep while it is looked at, at least.
const POLLS: u64 = 2;

fn in_call(
    processes: &mut Processes,
    pid: u32,
    activity: &Activity,
    call: &Call,
    stack: &[Code],
) -> State {
    let tid = activity.tid;
    let name = syscalls::name(call.number);
    let number = i64::from(call.number);
    let Some(process) = processes.get(pid) else {
        return State::End(End::unknown("its process has ended meanwhile"));
    };
    let is_dead = process.is_dead;
    let has_children = may_ask_about_children(process);
    let timeout = process
        .inside
        .as_ref()
        .and_then(|i| call::timeout(call, &*i.memory));
    let descriptors = process.inside.as_ref();
    let descriptors = descriptors.map_or_else(Vec::new, |i| call::descriptors(call, &*i.memory));
    let path = syscalls::path(call.number, &call.args);
    let path = path.zip(process.inside.as_ref());
    let path = path.map(|(at, inside)| path_at(&*inside.memory, at));
    let of_server = mounts::served(processes, pid, call, path.as_deref(), &activity.sleeps_in);
    let Some(process) = processes.get(pid) else {
        return State::End(End::unknown("its process has ended meanwhile"));
    };
    let mut obstacles: Vec<Obstacle> = match number {
        _ if of_server.is_some() => of_server.into_iter().collect(),
        libc::SYS_futex => held::obstacle(process, tid, call, stack)
            .into_iter()
            .collect(),
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => Vec::new(),
        _ if process.is_dead => vec![in_core::outside(call, &name, &descriptors)],
        _ if takes_file_lock(call.number, &call.args) => {
            vec![locked::file_lock(pid, call.args[0] as i32)]
        }
        _ if is_for_child(call) => children::ends(pid, Some(call)),
        libc::SYS_execve | libc::SYS_execveat if waits_for_others(activity) => {
            children::others_end(pid, tid)
        }
        libc::SYS_pause | libc::SYS_rt_sigsuspend | libc::SYS_rt_sigtimedwait => {
            children::signal(pid, tid, &name)
        }
        libc::SYS_openat | libc::SYS_open => opening(pid, path.as_deref(), &activity.sleeps_in),
        libc::SYS_semop | libc::SYS_semtimedop | libc::SYS_msgrcv | libc::SYS_msgsnd => {
            ipc::obstacle(process, call).into_iter().collect()
        }
        _ if activity.state == 'D' => Vec::new(),
        _ => files::each(processes, pid, tid, &descriptors, &name),
    };
    if activity.state == 'D' && obstacles.is_empty() {
        return State::End(uninterruptible(activity));
    }
    // A channel to itself is no deadlock of a thread that wakes in time.
    if timeout.is_some_and(|timeout| !is_short(timeout)) {
        obstacles.retain(|o| !o.debtors.is_empty() || o.otherwise.kind != RootKind::Deadlock);
    }
    if !is_dead && traits::looks(call.number) {
        obstacles.extend(unread::left(processes, pid, tid, &descriptors, &name));
    }
    // A server's children serve its clients. Another event loop that hears of its children's ends
    // has begun them for their result. Libraries give each loop the pipe, and the first is meant.
    let listens = |one: &Obstacle| matches!(one.side, Some(Side::Listens(_)));
    let hears = || descriptors.iter().any(|fd| hears_itself(pid, *fd));
    let is_loop = tid == pid && !is_dead && traits::looks(call.number);
    if is_loop && !obstacles.iter().any(listens) && hears() {
        obstacles.extend(children::by_signal(pid, children::handled(pid)));
    }
    let is_owed = obstacles
        .iter()
        .any(|o| !o.debtors.is_empty() && !o.by_elimination);
    if let Some(timeout) = timeout {
        if obstacles.is_empty() || !is_owed {
            let now = (!is_dead).then(|| clock(call)).flatten();
            obstacles.push(limit(&name, timeout, now, obstacles.is_empty()));
            if has_children {
                obstacles.extend(children::asked_about(pid));
            }
        }
    }
    // The first thread of Ruby sleeps in a call that hears of signals, whatever it waits for.
    if let Some(of_ruby) = (!is_dead)
        .then(|| ruby_waits(processes, pid, tid))
        .flatten()
    {
        obstacles = vec![of_ruby];
    }
    if obstacles.is_empty() {
        let end = End::unknown(format!("what ends {name} is not known"));
        obstacles.push(Obstacle::ends(Kind::Call, name, end));
    }
    State::Waits(obstacles)
}

fn ruby_waits(processes: &mut Processes, pid: u32, tid: u32) -> Option<Obstacle> {
    let process = processes.get(pid)?;
    let called = ruby::called(process, tid)?;
    let waits_for = WaitsFor {
        kind: Kind::Flag,
        name: called.to_owned(),
        address: None,
        statement: None,
    };
    Some(held::others(process, tid, &[], None, waits_for))
}

/// An execve first ends all other threads of its process.
fn waits_for_others(activity: &Activity) -> bool {
    ["begin_new_exec", "de_thread", "flush_old_exec"].contains(&&*activity.sleeps_in)
}

/// Parts of the names of those functions of the kernel that wait for file systems and devices.
const OF_STORAGE: &[&str] = &[
    "page",
    "folio",
    "buffer",
    "bit_wait",
    "io_schedule",
    "blk_",
    "bio",
    "rq_qos",
    "wbt_",
    "jbd2",
    "journal",
    "ext4",
    "xfs",
    "btrfs",
    "f2fs",
    "sb_start_write",
    "percpu_rwsem",
    "writeback",
    "nfs",
    "rpc_",
    "cifs",
    "smb",
    "ceph",
    "p9_",
    "scsi",
    "nvme",
    "usb_",
    "md_",
    "dm_",
];

/// In a state that no signal ends, for a reason that only the kernel's function tells.
fn uninterruptible(activity: &Activity) -> End {
    let (tid, function) = (activity.tid, &activity.sleeps_in);
    let what = match function.is_empty() {
        true => format!("thread {tid} is in the kernel and can't be interrupted"),
        false => format!("thread {tid} is in the kernel's {function} and can't be interrupted"),
    };
    match OF_STORAGE.iter().any(|part| function.contains(part)) {
        true => End::outside(
            RootKind::Input,
            format!(
                "{what}: a disk, a network file system or a device has not answered, or a file \
                 system is frozen (fsfreeze)"
            ),
        ),
        false => End::unknown(format!("{what}: what it waits for there is not known")),
    }
}

/// Is it the pipe, or an epoll descriptor of it, by which handlers of signals wake their process?
fn hears_itself(pid: u32, fd: i32) -> bool {
    let is_pipe = |fd: i32| {
        let is_it = link(pid, fd).is_some_and(|target| target.starts_with("pipe:"));
        is_it && descriptor::wakes_itself(pid, fd)
    };
    is_pipe(fd) || descriptor::watched(pid, fd).into_iter().any(is_pipe)
}

/// The clock ends the call. `now`: what the clock shows, if known. `alone`: nothing else ends it.
fn limit(name: &str, timeout: Timeout, now: Option<Duration>, alone: bool) -> Obstacle {
    let when = match timeout.absolute {
        true => match now.map(|now| timeout.time.checked_sub(now)) {
            Some(Some(left)) => format!("due in {}", shown(left)),
            Some(None) => "due now".into(),
            None => "until a point in time; how far off that was is not known".into(),
        },
        false => format!("for {} in all", shown(timeout.time)),
    };
    let left = now.map(|now| timeout.time.saturating_sub(now));
    let is_over_soon = timeout.absolute && left.is_some_and(|left| left <= SOON);
    let end = match alone && !is_short(timeout) && !is_over_soon {
        true => End::outside(RootKind::Timer, format!("it sleeps, {when}")),
        false => End::idle(
            RootKind::Timer,
            format!("the call is limited in time, {when}"),
        ),
    };
    Obstacle::ends(Kind::Timer, format!("{name}'s time"), end)
}

/// What the clock shows that the call names.
fn clock(call: &Call) -> Option<Duration> {
    let clock = match i64::from(call.number) {
        libc::SYS_clock_nanosleep => call.args[0] as i32,
        // FUTEX_CLOCK_REALTIME
        libc::SYS_futex if call.args[1] & 256 == 0 => libc::CLOCK_MONOTONIC,
        _ => libc::CLOCK_REALTIME,
    };
    clock::now(clock)
}

/// A FIFO is opened once somebody opens its other end. Where the kernel tells that the thread waits
/// for something else, the file system is not asked: it may be the one that does not answer.
fn opening(pid: u32, path: Option<&str>, sleeps_in: &str) -> Vec<Obstacle> {
    let Some(path) = path.filter(|_| sleeps_in.is_empty() || sleeps_in == "wait_for_partner")
    else {
        return Vec::new();
    };
    let place = path_of_process(pid, Path::new(path));
    if !facts_of(&place).is_ok_and(|file| file.is(libc::S_IFIFO)) {
        return Vec::new();
    }
    let what = format!("no process has opened the other end of FIFO {path}");
    let end = End::outside(RootKind::Input, what);
    vec![Obstacle::ends(
        Kind::Call,
        format!("open of FIFO {path}"),
        end,
    )]
}

fn path_at(memory: &dyn flagfinder_code::AddressSpace, address: u64) -> String {
    let mut bytes = [0u8; 512];
    let got = memory.read(address, &mut bytes);
    let end = bytes[..got]
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(got);
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_blamed_only_where_the_kernel_waits_for_storage() {
        let kind = |function: &str| {
            let activity = Activity {
                sleeps_in: function.to_owned(),
                ..Activity::default()
            };
            uninterruptible(&activity).kind
        };
        assert_eq!(kind("folio_wait_bit_common"), RootKind::Input);
        assert_eq!(kind("percpu_rwsem_wait"), RootKind::Input);
        for other in ["begin_new_exec", "kernel_clone", "exit_mm", ""] {
            assert_eq!(kind(other), RootKind::Unknown);
        }
    }
}
