//! Detects text: places a part of the photo on the network's canvas and turns the network's probability map into boxes in
//! photo coordinates. Does not read the texts.

use std::ops::{Range, RangeInclusive};

use photofinish_kernels::device::Device;
use photofinish_kernels::geometry::{Point, Quad};
use photofinish_kernels::image::frame::{Frame, Size, Window};
use photofinish_kernels::image::tensor::{Channels, Normalisation, Slot, Tensor};
use photofinish_kernels::regions::{DbParameters, DbPostprocess, DetectedBox, ProbabilityMap};
use photofinish_kernels::resize::letterbox::Letterbox;

use super::torso::{CanvasRows, Region, Runner, TorsoPass};
use super::torso_detector::TorsoLook;
use crate::bucket::{Bucket, padded};
use crate::onnx::session::Network;
use crate::traits::{Interrupt, ModelError};

/// Pixels from -1 to 1, as all PP-OCR networks take them; the canvas around the photo is black.
const INPUT_NORMALISATION: Normalisation =
    Normalisation { channels: Channels::Bgr, mean: [127.5; 3], scale: [2.0 / 255.0; 3], padding: -1.0 };

/// A text nearer to a side of its region than this part of the region's width is cut off by it (step 7).
const EDGE_MARGIN: f32 = 0.02;

/// A text with a lower ratio of width to height is vertical: its width is the height of its letters.
const VERTICAL_TEXT_RATIO: f32 = 1.0 / 1.5;

/// Least height of a readable text, in pixels of the photo (step 7).
const MIN_TEXT_HEIGHT: f32 = 6.0;

/// Heights of boxes around a bib's text, in units of the runner (step 7); the digits themselves are .34 to .91 high.
const BIB_HEIGHTS: RangeInclusive<f32> = 0.25..=1.2;

/// Distance to either side of a runner's middle, in units, within which the text probability is the runner's (step 13).
const TEXT_PROBABILITY_REACH: f32 = 1.5;

/// The sides of a scaled full frame are multiples of this, in pixels.
const SIZE_MULTIPLE: f32 = 32.0;

/// Shorter side over longer of the canvases for full frames. There are few because a runtime keeps prepared memory per
/// shape: about 20 MB in OpenVINO, which grew past 1 GB over an album of cropped photos.
const FULL_FRAME_ASPECTS: [f32; 3] = [2.0 / 3.0, 3.0 / 4.0, 1.0];

/// Largest factor by which a full frame is enlarged (step 15).
const MAX_ENLARGEMENT: f32 = 2.0;

/// A text detection network. Keeps its buffers between calls.
pub(super) struct TextDetector {
    network: Network,
    input: Tensor,
    letterbox: Letterbox,
    postprocess: DbPostprocess,
    parameters: &'static DbParameters,
    /// Canvases per call.
    bucket: Bucket,
}

/// Texts detected on a torso.
#[derive(Debug, Default)]
pub(super) struct TorsoTexts {
    /// Texts that may be bibs, in pixels of the photo.
    pub(super) texts: Vec<Quad>,
    /// The highest text probability around the runner.
    pub(super) text_probability: f32,
}

/// A torso on the canvas of a pass.
#[derive(Clone)]
pub(super) struct ShownTorso<'a> {
    /// The rows of the canvas that the network sees.
    pub(super) rows: CanvasRows,
    photo: Size,
    unit: f32,
    region: Region,
    zoom: f32,
    placement: CanvasPlacement<'a>,
}

/// Where a part of a photo goes on the canvas: scaled to `size`, in the top left corner, without the first rows.
#[derive(Clone)]
struct CanvasPlacement<'a> {
    window: Window<'a>,
    size: Size,
    skipped_rows: u32,
    canvas: Size,
    /// Columns of the map whose highest probability is wanted.
    columns: Range<usize>,
}

/// Boxes in the map of a canvas, in its pixels.
struct DetectedBoxes {
    boxes: Vec<DetectedBox>,
    max_probability: f32,
}

