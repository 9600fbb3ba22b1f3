//! Estimates what a photo costs to process, from what is known when it waits. Knows neither the database nor the stages.

use crate::model::album::{AlbumConfig, Recognition, RecognitionMode};

/// The bytes of a photo of 24 megapixels, whose cost is the unit: it takes 0.2 s of CPU, half of it to decode (`bench cpu`
/// in `bench/RESULTS.md`). The estimate for photos whose size is unknown.
const TYPICAL_BYTES: u64 = 12 << 20;

/// How often networks run on cells of each photo of the album: about as often as such a photo costs one unit. `max_cells`
/// is the operator's limit for each kind of recognition.
pub(crate) fn count_cells(config: &AlbumConfig, max_cells: u32) -> u64 {
    let count = |recognition: &Recognition| match (recognition.mode, recognition.grid) {
        (RecognitionMode::Grid, Some(grid)) if recognition.enabled => {
            u64::from(grid.rows.saturating_mul(grid.columns).min(max_cells))
        }
        _ => 0,
    };
    count(&config.face) + count(&config.text)
}

/// Returns the cost of a photo in photos of 24 megapixels without a grid, 1 at least.
pub(crate) fn estimate_cost(cells: u64, size_bytes: Option<i64>) -> u64 {
    let bytes = size_bytes.map_or(TYPICAL_BYTES, i64::unsigned_abs);
    bytes.div_ceil(TYPICAL_BYTES).max(1).saturating_add(cells)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::album::{DEFAULT_BIB_PATTERN, Grid};

    fn config(face: Option<(u32, u32)>, text: Option<(u32, u32)>) -> AlbumConfig {
        let recognition = |cells: Option<(u32, u32)>| Recognition {
            enabled: true,
            confidence_threshold: 50.0,
            threshold_chosen: None,
            mode: if cells.is_some() { RecognitionMode::Grid } else { RecognitionMode::Photo },
            grid: cells.map(|(rows, columns)| Grid { rows, columns, cell_width: 640, cell_height: 640 }),
        };
        AlbumConfig {
            face: recognition(face),
            text: recognition(text),
            preview_max_dimension: 2048,
            preview_watermarked: false,
            thumbnail_max_dimension: 512,
            former_thumbnail_max_dimension: None,
            bib_pattern: DEFAULT_BIB_PATTERN.into(),
            start_list: Default::default(),
            bib_format: Default::default(),
            retention: Default::default(),
            rest: Default::default(),
        }
    }

    #[test]
    fn a_grid_costs_as_many_cells_as_the_operator_allows() {
        assert_eq!(count_cells(&config(None, None), 16), 0);
        assert_eq!(count_cells(&config(Some((2, 3)), Some((1, 1))), 16), 7);
        assert_eq!(count_cells(&config(Some((16, 16)), Some((16, 16))), 16), 32);
        assert_eq!(count_cells(&config(Some((16, 16)), None), 256), 256);
    }

    #[test]
    fn a_grid_that_does_not_run_costs_nothing() {
        let mut config = config(Some((4, 4)), Some((4, 4)));
        config.face.enabled = false;
        config.text.mode = RecognitionMode::Photo;
        assert_eq!(count_cells(&config, 16), 0);
    }

    #[test]
    fn a_large_photo_costs_more_than_a_small_one() {
        assert_eq!(estimate_cost(0, None), 1);
        assert_eq!(estimate_cost(0, Some(0)), 1);
        assert_eq!(estimate_cost(0, Some(1 << 20)), 1);
        assert_eq!(estimate_cost(0, Some(100 << 20)), 9);
        assert_eq!(estimate_cost(32, Some(1 << 20)), 33);
    }
}
