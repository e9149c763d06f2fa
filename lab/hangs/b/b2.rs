use std::sync::{Arc, Condvar, Mutex}; use std::thread; use std::time::Duration;
fn wait_for_stop(s: &(Mutex<bool>, Condvar)) { let mut stop = s.0.lock().unwrap(); while !*stop { stop = s.1.wait(stop).unwrap(); } }
fn main() { let s = Arc::new((Mutex::new(false), Condvar::new())); let t = { let s = s.clone(); thread::Builder::new().name("flusher".into()).spawn(move || wait_for_stop(&s)).unwrap() };
  thread::sleep(Duration::from_millis(150)); t.join().unwrap(); *s.0.lock().unwrap() = true; s.1.notify_all(); }
