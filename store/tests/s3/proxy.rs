//! A TCP proxy between a client and the server that breaks what passes, as a test asks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What goes wrong on connections that begin from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Every request is answered with 500.
    Error500,
    /// Requests are read and never answered.
    Silence,
    /// So many connections end after so many bytes to the client.
    CutAnswer { after: u64, times: usize },
    /// Every connection ends after so many bytes to the server.
    CutRequest { after: u64 },
}

/// The proxy; ends with this.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    server: SocketAddr,
    fault: watch::Sender<Fault>,
    cuts: AtomicUsize,
    answered: AtomicU64,
}

impl Proxy {
    /// A proxy before `server` that breaks nothing yet.
    pub async fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (fault, _) = watch::channel(Fault::None);
        let shared = Shared { server, fault, cuts: AtomicUsize::new(0), answered: AtomicU64::new(0) };
        let shared = Arc::new(shared);
        let accepting = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(Arc::clone(&shared).until_the_fault_changes(client));
                }
            }
        });
        Self { address, shared, accepting }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks things in this way, beginning with the connections that are open.
    pub fn set(&self, fault: Fault) {
        self.shared.cuts.store(0, Ordering::SeqCst);
        self.shared.fault.send_replace(fault);
    }

    /// How many connections were cut since the fault was set.
    pub fn cuts(&self) -> usize {
        self.shared.cuts.load(Ordering::SeqCst)
    }

    /// How many bytes went to clients of connections that a fault watched.
    pub fn answered_bytes(&self) -> u64 {
        self.shared.answered.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Shared {
    async fn until_the_fault_changes(self: Arc<Self>, client: TcpStream) {
        let mut faults = self.fault.subscribe();
        let fault = *faults.borrow_and_update();
        tokio::select! {
            _ended = self.serve(client, fault) => {}
            _changed = faults.changed() => {}
        }
    }

    async fn serve(&self, mut client: TcpStream, fault: Fault) -> std::io::Result<()> {
        match fault {
            Fault::None => self.pass(client).await,
            Fault::Error500 => {
                read_request(&mut client).await?;
                let answer =
                    "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                client.write_all(answer.as_bytes()).await
            }
            Fault::Silence => {
                read_request(&mut client).await?;
                std::future::pending().await
            }
            Fault::CutAnswer { after, times } => {
                if self.cuts.fetch_add(1, Ordering::SeqCst) >= times {
                    self.cuts.fetch_sub(1, Ordering::SeqCst);
                    return self.pass(client).await;
                }
                self.pass_until_cut(client, (u64::MAX, after)).await
            }
            Fault::CutRequest { after } => {
                self.cuts.fetch_add(1, Ordering::SeqCst);
                self.pass_until_cut(client, (after, u64::MAX)).await
            }
        }
    }

    async fn pass(&self, mut client: TcpStream) -> std::io::Result<()> {
        let mut server = TcpStream::connect(self.server).await?;
        copy_bidirectional(&mut client, &mut server).await.map(drop)
    }

    /// Both directions until one has passed its limit.
    async fn pass_until_cut(&self, client: TcpStream, (up, down): (u64, u64)) -> std::io::Result<()> {
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = TcpStream::connect(self.server).await?.into_split();
        let upwards = async { copy(&mut (&mut from_client).take(up), &mut to_server).await };
        let downwards = async {
            let mut buffer = vec![0; 16 << 10];
            let mut left = down;
            while left > 0 {
                let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let read = from_server.read(&mut buffer[..most]).await?;
                if read == 0 {
                    break;
                }
                to_client.write_all(&buffer[..read]).await?;
                self.answered.fetch_add(read as u64, Ordering::SeqCst);
                left -= read as u64;
            }
            Ok::<_, std::io::Error>(())
        };
        tokio::select! {
            passed = upwards => passed.map(drop),
            passed = downwards => passed,
        }
    }
}

/// Reads one request with its body, so that closing afterwards loses no answer.
async fn read_request(client: &mut TcpStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = client.take(length.unwrap_or(0));
    copy(&mut body, &mut tokio::io::sink()).await.map(drop)
}
