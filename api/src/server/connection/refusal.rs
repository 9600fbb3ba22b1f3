//! Responses that are written without the HTTP library: to heads that it cannot parse, and to connections that are not
//! served. They have the envelope and a request id, as every error response.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::errors::table::ErrorKind;
use crate::errors::{self, ApiError};
use crate::metrics::CloseReason;
use crate::reply::REQUEST_ID_HEADER;

/// How long a refused connection is kept for its client to read why.
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// Why a connection gets one response and no service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The head is not HTTP/1.
    MalformedHead,
    /// The head is larger than allowed, or has too many fields.
    LargeHead,
    /// The head did not come in time.
    SlowHead,
    /// All seats are taken.
    NoSeat,
}

impl Refusal {
    /// Returns what the HTTP library is about to refuse with its own bare response.
    pub(super) fn from_bare_response(head: &[u8]) -> Self {
        // `HTTP/1.1 431 ..`; 414 is a request line that alone is too large.
        match head.get(9..12) {
            Some(b"431" | b"414") => Self::LargeHead,
            _ => Self::MalformedHead,
        }
    }

    /// Counts the refusal and returns the response.
    pub(super) fn into_response(self) -> Vec<u8> {
        self.reason().count();
        let (status, reason, body) = match self {
            Self::MalformedHead => {
                (400, "Bad Request", ApiError::malformed("The request head is malformed").to_json())
            }
            // Not a row of the contract's table, but what clients and proxies expect of a server.
            Self::LargeHead => {
                let reason = "Request Header Fields Too Large";
                (431, reason, errors::undefined_json(431, "REQUEST_HEADER_FIELDS_TOO_LARGE", reason))
            }
            Self::SlowHead => (408, "Request Timeout", ApiError::new(ErrorKind::Timeout).to_json()),
            Self::NoSeat => {
                (503, "Service Unavailable", ApiError::new(ErrorKind::ServiceUnavailable).to_json())
            }
        };
        let retry = if self == Self::NoSeat { "retry-after: 1\r\n" } else { "" };
        format!(
            "HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\nx-content-type-options: nosniff\r\n\
             cache-control: no-store\r\n{REQUEST_ID_HEADER}: {}\r\n{retry}connection: close\r\n\
             content-length: {}\r\n\r\n{body}",
            Uuid::now_v7(),
            body.len(),
        )
        .into_bytes()
    }

    fn reason(self) -> CloseReason {
        match self {
            Self::MalformedHead => CloseReason::MalformedHead,
            Self::LargeHead => CloseReason::LargeHead,
            Self::SlowHead => CloseReason::SlowHead,
            Self::NoSeat => CloseReason::NoSeat,
        }
    }
}

/// Tells a client that there is no seat. Takes a second at most.
pub(crate) async fn refuse(mut socket: TcpStream) {
    let response = Refusal::NoSeat.into_response();
    let told = async {
        socket.write_all(&response).await?;
        socket.shutdown().await?;
        // Closing a socket with unread bytes resets the connection, and the client may lose the response.
        let mut unread = [0; 1024];
        while socket.read(&mut unread).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    // Whatever fails: the connection is closed now.
    drop(tokio::time::timeout(LINGER, told).await);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_response_is_recognised_by_its_status() {
        let refusal = |head: &[u8]| Refusal::from_bare_response(head);
        assert_eq!(refusal(b"HTTP/1.1 431 Request Header Fields Too Large\r\n"), Refusal::LargeHead);
        assert_eq!(refusal(b"HTTP/1.1 414 URI Too Long\r\n"), Refusal::LargeHead);
        assert_eq!(refusal(b"HTTP/1.1 400 Bad Request\r\n"), Refusal::MalformedHead);
        assert_eq!(refusal(b"HTTP"), Refusal::MalformedHead);
    }
}
