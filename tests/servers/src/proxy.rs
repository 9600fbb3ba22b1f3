//! A TCP proxy between a client and a server that injects faults.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Interval between two pieces on a slow connection.
const DRIP_INTERVAL: Duration = Duration::from_millis(100);

/// A fault of the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyFault {
    /// No fault.
    None,
    /// Every request gets a response with status 500.
    Error500,
    /// Requests are read and get no response.
    Silence,
    /// Some connections are cut after some bytes to the client.
    CutResponse {
        /// Number of bytes.
        after: u64,
        /// Number of connections.
        connections: usize,
    },
    /// Every connection is cut after some bytes to the server.
    CutRequest {
        /// Number of bytes.
        after: u64,
    },
    /// Some connections to a Postgres server are cut when it has answered a commit, and the answer does not pass.
    CutCommit {
        /// Number of connections.
        connections: usize,
    },
    /// Every connection is slow in both directions.
    Slow {
        /// Number of bytes, ten at least.
        bytes_per_second: u64,
    },
    /// No fault, but responses of a bucket say which version of an object a request made, as those of one that keeps older
    /// versions do.
    Versions,
    /// Connections are closed at once.
    Refusal,
    /// The network is interrupted: nothing passes and nothing is closed, on new and on open connections.
    Blackhole,
    /// A router has forgotten the open connections: they behave as in a [`ProxyFault::Blackhole`]; new ones work.
    ConnectionsForgotten,
}

/// A running proxy; stopped on drop.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<ProxyState>,
    accept_task: JoinHandle<()>,
}

struct ProxyState {
    server: SocketAddr,
    fault: watch::Sender<ProxyFault>,
    cuts: AtomicUsize,
    response_bytes: AtomicU64,
}

impl Proxy {
    /// Starts a proxy for `server` without a fault.
    pub async fn in_front_of(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (fault, _) = watch::channel(ProxyFault::None);
        let shared =
            ProxyState { server, fault, cuts: AtomicUsize::new(0), response_bytes: AtomicU64::new(0) };
        let shared = Arc::new(shared);
        let accepting = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(Arc::clone(&shared).serve_until_fault_changes(client));
                }
            }
        });
        Self { address, shared, accept_task: accepting }
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the fault. Open connections are closed; [`ProxyFault::Blackhole`] and
    /// [`ProxyFault::ConnectionsForgotten`] close them only when the fault ends.
    pub fn set_fault(&self, fault: ProxyFault) {
        self.shared.cuts.store(0, Ordering::SeqCst);
        self.shared.fault.send_replace(fault);
    }

    /// Returns how many connections were cut since the fault was set.
    pub fn cut_connections(&self) -> usize {
        self.shared.cuts.load(Ordering::SeqCst)
    }

    /// Returns how many bytes were sent to clients while a cut was set.
    pub fn response_bytes(&self) -> u64 {
        self.shared.response_bytes.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accept_task.abort();
    }
}

impl ProxyState {
    async fn serve_until_fault_changes(self: Arc<Self>, mut client: TcpStream) {
        let mut faults = self.fault.subscribe();
        let fault = *faults.borrow_and_update();
        let mut server = None;
        tokio::select! {
            // First: what is sent after the fault was set does not pass, also if both are noticed at the same time.
            biased;
            _changed = faults.changed() => {}
            _ended = self.serve(&mut client, &mut server, fault) => {}
        }
        // Both ends stay open and are not read.
        let is_over = faults
            .wait_for(|fault| !matches!(fault, ProxyFault::Blackhole | ProxyFault::ConnectionsForgotten))
            .await;
        drop((is_over, server));
    }

