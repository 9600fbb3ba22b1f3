//! Ports to listen on.

use std::net::TcpListener;

/// A port of the loopback address that was free just now.
///
/// # Panics
/// When this machine has none.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port").port()
}
