//! Ports to listen on.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The range of ports used, below those that operating systems assign.
const FIRST_PORT: u16 = 10_000;
/// A process has blocks of ports to itself: a port that is free may belong to a server that another one restarts.
const BLOCKS: u16 = 20;
const BLOCK_SIZE: u16 = 1000;

/// In the folder of temporary files: a file for each block, which the process that has the block keeps locked.
const LOCKS: &str = "photofinish-test-ports";

/// A block of this process.
struct Block {
    first: u16,
    used: u16,
    /// Locked until the process ends.
    _lock: File,
}

/// Returns a port of the loopback address that is free now. Each call returns another one, outside the range that the
/// system assigns by itself and that no other process gets from here, so that it is still free when a server listens on it
/// later, or again. After a thousand ports it goes on with another block, or starts over where others have all.
///
/// # Panics
/// If no port is free, or other processes have all blocks.
pub fn free_port() -> u16 {
    static OWN: Mutex<Vec<Block>> = Mutex::new(Vec::new());
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    if own.last().is_none_or(|block| block.used >= BLOCK_SIZE) {
        own.extend(Block::lock(&std::env::temp_dir().join(LOCKS)));
    }
    own.last_mut().expect("a block of ports that no other process has").next_free()
}

impl Block {
    /// Takes a block that nobody has.
    fn lock(folder: &Path) -> Option<Self> {
        fs::create_dir_all(folder).ok()?;
        (0..BLOCKS).find_map(|number| {
            let file = File::create(folder.join(number.to_string())).ok()?;
            file.try_lock().ok()?;
            Some(Self { first: FIRST_PORT + number * BLOCK_SIZE, used: 0, _lock: file })
        })
    }

    fn next_free(&mut self) -> u16 {
        let mut next = || {
            let port = self.first + self.used % BLOCK_SIZE;
            self.used = self.used.wrapping_add(1);
            port
        };
        let mut ports = (0..BLOCK_SIZE).map(|_| next());
        ports.find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok()).expect("a free port")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_returns_another_port() {
        assert_ne!(free_port(), free_port());
    }

    #[test]
    fn a_block_that_is_locked_is_nobody_elses_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let first = Block::lock(folder.path()).unwrap();
        let second = Block::lock(folder.path()).unwrap();
        assert_eq!(second.first, first.first + BLOCK_SIZE);
        drop(first);
        assert_eq!(Block::lock(folder.path()).unwrap().first, FIRST_PORT);
    }
}