    async fn serve(
        &self,
        client: &mut TcpStream,
        server: &mut Option<TcpStream>,
        fault: ProxyFault,
    ) -> std::io::Result<()> {
        match fault {
            ProxyFault::None | ProxyFault::ConnectionsForgotten => self.forward(client, server).await,
            ProxyFault::Error500 => {
                read_request(client).await?;
                let response =
                    "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                client.write_all(response.as_bytes()).await
            }
            ProxyFault::Silence => {
                read_request(client).await?;
                std::future::pending().await
            }
            ProxyFault::CutResponse { after, connections } => {
                if !self.count_cut(connections) {
                    return self.forward(client, server).await;
                }
                self.forward_until_cut(client, u64::MAX, after).await
            }
            ProxyFault::CutRequest { after } => {
                self.cuts.fetch_add(1, Ordering::SeqCst);
                self.forward_until_cut(client, after, u64::MAX).await
            }
            ProxyFault::CutCommit { connections } => self.forward_until_commit(client, connections).await,
            ProxyFault::Slow { bytes_per_second: a_second } => self.forward_slowly(client, a_second).await,
            ProxyFault::Versions => self.forward_with_versions(client).await,
            ProxyFault::Refusal => Ok(()),
            ProxyFault::Blackhole => std::future::pending().await,
        }
    }

    /// Counts one more cut, unless there were so many.
    fn count_cut(&self, connections: usize) -> bool {
        let is_cut = self.cuts.fetch_add(1, Ordering::SeqCst) < connections;
        if !is_cut {
            self.cuts.fetch_sub(1, Ordering::SeqCst);
        }
        is_cut
    }

    async fn forward(&self, client: &mut TcpStream, server: &mut Option<TcpStream>) -> std::io::Result<()> {
        let server = server.insert(TcpStream::connect(self.server).await?);
        copy_bidirectional(client, server).await.map(drop)
    }

    async fn forward_slowly(&self, client: &mut TcpStream, a_second: u64) -> std::io::Result<()> {
        let (from_client, to_client) = client.split();
        let mut server = TcpStream::connect(self.server).await?;
        let (from_server, to_server) = server.split();
        let (up, down) =
            (copy_slowly(from_client, to_server, a_second), copy_slowly(from_server, to_client, a_second));
        tokio::try_join!(up, down).map(drop)
    }

    /// Forwards one request after the other, and adds a header to each response. A server writes the head of a response at once.
    async fn forward_with_versions(&self, client: &mut TcpStream) -> std::io::Result<()> {
        const STATUS: &[u8] = b"HTTP/1.1 200 OK\r\n";
        let (mut from_client, mut to_client) = client.split();
        let mut server = TcpStream::connect(self.server).await?;
        let (mut from_server, mut to_server) = server.split();
        let upwards = async { copy(&mut from_client, &mut to_server).await.map(drop) };
        let downwards = async {
            let mut buffer = vec![0; 16 << 10];
            loop {
                let read = from_server.read(&mut buffer).await?;
                let mut rest = &buffer[..read];
                if read == 0 {
                    return Ok(());
                }
                if let Some(after) = rest.strip_prefix(STATUS) {
                    to_client.write_all(STATUS).await?;
                    to_client.write_all(b"x-amz-version-id: 3HL4kqtJvjVBH40N\r\n").await?;
                    rest = after;
                }
                to_client.write_all(rest).await?;
            }
        };
        tokio::try_join!(upwards, downwards).map(drop)
    }

    /// Forwards in both directions until the client commits and the server has answered. A commit is a message of its own, which
    /// the client sends at once and when it has every answer of before.
    async fn forward_until_commit(&self, client: &mut TcpStream, connections: usize) -> std::io::Result<()> {
        const COMMIT: &[u8] = b"commit\0";
        let is_committing = AtomicBool::new(false);
        let (mut from_client, mut to_client) = client.split();
        let mut server = TcpStream::connect(self.server).await?;
        let (mut from_server, mut to_server) = server.split();
        let upwards = async {
            let mut buffer = vec![0; 16 << 10];
            loop {
                let read = from_client.read(&mut buffer).await?;
                if read == 0 {
                    return Ok::<(), std::io::Error>(());
                }
                let sent = &buffer[..read];
                if sent.windows(COMMIT.len()).any(|part| part == COMMIT) && self.count_cut(connections) {
                    is_committing.store(true, Ordering::SeqCst);
                }
                to_server.write_all(sent).await?;
            }
        };
        let downwards = async {
            let mut buffer = vec![0; 16 << 10];
            loop {
                let read = from_server.read(&mut buffer).await?;
                if read == 0 || is_committing.load(Ordering::SeqCst) {
                    return Ok::<(), std::io::Error>(());
                }
                to_client.write_all(&buffer[..read]).await?;
            }
        };
        tokio::select! {
            ended = upwards => ended,
            ended = downwards => ended,
        }
    }

