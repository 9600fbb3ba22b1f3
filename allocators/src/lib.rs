//! Returns memory that the allocator of the C library has kept to the system.
//!
//! ONNX Runtime and OpenVINO allocate with it. It gives back what is free at the end of a heap and keeps what is free
//! between two tensors: after large photos and selfies that was 190 MB of 680, until the process ended.
//!
//! The alternatives cost more. A lower `MALLOC_MMAP_THRESHOLD_` gives each large tensor back at once and takes 5 % more CPU
//! per photo, because its pages are new each time. A session of ONNX Runtime can shrink its own arena, but most of this
//! memory is in none.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::ffi::c_int;

    #[allow(unsafe_code, reason = "declares a function of the C library as its manual does")]
    mod declaration {
        use super::c_int;

        unsafe extern "C" {
            // `man 3 malloc_trim`: has no preconditions and may be called by any thread at any time.
            pub(super) safe fn malloc_trim(pad: usize) -> c_int;
        }
    }

    pub(super) fn trim() -> bool {
        declaration::malloc_trim(0) != 0
    }
}

/// Returns all whole pages that are free to the system. Returns whether there were any; always false with another C library
/// than glibc. Takes some milliseconds, in which other threads may wait to allocate with the C library.
pub fn return_free_memory() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    return glibc::trim();
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    false
}

#[cfg(test)]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    fn resident_bytes() -> usize {
        let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
        let pages = pages.split_whitespace().nth(1).expect("resident pages");
        pages.parse::<usize>().expect("a number") * 4096
    }

    /// This test's allocator is that of the C library.
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
}
