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
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// How long their answer may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// How many answers in a row may stay away, as with Kubernetes: a busy machine is no server that is gone. One that says
/// that it is not ready gets nothing more at once.
const MAX_MISSED_CHECKS: usize = 3;

const NO_SERVER_RESPONSE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// The proxy; ends with this.
pub struct LoadBalancer {
    address: SocketAddr,
    shared: Arc<BalancerState>,
    tasks: Vec<JoinHandle<()>>,
}

struct BalancerState {
    servers: Vec<BalancedServer>,
    /// What is asked for whether a server is ready.
    readiness: String,
    next_server: AtomicUsize,
}

struct BalancedServer {
    address: SocketAddr,
    is_ready: AtomicBool,
    is_disabled: AtomicBool,
}

impl LoadBalancer {
    /// A proxy before these; `readiness` is the path that answers 200 when one is ready.
    pub async fn in_front_of(servers: &[SocketAddr], readiness: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = |&address| BalancedServer {
            address,
            is_ready: AtomicBool::new(true),
            is_disabled: AtomicBool::new(false),
        };
        let shared = Arc::new(BalancerState {
            servers: servers.iter().map(server).collect(),
            readiness: readiness.to_owned(),
            next_server: AtomicUsize::new(0),
        });
        let mut tasks: Vec<JoinHandle<()>> = (0..servers.len())
            .map(|server| tokio::spawn(Arc::clone(&shared).poll_readiness(server)))
            .collect();
        let passing = Arc::clone(&shared);
        tasks.push(tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&passing).forward(client));
            }
        }));
        Self { address, shared, tasks }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends nobody to a server any more, by its place in the list, until it is put back.
    pub fn disable_server(&self, server: usize) {
        self.shared.servers[server].is_disabled.store(true, Ordering::SeqCst);
    }

    /// Whether requests go to a server.
    pub fn is_server_usable(&self, server: usize) -> bool {
        self.shared.servers[server].is_usable()
    }

    /// Sends to it again, once it is ready.
    pub fn enable_server(&self, server: usize) {
        self.shared.servers[server].is_disabled.store(false, Ordering::SeqCst);
    }
}

impl Drop for LoadBalancer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl BalancerState {
    /// Asks one server for ever whether it is ready.
    async fn poll_readiness(self: Arc<Self>, server: usize) {
        let server = &self.servers[server];
        let mut missed = 0;
        loop {
            let answer =
                tokio::time::timeout(CHECK_TIMEOUT, check_readiness(server.address, &self.readiness)).await;
            let is_ready = answer.ok().and_then(Result::ok);
            missed = if is_ready.is_some() { 0 } else { missed + 1 };
            if is_ready.is_some() || missed >= MAX_MISSED_CHECKS {
                server.is_ready.store(is_ready == Some(true), Ordering::SeqCst);
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    async fn forward(self: Arc<Self>, mut client: TcpStream) {
        for _ in 0..self.servers.len() {
            let Some(server) = self.pick_server() else { break };
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
            client.write_all(NO_SERVER_RESPONSE).await.ok();
        }
    }

    /// The next server that is ready, in turn.
    fn pick_server(&self) -> Option<&BalancedServer> {
        let from = self.next_server.fetch_add(1, Ordering::SeqCst);
        let mut in_turn =
            (0..self.servers.len()).map(|step| &self.servers[(from + step) % self.servers.len()]);
        in_turn.find(|server| server.is_usable())
    }
}

impl BalancedServer {
    fn is_usable(&self) -> bool {
        self.is_ready.load(Ordering::SeqCst) && !self.is_disabled.load(Ordering::SeqCst)
    }
}

async fn check_readiness(address: SocketAddr, path: &str) -> std::io::Result<bool> {
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
    async fn start_server(name: &'static str, ready: &'static str) -> SocketAddr {
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

    async fn send_request(front: &LoadBalancer) -> String {
        let mut client = TcpStream::connect(front.address()).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        text
    }

    async fn wait_for_answers(front: &LoadBalancer, wanted: &str, unwanted: &str) {
        let begun = std::time::Instant::now();
        // Four in a row: the servers take turns.
        let mut in_a_row = 0;
        while in_a_row < 4 {
            let text = send_request(front).await;
            in_a_row = if text.contains(wanted) && !text.contains(unwanted) { in_a_row + 1 } else { 0 };
            assert!(begun.elapsed() < crate::DEADLINE, "{text}");
        }
    }

    #[tokio::test]
    async fn servers_that_are_not_ready_or_disabled_get_no_requests() {
        let servers = [start_server("one", "200").await, start_server("two", "503").await];
        let front = LoadBalancer::in_front_of(&servers, "/readyz").await;
        wait_for_answers(&front, "one", "two").await;
        front.disable_server(0);
        wait_for_answers(&front, "503 Service Unavailable", "one").await;
        front.enable_server(0);
        wait_for_answers(&front, "one", "two").await;
    }
}
