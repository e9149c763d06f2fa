// SPDX-License-Identifier: MIT
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
fn scan(dir: usize, tx: mpsc::Sender<usize>) {
    for i in 0..3 {
        thread::sleep(Duration::from_millis(20));
        tx.send(dir * 10 + i).unwrap();
    }
}
fn total(rx: &mpsc::Receiver<usize>) -> usize {
    let mut sum = 0;
    for one in rx {
        sum += one;
    }
    sum
}
fn main() {
    let (tx, rx) = mpsc::channel();
    let workers: Vec<_> = (0..4)
        .map(|d| {
            let tx = tx.clone();
            thread::Builder::new()
                .name(format!("scan-{d}"))
                .spawn(move || scan(d, tx))
                .unwrap()
        })
        .collect();
    thread::Builder::new()
        .name("progress".into())
        .spawn(|| loop {
            thread::sleep(Duration::from_millis(250));
        })
        .unwrap();
    println!("{}", total(&rx));
    for w in workers {
        w.join().unwrap();
    }
    drop(tx);
}
