//! The unstuffed bytes that are being read, followed by zeros.

use crate::entropy::MAX_GO_BYTES;
use crate::entropy::unstuff::{Progress, STEP, unstuff};

/// Bytes unstuffed at a time: few enough to stay in the first two cache levels.
const CAPACITY: usize = 64 * 1024;

/// Read beyond the end of a broken scan: the rest of a go, and what the reservoir has taken before.
const SLACK: usize = MAX_GO_BYTES + 64;

/// The unstuffed bytes that are being read.
pub(crate) struct Window {
    bytes: Box<[u8; CAPACITY + SLACK]>,
    filled: usize,
    /// From here on all bytes are zeros: short segments would otherwise spend their time on clearing the window.
    dirty: usize,
    /// A marker, or the file's end, comes right after `filled`.
    has_ended: bool,
}

impl Window {
    /// Bytes of a window.
    pub(crate) const BYTES: usize = CAPACITY + SLACK;

    pub(crate) fn new() -> Self {
        Self { bytes: Box::new([0; CAPACITY + SLACK]), filled: 0, dirty: 0, has_ended: false }
    }

    /// All bytes: those filled, then zeros if it has ended.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..]
    }

    pub(super) fn filled(&self) -> usize {
        self.filled
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Forgets what it holds.
    pub(super) fn clear(&mut self) {
        self.filled = 0;
        self.has_ended = false;
    }

    /// The highest position at which a go may begin: all that it may eat is there. Behind the end, a little more: the
    /// reservoir is filled ahead.
    pub(super) fn limit(&self) -> usize {
        if self.has_ended { self.filled + 8 } else { self.filled - MAX_GO_BYTES - 16 }
    }

    /// Moves what follows `used` to the front and unstuffs more behind it, from `file` at `offset`. Returns the new offset.
    #[cold]
    #[inline(never)]
    pub(super) fn fill(&mut self, used: usize, file: &[u8], offset: usize) -> usize {
        let used = used.min(self.filled);
        self.bytes.copy_within(used..self.filled, 0);
        let from = Progress { offset, filled: self.filled - used, has_ended: false };
        let end = unstuff(file, from, &mut self.bytes[..CAPACITY]);
        self.filled = end.filled;
        self.has_ended = end.has_ended;
        // A step of unstuffing writes whole, and counts what was clean.
        self.dirty = self.dirty.max(end.filled + STEP).min(self.bytes.len());
        if end.has_ended {
            self.bytes[end.filled..self.dirty].fill(0);
            self.dirty = end.filled;
        }
        debug_assert!(end.has_ended || end.filled + STEP > CAPACITY);
        end.offset
    }
}
