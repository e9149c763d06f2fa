// SPDX-License-Identifier: MIT
//! A thread that others keep from running: stopped, frozen, starved.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flagfinder_linux::proc::{link, processes, threads, Stat, Status};
use flagfinder_linux::syscalls;
use flagfinder_waits::proc::times;
use rustc_hash::FxHashMap;

use super::obstacle::{Debtor, End, Obstacle, Who};
use super::process::name;
use super::report::{Kind, RootKind};
use crate::sample::Activity;

/// What keeps a stopped thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// Job control.
    Signal,
    /// The process that traces it.
    Tracer(u32),
    /// It reads its terminal in the background. The kernel stops such a job, and does so again when
    /// it is let go on. The text says which terminal.
    Terminal(String),
}

/// `None`: it is not stopped.
pub fn by(pid: u32, activity: &Activity) -> Option<By> {
    match activity.state {
        't' if activity.tracer != 0 => Some(By::Tracer(activity.tracer)),
        'T' | 't' => Some(terminal_in_background(pid, activity).map_or(By::Signal, By::Terminal)),
        _ => None,
    }
}

/// Stopped by job control or a tracer.
pub fn stopped(pid: u32, activity: &Activity) -> Option<End> {
    let program = name(pid, pid);
    let what = match by(pid, activity)? {
        By::Tracer(tracer) => format!(
            "thread {} of process {pid} ({program}) is held by its tracer, process {tracer} ({})",
            activity.tid,
            name(tracer, tracer)
        ),
        By::Terminal(how) => format!("process {pid} ({program}) is stopped by a signal {how}"),
        By::Signal => {
            format!("process {pid} ({program}) is stopped by a signal (SIGSTOP, or Ctrl-Z)")
        }
    };
    Some(End::fault(RootKind::Stopped, what))
}

fn terminal_in_background(pid: u32, activity: &Activity) -> Option<String> {
    let call = activity
        .call
        .filter(|call| syscalls::is_read(call.number))?;
    let target = link(pid, call.args[0] as i32)?;
    let stat = Stat::of(pid)?;
    let [group, front]: [i32; 2] = [stat.field(GROUP)?, stat.field(FRONT)?];
    let is_terminal = target.starts_with("/dev/pts/") || target.starts_with("/dev/tty");
    (is_terminal && front > 0 && group != front).then(|| {
        format!(
            "(SIGTTIN): it reads terminal {target}, whose foreground has process group {front}, \
             and this one is in group {group}"
        )
    })
}

/// Fields of /proc/PID/stat: the process group, and that which its terminal takes input for.
const GROUP: usize = 5;
const FRONT: usize = 8;

/// Frozen by a control group of the process, or by one above.
pub fn frozen(pid: u32) -> Option<End> {
    let groups = flagfinder_linux::proc::text(format!("/proc/{pid}/cgroup")).ok()?;
    let mounts = flagfinder_linux::proc::text("/proc/self/mountinfo").ok()?;
    let folder = groups.lines().find_map(|line| {
        let (controllers, path) = parse_group(line)?;
        let root = mount_of(&mounts, controllers)?;
        let folder = root.join(path.trim_start_matches('/'));
        let is_frozen = match controllers {
            "" => read(&folder, "cgroup.events")
                .lines()
                .any(|l| l == "frozen 1"),
            _ => matches!(read(&folder, "freezer.state").trim(), "FROZEN" | "FREEZING"),
        };
        let applies = controllers.is_empty() || has_controller(controllers, "freezer");
        (applies && is_frozen && folder.is_dir()).then_some(folder)
    })?;
    let what = format!(
        "process {pid} ({}) is frozen by its control group {}",
        name(pid, pid),
        folder.display()
    );
    Some(End::fault(RootKind::Frozen, what))
}

/// `0::/path`: of the unified hierarchy, without controllers; `6:freezer:/path` of another.
pub(super) fn parse_group(line: &str) -> Option<(&str, &str)> {
    let mut parts = line.splitn(3, ':').skip(1);
    Some((parts.next()?, parts.next()?))
}

fn has_controller(list: &str, wanted: &str) -> bool {
    list.split(',').any(|one| one == wanted)
}

/// Where the hierarchy is mounted, by its file system and its options.
fn mount_of(mounts: &str, controllers: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (own, of_system) = line.split_once(" - ")?;
        let mut system = of_system.split_whitespace();
        let (kind, options) = (system.next()?, system.nth(1)?);
        let is_it = match controllers {
            "" => kind == "cgroup2",
            list => kind == "cgroup" && list.split(',').all(|one| has_controller(options, one)),
        };
        let mut fields = own.split_whitespace().skip(3);
        let (root, place) = (fields.next()?, fields.next()?);
        (is_it && root == "/").then(|| PathBuf::from(place))
    })
}

fn read(folder: &Path, file: &str) -> String {
    fs::read_to_string(folder.join(file)).unwrap_or_default()
}

/// Starved: it wants this share of a processor and gets less than this one.
const WANTS: f64 = 0.5;
const GETS: f64 = 0.1;
/// A thread that uses this share of a processor keeps others from it.
const HOGS: f64 = 0.3;
/// It also uses so many times more than the next one.
const CLEARLY: f64 = 2.0;
const LOOK: Duration = Duration::from_millis(120);

