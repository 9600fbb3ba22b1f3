//! Decodes photos from untrusted files (JPEG, PNG, WebP and, where it is built in, HEIC) within limits that are checked
//! before any pixel is allocated, and turns them upright. Knows nothing of stages or budgets.

pub(crate) mod color_profile;
pub(crate) mod decoder;
pub(crate) mod exif;
pub(crate) mod format;
pub(crate) mod heic;
pub(crate) mod jpeg;
pub(crate) mod jpeg_structure;
pub(crate) mod pool;
pub(crate) mod raster;
pub(crate) mod row_scaler;
#[cfg(test)]
mod tests;
pub(crate) mod upright_resizer;
pub(crate) mod watermark;
pub(crate) mod webp;
