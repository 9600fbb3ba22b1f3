//! Detects text on torsos by one pass, on the whole canvas or on a window of it: the rows where the gate saw a number. Each
//! height of a window is a network of its own, because a network is fastest on one shape; the time is linear in the height.

use std::ops::Range;

use photofinish_kernels::device::Device;
use photofinish_kernels::image::frame::{Frame, Size};

use super::text_detector::{ShownTorso, TextDetector, TorsoTexts};
use super::torso::{CanvasRows, FIRST_PASS, Runner, TorsoPass};
use crate::bucket::Bucket;
use crate::onnx::session::Network;
use crate::traits::{Interrupt, ModelError};

/// Height of a cell of the gate's map, in pixels of the canvas of the first pass.
const CELL_HEIGHT: f32 = 32.0;

/// The text detectors of one pass.
pub(super) struct TorsoDetector {
    pass: &'static TorsoPass,
    /// By height of their input, lowest first; the last one is that of the whole canvas.
    detectors: Vec<(u32, TextDetector)>,
}

/// A torso to look at: that of a runner; in `cells`, rows of the gate's map, and around them, where they are given.
#[derive(Clone, Copy)]
pub(super) struct TorsoLook<'a> {
    pub(super) frame: Frame<'a>,
    pub(super) runner: &'a Runner,
    pub(super) cells: Option<&'a Range<u32>>,
}

impl TorsoDetector {
    /// Takes the networks of the pass's heights, lowest first, or that of the whole canvas alone; each is called with as many
    /// torsos as the bucket says.
    pub(super) fn new(
        device: &Device,
        pass: &'static TorsoPass,
        networks: Vec<Network>,
        bucket: Bucket,
    ) -> Self {
        let heights = pass.heights();
        let heights = &heights[heights.len().saturating_sub(networks.len())..];
        let detectors =
            networks.into_iter().map(|network| TextDetector::new(device, network, pass.postprocess, bucket));
        Self { pass, detectors: heights.iter().copied().zip(detectors).collect() }
    }

    /// Detects texts on torsos, of one photo or of several; none on a torso that is outside its photo.
    ///
    /// # Errors
    /// `Inference` when a network fails, `Interrupted` when calls are to end.
    pub(super) fn detect_all(
        &mut self,
        looks: &[TorsoLook<'_>],
        interrupt: &Interrupt,
    ) -> Result<Vec<TorsoTexts>, ModelError> {
        let heights = self.heights();
        let mut found: Vec<TorsoTexts> = looks.iter().map(|_| TorsoTexts::default()).collect();
        let shown: Vec<(usize, ShownTorso<'_>)> = looks
            .iter()
            .enumerate()
            .filter_map(|(index, look)| Some((index, self.show(look, &heights)?)))
            .collect();
        for (height, detector) in &mut self.detectors {
            let of_height = shown.iter().filter(|(_, torso)| torso.rows.count == *height);
            let (indices, torsos): (Vec<usize>, Vec<ShownTorso<'_>>) = of_height.cloned().unzip();
            let texts = detector.detect_on_torsos(&torsos, interrupt)?;
            indices.into_iter().zip(texts).for_each(|(index, texts)| found[index] = texts);
        }
        Ok(found)
    }

    /// The height of the network that sees a torso; `None` when nothing of it is in the photo.
    pub(super) fn height_for(&self, look: &TorsoLook<'_>) -> Option<u32> {
        self.show(look, &self.heights()).map(|torso| torso.rows.count)
    }

    fn heights(&self) -> Vec<u32> {
        self.detectors.iter().map(|(height, _)| *height).collect()
    }

    /// Which rows of the canvas show the torso; `None` when nothing of it is in the photo.
    fn show<'a>(&self, look: &TorsoLook<'a>, heights: &[u32]) -> Option<ShownTorso<'a>> {
        let whole = CanvasRows { first: 0, count: self.pass.canvas.height };
        let photo = look.frame.size();
        let span = look.cells.and_then(|cells| self.pass.rows_of_cells(photo, look.runner, cells));
        let rows = span.map_or(whole, |span| self.pass.place_window(span, heights));
        ShownTorso::new(self.pass, look, rows)
    }
}

impl TorsoPass {
    /// Heights of inputs, lowest first.
    pub(super) const fn heights(&self) -> [u32; 3] {
        [self.window_heights[0], self.window_heights[1], self.canvas.height]
    }

    /// Returns the rows of this pass's canvas where cells of the gate's map are, with the margin: from and to. `None` when
    /// there are no cells, or nothing of the torso is in the photo.
    fn rows_of_cells(&self, photo: Size, runner: &Runner, cells: &Range<u32>) -> Option<Range<f32>> {
        if cells.is_empty() {
            return None;
        }
        let (seen, shown) = (runner.region(&FIRST_PASS, photo)?, runner.region(self, photo)?);
        let cell = CELL_HEIGHT / runner.zoom(&FIRST_PASS);
        let row = |cells: f32| (seen.top as f32 + cells * cell - shown.top as f32) * runner.zoom(self);
        let margin = self.window_margin as f32;
        let height = self.canvas.height as f32;
        let from = row(cells.start as f32 - margin).clamp(0.0, height);
        Some(from..row(cells.end as f32 + margin).clamp(0.0, height))
    }

