//! HTTP by hand, for what a well-behaved client cannot send: chunked bodies without an end, slow bodies, odd methods.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::harness::response::Response;

/// A connection that sends exactly the bytes it is told to.
pub struct RawConnection(TcpStream);

impl RawConnection {
    /// Connects to a port of this machine.
    ///
    /// # Panics
    /// When nobody listens.
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the service listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket takes a limit");
        stream.set_write_timeout(Some(Duration::from_secs(60))).expect("a socket takes a limit");
        Self(stream)
    }

    /// Sends the request line and headers; `host` and `connection: close` are added.
    ///
    /// # Panics
    /// When the connection is gone.
    pub fn send_head(&mut self, method: &str, path: &str, headers: &[(&str, &str)]) {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.0.write_all(head.as_bytes()).expect("the connection holds");
    }

    /// Sends bytes; answers whether the other side still took them.
    pub fn send_body(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).is_ok()
    }

    /// Sends one chunk of a chunked body; answers whether the other side still took it.
    pub fn send_chunk(&mut self, bytes: &[u8]) -> bool {
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        self.send_body(&chunk)
    }

    /// Reads until the other side closes; answers the statuses of all answers that came.
    pub fn read_statuses(mut self) -> Vec<u16> {
        let mut bytes = Vec::new();
        // A reset instead of an end leaves the answers that came before it.
        if let Err(error) = self.0.read_to_end(&mut bytes) {
            eprintln!("the connection broke off: {error}");
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        text.split("HTTP/1.1 ").skip(1).filter_map(|answer| answer.get(..3)?.parse().ok()).collect()
    }

    /// Reads the answer until the other side closes.
    ///
    /// # Panics
    /// When no answer comes.
    pub fn read_response(mut self) -> Response {
        let mut bytes = Vec::new();
        // A reset after the answer (the service does not wait for the rest of a body it refused) is no failure.
        if let Err(error) = self.0.read_to_end(&mut bytes) {
            assert!(!bytes.is_empty(), "no answer: {error}");
        }
        parse_response(&bytes)
    }
}

fn parse_response(bytes: &[u8]) -> Response {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head in the answer");
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let body = &bytes[end + 4..];
    let bytes = if chunked { decode_chunks(body) } else { body.to_vec() };
    Response { status: status.expect("a status in the answer"), headers, body: bytes }
}

fn decode_chunks(mut body: &[u8]) -> Vec<u8> {
    let mut joined = Vec::new();
    while let Some(end) = body.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(String::from_utf8_lossy(&body[..end]).trim(), 16).unwrap_or(0);
        if size == 0 || body.len() < end + 2 + size {
            break;
        }
        joined.extend_from_slice(&body[end + 2..end + 2 + size]);
        body = body.get(end + 2 + size + 2..).unwrap_or_default();
    }
    joined
}
