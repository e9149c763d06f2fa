// SPDX-License-Identifier: MIT
//! The recordings of two hosts whose clocks have nothing in common: a client that asks, and a
//! server that answers late once.

use flagfinder_events::{
    container::BlockKind, DescriptorFact, EventFile, FlowFact, Kind, Mark, Protocol,
};
use flagfinder_graph::{build_hosts, critical_path, hangs, Graph, PathRequest, Request, NOBODY};

use crate::made_up::{explained, Recording, MS, READ, TASK};

const SOFTIRQ: u8 = 2;
const STOPPED: u8 = 3;
const EPOLL_WAIT: u16 = 232;
/// Both are the first process of their host.
const TID: u32 = 10;
/// A message is so long under way.
const LATE: u64 = MS / 10;
const BYTES: u32 = 8;

struct Host {
    recording: Recording,
    /// The call that it waits in.
    call: u16,
    flow: FlowFact,
    /// Positions of what was sent and received.
    sent: u64,
    received: u64,
}

impl Host {
    fn new(name: &str, now: u64, addresses: [&str; 2]) -> Host {
        let mut recording = Recording::of(&[TID]);
        recording.now = now;
        recording.info.host = name.into();
        recording.info.boot_id = name.into();
        recording.info.pids = vec![TID];
        recording.info.network = true;
        let [local, remote] = addresses.map(|text| text.parse().unwrap());
        Host {
            recording,
            call: READ,
            flow: FlowFact {
                number: 1,
                protocol: Protocol::Tcp,
                local,
                remote,
            },
            sent: 0,
            received: 0,
        }
    }

    fn exchanges(&mut self, kind: Kind) {
        let to = match kind {
            Kind::Sent => &mut self.sent,
            _ => &mut self.received,
        };
        *to += u64::from(BYTES);
        let (position, took) = (*to, u64::from(kind == Kind::Sent) * 10);
        let head = 1 | u64::from(BYTES) << 32;
        self.recording.event(kind, 0, 0, head).words = [head, position, took];
    }

    /// Sends something, and waits for what comes.
    fn sends(&mut self) {
        self.exchanges(Kind::Sent);
        self.recording.waits(self.call, 3, 0);
    }

    fn waits(&mut self) {
        self.recording.waits(self.call, 3, 0);
    }

    /// So many ns later something comes, for which it waited.
    fn receives_after(&mut self, ns: u64) {
        self.recording.passes(ns);
        self.recording.event(Kind::Waking, SOFTIRQ, TID, 0);
        self.recording.preempted(TID);
        self.exchanges(Kind::Received);
    }

    fn file(&self) -> EventFile {
        self.recording.file(|writer| {
            writer.fact(BlockKind::Flows, &vec![&self.flow]).unwrap();
            let socket = DescriptorFact {
                pid: TID,
                fd: 3,
                target: "socket:[5]".into(),
                remote: Some(self.flow.remote.to_string()),
                ..DescriptorFact::default()
            };
            writer.fact(BlockKind::Descriptors, &vec![socket]).unwrap();
        })
    }
}

const CLIENT: &str = "10.0.0.1:4000";
const SERVER: &str = "10.0.0.2:80";

/// The client asks; the server computes for so long each time. The server's clock is `ahead`.
fn asked(ahead: u64, durations: &[u64]) -> [Host; 2] {
    asked_in(READ, ahead, durations)
}

/// The same, where the server waits in another call.
fn asked_in(call: u16, ahead: u64, durations: &[u64]) -> [Host; 2] {
    let mut client = Host::new("shop", 1000 * MS, [CLIENT, SERVER]);
    let mut server = Host::new("bank", 1000 * MS + ahead, [SERVER, CLIENT]);
    server.call = call;
    server.waits();
    for &ns in durations {
        client.recording.passes(MS);
        client.sends();
        let sent = client.recording.now + ahead;
        server.receives_after(sent + LATE - server.recording.now);
        server.recording.passes(ns);
        server.sends();
        let answered = server.recording.now - ahead;
        client.receives_after(answered + LATE - client.recording.now);
    }
    [client, server]
}

