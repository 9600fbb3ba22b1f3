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
use crate::stages::sizes::{OutputSizes, ResizeSource};

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
        let source = ResizeSource {
            size: plan.decoded_size,
            orientation: exif.orientation,
            is_marked: photo.watermark.is_some(),
        };
        let resize_bytes = plan.buffer_bytes + output_sizes(plan.stored_size).memory_bytes(source);
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
        let (orientation, color_profile) = (exif.orientation, plan.color_profile);
        let (metadata, permit) = (Arc::new(metadata), Arc::new(permit));
        Ok(Ok(Step::Done(DecodedPhoto { metadata, picture, orientation, color_profile, permit })))
    }
}

#[cfg(test)]
mod tests {
    use photofinish_store::model::ids::OrganizationId;
    use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

    use super::*;
    use crate::image::pool::{BufferPool, PooledFile};
    use crate::settings::Limits;
    use crate::testing::lease_of;

    /// A grey JPEG.
    fn jpeg(width: usize, height: usize) -> Vec<u8> {
        let pixels = vec![128; width * height * 3];
        let mut compressor = Compressor::new().unwrap();
        compressor.set_quality(80).unwrap();
        compressor.set_subsamp(Subsamp::Sub2x2).unwrap();
        let image = Image { pixels: &pixels[..], width, pitch: width * 3, height, format: PixelFormat::RGB };
        compressor.compress_to_vec(image).unwrap()
    }

    /// Each was counted with more than an organization has, and there is one such photo at a time in all.
    #[test]
    fn phones_photos_of_two_organizations_are_decoded_at_once_on_two_cores() {
        let (file, pool) = (jpeg(4032, 3024), BufferPool::default());
        let files = Budget::new(1 << 20);
        // The default for two cores.
        let pixels = Budget::new(2 * 56_000_000);
        let limits = Limits { max_file_bytes: 50 << 20, max_pixels: 200_000_000, reads_heic: false };
        let decoder = Decoder::new(limits, pool.clone()).unwrap();
        let mut stage = Decode { decoder, pixel_budget: pixels.clone(), max_cells: 16 };
        let mut decoded = Vec::new();
        for number in 0..2 {
            let organization = OrganizationId::generate();
            let photo = FetchedPhoto {
                lease: Arc::new(lease_of(organization)),
                bytes: PooledFile::new(file.clone(), &pool),
                watermark: None,
                _permit: files.acquire(organization, 1).unwrap(),
            };
            let step = stage.step(&[photo], &[Vec::new()]).unwrap().remove(0).unwrap();
            let Step::Done(photo) = step else { panic!("photo {number} waits for memory") };
            decoded.push(photo);
        }
        let bytes: usize = decoded.iter().map(|photo| photo.permit.bytes()).sum();
        assert_eq!(pixels.used(), bytes);
    }
}