impl<'a> ShownTorso<'a> {
    /// Shows these rows of the canvas of a pass; `None` when the torso is outside the photo.
    pub(super) fn new(pass: &TorsoPass, look: &TorsoLook<'a>, rows: CanvasRows) -> Option<Self> {
        let TorsoLook { frame, runner, .. } = *look;
        let photo = frame.size();
        let region = runner.region(pass, photo)?;
        let zoom = runner.zoom(pass);
        let placement = CanvasPlacement {
            window: frame.window(region.left, region.top, region.size)?,
            size: region.scaled_size(zoom),
            skipped_rows: rows.first,
            canvas: Size { width: pass.canvas.width, height: rows.count },
            columns: probability_columns(runner, &region, zoom),
        };
        Some(Self { rows, photo, unit: runner.unit, region, zoom, placement })
    }

    fn to_texts(&self, found: DetectedBoxes) -> TorsoTexts {
        let Self { rows, photo, unit, region, zoom, .. } = self;
        let (left, top) = (region.left as f32, region.top as f32 + rows.first as f32 / zoom);
        let in_photo = |found: DetectedBox| {
            Quad(found.quad.0.map(|corner| Point { x: corner.x / zoom + left, y: corner.y / zoom + top }))
        };
        let may_be_bib = |quad: &Quad| !is_cut_off(quad, region, *photo) && has_bib_height(quad, *unit);
        let texts = found.boxes.into_iter().map(in_photo).filter(may_be_bib).collect();
        TorsoTexts { texts, text_probability: found.max_probability }
    }
}

impl TextDetector {
    pub(super) fn new(
        device: &Device,
        network: Network,
        parameters: &'static DbParameters,
        bucket: Bucket,
    ) -> Self {
        let (letterbox, postprocess) = (Letterbox::new(device), DbPostprocess::default());
        Self { network, input: Tensor::default(), letterbox, postprocess, parameters, bucket }
    }

