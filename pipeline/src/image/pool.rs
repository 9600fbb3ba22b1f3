//! A pool of buffers for pixels and files. A newly allocated buffer of 24 megapixels costs up to 37 ms of page faults, nearly
//! half the time of decoding into it; a reused one costs nothing. Buffers that nobody has reused for a while are freed, so
//! that the memory of large photos comes back when there are no more photos.

use std::mem;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use photofinish_kernels::image::frame::{Frame, Picture, Size};

use crate::engine::sync::lock;

/// Bytes of idle buffers that the pool keeps, on top of the budgets of pixels and files: two decoded photos of 24 megapixels
/// and three working frames.
const MAX_IDLE_BYTES: usize = 48 << 20;

/// How long a buffer is kept for the next photo. While photos are processed, one comes every few hundred milliseconds.
pub const IDLE_LIFETIME: Duration = Duration::from_secs(5);

/// A buffer is reused only for requests of at least its capacity divided by this: the rest of it is allocated, but no
/// budget counts it.
const MAX_OVERSIZE_FACTOR: usize = 2;

/// The buffer of a file may be larger than the file by its length divided by this. Less than for pixels: many files are in memory
/// at once, each counted with its length.
const FILE_SPARE_DIVISOR: usize = 4;

/// Idle buffers, the longest idle first. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct BufferPool(Arc<Mutex<Vec<IdleBuffer>>>);

/// A buffer that nobody uses.
#[derive(Debug)]
struct IdleBuffer {
    buffer: Vec<u8>,
    since: Instant,
}

impl IdleBuffer {
    fn capacity(&self) -> usize {
        self.buffer.capacity()
    }
}

impl BufferPool {
    /// Returns a buffer of `bytes` bytes of unspecified content: the smallest idle one that is large enough and not more
    /// than [`MAX_OVERSIZE_FACTOR`] times as large, or a new one.
    pub(crate) fn acquire_buffer(&self, bytes: usize) -> Vec<u8> {
        self.acquire_within(bytes, bytes.saturating_mul(MAX_OVERSIZE_FACTOR))
    }

    /// Does the same for a file, of a buffer that is at most a quarter larger.
    pub(crate) fn acquire_file_buffer(&self, bytes: usize) -> Vec<u8> {
        self.acquire_within(bytes, bytes.saturating_add(bytes / FILE_SPARE_DIVISOR))
    }

    fn acquire_within(&self, bytes: usize, most: usize) -> Vec<u8> {
        let fits = bytes..=most;
        let mut idle = lock(&self.0);
        let fitting = (0..idle.len())
            .filter(|&i| fits.contains(&idle[i].capacity()))
            .min_by_key(|&i| idle[i].capacity());
        let taken = fitting.map(|i| idle.remove(i));
        drop(idle);
        match taken {
            Some(IdleBuffer { mut buffer, .. }) => {
                // Writes only beyond the buffer's former length.
                buffer.resize(bytes, 0);
                buffer
            }
            None => vec![0; bytes],
        }
    }

    /// Returns a buffer to the pool. Above [`MAX_IDLE_BYTES`], the longest idle buffers are freed: photos of their size
    /// have stopped coming.
    pub(crate) fn return_buffer(&self, buffer: Vec<u8>) {
        if buffer.capacity() > MAX_IDLE_BYTES {
            return;
        }
        let mut idle = lock(&self.0);
        idle.push(IdleBuffer { buffer, since: Instant::now() });
        while total_capacity(&idle) > MAX_IDLE_BYTES {
            idle.remove(0);
        }
    }

    /// Frees the buffers that nobody has used for `lifetime`.
    pub(crate) fn free_idle_for(&self, lifetime: Duration) {
        let mut idle = lock(&self.0);
        let is_old = |buffer: &IdleBuffer| buffer.since.elapsed() >= lifetime;
        let kept = idle.iter().position(|buffer| !is_old(buffer)).unwrap_or(idle.len());
        let freed: Vec<IdleBuffer> = idle.drain(..kept).collect();
        drop(idle);
        // Outside of the lock: returning many pages to the system takes milliseconds.
        drop(freed);
    }

    /// Bytes of idle buffers.
    #[cfg(test)]
    pub(crate) fn idle_bytes(&self) -> usize {
        total_capacity(&lock(&self.0))
    }
}

fn total_capacity(idle: &[IdleBuffer]) -> usize {
    idle.iter().map(IdleBuffer::capacity).sum()
}

