//! With the C library's allocator, as it is that of the networks.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod resident;

use photofinish_allocators::return_free_memory;
use resident::resident_bytes;

#[global_allocator]
static ALLOCATOR: std::alloc::System = std::alloc::System;

#[test]
fn what_is_free_between_two_allocations_goes_back_to_the_system() {
    const MEGABYTES: usize = 64;
    // Small enough to be allocated on a heap, and written to, so that their pages exist.
    let mut blocks: Vec<Vec<u8>> = (0..MEGABYTES * 16).map(|_| vec![1; 64 << 10]).collect();
    // The heap cannot shrink: its last block is in use.
    let last = blocks.pop();
    drop(blocks);
    let before = resident_bytes();
    assert!(return_free_memory(), "nothing was free");
    let returned = before.saturating_sub(resident_bytes());
    assert!(returned > (MEGABYTES / 2) << 20, "{returned} bytes were returned");
    drop(last);
}
