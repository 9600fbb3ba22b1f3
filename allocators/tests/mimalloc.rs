//! With mimalloc as the allocator of Rust code, as in the service.

#![cfg(target_os = "linux")]

mod resident;

use photofinish_allocators::return_free_memory;
use resident::resident_bytes;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MEGABYTES: usize = 64;

/// Buffers of different sizes, as those of photos are.
fn allocate() -> Vec<Vec<u8>> {
    (0..MEGABYTES / 4).map(|index| vec![1; (4 << 20) + index * (256 << 10)]).collect()
}

fn assert_is_back_at(start: usize) {
    let kept = resident_bytes().saturating_sub(start);
    assert!(kept < (MEGABYTES / 8) << 20, "{kept} bytes are kept");
}

#[test]
fn an_idle_process_returns_what_it_freed() {
    // A process that is idle neither allocates nor frees, so mimalloc does not look whether its delay is over.
    let start = resident_bytes();
    drop(allocate());
    let kept = resident_bytes().saturating_sub(start);
    assert!(kept > (MEGABYTES / 2) << 20, "mimalloc kept {kept} bytes: there is nothing to return");
    return_free_memory();
    assert_is_back_at(start);
}
