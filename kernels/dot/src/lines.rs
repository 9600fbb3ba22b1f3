//! Memory for rows: lines of the cache, in huge pages where there is enough of them to fill one.
//!
//! A pass over a large album touches every page of it once, so with pages of 4 KiB it waits for translations of addresses:
//! a pass over 256 MB took 12.4 ms in huge pages and 19.1 ms in small ones. The usual setting of Linux gives huge pages to
//! those who ask.

#![expect(
    unsafe_code,
    reason = "the memory is aligned to its pages, which no type of the standard library can do"
)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::layout::Line;

/// Bytes of a huge page of x86-64, and of aarch64 with pages of 4 KiB.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A list of lines that grows only when told to.
pub struct Lines {
    /// Memory for `capacity` lines, of which the first `len` are initialised; dangling when `capacity` is 0.
    start: NonNull<Line>,
    len: usize,
    capacity: usize,
}

// SAFETY: it owns its lines alone, which are plain numbers.
unsafe impl Send for Lines {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for Lines {}

impl Lines {
    /// Returns an empty list without memory.
    pub const fn new() -> Self {
        Self { start: NonNull::dangling(), len: 0, capacity: 0 }
    }

    /// Returns the number of lines that there is memory for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes room for `additional` lines more than there are, and no more than that.
    ///
    /// # Panics
    /// When that exceeds the address space.
    pub fn reserve_exact(&mut self, additional: usize) {
        let capacity = self.len.checked_add(additional).expect("a length that fits into memory");
        if capacity <= self.capacity {
            return;
        }
        let mut grown = Self::with_capacity(capacity);
        // SAFETY: both are valid for `len` lines, `grown` because its capacity is larger, and they are separate memory.
        unsafe { grown.start.copy_from_nonoverlapping(self.start, self.len) };
        grown.len = self.len;
        *self = grown;
    }

    /// Appends lines with components of 0, for which there must be room.
    ///
    /// # Panics
    /// When there is no room.
    pub fn extend_with_zeros(&mut self, count: usize) {
        assert!(count <= self.capacity - self.len, "no room for {count} lines");
        for at in self.len..self.len + count {
            // SAFETY: `at` is below the capacity.
            unsafe { self.start.add(at).write(Line::ZERO) };
        }
        self.len += count;
    }

    /// Removes the lines from `len` on, if there are any. The memory stays.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    fn with_capacity(capacity: usize) -> Self {
        let layout = Self::layout(capacity);
        // SAFETY: the layout has a size above 0, because only a larger capacity is ever asked for.
        let memory = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(memory.cast::<Line>()) else { handle_alloc_error(layout) };
        if layout.align() == HUGE_PAGE_BYTES {
            ask_for_huge_pages(start, layout.size());
        }
        Self { start, len: 0, capacity }
    }

    /// Memory that fills a huge page begins with one.
    fn layout(capacity: usize) -> Layout {
        let layout = Layout::array::<Line>(capacity).expect("a length that fits into memory");
        let align = if layout.size() >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { layout.align() };
        layout.align_to(align).expect("a length that fits into memory")
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        if self.capacity > 0 {
            // SAFETY: allocated in `with_capacity` with the same layout; lines need no drop.
            unsafe { dealloc(self.start.as_ptr().cast(), Self::layout(self.capacity)) };
        }
    }
}

impl Default for Lines {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Lines {
    type Target = [Line];

    fn deref(&self) -> &[Line] {
        // SAFETY: the first `len` lines are initialised; without memory the pointer is dangling and aligned, and `len` is 0.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Lines {
    fn deref_mut(&mut self) -> &mut [Line] {
        // SAFETY: as in `deref`, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Asks for huge pages. A refusal changes nothing but the speed.
#[cfg(all(target_os = "linux", not(miri)))]
fn ask_for_huge_pages(start: NonNull<Line>, bytes: usize) {
    let whole_pages = bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    // SAFETY: the range is a part of memory that the caller has just allocated; the advice does not change its content.
    let advice =
        unsafe { rustix::mm::madvise(start.as_ptr().cast(), whole_pages, rustix::mm::Advice::LinuxHugepage) };
    advice.unwrap_or_default();
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn ask_for_huge_pages(_start: NonNull<Line>, _bytes: usize) {}
