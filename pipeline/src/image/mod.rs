//! Decodes photos from untrusted files: JPEG, PNG and WebP, within limits checked before any pixel is allocated.

pub(crate) mod decoder;
pub(crate) mod exif;
pub(crate) mod jpeg;
pub(crate) mod jpeg_structure;
pub(crate) mod pool;
pub(crate) mod raster;
#[cfg(test)]
mod tests;
pub(crate) mod webp;
