// SPDX-License-Identifier: MIT
//! Rounds of calls that wait for something, and their twins that get on.

use flagfinder_code::NamesInput;

use super::*;

const SHORT: Duration = Duration::from_micros(10);

fn call(number: libc::c_long, args: [u64; 3], result: i64) -> MadeCall {
    let [first, second, third] = args;
    MadeCall {
        number: number as u32,
        args: [first, second, third, 0, 0, 0],
        pc: 0x1002,
        result,
        about: Vec::new(),
        descriptors: Vec::new(),
        after: SHORT,
        took: SHORT,
        ran: Duration::ZERO,
    }
}

fn about(about: &[u8], call: MadeCall) -> MadeCall {
    MadeCall {
        about: about.to_vec(),
        ..call
    }
}

fn error(number: i32) -> i64 {
    -i64::from(number)
}

fn stat(path: &[u8]) -> MadeCall {
    about(
        path,
        call(libc::SYS_newfstatat, [0, 0, 0], error(libc::ENOENT)),
    )
}

fn socket() -> MadeCall {
    call(libc::SYS_socket, [2, 1, 0], 5)
}

/// To port 9 of 127.0.0.1.
fn connect(result: i32) -> MadeCall {
    let to = [2, 0, 0, 9, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    about(&to, call(libc::SYS_connect, [5, 0, 16], error(result)))
}

fn close() -> MadeCall {
    call(libc::SYS_close, [5, 0, 0], 0)
}

/// What ten rounds of such calls come to.
fn found(round: impl Fn(u64) -> Vec<MadeCall>) -> Option<Report> {
    let calls: Vec<MadeCall> = (0..10).flat_map(round).collect();
    let thread = ThreadName {
        tid: 1,
        name: String::new(),
    };
    let names = Names::new(NamesInput::from_code_maps("", 0));
    find_in_calls(&calls, Duration::from_millis(1), &names, thread)
}

/// The name of what ten rounds of such calls make in vain.
fn told(round: impl Fn(u64) -> Vec<MadeCall>) -> Option<String> {
    let report = found(round)?;
    assert_eq!(report.flags[0].standing, Standing::Counted);
    Some(report.flags[0].name.clone())
}

#[test]
fn what_is_refused_each_time_is_named_with_its_peer() {
    let name = "connect on 127.0.0.1:9 returns error 111";
    let refused = |_| vec![socket(), connect(libc::ECONNREFUSED), close()];
    assert_eq!(told(refused).as_deref(), Some(name));
    let report = |number: u64| -> Vec<MadeCall> {
        let log = call(libc::SYS_write, [2, 0, 50], 50);
        [vec![log], refused(number)].concat()
    };
    assert_eq!(told(report).as_deref(), Some(name), "it writes a log");
    let later = |_| {
        let asks = [5, libc::SOL_SOCKET as u64, libc::SO_ERROR as u64];
        let asks = call(libc::SYS_getsockopt, asks, error(libc::ECONNREFUSED));
        vec![socket(), connect(libc::EINPROGRESS), asks, close()]
    };
    assert_eq!(told(later).as_deref(), Some(name), "it does not wait there");
    let comes = |_| {
        let asks = [5, libc::SOL_SOCKET as u64, libc::SO_ERROR as u64];
        let asks = call(libc::SYS_getsockopt, asks, 0);
        vec![socket(), connect(libc::EINPROGRESS), asks, close()]
    };
    assert_eq!(told(comes), None, "it is connected");
}

#[test]
fn a_file_that_is_not_there() {
    let name = Some("newfstatat on /never returns error 2".to_owned());
    assert_eq!(told(|_| vec![stat(b"/never")]), name);
    let nap = || call(libc::SYS_sched_yield, [0; 3], 0);
    assert_eq!(told(|_| vec![stat(b"/never"), nap()]), name);
    let others = |round: u64| vec![stat(format!("/file-{round}").as_bytes())];
    assert_eq!(told(others), None, "it goes through many");
    let both = |round: u64| vec![stat(b"/never"), stat(format!("/f{round}").as_bytes())];
    assert_eq!(told(both), None, "one of them is the same each time");
    let seldom = |round: u64| vec![stat(b"/never"); usize::from(round < 7)];
    assert_eq!(told(seldom), None, "it may be chance");
}

#[test]
fn a_thread_that_gets_data_or_hands_some_on_makes_progress() {
    let again = || call(libc::SYS_read, [3, 0, 100], error(libc::EAGAIN));
    assert!(told(|_| vec![again()]).is_some());
    let data = || call(libc::SYS_read, [3, 0, 100], 90);
    assert_eq!(told(|_| vec![data(), again()]), None);
    let sends = || call(libc::SYS_write, [4, 0, 100], 100);
    assert_eq!(told(|_| vec![sends(), again()]), None);
    let place = |round: u64| call(libc::SYS_lseek, [7, 0, 1], round as i64 * 100);
    assert_eq!(told(|round| vec![place(round), again()]), None);
}

/// Perl's getprotobyname reads a file of the system in each round, and asks what its sockets are.
#[test]
fn what_is_read_again_from_the_same_file_is_no_data() {
    let reads = |_| {
        let opened = call(libc::SYS_openat, [0, 0, 0], 3);
        vec![
            about(b"/etc/protocols", opened),
            call(libc::SYS_read, [3, 0, 4096], 3144),
            call(libc::SYS_read, [3, 0, 4096], 0),
            socket(),
            call(libc::SYS_ioctl, [5, 0x5401, 0], error(libc::ENOTTY)),
            connect(libc::ECONNREFUSED),
            close(),
        ]
    };
    let name = "connect on 127.0.0.1:9 returns error 111";
    assert_eq!(told(reads).as_deref(), Some(name));
    let only_kind = |_| vec![call(libc::SYS_ioctl, [5, 0x5401, 0], error(libc::ENOTTY))];
    assert_eq!(told(only_kind), None);
}

#[test]
fn work_between_two_tries_makes_them_a_check_on_the_way() {
    let works = |_| {
        let after = Duration::from_millis(2);
        vec![MadeCall {
            after,
            ..stat(b"/stop")
        }]
    };
    assert_eq!(told(works), None);
    let stops = |_| {
        let after = Duration::from_micros(14);
        let mut round = vec![call(libc::SYS_lseek, [3, 0, 1], error(libc::ESPIPE)); 12];
        round.push(stat(b"/stop"));
        round.iter_mut().for_each(|call| call.after = after);
        round
    };
    assert!(told(stops).is_some(), "each call takes time as it is seen");
}

/// As on a machine where others empty the caches at each stop.
#[test]
fn where_all_is_slow_calls_that_take_as_long_as_the_rest_are_no_work() {
    let micros = Duration::from_micros;
    let round = |ran| {
        let (after, ran) = (micros(80), micros(ran));
        vec![MadeCall {
            after,
            ran,
            ..stat(b"/never")
        }]
    };
    assert!(told(|_| round(70)).is_some());
    assert_eq!(told(|_| round(30)), None);
    let twice = |_| {
        let short = MadeCall {
            after: micros(5),
            ran: micros(30),
            ..stat(b"/stop")
        };
        let works = MadeCall {
            after: micros(300),
            ..stat(b"/pause")
        };
        vec![short, works]
    };
    assert_eq!(
        told(twice),
        None,
        "a round is not over before all was asked"
    );
    let last_elsewhere = |round: u64| vec![stat(if round == 9 { b"/other" } else { b"/never" })];
    assert_eq!(told(last_elsewhere), None, "no round of the last is known");
}

#[test]
fn a_poll_that_does_not_wait_is_not_sure() {
    let standing = |timeout: u64| {
        let poll = move |_| vec![call(libc::SYS_poll, [0x7000, 1, timeout], 0)];
        found(poll).map(|report| report.flags[0].standing)
    };
    assert_eq!(standing(100), Some(Standing::Counted));
    assert_eq!(standing(0), Some(Standing::Unsure));
}

#[test]
fn a_poll_in_which_the_thread_waited_came_not_back_at_once() {
    let poll = |result: i64, took: Duration| MadeCall {
        took,
        ..call(libc::SYS_poll, [0x7000, 1, 100], result)
    };
    let name = |result: i64| Some(format!("poll returns {result}"));
    assert_eq!(told(|_| vec![poll(0, SHORT)]), name(0));
    assert_eq!(told(|_| vec![poll(1, SHORT)]), name(1), "nobody takes it");
    assert_eq!(told(|_| vec![poll(0, Duration::from_millis(100))]), None);
    let serves = |_| vec![poll(0, SHORT), stat(b"/never")];
    let missing = "newfstatat on /never returns error 2";
    assert_eq!(told(serves).as_deref(), Some(missing));
    let full = || call(libc::SYS_accept4, [3, 0, 0], error(libc::EMFILE));
    let name = "accept4 on fd 3 returns error 24";
    assert_eq!(
        told(|_| vec![poll(1, SHORT), full()]).as_deref(),
        Some(name)
    );
}

#[test]
fn both_addresses_of_one_host_are_one_thing() {
    let two = |round: u64| {
        let mut refused = connect(libc::ECONNREFUSED);
        refused.about[7] = (round % 2) as u8;
        vec![socket(), refused, close()]
    };
    assert!(told(two).is_some());
}

#[test]
fn a_thread_that_asks_for_one_file_after_the_other_gets_on() {
    let asks = |path: fn(u64) -> String| {
        let calls: Vec<MadeCall> = (0..10).map(|round| stat(path(round).as_bytes())).collect();
        asks_anew(&calls, libc::SYS_newfstatat as u32)
    };
    assert!(asks(|round| format!("/file-{round}")));
    assert!(!asks(|_| "/never".into()));
    assert!(!asks(|round| format!("/etc/{}", round % 2)));
}