/// A picture whose buffer returns to the pool on drop.
#[derive(Debug)]
pub(crate) struct PooledPicture {
    /// `None` only during drop.
    picture: Option<Picture>,
    pool: BufferPool,
}

impl PooledPicture {
    pub(crate) fn new(picture: Picture, pool: &BufferPool) -> Self {
        Self { picture: Some(picture), pool: pool.clone() }
    }

    pub(crate) fn frame(&self) -> Frame<'_> {
        self.picture().frame()
    }

    pub(crate) fn size(&self) -> Size {
        self.picture().size()
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.picture().size_bytes()
    }

    fn picture(&self) -> &Picture {
        self.picture.as_ref().expect("only `drop` takes the picture out")
    }
}

impl Drop for PooledPicture {
    fn drop(&mut self) {
        if let Some(picture) = self.picture.take() {
            self.pool.return_buffer(picture.into_pixels());
        }
    }
}

/// A file whose buffer returns to the pool on drop.
#[derive(Debug)]
pub(crate) struct PooledFile {
    bytes: Vec<u8>,
    pool: BufferPool,
}

impl PooledFile {
    pub(crate) fn new(bytes: Vec<u8>, pool: &BufferPool) -> Self {
        Self { bytes, pool: pool.clone() }
    }
}

impl Deref for PooledFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for PooledFile {
    fn drop(&mut self) {
        self.pool.return_buffer(mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_reused_with_the_requested_length() {
        let pool = BufferPool::default();
        let first = pool.acquire_buffer(1000);
        let address = first.as_ptr();
        pool.return_buffer(first);
        let second = pool.acquire_buffer(600);
        assert_eq!((second.as_ptr(), second.len()), (address, 600));
        assert_eq!(pool.acquire_buffer(600).len(), 600);
    }

    #[test]
    fn the_buffer_of_a_file_returns() {
        let pool = BufferPool::default();
        let bytes = vec![7; 1000];
        let address = bytes.as_ptr();
        let file = PooledFile::new(bytes, &pool);
        assert_eq!((file[999], pool.idle_bytes()), (7, 0));
        drop(file);
        assert_eq!(pool.acquire_file_buffer(700).capacity(), 700, "more than a quarter larger");
        let again = pool.acquire_file_buffer(900);
        assert_eq!(again.as_ptr(), address);
    }

    #[test]
    fn the_smallest_that_fits_is_taken() {
        let pool = BufferPool::default();
        pool.return_buffer(vec![0; 4000]);
        pool.return_buffer(vec![0; 1000]);
        assert!(pool.acquire_buffer(900).capacity() < 4000);
    }

    #[test]
    fn a_buffer_is_not_reused_for_less_than_half_its_size() {
        let pool = BufferPool::default();
        pool.return_buffer(vec![0; 33 << 20]);
        assert!(pool.acquire_buffer(8 << 20).capacity() <= 16 << 20);
        assert_eq!(pool.acquire_buffer(17 << 20).capacity(), 33 << 20);
    }

    #[test]
    fn the_longest_idle_buffer_is_freed_first() {
        let pool = BufferPool::default();
        pool.return_buffer(vec![0; 40 << 20]);
        pool.return_buffer(vec![0; 10 << 20]);
        assert_eq!(pool.idle_bytes(), 10 << 20);
        pool.return_buffer(vec![0; MAX_IDLE_BYTES + 1]);
        assert_eq!(pool.idle_bytes(), 10 << 20);
    }

    #[test]
    fn buffers_that_nobody_uses_are_freed() {
        let pool = BufferPool::default();
        let used = pool.acquire_buffer(1000);
        pool.return_buffer(vec![0; 2000]);
        pool.free_idle_for(IDLE_LIFETIME);
        assert!(pool.idle_bytes() >= 2000, "just returned");
        std::thread::sleep(Duration::from_millis(2));
        pool.return_buffer(used);
        pool.free_idle_for(Duration::from_millis(2));
        assert!((1000..2000).contains(&pool.idle_bytes()), "only the older one");
        pool.free_idle_for(Duration::ZERO);
        assert_eq!(pool.idle_bytes(), 0);
    }

    #[test]
    fn the_total_of_idle_buffers_is_limited() {
        let pool = BufferPool::default();
        for _ in 0..10 {
            pool.return_buffer(Vec::with_capacity(MAX_IDLE_BYTES / 3));
        }
        assert_eq!(lock(&pool.0).len(), 3);
    }
}