/// A thread that is ready to run and gets no processor.
pub fn starved(pid: u32, activity: &Activity) -> Option<Obstacle> {
    if activity.state != 'R' || activity.wants < WANTS || activity.cpu > GETS {
        return None;
    }
    let tid = activity.tid;
    let got = format!(
        "it is ready to run, and got {:.0} % of a processor",
        activity.cpu * 100.0
    );
    if let Some(limit) = throttled(pid) {
        let what = format!("{got}: its control group is at its limit ({limit})");
        return Some(Obstacle::ends(
            Kind::Cpu,
            "a processor",
            End::fault(RootKind::Computes, what),
        ));
    }
    let policy = scheduling(pid, tid);
    let processors = allowed(pid, tid);
    let hog = hog(tid, &processors);
    let waits = format!("{got}{policy}");
    Some(match hog {
        Some((of, thread, share)) => {
            let reason = format!(
                "{waits}; thread {thread} ({}) uses {:.0} % of it",
                name(of, thread),
                share * 100.0
            );
            Obstacle::owed(
                Kind::Cpu,
                format!("processor {}", list(&processors)),
                vec![Debtor::seen(Who::Thread(of, thread), reason)],
            )
        }
        None => Obstacle::ends(
            Kind::Cpu,
            "a processor",
            End::fault(RootKind::Computes, format!("{waits}; many others use it")),
        ),
    })
}

/// The limit of processor time that the kernel holds the process to just now.
fn throttled(pid: u32) -> Option<String> {
    let groups = flagfinder_linux::proc::text(format!("/proc/{pid}/cgroup")).ok()?;
    let mounts = flagfinder_linux::proc::text("/proc/self/mountinfo").ok()?;
    groups.lines().find_map(|line| {
        let (controllers, path) = parse_group(line)?;
        if !(controllers.is_empty() || has_controller(controllers, "cpu")) {
            return None;
        }
        let root = mount_of(&mounts, controllers)?;
        let mut folder = root.join(path.trim_start_matches('/'));
        while folder.starts_with(&root) {
            let times = || {
                let stat = read(&folder, "cpu.stat");
                let line = stat.lines().find_map(|l| l.strip_prefix("nr_throttled "));
                line.and_then(|text| text.trim().parse::<u64>().ok())
            };
            if let Some(before) = times() {
                std::thread::sleep(LOOK);
                if times().is_some_and(|now| now > before) {
                    return Some(format!("{}", folder.display()));
                }
            }
            folder.pop();
        }
        None
    })
}

fn scheduling(pid: u32, tid: u32) -> String {
    let stat = Stat::of_thread(pid, tid);
    let field = |number| stat.as_ref()?.field::<i32>(number);
    match (field(Stat::POLICY), field(Stat::NICE)) {
        (Some(libc::SCHED_IDLE), _) => ", as one of SCHED_IDLE".into(),
        (Some(libc::SCHED_BATCH), _) => ", as one of SCHED_BATCH".into(),
        (_, Some(0) | None) => String::new(),
        (_, Some(nice)) => format!(", at nice {nice}"),
    }
}

/// Processors that the thread may run on.
fn allowed(pid: u32, tid: u32) -> Vec<u32> {
    let status = Status::of_thread(pid, tid).ok();
    let list = status
        .as_ref()
        .and_then(|status| status.text("Cpus_allowed_list:"));
    parse_list(list.unwrap_or_default())
}

/// `0-2,5`
fn parse_list(text: &str) -> Vec<u32> {
    let ranges = text.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    });
    ranges.flatten().collect()
}

fn list(processors: &[u32]) -> String {
    let texts: Vec<String> = processors.iter().take(4).map(u32::to_string).collect();
    texts.join(", ")
}

/// Who uses the processor that the thread may run on: process, thread, share. Only where it may run
/// on one: on several nobody alone keeps it.
fn hog(tid: u32, processors: &[u32]) -> Option<(u32, u32, f64)> {
    let [processor] = processors else { return None };
    let looks = || -> FxHashMap<(u32, u32), u64> {
        let threads = processes().into_iter().flat_map(|pid| {
            let tids = threads(pid).unwrap_or_default();
            tids.into_iter().map(move |tid| (pid, tid))
        });
        let ran = |(pid, tid): (u32, u32)| Some(((pid, tid), times(pid, tid)?.0));
        threads.filter_map(ran).collect()
    };
    let begin = std::time::Instant::now();
    let before = looks();
    std::thread::sleep(LOOK);
    let after = looks();
    let spent = begin.elapsed().as_nanos() as f64;
    let shares = after.into_iter().filter_map(|((pid, other), ran)| {
        let share = ran.saturating_sub(*before.get(&(pid, other))?) as f64 / spent;
        let is_there = other != tid && share >= HOGS && last_processor(pid, other)? == *processor;
        is_there.then_some((pid, other, share.min(1.0)))
    });
    let mut shares: Vec<(u32, u32, f64)> = shares.collect();
    shares.sort_by(|a, b| b.2.total_cmp(&a.2));
    match shares[..] {
        [first, second, ..] if first.2 < second.2 * CLEARLY => None,
        [first, ..] => Some(first),
        [] => None,
    }
}

fn last_processor(pid: u32, tid: u32) -> Option<u32> {
    Stat::of_thread(pid, tid)?.field(Stat::PROCESSOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_s_folder_is_found_by_hierarchy() {
        let mounts = "30 25 0:26 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n\
                      31 25 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                      32 25 0:28 /part /mnt rw - cgroup cgroup rw,cpu,cpuacct\n";
        let place = |controllers| mount_of(mounts, controllers);
        assert_eq!(place(""), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(place("freezer"), Some("/sys/fs/cgroup/freezer".into()));
        assert_eq!(place("cpu,cpuacct"), None, "not its root");
        assert_eq!(parse_group("0::/a:b"), Some(("", "/a:b")));
        assert_eq!(parse_group("6:freezer:/x"), Some(("freezer", "/x")));
    }

    #[test]
    fn lists_of_processors_have_ranges() {
        assert_eq!(parse_list("0-2,5"), [0, 1, 2, 5]);
        assert!(parse_list("").is_empty());
    }
}
