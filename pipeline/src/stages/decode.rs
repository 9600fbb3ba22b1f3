//! The stage `decode`: from bytes to pixels, under a hold of budget B, at the smallest scale that still serves every
//! consumer of the photo. The pixels stay as they were stored; `resize` turns them upright once they are fewer.

use std::sync::Arc;

use photofinish_kernels::frame::Size;
use photofinish_store::model::photo::PhotoSize;

use crate::engine::budget::Budget;
use crate::engine::fault::{Component, Outage, Poison};
use crate::engine::stage::{BatchResults, Stage};
use crate::image::decoder::Decoder;
use crate::image::exif::ExifData;
use crate::stages::photo::{DecodedPhoto, FetchedPhoto, PhotoMetadata};
use crate::stages::sizes::OutputSizes;

/// The stage `decode`.
pub(crate) struct Decode {
    pub(crate) decoder: Decoder,
    pub(crate) pixel_budget: Budget,
}

impl Stage for Decode {
    type In = FetchedPhoto;
    type Out = DecodedPhoto;

    fn run(&mut self, batch: &[FetchedPhoto]) -> Result<BatchResults<DecodedPhoto>, Outage> {
        batch.iter().map(|photo| self.decode(photo)).collect()
    }
}

impl Decode {
    /// The outer error only when the pipeline ends.
    fn decode(&mut self, photo: &FetchedPhoto) -> Result<Result<DecodedPhoto, Poison>, Outage> {
        let notes = ExifData::read(&photo.bytes);
        let config = &photo.lease.config;
        let upright = |stored: Size| to_upright(stored, notes.orientation.swaps_sides());
        let plan = self
            .decoder
            .plan(&photo.bytes, |stored| OutputSizes::for_photo(upright(stored), config).long_side());
        let plan = match plan {
            Ok(plan) => plan,
            Err(poison) => return Ok(Err(poison)),
        };
        // Asked once, for the worst moment of this stage and of the next.
        let later_bytes =
            plan.buffer_bytes + OutputSizes::for_photo(upright(plan.stored_size), config).memory_bytes();
        let held = self
            .pixel_budget
            .acquire(plan.peak_bytes.max(later_bytes))
            .map_err(|closed| Outage::new(Component::Stage("decode"), closed.to_string()))?;
        let picture = match self.decoder.decode(&photo.bytes, &plan) {
            Ok(picture) => picture,
            Err(poison) => return Ok(Err(poison)),
        };
        held.shrink_to(later_bytes);
        let size = upright(plan.stored_size);
        let facts = PhotoMetadata {
            lease: Arc::clone(&photo.lease),
            size: PhotoSize { width: size.width, height: size.height },
            taken_at: notes.taken_at,
            camera: notes.camera,
        };
        let orientation = notes.orientation;
        Ok(Ok(DecodedPhoto { metadata: Arc::new(facts), picture, orientation, permit: Arc::new(held) }))
    }
}

/// The size after turning.
pub(crate) fn to_upright(size: Size, swaps_sides: bool) -> Size {
    if swaps_sides { Size { width: size.height, height: size.width } } else { size }
}