    /// Forwards in both directions until one has reached its limit.
    async fn forward_until_cut(
        &self,
        client: &mut TcpStream,
        max_request: u64,
        max_response: u64,
    ) -> std::io::Result<()> {
        let (mut from_client, mut to_client) = client.split();
        let mut server = TcpStream::connect(self.server).await?;
        let (mut from_server, mut to_server) = server.split();
        let upwards = async { copy(&mut (&mut from_client).take(max_request), &mut to_server).await };
        let downwards = async {
            let mut buffer = vec![0; 16 << 10];
            let mut left = max_response;
            while left > 0 {
                let max = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let read = from_server.read(&mut buffer[..max]).await?;
                if read == 0 {
                    break;
                }
                to_client.write_all(&buffer[..read]).await?;
                self.response_bytes.fetch_add(read as u64, Ordering::SeqCst);
                left -= read as u64;
            }
            Ok::<_, std::io::Error>(())
        };
        tokio::select! {
            copied = upwards => copied.map(drop),
            copied = downwards => copied,
        }
    }
}

/// Copies in ten pieces a second.
async fn copy_slowly(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, a_second: u64) -> std::io::Result<()> {
    let mut bytes = vec![0; usize::try_from(a_second / 10).unwrap_or(usize::MAX)];
    loop {
        let read = from.read(&mut bytes).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&bytes[..read]).await?;
        tokio::time::sleep(DRIP_INTERVAL).await;
    }
}

/// Reads a request with its body, so that closing afterwards does not lose the response.
pub(crate) async fn read_request(client: &mut TcpStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = client.take(length.unwrap_or(0));
    copy(&mut body, &mut tokio::io::sink()).await.map(drop)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn nothing_passes_that_is_sent_after_the_network_was_interrupted() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy::in_front_of(server.local_addr().unwrap()).await;
        let mut connections = Vec::new();
        for _ in 0..20 {
            let mut client = TcpStream::connect(proxy.address()).await.unwrap();
            let (mut accepted, _) = server.accept().await.unwrap();
            client.write_all(b"a").await.unwrap();
            assert_eq!(accepted.read_u8().await.unwrap(), b'a');
            connections.push((client, accepted));
        }
        proxy.set_fault(ProxyFault::Blackhole);
        // No task of the proxy runs in between: each finds the fault and the byte at once.
        for (client, _) in &connections {
            assert_eq!(client.try_write(b"b").unwrap(), 1);
        }
        std::thread::sleep(Duration::from_millis(20));
        tokio::time::sleep(Duration::from_millis(200)).await;
        for (_, accepted) in &connections {
            let read = accepted.try_read(&mut [0]);
            assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        }
    }

    #[tokio::test]
    async fn a_slow_connection_passes_everything_at_its_rate() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy::in_front_of(server.local_addr().unwrap()).await;
        proxy.set_fault(ProxyFault::Slow { bytes_per_second: 10_000 });
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        let (mut accepted, _) = server.accept().await.unwrap();
        let start = Instant::now();
        tokio::spawn(async move { accepted.write_all(&[7; 5_000]).await });
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, [7; 5_000]);
        assert!(start.elapsed() >= Duration::from_millis(400), "{:?}", start.elapsed());
    }
}
