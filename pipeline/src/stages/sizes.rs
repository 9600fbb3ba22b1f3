//! The sizes in which an upright photo is needed: for networks, as preview, as thumbnail.

use photofinish_kernels::image::frame::Size;
use photofinish_kernels::image::orient::Orientation;
use photofinish_kernels::resize::MAX_KEPT_BYTES;
use photofinish_store::model::album::{AlbumConfig, Recognition};

use crate::stages::grid;

/// Long side of the frame for networks, pixels: bib reading was tuned at this size (docs/READING.md, step 1).
pub(crate) const WORKING_LONG_SIDE: u32 = 2048;

/// Bytes per pixel that are reserved for the preview files. JPEG files of quality 80 take about a fifth of that.
const ENCODED_BYTES_PER_PIXEL: usize = 1;

/// Bytes per pixel of a picture.
const RGB_BYTES: usize = 3;

/// What the sizes are made from, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResizeSource {
    /// The size of the decoded picture, as it is stored.
    pub(crate) size: Size,
    /// The transform that turns it upright.
    pub(crate) orientation: Orientation,
    /// Whether a watermark is drawn on a copy of the preview.
    pub(crate) is_marked: bool,
}

/// The sizes needed of one photo. None is larger than the photo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutputSizes {
    /// The frame for networks.
    pub(crate) frame: Size,
    /// The preview.
    pub(crate) preview: Size,
    /// The thumbnail, for lists.
    pub(crate) thumbnail: Size,
}

impl OutputSizes {
    /// Computes the sizes for an upright photo of size `photo` in an album with this configuration, whose grids are divided
    /// into at most `max_cells`.
    pub(crate) fn for_photo(photo: Size, config: &AlbumConfig, max_cells: u32) -> Self {
        let grid_long_side = |recognition: &Recognition| {
            grid::grid_of(recognition).map_or(0, |grid| grid::frame_long_side(grid, photo, max_cells))
        };
        let working = WORKING_LONG_SIDE.max(grid_long_side(&config.face)).max(grid_long_side(&config.text));
        Self {
            frame: photo.fit_within(working),
            preview: photo.fit_within(config.preview_max_dimension.max(1)),
            thumbnail: photo.fit_within(config.thumbnail_max_dimension.max(1)),
        }
    }

    /// The sizes in the order in which pictures are made of them, each from the one before: the most pixels first.
    pub(crate) fn largest_first(&self) -> [Size; 3] {
        let mut sizes = [self.frame, self.preview, self.thumbnail];
        sizes.sort_by_key(|size| std::cmp::Reverse(size.area()));
        sizes
    }

    /// The size with the most pixels: the others are made from it.
    pub(crate) fn largest(&self) -> Size {
        self.largest_first()[0]
    }

    /// The long side of the largest size, pixels.
    pub(crate) fn long_side(&self) -> u32 {
        self.largest().long_side()
    }

    /// Bytes that resizing takes at most beside the decoded photo. First the largest picture is made, and where its sides are
    /// swapped, turned into a second buffer. Then the smaller ones are made from it, and at last the files from all of them: that
    /// of the copy with the watermark last.
    pub(crate) fn memory_bytes(&self, source: ResizeSource) -> usize {
        let [largest, smaller @ ..] = self.largest_first();
        let stored = source.orientation.transform_size(largest);
        let mut pictures = rgb_bytes(largest);
        let turned = if source.orientation.swaps_sides() { pictures } else { 0 };
        let mut peak = pictures + turned.max(resizer_bytes(source.size, stored));
        let mut larger = largest;
        for size in smaller {
            // Pictures of equal size are shared.
            if size != larger {
                pictures += rgb_bytes(size);
                peak = peak.max(pictures + resizer_bytes(larger, size));
                larger = size;
            }
        }
        let files = (self.preview.area() + self.thumbnail.area()) * ENCODED_BYTES_PER_PIXEL;
        let marked =
            if source.is_marked { self.preview.area() * (RGB_BYTES + ENCODED_BYTES_PER_PIXEL) } else { 0 };
        peak.max(pictures + files + marked)
    }
}

fn rgb_bytes(size: Size) -> usize {
    size.area() * RGB_BYTES
}

/// Bytes that resizing takes for the rows between its two passes, as wide as the source and as high as the target, beyond what
/// each thread keeps anyway. A picture that keeps its size is copied.
fn resizer_bytes(source: Size, target: Size) -> usize {
    if source == target {
        return 0;
    }
    let between = Size { width: source.width, height: target.height };
    rgb_bytes(between).saturating_sub(MAX_KEPT_BYTES)
}