    /// Returns the lowest window that shows `span`, with the span in its middle as far as the canvas allows.
    fn place_window(&self, span: Range<f32>, heights: &[u32]) -> CanvasRows {
        let canvas = self.canvas.height;
        let count = heights.iter().copied().find(|&height| span.end - span.start <= height as f32);
        let count = count.unwrap_or(canvas);
        let step = self.window_step as f32;
        let above_middle = ((span.start + span.end - count as f32) / 2.0 / step + 0.5).floor() * step;
        CanvasRows { first: above_middle.clamp(0.0, (canvas - count) as f32) as u32, count }
    }
}

#[cfg(test)]
mod tests {
    use super::super::torso::{SECOND_PASS, THIRD_PASS};
    use super::*;

    const PHOTO: Size = Size { width: 2048, height: 1536 };

    fn first(cells: Range<u32>) -> CanvasRows {
        let runner = Runner { unit: 44.0, middle: 900.0, chin: 500.0 };
        let span = FIRST_PASS.rows_of_cells(PHOTO, &runner, &cells).unwrap();
        FIRST_PASS.place_window(span, &FIRST_PASS.heights())
    }

    #[test]
    fn few_rows_make_a_low_window_around_them() {
        // Two rows above and two below: 6 rows of cells of 32 pixels.
        assert_eq!(first(5..7), CanvasRows { first: 96, count: 192 });
        // 5 rows; the window is one row longer below than above.
        assert_eq!(first(5..6), CanvasRows { first: 96, count: 192 });
        assert_eq!(first(4..8), CanvasRows { first: 64, count: 256 });
        assert_eq!(first(2..8), CanvasRows { first: 0, count: 384 });
    }

    #[test]
    fn a_window_at_an_edge_stays_on_the_canvas() {
        assert_eq!(first(0..1), CanvasRows { first: 0, count: 192 });
        assert_eq!(first(11..12), CanvasRows { first: 192, count: 192 });
        assert_eq!(first(0..12), CanvasRows { first: 0, count: 384 });
    }

    #[test]
    fn windows_show_the_rows_and_stay_on_the_canvas_for_all_runners() {
        for pass in [&FIRST_PASS, &SECOND_PASS, &THIRD_PASS] {
            for unit in [20.0, 21.7, 33.0, 61.3, 88.0, 240.0] {
                for chin in [-80.0, 0.0, 333.3, 900.0, 1300.0] {
                    let runner = Runner { unit, middle: 1000.0, chin };
                    for start in 0..12 {
                        for end in start + 1..=12 {
                            check_window(pass, &runner, start..end);
                        }
                    }
                }
            }
        }
    }

    fn check_window(pass: &TorsoPass, runner: &Runner, cells: Range<u32>) {
        let Some(span) = pass.rows_of_cells(PHOTO, runner, &cells) else { return };
        let rows = pass.place_window(span.clone(), &pass.heights());
        let (from, to) = (rows.first as f32, (rows.first + rows.count) as f32);
        let what = format!("{rows:?} for {span:?} of {runner:?}");
        assert!(pass.heights().contains(&rows.count), "{what}");
        assert!(rows.first + rows.count <= pass.canvas.height, "{what}");
        assert_eq!(rows.first % pass.window_step, 0, "{what}");
        // Rounding moves a window by half a step at most; the margin is wider.
        let rounding = pass.window_step as f32 / 2.0;
        assert!(from <= span.start + rounding && to >= span.end - rounding, "{what}");
        let lower = pass.heights().into_iter().filter(|&height| height < rows.count);
        assert!(lower.max().is_none_or(|lower| span.end - span.start > lower as f32), "{what}");
    }

    #[test]
    fn no_cells_mean_the_whole_canvas() {
        let runner = Runner { unit: 44.0, middle: 900.0, chin: 500.0 };
        assert_eq!(FIRST_PASS.rows_of_cells(PHOTO, &runner, &(0..0)), None);
        let whole = FIRST_PASS.place_window(0.0..384.0, &[384]);
        assert_eq!(whole, CanvasRows { first: 0, count: 384 });
        assert_eq!(FIRST_PASS.place_window(100.0..120.0, &[384]), whole, "one network: no windows");
    }

    #[test]
    fn the_second_pass_looks_where_the_first_one_did() {
        let runner = Runner { unit: 56.0, middle: 900.0, chin: 500.0 };
        // Cells 4 and 5 are 2.155 u to 2.882 u below the chin (.7 u + row * 32 / 88), with two cells around them 1.427 u to
        // 3.609 u; the second canvas begins at .8 u and has 112 pixels for each u.
        let span = SECOND_PASS.rows_of_cells(PHOTO, &runner, &(4..6)).unwrap();
        assert!((span.start - 70.3).abs() < 2.0 && (span.end - 314.6).abs() < 2.0, "{span:?}");
        assert_eq!(SECOND_PASS.place_window(span, &SECOND_PASS.heights()).count, 256);
    }
}