fn joined(hosts: &[Host; 2]) -> Graph {
    let files = hosts.each_ref().map(Host::file);
    build_hosts(&files.each_ref(), &[]).unwrap()
}

const DAY: u64 = 86_400_000 * MS;

#[test]
fn the_culprit_on_the_other_host_is_named_whatever_its_clock_says() {
    for ahead in [0, 5 * MS, DAY] {
        let hosts = asked(ahead, &[2 * MS, 2 * MS, 400 * MS, 2 * MS]);
        let graph = joined(&hosts);
        let found = explained(&graph, &Request::default());
        assert_eq!(found.thread.thread, "thread-10@shop");
        assert!((400 * MS..402 * MS).contains(&found.dur), "{}", found.dur);
        let culprits = found.culprits.iter();
        let told: Vec<_> = culprits
            .map(|c| (&c.thread[..], c.host.as_deref()))
            .collect();
        assert_eq!(told, [("thread-10@bank", Some("bank"))]);
    }
}

#[test]
fn the_critical_path_goes_over_to_the_other_host_and_back() {
    let graph = joined(&asked(DAY, &[2 * MS, 400 * MS]));
    let request = |host: &str| PathRequest {
        thread: TID,
        host: Some(host.into()),
        from: None,
        to: None,
        most: None,
    };
    let path = critical_path(&graph, &request("shop")).unwrap();
    assert_eq!(path.thread, "thread-10@shop");
    let first = &path.threads[0];
    assert_eq!(first.thread, "thread-10@bank");
    assert!((400 * MS..404 * MS).contains(&first.dur), "{}", first.dur);
    assert!(critical_path(&graph, &request("nowhere")).is_none());
}

#[test]
fn who_asks_a_server_makes_it_begin_whichever_call_it_waits_in() {
    for call in [READ, EPOLL_WAIT] {
        let graph = joined(&asked_in(call, DAY, &[2 * MS; 3]));
        let bank = graph.thread_on(Some("bank"), TID).unwrap();
        let begun = graph
            .of(bank)
            .iter()
            .filter_map(|&vertex| graph.cause(vertex));
        let known = begun.filter(|edge| edge.from != NOBODY);
        let by: Vec<_> = known
            .map(|edge| &graph.thread(edge.from).name[..])
            .collect();
        // The first time it is not known of the server's thread that it waited.
        assert_eq!(by, ["thread-10@shop"; 2], "{call}");
    }
}

#[test]
fn it_is_told_how_well_the_clock_is_known() {
    let graph = joined(&asked(DAY, &[2 * MS; 20]));
    let [shop, bank] = &graph.meta.hosts[..] else {
        panic!("two hosts");
    };
    assert_eq!((shop.added, shop.by), (0, None));
    let (best, worst) = bank.widths;
    assert!((2 * LATE..3 * LATE).contains(&best), "{best}");
    assert!(worst < 3 * LATE, "{worst}");
    let error = (bank.added + DAY as i64).unsigned_abs();
    assert!(error <= worst / 2 + 1000, "{error}");
    assert_eq!((shop.received, bank.received), (20, 20));
}

#[test]
fn who_never_answers_is_named() {
    let mut hosts = asked(DAY, &[2 * MS, 2 * MS]);
    let [client, server] = &mut hosts;
    client.sends();
    client.recording.ends_after(900 * MS);
    let sent = client.recording.now - 900 * MS + DAY;
    server.receives_after(sent + LATE - server.recording.now);
    server.recording.ends_after(900 * MS);
    let graph = joined(&hosts);
    let found = explained(&graph, &Request::default());
    assert!(found.unfinished);
    let culprits: Vec<_> = found.culprits.iter().map(|c| &c.thread[..]).collect();
    assert_eq!(culprits, ["thread-10@bank"]);
}

