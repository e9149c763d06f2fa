// main holds the index lock and joins `read`; `read` is in send on a full channel; `parse` waits for the index lock
use crossbeam_channel::bounded; use std::sync::{Arc, Mutex}; use std::thread; use std::time::Duration;
fn read(tx: crossbeam_channel::Sender<u64>) { for i in 0..1000 { tx.send(i).unwrap(); } }
fn parse(rx: crossbeam_channel::Receiver<u64>, index: Arc<Mutex<Vec<u64>>>) { for x in rx { if x % 2 == 0 { continue; } index.lock().unwrap().push(x * 3); } }
fn main() { let index = Arc::new(Mutex::new(Vec::new())); let (tx, rx) = bounded(8);
  let mine = index.clone();
  let parser = thread::Builder::new().name("parse".into()).spawn(move || { thread::sleep(Duration::from_millis(100)); parse(rx, mine) }).unwrap();
  let reader = thread::Builder::new().name("read".into()).spawn(move || read(tx)).unwrap();
  thread::Builder::new().name("beat".into()).spawn(|| loop { thread::sleep(Duration::from_millis(200)); }).unwrap();
  let held = index.lock().unwrap(); reader.join().unwrap(); println!("{}", held.len()); drop(held); parser.join().unwrap(); }
