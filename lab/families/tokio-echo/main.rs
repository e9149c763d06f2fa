// SPDX-License-Identifier: MIT
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

include!(concat!(env!("CPATH"), "/truth.rs"));

async fn echo(mut client: TcpStream) {
    let mut data = [0; 512];
    while let Ok(count) = client.read(&mut data).await {
        if count == 0 || client.write_all(&data[..count]).await.is_err() {
            return;
        }
    }
}

async fn ask(address: std::net::SocketAddr) {
    let mut server = TcpStream::connect(address).await.unwrap();
    let mut data = [7; 64];
    for _ in 0..50_000_000u32 {
        server.write_all(&data).await.unwrap();
        server.read_exact(&mut data).await.unwrap();
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    for _ in 0..3 {
        tokio::spawn(ask(address));
    }
    tokio::spawn(async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        truth("ready");
    });
    loop {
        let (client, _) = listener.accept().await.unwrap();
        tokio::spawn(echo(client));
    }
}
