//! A JPEG decoder for one job: photos of cameras, at full size or at three, four, two or one eighths of it, on one core,
//! into RGB. Its pixels are those of libjpeg-turbo, which takes 1.2 to 1.6 times as long at full size and 1.3 to 1.8 times at
//! half size, measured on an AMD EPYC with AVX2.
//!
//! It is no general decoder. It takes one interleaved scan of 8-bit baseline JPEG, grey or YCbCr with 4:4:4, 4:2:2 or
//! 4:2:0 sampling, which is what cameras write. Everything else is a [`Refusal`], before anything is allocated. What it
//! decodes it decodes strictly: the first bit of the scan that libjpeg-turbo would warn about, and more, is [`Damage`]. In
//! both cases another decoder should be asked; neither says that the file is useless. (Pixels can differ in one case: damage
//! that cannot be told as such, which leaves AC coefficients that no picture has, in the blocks that have them.)
//!
//! Orientation, colour profiles and all else that does not change the pixels are not looked at. So two things of which
//! libjpeg-turbo warns are taken for whole: the last three bytes of the scan header, which mean something in progressive files
//! only, and in place of which many phones write others than the standard says; and segments of a colour profile whose numbers
//! contradict each other.
//!
//! ```
//! use photofinish_jpeg::{Decoder, Header, Scale};
//!
//! # fn show(file: &[u8]) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
//! let header = Header::read(file)?;
//! // The size is the file's own claim: judge it before allocating pixels.
//! let size = header.scaled_size(Scale::Half);
//! assert!(size.width * size.height < 100_000_000);
//! let mut pixels = vec![0; header.rgb_bytes(Scale::Half)];
//! Decoder::new().decode(&header, Scale::Half, &mut pixels)?;
//! # Ok(pixels)
//! # }
//! # assert!(show(b"GIF89a").is_err());
//! ```
//!
//! How it is fast: a look-up in a Huffman table answers up to two whole symbols, all blocks of four MCUs are one loop
//! without a branch at a block's end, and the inverse DCT transforms two blocks at once. Vector instructions (AVX2, BMI2)
//! are chosen at run time; other processors run portable code with the same results.

mod colour;
mod cpu;
mod decoder;
mod entropy;
mod fault;
mod header;
mod huffman;
mod idct;
mod scale;
mod scan;
mod zigzag;

pub use decoder::{Decoder, MAX_BUFFER_BYTES};
pub use fault::{Damage, Refusal};
pub use header::{Header, Sampling, Size};
pub use scale::Scale;

/// The example of the README, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
