//! A small load balancer for HTTP servers: each connection goes to the next server that is ready.
//!
//! It does no more than the one of a real installation: it does not retry interrupted requests, which is left to the
//! client. A server that will be stopped is disabled first, so that its requests can end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::proxy::read_request;

/// How often the readiness of the servers is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Time limit of a readiness check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// How many checks in a row may fail, as with Kubernetes: a busy machine is not a stopped server. A server that responds
/// that it is not ready gets no more requests at once.
const MAX_MISSED_CHECKS: usize = 3;

const NO_SERVER_RESPONSE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// A running load balancer; stopped on drop.
pub struct LoadBalancer {
    address: SocketAddr,
    shared: Arc<BalancerState>,
    tasks: Vec<JoinHandle<()>>,
}

struct BalancerState {
    servers: Vec<BalancedServer>,
    /// The path of the readiness check.
    readiness: String,
    next_server: AtomicUsize,
}

struct BalancedServer {
    address: SocketAddr,
    is_ready: AtomicBool,
    is_disabled: AtomicBool,
}

impl LoadBalancer {
    /// Starts a load balancer; `readiness` is the path that responds with 200 if a server is ready.
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
        let state = Arc::clone(&shared);
        tasks.push(tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&state).forward(client));
            }
        }));
        Self { address, shared, tasks }
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops sending requests to a server, by its index, until it is enabled again.
    pub fn disable_server(&self, server: usize) {
        self.shared.servers[server].is_disabled.store(true, Ordering::SeqCst);
    }

    /// Returns whether requests are sent to a server.
    pub fn is_server_usable(&self, server: usize) -> bool {
        self.shared.servers[server].is_usable()
    }

    /// Sends requests to a server again when it is ready.
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
    /// Checks the readiness of one server forever.
    async fn poll_readiness(self: Arc<Self>, server: usize) {
        let server = &self.servers[server];
        let mut missed = 0;
        loop {
            let response =
                tokio::time::timeout(CHECK_TIMEOUT, check_readiness(server.address, &self.readiness)).await;
            let is_ready = response.ok().and_then(Result::ok);
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
                Ok(mut connection) => {
                    // The client retries an interrupted connection.
                    copy_bidirectional(&mut client, &mut connection).await.ok();
                    return;
                }
                Err(_) => server.is_ready.store(false, Ordering::SeqCst),
            }
        }
        // Read first: closing with unread bytes would lose the response.
        if read_request(&mut client).await.is_ok() {
            client.write_all(NO_SERVER_RESPONSE).await.ok();
        }
    }

    /// Returns the next server that is ready.
    fn pick_server(&self) -> Option<&BalancedServer> {
        let first = self.next_server.fetch_add(1, Ordering::SeqCst);
        let mut in_turn =
            (0..self.servers.len()).map(|step| &self.servers[(first + step) % self.servers.len()]);
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
    let mut response = [0; READY.len()];
    server.read_exact(&mut response).await?;
    Ok(response == READY)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a server that responds with its readiness and its name.
    async fn start_server(name: &'static str, ready: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                read_request(&mut client).await.unwrap();
                let response = format!("HTTP/1.1 {ready} {name}\r\n\r\n");
                client.write_all(response.as_bytes()).await.unwrap();
            }
        });
        address
    }

    async fn send_request(balancer: &LoadBalancer) -> String {
        let mut client = TcpStream::connect(balancer.address()).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        text
    }

    async fn wait_for_answers(balancer: &LoadBalancer, wanted: &str, unwanted: &str) {
        let start = std::time::Instant::now();
        // Four in a row, because the servers take turns.
        let mut in_a_row = 0;
        while in_a_row < 4 {
            let text = send_request(balancer).await;
            in_a_row = if text.contains(wanted) && !text.contains(unwanted) { in_a_row + 1 } else { 0 };
            assert!(start.elapsed() < crate::DEADLINE, "{text}");
        }
    }

    #[tokio::test]
    async fn servers_that_are_not_ready_or_disabled_get_no_requests() {
        let servers = [start_server("one", "200").await, start_server("two", "503").await];
        let balancer = LoadBalancer::in_front_of(&servers, "/readyz").await;
        wait_for_answers(&balancer, "one", "two").await;
        balancer.disable_server(0);
        wait_for_answers(&balancer, "503 Service Unavailable", "one").await;
        balancer.enable_server(0);
        wait_for_answers(&balancer, "one", "two").await;
    }
}
