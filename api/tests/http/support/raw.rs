//! HTTP written byte by byte, for requests that no client library sends.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use super::{ApiResponse, DEADLINE, TestService};

/// A TCP connection to the service.
pub struct RawConnection(pub TcpStream);

impl RawConnection {
    pub fn connect(service: &TestService) -> Self {
        let socket = TcpStream::connect(service.address).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        socket.set_write_timeout(Some(DEADLINE)).unwrap();
        Self(socket)
    }

    pub fn write(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).unwrap();
    }

    /// Reads to the end of `end`; returns everything read.
    pub fn read_until(&mut self, end: &str) -> String {
        let mut seen = Vec::new();
        let mut byte = [0];
        while !seen.ends_with(end.as_bytes()) {
            assert_eq!(self.0.read(&mut byte).unwrap(), 1, "closed after {}", String::from_utf8_lossy(&seen));
            seen.push(byte[0]);
        }
        String::from_utf8(seen).unwrap()
    }

    /// Reads one response with a `content-length`.
    pub fn read_response(&mut self) -> ApiResponse {
        let head = self.read_until("\r\n\r\n");
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = ureq::http::HeaderMap::new();
        for line in lines.filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(": ").unwrap();
            headers.insert(ureq::http::HeaderName::try_from(name).unwrap(), value.parse().unwrap());
        }
        let length =
            headers.get("content-length").map_or(0, |length| length.to_str().unwrap().parse().unwrap());
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).unwrap();
        ApiResponse { status, headers, bytes }
    }

    /// Returns whether the service has closed the connection.
    pub fn is_closed(&mut self) -> bool {
        match self.0.read(&mut [0]) {
            Ok(length) => length == 0,
            // A timeout means that the connection is still open.
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    /// Reads everything; returns whether the service then closed the connection.
    pub fn closes_after_reading(&mut self) -> bool {
        while let Ok(1..) = self.0.read(&mut [0; 256]) {}
        self.is_closed()
    }
}
