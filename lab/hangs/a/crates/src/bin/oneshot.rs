// a request task awaits a oneshot; the task that is to answer awaits a semaphore permit that the first holds
use std::sync::Arc; use std::time::Duration; use tokio::sync::{oneshot, Semaphore};
async fn answer(tx: oneshot::Sender<u32>, gate: Arc<Semaphore>) { let _p = gate.acquire().await.unwrap(); tx.send(7).unwrap(); }
async fn request(gate: Arc<Semaphore>) -> u32 { let _p = gate.acquire().await.unwrap(); let (tx, rx) = oneshot::channel(); let g = gate.clone(); tokio::spawn(answer(tx, g)); rx.await.unwrap() }
#[tokio::main(worker_threads = 2)]
async fn main() { let gate = Arc::new(Semaphore::new(1)); tokio::time::sleep(Duration::from_millis(100)).await; println!("{}", tokio::spawn(request(gate)).await.unwrap()); }
