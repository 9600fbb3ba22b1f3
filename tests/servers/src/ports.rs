//! Ports to listen on.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// The range of ports used, below those that operating systems assign.
const FIRST_PORT: u16 = 10_000;
const PORT_COUNT: u16 = 20_000;

/// Separates the first ports of processes, so that two concurrent ones seldom try the same ports.
const STRIDE: u32 = 97;

/// Returns a port of the loopback address that is free now. Each call returns another one, outside the range that the
/// system assigns by itself, so that it is still free when a server listens on it later, or again.
///
/// # Panics
/// If no port is free.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id().wrapping_mul(STRIDE);
    let next = || {
        let index = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed).into()) % u32::from(PORT_COUNT);
        FIRST_PORT + u16::try_from(index).expect("below the count")
    };
    let mut ports = (0..PORT_COUNT).map(|_| next());
    ports.find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok()).expect("a free port")
}
