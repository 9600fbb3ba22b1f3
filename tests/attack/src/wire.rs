//! HTTP/1.1 written and read byte by byte, for requests that no client library sends and answers that none would accept.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;

/// How long a connection may take to be accepted by the system.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a write may wait for a service that does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);

/// The service, and the address of this machine from which it is called: limits per address see different clients.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    /// Where the service listens.
    pub service: SocketAddr,
    /// A loopback address of the caller.
    pub source: Ipv4Addr,
}

/// A response, read whole.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// Names in lower case, in the order of the response.
    pub headers: Vec<(String, String)>,
    /// The body, without chunk headers.
    pub body: Vec<u8>,
}

/// What a request led to.
#[derive(Clone, Debug)]
pub enum Reaction {
    /// A whole response.
    Answered(Answer),
    /// The connection ended before a whole response.
    Closed,
    /// Nothing, or no whole response, in time.
    Silent,
}

/// What reading once led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// More bytes.
    More,
    /// The end of the connection.
    End,
    /// Nothing before the deadline.
    Late,
}

/// A connection to the service.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Answer {
    /// The first header of this name, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as text; invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; `Null` when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl Reaction {
    /// The response, if there was one.
    pub fn answer(self) -> Option<Answer> {
        match self {
            Self::Answered(answer) => Some(answer),
            Self::Closed | Self::Silent => None,
        }
    }

    /// The status in words.
    pub fn describe(&self) -> String {
        match self {
            Self::Answered(answer) => {
                format!("{} {}", answer.status, answer.text().chars().take(200).collect::<String>())
            }
            Self::Closed => "closed without a response".to_owned(),
            Self::Silent => "no response in time".to_owned(),
        }
    }
}

impl Endpoint {
    /// Opens a connection.
    ///
    /// # Errors
    /// When the system refuses it.
    pub fn connect(self) -> io::Result<Connection> {
        let connect = async {
            let socket = TcpSocket::new_v4()?;
            // Thousands of short connections leave as many ports in TIME_WAIT.
            socket.set_reuseaddr(true)?;
            socket.bind((self.source, 0).into())?;
            let connected = tokio::time::timeout(CONNECT_TIMEOUT, socket.connect(self.service)).await;
            connected.map_err(|_| io::Error::from(ErrorKind::TimedOut))??.into_std()
        };
        let stream = runtime().block_on(connect)?;
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        Ok(Connection { stream, buffer: Vec::new() })
    }

    /// Sends bytes over a connection of their own and reads one response.
    pub fn send(self, bytes: &[u8], patience: Duration) -> Reaction {
        let Ok(mut connection) = self.connect() else { return Reaction::Closed };
        // A service that refuses early closes while the rest is sent: its response may be there nevertheless.
        let is_written = connection.write(bytes).is_ok();
        let reaction = connection.read_answer(bytes.starts_with(b"HEAD "), Instant::now() + patience);
        match reaction {
            Reaction::Silent if !is_written => Reaction::Closed,
            reaction => reaction,
        }
    }
}

/// Connects sockets; threads of this crate block on it.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let builder = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        builder.expect("a runtime starts where the service does")
    })
}

