//! The stage `decode`: decodes a photo at the smallest scale that all its consumers can work from, within the pixel
//! budget. The pixels keep their stored orientation; the stage `resize` turns them upright once they are fewer.

use std::sync::Arc;
use std::time::Duration;

use photofinish_kernels::image::frame::Size;
use photofinish_store::model::photo::PhotoSize;

use crate::engine::budget::{Budget, BudgetClosed, BudgetRequest, MEMORY_PATIENCE};
use crate::engine::fault::{Component, Outage, Poison};
use crate::engine::stage::{Step, StepResults, SteppedStage};
use crate::image::decoder::Decoder;
use crate::image::exif::ExifData;
use crate::stages::photo::{DecodedPhoto, FetchedPhoto, PhotoMetadata};
use crate::stages::sizes::OutputSizes;

/// The stage `decode`; one per thread.
pub(crate) struct Decode {
    pub(crate) decoder: Decoder,
    pub(crate) pixel_budget: Budget,
    /// The most cells per photo and network in grid mode.
    pub(crate) max_cells: u32,
}

impl SteppedStage for Decode {
    type In = FetchedPhoto;
    type Part = BudgetRequest;
    type Out = DecodedPhoto;

    fn step(
        &mut self,
        batch: &[FetchedPhoto],
        parts: &[Vec<BudgetRequest>],
    ) -> Result<StepResults<BudgetRequest, DecodedPhoto>, Outage> {
        batch.iter().zip(parts).map(|(photo, parts)| self.decode(photo, parts)).collect()
    }
}

type DecodeStep = Result<Step<BudgetRequest, DecodedPhoto>, Poison>;

impl Decode {
    /// Decodes the photo when the budget has its bytes; `parts` has the request of an earlier step.
    ///
    /// # Errors
    /// The outer error only when the budget is closed, because the generation ends.
    fn decode(&mut self, photo: &FetchedPhoto, parts: &[BudgetRequest]) -> Result<DecodeStep, Outage> {
        let closed = |closed: BudgetClosed| Outage::new(Component::Stage("decode"), closed.to_string());
        let earlier = parts.first();
        let mut granted = None;
        if let Some(request) = earlier {
            granted = request.take_within(MEMORY_PATIENCE).map_err(closed)?;
            if granted.is_none() {
                return Ok(Ok(Step::Wait(None)));
            }
        }
        let exif = ExifData::read(&photo.bytes);
        let (config, max_cells) = (&photo.lease.config, self.max_cells);
        let output_sizes =
            |stored: Size| OutputSizes::for_photo(exif.orientation.transform_size(stored), config, max_cells);
        let plan = self.decoder.plan(&photo.bytes, |stored| output_sizes(stored).long_side());
        let plan = match plan {
            Ok(plan) => plan,
            Err(poison) => return Ok(Err(poison)),
        };
        // Acquired once, for the peak of this stage or of `resize`, whichever is higher: a permit never grows.
        let resize_bytes = plan.buffer_bytes + output_sizes(plan.stored_size).memory_bytes();
        let permit = match granted {
            Some(permit) => permit,
            None => {
                let bytes = plan.peak_bytes.max(resize_bytes);
                let request = self.pixel_budget.request(photo.lease.organization, bytes);
                match request.take_within(Duration::ZERO).map_err(closed)? {
                    Some(permit) => permit,
                    None => return Ok(Ok(Step::Wait(Some(request)))),
                }
            }
        };
        let picture = match self.decoder.decode(&photo.bytes, &plan) {
            Ok(picture) => picture,
            Err(poison) => return Ok(Err(poison)),
        };
        permit.shrink_to(resize_bytes);
        let size = exif.orientation.transform_size(plan.stored_size);
        let metadata = PhotoMetadata {
            lease: Arc::clone(&photo.lease),
            size: PhotoSize { width: size.width, height: size.height },
            taken_at: exif.taken_at,
            camera: exif.camera,
            watermark: photo.watermark.clone(),
        };
        let orientation = exif.orientation;
        let (metadata, permit) = (Arc::new(metadata), Arc::new(permit));
        Ok(Ok(Step::Done(DecodedPhoto { metadata, picture, orientation, permit })))
    }
}