    /// Detects texts on torsos that are shown in as many rows as the network has.
    pub(super) fn detect_on_torsos(
        &mut self,
        torsos: &[ShownTorso<'_>],
        interrupt: &Interrupt,
    ) -> Result<Vec<TorsoTexts>, ModelError> {
        let placements: Vec<&CanvasPlacement<'_>> = torsos.iter().map(|torso| &torso.placement).collect();
        let found = self.detect(&placements, interrupt)?;
        Ok(torsos.iter().zip(found).map(|(torso, found)| torso.to_texts(found)).collect())
    }

    /// Detects texts anywhere in photos scaled to about `long_side` pixels (step 15).
    pub(super) fn detect_full_frames(
        &mut self,
        frames: &[Frame<'_>],
        long_side: u32,
        interrupt: &Interrupt,
    ) -> Result<Vec<Vec<Quad>>, ModelError> {
        let placements: Vec<CanvasPlacement<'_>> =
            frames.iter().map(|frame| place_full_frame(*frame, long_side)).collect();
        let mut texts: Vec<Vec<Quad>> = frames.iter().map(|_| Vec::new()).collect();
        let mut remaining: Vec<usize> = (0..frames.len()).collect();
        while let Some(&first) = remaining.first() {
            let canvas = placements[first].canvas;
            let (group, rest): (Vec<usize>, _) =
                remaining.into_iter().partition(|&index| placements[index].canvas == canvas);
            let of_canvas: Vec<_> = group.iter().map(|&index| &placements[index]).collect();
            for (index, found) in group.into_iter().zip(self.detect(&of_canvas, interrupt)?) {
                texts[index] = found.into_quads(frames[index].size(), placements[index].size);
            }
            remaining = rest;
        }
        Ok(texts)
    }

    /// Runs the network on placements on canvases of one size, in as few calls as the bucket allows.
    fn detect(
        &mut self,
        placements: &[&CanvasPlacement<'_>],
        interrupt: &Interrupt,
    ) -> Result<Vec<DetectedBoxes>, ModelError> {
        let mut bucket = self.bucket;
        let found = bucket.run(placements, |part| {
            interrupt.check()?;
            self.detect_in_call(part)
        });
        self.bucket = bucket;
        found
    }

    /// The pixels are placed by this thread also where the network runs on a device: the canvases of torsos are less to copy
    /// there than the photos.
    fn detect_in_call(
        &mut self,
        placements: &[&CanvasPlacement<'_>],
    ) -> Result<Vec<DetectedBoxes>, ModelError> {
        let Some(first) = placements.first() else { return Ok(Vec::new()) };
        let canvas = first.canvas;
        self.input.reshape([padded(placements.len()), 3, canvas.height as usize, canvas.width as usize]);
        for (item, placement) in placements.iter().enumerate() {
            let CanvasPlacement { window, size, skipped_rows, .. } = **placement;
            let slot = Slot { tensor: &mut self.input, item, normalisation: &INPUT_NORMALISATION };
            self.letterbox.place_rows(window, size, skipped_rows, slot);
        }
        let outputs = self.network.run(&self.input)?;
        let output = outputs.first()?;
        let maps = output.values.chunks_exact(canvas.area().max(1));
        if maps.len() != padded(placements.len()) || !maps.remainder().is_empty() {
            return Err(ModelError::Inference {
                name: "text detector".into(),
                detail: format!(
                    "maps of shape {:?} for {} canvases of {} x {}",
                    output.shape,
                    placements.len(),
                    canvas.width,
                    canvas.height
                ),
            });
        }
        let maps = maps.filter_map(|values| ProbabilityMap::new(values, canvas));
        let found = placements.iter().zip(maps).map(|(placement, map)| DetectedBoxes {
            max_probability: map.max_in_columns(placement.columns.start, placement.columns.end),
            boxes: self.postprocess.find_boxes(map, self.parameters),
        });
        Ok(found.collect())
    }
}

impl DetectedBoxes {
    /// The boxes of a photo of which the canvas shows all, scaled to `shown`, in pixels of the photo.
    fn into_quads(self, photo: Size, shown: Size) -> Vec<Quad> {
        let x_scale = photo.width as f32 / shown.width as f32;
        let y_scale = photo.height as f32 / shown.height as f32;
        let in_photo = |found: DetectedBox| {
            Quad(found.quad.0.map(|corner| Point { x: corner.x * x_scale, y: corner.y * y_scale }))
        };
        self.boxes.into_iter().map(in_photo).collect()
    }
}

fn place_full_frame(frame: Frame<'_>, long_side: u32) -> CanvasPlacement<'_> {
    let (size, canvas) = full_frame_sizes(frame.size(), long_side);
    CanvasPlacement { window: frame.as_window(), size, skipped_rows: 0, canvas, columns: 0..0 }
}

/// Returns the size that a full frame is scaled to, and its canvas.
fn full_frame_sizes(photo: Size, long_side: u32) -> (Size, Size) {
    let to_multiple = |side: f32| (side / SIZE_MULTIPLE).round_ties_even().max(1.0) * SIZE_MULTIPLE;
    let zoom = (long_side as f32 / photo.width.max(photo.height) as f32).min(MAX_ENLARGEMENT);
    let (width, height) = (to_multiple(photo.width as f32 * zoom), to_multiple(photo.height as f32 * zoom));
    let long = to_multiple(long_side as f32);
    let shorts = FULL_FRAME_ASPECTS.map(|part| to_multiple(long * part));
    let short = shorts.into_iter().find(|&short| short >= width.min(height)).unwrap_or(long);
    let size = |width: f32, height: f32| Size { width: width as u32, height: height as u32 };
    let canvas = if photo.width >= photo.height { size(long, short) } else { size(short, long) };
    (size(width, height), canvas)
}

fn probability_columns(runner: &Runner, region: &Region, zoom: f32) -> Range<usize> {
    let column = |x: f32| ((x - region.left as f32) * zoom).max(0.0) as usize;
    let reach = TEXT_PROBABILITY_REACH * runner.unit;
    column(runner.middle - reach)..column(runner.middle + reach)
}

/// Whether a text touches a side of its region that is not a side of the photo.
fn is_cut_off(quad: &Quad, region: &Region, photo: Size) -> bool {
    let (text, region_rect) = (quad.bounds(), region.rect());
    let margin = EDGE_MARGIN * region_rect.width();
    let left = region.left > 0 && text.left < region_rect.left + margin;
    let right = region_rect.right < photo.width as f32 && text.right > region_rect.right - margin;
    left || right
}

fn has_bib_height(quad: &Quad, unit: f32) -> bool {
    let (width, height) = quad.size();
    let height = if width / height < VERTICAL_TEXT_RATIO { width } else { height };
    height >= MIN_TEXT_HEIGHT && BIB_HEIGHTS.contains(&(height / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHOTO: Size = Size { width: 1000, height: 800 };
    const REGION: Region = Region { left: 400, top: 300, size: Size { width: 200, height: 300 } };

    fn upright(left: f32, top: f32, width: f32, height: f32) -> Quad {
        let corner = |x: f32, y: f32| Point { x: left + x, y: top + y };
        Quad([corner(0.0, 0.0), corner(width, 0.0), corner(width, height), corner(0.0, height)])
    }

    #[test]
    fn a_text_at_the_side_of_its_region_is_cut_off_unless_the_photo_ends_there() {
        assert!(is_cut_off(&upright(401.0, 350.0, 90.0, 40.0), &REGION, PHOTO));
        assert!(is_cut_off(&upright(500.0, 350.0, 99.0, 40.0), &REGION, PHOTO));
        assert!(!is_cut_off(&upright(405.0, 350.0, 190.0, 40.0), &REGION, PHOTO));
        assert!(!is_cut_off(&upright(450.0, 299.0, 90.0, 40.0), &REGION, PHOTO));
        let at_left = Region { left: 0, ..REGION };
        assert!(!is_cut_off(&upright(0.0, 350.0, 90.0, 40.0), &at_left, PHOTO));
        let at_right = Region { left: 800, ..REGION };
        assert!(!is_cut_off(&upright(905.0, 350.0, 95.0, 40.0), &at_right, PHOTO));
    }

    #[test]
    fn the_height_of_letters_decides_for_vertical_text_too() {
        assert!(has_bib_height(&upright(0.0, 0.0, 100.0, 30.0), 50.0));
        assert!(!has_bib_height(&upright(0.0, 0.0, 100.0, 12.0), 50.0));
        assert!(!has_bib_height(&upright(0.0, 0.0, 200.0, 61.0), 50.0));
        assert!(!has_bib_height(&upright(0.0, 0.0, 20.0, 5.5), 20.0));
        assert!(has_bib_height(&upright(0.0, 0.0, 30.0, 100.0), 50.0));
    }

    #[test]
    fn a_full_frame_is_scaled_to_multiples_of_32_and_at_most_doubled() {
        let sides = |width, height, long_side| {
            let (size, canvas) = full_frame_sizes(Size { width, height }, long_side);
            [(size.width, size.height), (canvas.width, canvas.height)]
        };
        assert_eq!(sides(2048, 1365, 960), [(960, 640), (960, 640)]);
        assert_eq!(sides(1536, 2048, 960), [(704, 960), (704, 960)]);
        assert_eq!(sides(2048, 1152, 960), [(960, 544), (960, 640)]);
        assert_eq!(sides(900, 900, 1280), [(1280, 1280), (1280, 1280)]);
        assert_eq!(sides(300, 200, 960), [(608, 384), (960, 640)]);
        assert_eq!(sides(2048, 20, 960), [(960, 32), (960, 640)]);
    }

    #[test]
    fn full_frames_of_all_shapes_use_few_canvases() {
        let mut canvases = std::collections::HashSet::new();
        for (width, height) in (1..=64).flat_map(|w| (1..=64).map(move |h| (w * 32, h * 32))) {
            let (size, canvas) = full_frame_sizes(Size { width, height }, 960);
            assert!(size.width <= canvas.width && size.height <= canvas.height, "{size:?} on {canvas:?}");
            canvases.insert(canvas);
        }
        assert_eq!(canvases.len(), 5);
    }

    #[test]
    fn the_text_probability_is_taken_around_the_runner() {
        let runner = Runner { unit: 50.0, middle: 490.0, chin: 250.0 };
        assert_eq!(probability_columns(&runner, &REGION, 2.0), 30..330);
        let at_the_edge = Runner { middle: 440.0, ..runner };
        assert_eq!(probability_columns(&at_the_edge, &REGION, 2.0), 0..230);
    }
}