impl Connection {
    /// Sends bytes.
    ///
    /// # Errors
    /// When the service has closed the connection, or does not read for long.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends what the service is willing to take now; returns how many bytes.
    ///
    /// # Errors
    /// When the service has closed the connection.
    pub fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_nonblocking(true)?;
        let written = self.stream.write(bytes);
        self.stream.set_nonblocking(false)?;
        match written {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            written => written,
        }
    }

    /// Ends this side of the connection.
    pub fn finish_writing(&self) {
        // Fails when the other side is gone, which reading then tells.
        drop(self.stream.shutdown(Shutdown::Write));
    }

    /// Reads once into the buffer.
    pub fn receive(&mut self, deadline: Instant) -> Received {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || self.stream.set_read_timeout(Some(left)).is_err() {
            return Received::Late;
        }
        let mut chunk = [0; 16 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => Received::End,
            Ok(length) => {
                self.buffer.extend_from_slice(&chunk[..length]);
                Received::More
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Received::Late
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Received::More,
            Err(_) => Received::End,
        }
    }

    /// Everything that was received and not yet read as a response.
    pub fn received(&self) -> String {
        String::from_utf8_lossy(&self.buffer).into_owned()
    }

    /// Whether the service ends the connection before the deadline; what it sends until then is dropped.
    pub fn ends_before(&mut self, deadline: Instant) -> bool {
        loop {
            match self.receive(deadline) {
                Received::More => self.buffer.clear(),
                Received::End => return true,
                Received::Late => return false,
            }
        }
    }

    /// Reads one response; interim ones (1xx) are skipped.
    pub fn read_answer(&mut self, is_head: bool, deadline: Instant) -> Reaction {
        let mut has_ended = false;
        loop {
            if let Some(answer) = self.take_answer(is_head, has_ended) {
                return Reaction::Answered(answer);
            }
            if has_ended {
                return Reaction::Closed;
            }
            match self.receive(deadline) {
                Received::More => {}
                Received::End => has_ended = true,
                Received::Late => return Reaction::Silent,
            }
        }
    }

    /// Removes a whole response from the buffer; `None` while it is not whole.
    fn take_answer(&mut self, is_head: bool, has_ended: bool) -> Option<Answer> {
        loop {
            let end = find(&self.buffer, b"\r\n\r\n")? + 4;
            let head = parse_head(&self.buffer[..end])?;
            if (100..200).contains(&head.status) {
                self.buffer.drain(..end);
                continue;
            }
            let rest = &self.buffer[end..];
            let has_no_body = is_head || matches!(head.status, 204 | 304);
            let (body, length) = if has_no_body {
                (Vec::new(), 0)
            } else if head.header("transfer-encoding") == Some("chunked") {
                decode_chunks(rest)?
            } else if let Some(length) = head.header("content-length") {
                let length = length.parse().ok()?;
                (rest.get(..length)?.to_vec(), length)
            } else if has_ended {
                (rest.to_vec(), rest.len())
            } else {
                return None;
            };
            self.buffer.drain(..end + length);
            return Some(Answer { body, ..head });
        }
    }
}

/// Parses the status line and the headers; `None` when they are not those of HTTP/1.1.
fn parse_head(bytes: &[u8]) -> Option<Answer> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    Some(Answer { status, headers: lines.filter_map(header).collect(), body: Vec::new() })
}

/// Returns the content of a chunked body and its length with the chunk headers; `None` while it is not whole.
fn decode_chunks(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line = at + find(bytes.get(at..)?, b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[at..line]).ok()?, 16).ok()?;
        let end = line + 2 + size;
        body.extend_from_slice(bytes.get(line + 2..end)?);
        bytes.get(end..end + 2)?;
        at = end + 2;
        if size == 0 {
            return Some((body, at));
        }
    }
}

/// Where `needle` first is.
pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// A request in which everything is as it should be: `host`, `content-length` and `connection: close` are added.
pub fn request(method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {target} HTTP/1.1\r\nhost: photofinish\r\nconnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!("content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// A call of an operation; `key` may be empty.
pub fn call(path: &str, key: &str, body: &[u8]) -> Vec<u8> {
    let target = format!("/openapi{path}");
    let headers = [("content-type", "application/json"), ("x-api-key", key)];
    request("POST", &target, &headers[..if key.is_empty() { 1 } else { 2 }], body)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// What a client makes of the bytes that a server sends before it closes.
    fn read(bytes: &'static [u8], is_head: bool) -> Reaction {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint =
            Endpoint { service: listener.local_addr().unwrap(), source: Ipv4Addr::new(127, 0, 0, 9) };
        let mut connection = endpoint.connect().unwrap();
        let (mut socket, from) = listener.accept().unwrap();
        assert_eq!(from.ip(), endpoint.source);
        socket.write_all(bytes).unwrap();
        drop(socket);
        connection.read_answer(is_head, Instant::now() + Duration::from_secs(20))
    }

    #[test]
    fn responses_are_read_in_every_framing() {
        let framings: [&[u8]; 3] = [
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 5\r\nA: b\r\n\r\nhello",
            b"HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\na: b\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
            b"HTTP/1.1 404 Not Found\r\na: b\r\n\r\nhello",
        ];
        for bytes in framings {
            let answer = read(bytes, false).answer().unwrap();
            assert_eq!((answer.status, answer.text(), answer.header("a")), (404, "hello".into(), Some("b")));
        }
        let head = read(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", true).answer().unwrap();
        assert_eq!((head.status, head.body.len()), (200, 0));
    }

    #[test]
    fn a_response_that_breaks_off_is_none() {
        for bytes in [&b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell"[..], b"HTTP/1.1 200", b""] {
            assert!(matches!(read(bytes, false), Reaction::Closed));
        }
    }
}