#[cfg(test)]
mod tests {
    use photofinish_store::model::album::{Grid, RecognitionMode};

    use super::*;
    use crate::testing::album_config;

    const PHOTO: Size = Size { width: 6000, height: 4000 };

    #[test]
    fn the_largest_consumer_decides() {
        let mut config = album_config();
        assert_eq!(OutputSizes::for_photo(PHOTO, &config, 16).long_side(), 2048);
        config.preview_max_dimension = 4096;
        assert_eq!(OutputSizes::for_photo(PHOTO, &config, 16).long_side(), 4096);
        config.thumbnail_max_dimension = 5000;
        assert_eq!(OutputSizes::for_photo(PHOTO, &config, 16).long_side(), 5000);
        config.preview_max_dimension = 512;
        config.thumbnail_max_dimension = 64;
        assert_eq!(OutputSizes::for_photo(PHOTO, &config, 16).long_side(), 2048);
    }

    #[test]
    fn nothing_is_larger_than_the_photo() {
        let small = Size { width: 300, height: 700 };
        let sizes = OutputSizes::for_photo(small, &album_config(), 16);
        assert_eq!((sizes.frame, sizes.preview), (small, small));
        assert_eq!(sizes.thumbnail, Size { width: 219, height: 512 });
    }

    #[test]
    fn a_grid_needs_more_pixels_only_while_it_is_enabled() {
        let mut config = album_config();
        config.face.mode = RecognitionMode::Grid;
        config.face.grid = Some(Grid { rows: 2, columns: 3, cell_width: 2000, cell_height: 2000 });
        assert!(OutputSizes::for_photo(PHOTO, &config, 16).long_side() > 4000);
        config.face.enabled = false;
        assert_eq!(OutputSizes::for_photo(PHOTO, &config, 16).long_side(), 2048);
    }

    /// A phone's photo of 12 megapixels, as it is stored. Half of its size is too small for the frame, so it is decoded at full
    /// size.
    const PHONE: Size = Size { width: 4032, height: 3024 };

    /// What resizing a phone's photo takes beside the decoded picture.
    fn phone_bytes(orientation: Orientation, is_marked: bool) -> usize {
        let source = ResizeSource { size: PHONE, orientation, is_marked };
        OutputSizes::for_photo(orientation.transform_size(PHONE), &album_config(), 16).memory_bytes(source)
    }

    #[test]
    fn a_second_picture_is_counted_only_where_there_is_one() {
        let (frame, thumbnail) = (2048 * 1536, 512 * 384);
        let files = frame + thumbnail;
        let pictures = 3 * (frame + thumbnail);
        // Mirrored and upside down are turned in place.
        for orientation in [Orientation::Upright, Orientation::FlipHorizontal, Orientation::Rotate180] {
            assert_eq!(phone_bytes(orientation, false), pictures + files, "{orientation:?}");
        }
        assert_eq!(phone_bytes(Orientation::Rotate90, false), 2 * 3 * frame);
        // The copy and its file.
        for orientation in [Orientation::Upright, Orientation::Rotate270] {
            assert_eq!(
                phone_bytes(orientation, true),
                pictures + files + 3 * frame + frame,
                "{orientation:?}"
            );
        }
    }

    #[test]
    fn a_phones_photo_fits_into_what_an_organization_has_on_two_cores() {
        // Half of the default pixel budget of two cores: 56 MB per core.
        const SHARE_BYTES: usize = 56_000_000;
        for orientation in (1..=8).map(Orientation::from_exif) {
            let bytes = PHONE.area() * 3 + phone_bytes(orientation, false);
            assert!(bytes <= SHARE_BYTES, "{orientation:?}: {bytes} bytes");
        }
    }

    #[test]
    fn the_buffer_of_the_resizer_is_counted_where_it_is_more_than_a_thread_keeps() {
        let giant = Size { width: 14_142, height: 14_142 };
        let source = ResizeSource { size: giant, orientation: Orientation::Upright, is_marked: false };
        let bytes = OutputSizes::for_photo(giant, &album_config(), 16).memory_bytes(source);
        assert_eq!(bytes, 2048 * 2048 * 3 + (14_142 * 2048 * 3 - MAX_KEPT_BYTES));
        let whole = OutputSizes { frame: giant, preview: giant, thumbnail: giant };
        assert_eq!(whole.memory_bytes(source), giant.area() * 3 + 2 * giant.area(), "copied, and two files");
    }
}
