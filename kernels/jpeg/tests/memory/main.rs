//! How much memory a decoder takes, counted by an allocator that counts.

#![expect(unsafe_code, reason = "an allocator is unsafe by its nature")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct CountingAllocator;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all work is the system allocator's.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use photofinish_jpeg::{Decoder, Header, MAX_BUFFER_BYTES, Scale};
    use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

    use super::{LIVE, PEAK};

    /// The highest number of bytes that `work` takes beyond what is there.
    fn peak_bytes(work: impl FnOnce()) -> usize {
        let before = LIVE.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        work();
        PEAK.load(Ordering::Relaxed) - before
    }

    /// A picture as wide as a JPEG can be, with Huffman tables of its own.
    fn widest(sampling: Subsamp, quality: i32) -> Vec<u8> {
        let (width, height) = (65_500, 20);
        let pixels: Vec<u8> = (0..width * height * 3).map(|i| (i % 251) as u8 ^ (i / 7919) as u8).collect();
        let mut compressor = Compressor::new().unwrap();
        compressor.set_quality(quality).unwrap();
        compressor.set_subsamp(sampling).unwrap();
        compressor.set_optimize(true).unwrap();
        let image = Image { pixels: &pixels[..], width, pitch: width * 3, height, format: PixelFormat::RGB };
        compressor.compress_to_vec(image).unwrap()
    }

    /// One test, because others would allocate at the same time.
    #[test]
    fn a_decoder_keeps_no_more_than_it_says() {
        let mut files = Vec::new();
        for quality in [30, 60, 90] {
            for sampling in [Subsamp::None, Subsamp::Sub2x1, Subsamp::Sub2x2, Subsamp::Gray] {
                files.push(widest(sampling, quality));
            }
        }
        let headers: Vec<Header<'_>> = files.iter().map(|file| Header::read(file).unwrap()).collect();
        let reading = peak_bytes(|| files.iter().for_each(|file| assert!(Header::read(file).is_ok())));
        assert_eq!(reading, 0, "reading a header allocates");
        let mut out = vec![0; headers[0].rgb_bytes(Scale::Full)];
        let before = LIVE.load(Ordering::Relaxed);
        let mut decoder = Decoder::new();
        for header in &headers {
            for &scale in Scale::ALL {
                let pixels = &mut out[..header.rgb_bytes(scale)];
                let held = LIVE.load(Ordering::Relaxed) - before;
                let more = peak_bytes(|| decoder.decode(header, scale, pixels).unwrap());
                assert!(held + more <= MAX_BUFFER_BYTES, "{held} and {more} bytes at {scale:?}");
            }
        }
        // The limit is not far above what is needed.
        assert!(LIVE.load(Ordering::Relaxed) - before > MAX_BUFFER_BYTES / 2);
    }
}
