// SPDX-License-Identifier: MIT
// Workers fetch from a list of mirrors. `mirrors bad`: the guard of the queue lives to the end of
// `if let`, behind which the queue is taken again.
use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

#[derive(Default)]
struct Mirrors {
    queue: Mutex<VecDeque<String>>,
    failed: Mutex<Vec<String>>,
}

impl Mirrors {
    fn retry(&self, mirror: String) {
        self.queue.lock().unwrap().push_back(mirror);
    }

    fn next_bad(&self) -> bool {
        if let Some(mirror) = self.queue.lock().unwrap().pop_front() {
            if mirror.contains("slow") {
                self.retry(mirror);
            } else {
                self.failed.lock().unwrap().push(mirror);
            }
            true
        } else {
            false
        }
    }

    fn next_good(&self) -> bool {
        let next = self.queue.lock().unwrap().pop_front();
        if let Some(mirror) = next {
            self.failed.lock().unwrap().push(mirror);
            return true;
        }
        false
    }
}

fn main() {
    let bad = std::env::args().nth(1).as_deref() == Some("bad");
    let mirrors = Arc::new(Mirrors::default());
    for name in ["fast.example", "slow.example", "far.example"] {
        mirrors.retry(name.to_owned());
    }
    let fetcher = {
        let mirrors = mirrors.clone();
        let work = move || loop {
            let got = if bad { mirrors.next_bad() } else { mirrors.next_good() };
            if !got {
                thread::sleep(Duration::from_secs(3600));
            }
        };
        thread::Builder::new().name("fetcher".into()).spawn(work).unwrap()
    };
    let reporter = {
        let mirrors = mirrors.clone();
        let work = move || loop {
            thread::sleep(Duration::from_millis(200));
            let left = mirrors.queue.lock().unwrap().len();
            print!("{left} left\r");
        };
        thread::Builder::new().name("reporter".into()).spawn(work).unwrap()
    };
    println!("begins");
    std::io::stdout().flush().unwrap();
    fetcher.join().unwrap();
    reporter.join().unwrap();
}
