//! A partner's HTTP server that keeps every request and answers as it is told.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The longest body: more than anybody is to send.
const MAX_BODY_BYTES: usize = 1 << 20;

/// A request.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// When its last byte had arrived.
    pub at: SystemTime,
    /// Its first line, such as `POST /hook HTTP/1.1`.
    pub line: String,
    /// Its headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Its body.
    pub body: String,
    /// The status of its answer.
    pub status: u16,
}

/// How a request is answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// After this time.
    pub delay: Duration,
    /// Headers, beside the length of the body.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// This status, at once and without more.
    pub fn of(status: u16) -> Self {
        Self { status, delay: Duration::ZERO, headers: Vec::new(), body: Vec::new() }
    }

    /// As it is sent.
    fn to_bytes(&self) -> Vec<u8> {
        let headers: String =
            self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = self.body.len();
        let head = format!("HTTP/1.1 {} Chosen\r\ncontent-length: {length}\r\n{headers}\r\n", self.status);
        [head.as_bytes(), &self.body].concat()
    }
}

/// Chooses the answer of a request: by its place among all, from 0.
type Choice = dyn Fn(usize) -> Answer + Send + Sync;

/// A server on a free port of this machine, until it is dropped.
pub struct Receiver {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    choose: Box<Choice>,
    received: Mutex<Vec<ReceivedRequest>>,
    /// The ports of clients whose request has arrived and is not answered yet.
    waiting: Mutex<BTreeSet<u16>>,
    cut_off: AtomicUsize,
    is_stopped: AtomicBool,
}

impl Receiver {
    /// Starts one.
    pub fn start(choose: impl Fn(usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            choose: Box::new(choose),
            received: Mutex::default(),
            waiting: Mutex::default(),
            cut_off: AtomicUsize::new(0),
            is_stopped: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        spawn("receiver", move || {
            for connection in listener.incoming().flatten() {
                if serving.is_stopped.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&serving);
                spawn("receiver's connection", move || serve(&shared, &connection));
            }
        });
        Self { port, shared }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// An address below it.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    /// All requests that have arrived, in order.
    pub fn received(&self) -> Vec<ReceivedRequest> {
        lock(&self.shared.received).clone()
    }

    /// How many requests have arrived.
    pub fn count(&self) -> usize {
        lock(&self.shared.received).len()
    }

    /// The ports of clients whose request has arrived and is not answered yet.
    pub fn waiting_ports(&self) -> Vec<u16> {
        lock(&self.shared.waiting).iter().copied().collect()
    }

    /// How many answers their clients did not take to the end.
    pub fn cut_off(&self) -> usize {
        self.shared.cut_off.load(Ordering::SeqCst)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        // So that the server stops to wait for a connection.
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
    }
}

/// Runs `work` on a thread that nobody waits for.
fn spawn(name: &str, work: impl FnOnce() + Send + 'static) {
    drop(std::thread::Builder::new().name(name.to_owned()).spawn(work).unwrap());
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers requests until the client closes the connection.
fn serve(shared: &Shared, mut connection: &TcpStream) {
    let Ok(client) = connection.peer_addr() else { return };
    let mut reader = BufReader::new(connection);
    while let Some(request) = read_request(&mut reader) {
        let answer = {
            let mut received = lock(&shared.received);
            let answer = (shared.choose)(received.len());
            received.push(ReceivedRequest { at: SystemTime::now(), status: answer.status, ..request });
            answer
        };
        lock(&shared.waiting).insert(client.port());
        let until = Instant::now() + answer.delay;
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        let written = connection.write_all(&answer.to_bytes());
        lock(&shared.waiting).remove(&client.port());
        // The client may have been killed, or have read enough.
        if written.is_err() {
            shared.cut_off.fetch_add(1, Ordering::SeqCst);
            return;
        }
    }
}

/// Reads a request; `None` at the end of the connection, and for what is no request.
fn read_request(reader: &mut BufReader<&TcpStream>) -> Option<ReceivedRequest> {
    let (mut first, mut line, mut headers) = (String::new(), String::new(), BTreeMap::new());
    reader.read_line(&mut first).ok().filter(|length| *length > 0)?;
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length: usize = headers.get("content-length")?.parse().ok()?;
    let mut body = vec![0; length.min(MAX_BODY_BYTES)];
    reader.read_exact(&mut body).ok()?;
    let (line, body) = (first.trim().to_owned(), String::from_utf8(body).ok()?);
    Some(ReceivedRequest { at: SystemTime::now(), line, headers, body, status: 0 })
}
