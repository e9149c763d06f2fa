// SPDX-License-Identifier: MIT
//! What is executed in software is what the processor does, instruction by instruction, in programs
//! that use many of them.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flagfinder_replica::{Event, Live, Pages, Replica};

/// Numbers, texts, tables, calls.
const PYTHON: &str = "
words = {}
n = 1
while True:
    n = (n * 6364136223846793005 + 1442695040888963407) % (1 << 64)
    words[n % 7] = str(n >> 3)[::-1] + 'x' * (n % 5)
    items = sorted(words.values(), key=len)
    total = sum(len(item) ^ -n for item in items) // 3
";
const STEPS: u32 = 12_000;
const TIME: Duration = Duration::from_secs(60);

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(command: &[&str]) -> Program {
    let program = Command::new(command[0])
        .args(&command[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("started");
    // The loader asks for the number of the processor and for its clock, which differ each time.
    let path = format!("/proc/{}/schedstat", program.id());
    let ran = || {
        let text = std::fs::read_to_string(&path).expect("it runs");
        text.split(' ')
            .next()
            .and_then(|ran| ran.parse::<u64>().ok())
    };
    while ran() < Some(200_000_000) {
        std::thread::sleep(Duration::from_millis(10));
    }
    Program(program)
}

fn registers(copy: &Replica) -> [u64; 17] {
    let r = copy.registers();
    [
        r.rip, r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11,
        r.r12, r.r13, r.r14, r.r15,
    ]
}

fn stack(copy: &mut Replica) -> Vec<u8> {
    let mut bytes = vec![0; 2048];
    let pointer = copy.registers().rsp;
    assert!(copy.read(pointer, &mut bytes).expect("read"));
    bytes
}

/// Lets both kinds of copies make the same steps; how many they made before they halted.
fn together(pid: u32) -> u32 {
    let live = Live::open(pid).expect("readable");
    let (state, _) = live.capture(pid, TIME).expect("stops");
    let pages = Pages::new(&live);
    let mut fast = Replica::start(&pages, &state).expect("a process");
    let mut slow = Replica::start(&pages, &state).expect("a process");
    slow.without_software();
    for step in 0..STEPS {
        let pc = fast.registers().rip;
        let event = fast.step().expect("goes on");
        assert_eq!(
            event,
            slow.step().expect("goes on"),
            "step {step} at {pc:#x}"
        );
        if matches!(event, Event::Halt(_)) {
            return step;
        }
        let (quick, exact) = (registers(&fast), registers(&slow));
        assert_eq!(quick, exact, "step {step} at {pc:#x}");
        if step % 500 == 0 {
            assert_eq!(stack(&mut fast), stack(&mut slow), "step {step}");
            // A copy of the copy stands where it stands.
            let mut copy = fast.copy().expect("a process");
            assert_eq!(stack(&mut copy), stack(&mut fast), "step {step}");
        }
    }
    STEPS
}

/// While the program starts, its copies halt soon.
fn compare(command: &[&str]) {
    let program = start(command);
    let begin = Instant::now();
    while together(program.0.id()) < STEPS {
        assert!(begin.elapsed() < TIME, "its copies always halt");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_interpreter_does_what_it_does_on_the_processor() {
    compare(&["/usr/bin/python3", "-c", PYTHON]);
}

#[test]
fn a_shell_does_what_it_does_on_the_processor() {
    compare(&[
        "sh",
        "-c",
        "n=7; while :; do n=$(( (n * 31 + 11) % 65537 )); done",
    ]);
}

#[test]
fn perl_does_what_it_does_on_the_processor() {
    let script = "my %h; my $n = 3; while (1) { $n = ($n * 48271) % 2147483647; \
                  $h{$n % 11} .= chr(65 + $n % 26); delete $h{$n % 11} if rand() < 0; \
                  $h{$n % 11} = '' if length($h{$n % 11}) > 40; }";
    compare(&["perl", "-e", script]);
}
