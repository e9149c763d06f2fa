// two tasks on one runtime thread; a std mutex is held over an await, the other task locks it
use std::sync::{Arc, Mutex}; use std::time::Duration;
async fn refresh(state: Arc<Mutex<Vec<u8>>>) { let mut held = state.lock().unwrap(); tokio::time::sleep(Duration::from_millis(100)).await; held.push(1); }
async fn serve(state: Arc<Mutex<Vec<u8>>>) { tokio::time::sleep(Duration::from_millis(20)).await; state.lock().unwrap().push(2); }
#[tokio::main(flavor = "current_thread")]
async fn main() { let state = Arc::new(Mutex::new(Vec::new())); let (a, b) = (state.clone(), state.clone());
  let local = tokio::task::LocalSet::new();
  local.run_until(async move { let one = tokio::task::spawn_local(refresh(a)); let two = tokio::task::spawn_local(serve(b)); one.await.unwrap(); two.await.unwrap(); }).await; }
