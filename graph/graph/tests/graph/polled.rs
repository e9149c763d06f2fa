// SPDX-License-Identifier: MIT
//! The critical path of a thread that polls a flag: until the write, the time is the writer's.

use flagfinder_graph::{build, critical_path, CriticalPath, PathRequest};

use crate::made_up::{Recording, MS, READ, SLEEP};

const POLLER: u32 = 1;
const WRITER: u32 = 2;

/// The poller looks every ms, while the writer waits in read for a long time, and then writes.
/// Out: the recording, and what a watch saw.
fn polls(looks: u64) -> (Recording, String) {
    let mut all = Recording::of(&[POLLER, WRITER]);
    let mut lines = String::new();
    let mut saw = |event: &str, ts: u64, tid: u32, value: u32| {
        lines += &format!(r#"{{"event":"data_flag_{event}","ts":{ts},"tid":{tid},"watch":1,"#);
        lines += &format!("\"value\":\"{value:#x}\"}}\n");
    };
    all.passes(5 * MS);
    all.waits(SLEEP, 0, WRITER);
    all.passes(MS);
    all.waits(READ, 3, 0);
    for _ in 0..looks {
        all.passes(MS);
        all.times_out(POLLER);
        all.preempted(POLLER);
        saw("read", all.now, POLLER, 0);
        all.waits(SLEEP, 0, 0);
    }
    all.wakes(WRITER, READ);
    all.preempted(WRITER);
    all.passes(MS);
    saw("write", all.now, WRITER, 1);
    all.waits(READ, 3, 0);
    all.passes(MS);
    all.times_out(POLLER);
    all.preempted(POLLER);
    saw("read", all.now, POLLER, 1);
    all.passes(2 * MS);
    all.waits(READ, 9, 0);
    all.ends_after(MS);
    (all, lines)
}

fn path(looks: u64) -> CriticalPath {
    let (all, lines) = polls(looks);
    let graph = build(&all.file(|_| ()), &[lines]);
    let request = PathRequest {
        thread: POLLER,
        host: None,
        from: None,
        to: None,
        most: None,
    };
    critical_path(&graph, &request).unwrap()
}

fn share(path: &CriticalPath, tid: u32) -> u64 {
    let mut own = path.threads.iter().filter(|share| share.tid == tid);
    own.next().map_or(0, |share| share.dur)
}

#[test]
fn while_it_looks_in_vain_it_waits_for_the_writer() {
    let path = path(100);
    let [wait] = &path.waits[..] else {
        panic!("{:?}", path.waits)
    };
    assert_eq!((wait.tid, wait.by_tid, wait.edge), (POLLER, WRITER, "flag"));
    assert!(wait.dur > 95 * MS, "{}", wait.dur);
    assert!(share(&path, WRITER) > 95 * MS);
    assert!(share(&path, POLLER) < 15 * MS);
    let gaps = path.segments.windows(2);
    let mut gaps = gaps.map(|pair| pair[1].start - (pair[0].start + pair[0].dur));
    assert!(gaps.all(|gap| gap == 0), "{:?}", path.segments);
    let whole: u64 = path.segments.iter().map(|segment| segment.dur).sum();
    assert_eq!(whole, path.to - path.from);
}

#[test]
fn a_thread_that_looks_once_and_finds_the_flag_written_has_not_waited() {
    let path = path(0);
    assert!(path.waits.is_empty(), "{:?}", path.waits);
    assert_eq!(share(&path, WRITER), 0);
}

#[test]
fn short_segments_become_one_where_not_all_are_wanted() {
    let (all, _) = polls(100);
    let graph = build(&all.file(|_| ()), &[]);
    let request = |most| PathRequest {
        thread: POLLER,
        host: None,
        from: None,
        to: None,
        most,
    };
    let whole = critical_path(&graph, &request(None)).unwrap();
    assert!(whole.segments.len() > 100);
    let part = critical_path(&graph, &request(Some(20))).unwrap();
    assert!(part.segments.len() <= 20, "{}", part.segments.len());
    assert_eq!(share(&part, POLLER), share(&whole, POLLER));
    let mut at = part.from;
    for segment in &part.segments {
        assert_eq!(segment.start, at, "no gaps");
        at += segment.dur;
    }
    assert_eq!(at, part.to);
}
