// SPDX-License-Identifier: MIT
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

include!(concat!(env!("CPATH"), "/truth.rs"));

struct Pool {
    name: String,
}

fn serve(pool: Arc<Pool>, listener: TcpListener) {
    role("holder");
    let (client, _) = listener.accept().unwrap();
    println!("{} {:?}", pool.name, client);
}

fn main() {
    let pool = Arc::new(Pool {
        name: "pool".into(),
    });
    for _ in 0..3 {
        let own = pool.clone();
        thread::spawn(move || println!("{}", own.name));
    }
    let own = pool.clone();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    thread::spawn(move || serve(own, listener));
    thread::sleep(Duration::from_millis(300));
    role("waiter");
    // The counts lie before the value: strong, weak.
    truth(&format!(
        "word strong {:#x} 8",
        Arc::as_ptr(&pool) as usize - 16
    ));
    truth("ready");
    while Arc::strong_count(&pool) > 1 {
        thread::yield_now();
    }
    thread::sleep(Duration::from_secs(5));
}
