//! Returns memory that the allocators of the process have kept to the system.
//!
//! Rust code allocates with mimalloc. It returns what was freed after a delay, but looks whether the delay is over only
//! when memory is allocated or freed: a process that has become idle keeps what its last photos needed.
//!
//! ONNX Runtime and OpenVINO allocate with the C library. It gives back what is free at the end of a heap and keeps what is free
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

mod mimalloc {
    // Links the allocator also where it is not the global one, as in this crate's tests.
    use libmimalloc_sys as _;

    #[allow(unsafe_code, reason = "declares a function of mimalloc as its header does")]
    mod declaration {
        unsafe extern "C" {
            // `mimalloc.h`: collects the heap of the calling thread and, if forced, returns what is free in all arenas. May
            // be called by any thread at any time.
            pub(super) safe fn mi_collect(force: bool);
        }
    }

    pub(super) fn collect() {
        declaration::mi_collect(true);
    }
}

/// Returns all whole pages that are free to the system. Returns whether the C library had any; always false with another
/// one than glibc. Takes some milliseconds, in which other threads may wait to allocate.
pub fn return_free_memory() -> bool {
    mimalloc::collect();
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    return glibc::trim();
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    false
}
