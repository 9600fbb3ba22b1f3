//! Ports to listen on.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Where ports begin that no system hands out by itself, and how many of them are used.
const FIRST_PORT: u16 = 10_000;
const PORT_COUNT: u16 = 20_000;

/// Another for each process, so that two that run at once seldom look at the same ports.
const STRIDE: u32 = 97;

/// A port of the loopback address that was free just now. Each call answers another, below those that the system hands to
/// whoever connects or listens without naming one: who listens on it later, or again, finds it free.
///
/// # Panics
/// When this machine has none.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id().wrapping_mul(STRIDE);
    let next = || {
        let place = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed).into()) % u32::from(PORT_COUNT);
        FIRST_PORT + u16::try_from(place).expect("below the count")
    };
    let mut ports = (0..PORT_COUNT).map(|_| next());
    ports.find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok()).expect("a free port")
}