#[test]
fn a_mark_means_its_host_unless_another_is_asked_for() {
    let mut hosts = asked(DAY, &[2 * MS, 400 * MS]);
    let server = &mut hosts[1].recording;
    server.marks.push(Mark {
        ts: server.now - 200 * MS,
        text: String::new(),
        tid: Some(TID),
        host: None,
    });
    let graph = joined(&hosts);
    let first = |host: Option<&str>| {
        let host = host.map(str::to_owned);
        let request = Request {
            host,
            ..Request::default()
        };
        hangs(&graph, &request)
            .first()
            .map(|one| one.thread.clone())
    };
    assert_eq!(first(None).as_deref(), Some("thread-10@bank"));
    assert_eq!(first(Some("shop")).as_deref(), Some("thread-10@shop"));
    assert_eq!(first(Some("nowhere")), None);
}

#[test]
fn counted_calls_and_stops_are_those_of_their_host() {
    const PREAD: u16 = libc::SYS_pread64 as u16;
    const READS: u64 = 100;
    let mut hosts = asked(DAY, &[2 * MS, 2 * MS]);
    let [client, server] = &mut hosts;
    client.sends();
    client.recording.ends_after(100 * MS);
    let sent = client.recording.now - 100 * MS + DAY;
    server.receives_after(sent + LATE - server.recording.now);
    server.recording.info.syscalls = "target".into();
    for _ in 0..READS {
        server.recording.enter(PREAD, 5);
        server.recording.passes(MS / 10);
        server.recording.returns(PREAD, 1);
    }
    let stop = libc::SIGSTOP as u64;
    server.recording.event(Kind::Signal, TASK, TID, stop);
    server.recording.event(Kind::Switch, STOPPED, 0, 0);
    server.recording.ends_after(90 * MS);
    let graph = joined(&hosts);
    let bank = graph.thread_on(Some("bank"), TID).unwrap();
    let (first, last) = (graph.meta.first, graph.meta.last);
    let reads = |thread| {
        let all = graph.meta.done.within(thread, first, last);
        all.map(|one| u64::from(one.count)).sum::<u64>()
    };
    assert!(
        (READS - 2..=READS).contains(&reads(bank)),
        "{}",
        reads(bank)
    );
    assert_eq!(reads(graph.thread_on(Some("shop"), TID).unwrap()), 0);
    let [(&vertex, stop)] = &graph.meta.stopped.iter().collect::<Vec<_>>()[..] else {
        panic!("one stop");
    };
    assert_eq!((graph.vertex(vertex).thread, stop.by), (bank, Some(bank)));
}

#[test]
fn clocks_that_can_t_be_compared_are_said_so() {
    let refused = |hosts: &[Host; 2]| {
        let files = hosts.each_ref().map(Host::file);
        let refused = build_hosts(&files.each_ref(), &[])
            .err()
            .expect("a refusal");
        refused.found
    };
    let mut twice = asked(0, &[MS]);
    twice[1].recording.info.host = "shop".into();
    assert!(refused(&twice).contains("is called shop"));
    twice[0].recording.info.host.clear();
    assert!(refused(&twice).contains("of which host"));
    let mut strangers = asked(0, &[MS]);
    strangers[1].flow.local = "10.0.0.3:80".parse().unwrap();
    assert!(refused(&strangers).contains("nothing"));
    let mut one_way = asked(0, &[MS]);
    one_way[1]
        .recording
        .events
        .retain(|event| event.kind != Kind::Sent);
    assert!(refused(&one_way).contains("one direction"));
    let mut set = asked(0, &[MS, MS]);
    let half = set[1].recording.events.len() / 2;
    let late = set[1].recording.events[half..].iter_mut();
    late.for_each(|event| event.ts += 1000 * MS);
    assert!(refused(&set).contains("before it was sent"));
    // Two containers of one host have its clock, and need no message.
    let mut near = asked(0, &[MS]);
    near[1].recording.info.boot_id = "shop".into();
    near[1].flow.local = "10.0.0.3:80".parse().unwrap();
    assert_eq!(joined(&near).meta.hosts[1].widths, (0, 0));
}
