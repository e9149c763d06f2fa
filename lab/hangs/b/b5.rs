use std::sync::{Arc, RwLock}; use std::thread; use std::time::Duration;
fn refresh(c: &RwLock<Vec<u32>>) { c.write().unwrap().push(1); }
fn lookup(c: &RwLock<Vec<u32>>) -> usize { let held = c.read().unwrap(); if held.is_empty() { refresh(c); } held.len() }
fn main() { let c = Arc::new(RwLock::new(Vec::new())); let d = c.clone();
  let t = thread::Builder::new().name("lookup".into()).spawn(move || { thread::sleep(Duration::from_millis(150)); lookup(&d) }).unwrap();
  thread::Builder::new().name("meter".into()).spawn(|| loop { thread::sleep(Duration::from_millis(100)) }).unwrap(); println!("{}", t.join().unwrap()); }
