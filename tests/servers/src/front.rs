//! A small proxy before several servers of HTTP: each connection goes to the next one that says it is ready.
//!
//! It does what the proxy of a real installation does and no more: a request that broke off is not tried elsewhere, that
//! is for the client to do. One that is to go is taken off first, so that what it has in hand can end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::proxy::read_request;

/// How often the servers are asked whether they are ready.
const ASK_EVERY: Duration = Duration::from_millis(200);
/// How long their answer may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many answers in a row may stay away, as with Kubernetes: a busy machine is no server that is gone. One that says
/// that it is not ready gets nothing more at once.
const MISSED_LIMIT: usize = 3;

const NOBODY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// The proxy; ends with this.
pub struct Front {
    address: SocketAddr,
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

struct Shared {
    servers: Vec<Server>,
    /// What is asked for whether a server is ready.
    readiness: String,
    turn: AtomicUsize,
}

struct Server {
    address: SocketAddr,
    is_ready: AtomicBool,
    is_off: AtomicBool,
}

impl Front {
    /// A proxy before these; `readiness` is the path that answers 200 when one is ready.
    pub async fn before(servers: &[SocketAddr], readiness: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server =
            |&address| Server { address, is_ready: AtomicBool::new(true), is_off: AtomicBool::new(false) };
        let shared = Arc::new(Shared {
            servers: servers.iter().map(server).collect(),
            readiness: readiness.to_owned(),
            turn: AtomicUsize::new(0),
        });
        let mut tasks: Vec<JoinHandle<()>> =
            (0..servers.len()).map(|server| tokio::spawn(Arc::clone(&shared).ask(server))).collect();
        let passing = Arc::clone(&shared);
        tasks.push(tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&passing).pass(client));
            }
        }));
        Self { address, shared, tasks }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends nobody to a server any more, by its place in the list, until it is put back.
    pub fn take_off(&self, server: usize) {
        self.shared.servers[server].is_off.store(true, Ordering::SeqCst);
    }

    /// Whether requests go to a server.
    pub fn sends_to(&self, server: usize) -> bool {
        self.shared.servers[server].is_usable()
    }

    /// Sends to it again, once it is ready.
    pub fn put_back(&self, server: usize) {
        self.shared.servers[server].is_off.store(false, Ordering::SeqCst);
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Shared {
    /// Asks one server for ever whether it is ready.
    async fn ask(self: Arc<Self>, server: usize) {
        let server = &self.servers[server];
        let mut missed = 0;
        loop {
            let answer = tokio::time::timeout(PATIENCE, is_ready(server.address, &self.readiness)).await;
            let is_ready = answer.ok().and_then(Result::ok);
            missed = if is_ready.is_some() { 0 } else { missed + 1 };
            if is_ready.is_some() || missed >= MISSED_LIMIT {
                server.is_ready.store(is_ready == Some(true), Ordering::SeqCst);
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    async fn pass(self: Arc<Self>, mut client: TcpStream) {
        for _ in 0..self.servers.len() {
            let Some(server) = self.next() else { break };
            match TcpStream::connect(server.address).await {
                Ok(mut passed) => {
                    // A connection that broke off is the client's to try again.
                    copy_bidirectional(&mut client, &mut passed).await.ok();
                    return;
                }
                Err(_) => server.is_ready.store(false, Ordering::SeqCst),
            }
        }
        // Read first: closing on unread bytes would lose the answer.
        if read_request(&mut client).await.is_ok() {
            client.write_all(NOBODY).await.ok();
        }
    }

    /// The next server that is ready, in turn.
    fn next(&self) -> Option<&Server> {
        let from = self.turn.fetch_add(1, Ordering::SeqCst);
        let mut in_turn =
            (0..self.servers.len()).map(|step| &self.servers[(from + step) % self.servers.len()]);
        in_turn.find(|server| server.is_usable())
    }
}

impl Server {
    fn is_usable(&self) -> bool {
        self.is_ready.load(Ordering::SeqCst) && !self.is_off.load(Ordering::SeqCst)
    }
}

async fn is_ready(address: SocketAddr, path: &str) -> std::io::Result<bool> {
    const READY: &[u8] = b"HTTP/1.1 200";
    let mut server = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    server.write_all(request.as_bytes()).await?;
    let mut answer = [0; READY.len()];
    server.read_exact(&mut answer).await?;
    Ok(answer == READY)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that says its name to every connection, and whether it is ready.
    async fn server(name: &'static str, ready: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                read_request(&mut client).await.unwrap();
                let answer = format!("HTTP/1.1 {ready} {name}\r\n\r\n");
                client.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        address
    }

    async fn answer(front: &Front) -> String {
        let mut client = TcpStream::connect(front.address()).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        text
    }

    async fn until_answered(front: &Front, wanted: &str, unwanted: &str) {
        let begun = std::time::Instant::now();
        // Four in a row: the servers take turns.
        let mut in_a_row = 0;
        while in_a_row < 4 {
            let text = answer(front).await;
            in_a_row = if text.contains(wanted) && !text.contains(unwanted) { in_a_row + 1 } else { 0 };
            assert!(begun.elapsed() < crate::DEADLINE, "{text}");
        }
    }

    #[tokio::test]
    async fn who_is_not_ready_gets_nothing_and_who_is_off_neither() {
        let servers = [server("one", "200").await, server("two", "503").await];
        let front = Front::before(&servers, "/readyz").await;
        until_answered(&front, "one", "two").await;
        front.take_off(0);
        until_answered(&front, "503 Service Unavailable", "one").await;
        front.put_back(0);
        until_answered(&front, "one", "two").await;
    }
}
