//! The bib gate: a small network that looks at every torso before text is detected, and says whether a number may be there
//! and in which rows. Torsos without one, and the rest of the others, are not worth the text detector, which takes a hundred
//! times as long. `models/train` trains it with the text detector and the recogniser as teachers.

use std::fmt;
use std::ops::Range;

use photofinish_kernels::device::Device;
use photofinish_kernels::image::frame::{Frame, Size};
use photofinish_kernels::image::tensor::{Channels, Normalisation, Slot, Tensor};
use photofinish_kernels::resize::letterbox::Letterbox;

use super::torso::{FIRST_PASS, Runner};
use crate::onnx::session::{Network, Outputs};
use crate::traits::ModelError;

/// The gate's input, in pixels: 3/8 of the canvas of the first pass.
pub(super) const INPUT: Size = Size { width: 96, height: 144 };

/// Rows and columns of the gate's map.
const CELL_ROWS: usize = 12;
const CELL_COLUMNS: usize = 8;

/// Which of the map's two planes is that of numbers; the other is that of any text.
const NUMBER_PLANE: usize = 1;

/// Pixels as they are; the network normalises them. The rest is black.
const NORMALISATION: Normalisation = Normalisation::raw(Channels::Bgr);

/// A cell may show a number when its probability is above this or half of the torso's, whichever is less.
const CELL_PROBABILITY: f32 = 0.05;
const CELL_PART_OF_SCORE: f32 = 0.5;

/// Names of the thresholds in the file's metadata.
const SKIP_BELOW: &str = "skip_below";
const SECOND_PASS_FROM: &str = "second_pass_from";
const SMALL_FROM: &str = "small_from";

/// From which score on a torso is read. Training moves scores, so a file names its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateThresholds {
    /// Torsos with a lower score are not read.
    pub skip_below: f32,
    /// Least score for a second pass.
    pub second_pass_from: f32,
    /// Least score at which the torso of a small runner is read, and at which one where the text detector saw nothing gets a
    /// second pass.
    pub small_from: f32,
}

/// Whose torsos the gate decides about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateScope {
    /// Small runners only: few of them have a readable bib, and all others are read.
    Small,
    /// All runners.
    All,
}

impl Default for GateThresholds {
    /// For files that name none: two trainings of this network kept .99 of the accepted numbers at this score.
    fn default() -> Self {
        Self { skip_below: 0.05, second_pass_from: 0.0, small_from: 0.1 }
    }
}

impl fmt::Display for GateThresholds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { skip_below, second_pass_from, small_from } = self;
        write!(
            f,
            "torsos below {skip_below} are skipped, those of small runners below {small_from}, a second pass from \
             {second_pass_from}"
        )
    }
}

impl GateThresholds {
    /// Takes the thresholds from metadata, which `entry` returns by name.
    ///
    /// # Errors
    /// `File` when one is not a number from 0 to 1.
    fn from_metadata(name: &str, entry: impl Fn(&str) -> Option<String>) -> Result<Self, ModelError> {
        let threshold = |key: &str, default: f32| {
            let Some(text) = entry(key) else { return Ok(default) };
            let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
            number.ok_or_else(|| ModelError::File {
                name: name.to_owned(),
                detail: format!("its {key} is {text:?}, must be a number from 0 to 1"),
            })
        };
        let default = Self::default();
        Ok(Self {
            skip_below: threshold(SKIP_BELOW, default.skip_below)?,
            second_pass_from: threshold(SECOND_PASS_FROM, default.second_pass_from)?,
            small_from: threshold(SMALL_FROM, default.small_from)?,
        })
    }
}

/// A loaded gate. Keeps its buffers between calls.
pub struct BibGate {
    network: Network,
    thresholds: GateThresholds,
    scope: GateScope,
    input: Tensor,
    letterbox: Letterbox,
}

/// What the gate says of a torso.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GateOpinion {
    /// Probability of a number, 0 to 1.
    pub(super) score: f32,
    /// Rows of cells that may show it, of [`CELL_ROWS`].
    pub(super) rows: Range<u32>,
}

impl BibGate {
    /// Wraps a loaded network, and runs it once.
    ///
    /// # Errors
    /// `File` when it is not a bib gate or its thresholds are no probabilities.
    pub fn new(device: &Device, network: Network, scope: GateScope) -> Result<Self, ModelError> {
        let thresholds = GateThresholds::from_metadata(network.name(), |key| network.metadata(key))?;
        let (letterbox, input) = (Letterbox::new(device), Tensor::default());
        let mut gate = Self { network, thresholds, scope, input, letterbox };
        gate.input.reshape([1, 3, INPUT.height as usize, INPUT.width as usize]);
        gate.run().map_err(|error| ModelError::File {
            name: gate.network.name().to_owned(),
            detail: format!("not a bib gate: {error}"),
        })?;
        Ok(gate)
    }

    /// From which scores on torsos are read.
    pub fn thresholds(&self) -> GateThresholds {
        self.thresholds
    }

    /// The least score at which a runner is read; `None` where every one is.
    pub(super) fn least_score(&self, runner: &Runner) -> Option<f32> {
        match self.scope {
            _ if runner.is_small() => Some(self.thresholds.small_from),
            GateScope::All => Some(self.thresholds.skip_below),
            GateScope::Small => None,
        }
    }

    /// Looks at the torso of a runner; nothing is there when it is outside the photo.
    pub(super) fn look(&mut self, frame: Frame<'_>, runner: &Runner) -> Result<GateOpinion, ModelError> {
        let region = runner.region(&FIRST_PASS, frame.size());
        let window = region.and_then(|region| frame.window(region.left, region.top, region.size));
        let (Some(region), Some(window)) = (region, window) else {
            return Ok(GateOpinion { score: 0.0, rows: 0..0 });
        };
        let zoom = runner.zoom(&FIRST_PASS) * INPUT.width as f32 / FIRST_PASS.canvas.width as f32;
        self.input.reshape([1, 3, INPUT.height as usize, INPUT.width as usize]);
        let slot = Slot { tensor: &mut self.input, item: 0, normalisation: &NORMALISATION };
        self.letterbox.place(window, region.scaled_size(zoom), slot);
        self.run()
    }

    fn run(&mut self) -> Result<GateOpinion, ModelError> {
        let outputs = self.network.run(&self.input)?;
        let numbers = read_plane(&outputs, "score", 1)?[0];
        let cells = read_plane(&outputs, "map", CELL_ROWS * CELL_COLUMNS)?;
        Ok(GateOpinion { score: numbers, rows: rows_with_number(cells, numbers) })
    }
}

/// Returns the plane of numbers of an output with two planes of `length` values.
fn read_plane<'o>(outputs: &'o Outputs<'_>, name: &str, length: usize) -> Result<&'o [f32], ModelError> {
    let output = outputs.get(name)?;
    if output.values.len() != 2 * length {
        return Err(ModelError::Inference {
            name: "bib gate".into(),
            detail: format!("{name} of shape {:?}, must have two planes of {length}", output.shape),
        });
    }
    Ok(&output.values[NUMBER_PLANE * length..][..length])
}

/// Returns the rows of cells that may show a number, those between them included.
fn rows_with_number(cells: &[f32], score: f32) -> Range<u32> {
    let least = CELL_PROBABILITY.min(score * CELL_PART_OF_SCORE);
    let may_show = |row: &[f32]| row.iter().any(|&probability| probability > least);
    let mut rows = cells.chunks_exact(CELL_COLUMNS).map(may_show);
    let first = rows.clone().position(|may_show| may_show).unwrap_or(0);
    let end = rows.rposition(|may_show| may_show).map_or(first, |row| row + 1);
    first as u32..end as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(marked: &[(usize, usize, f32)]) -> Vec<f32> {
        let mut cells = vec![0.001; CELL_ROWS * CELL_COLUMNS];
        for &(row, column, probability) in marked {
            cells[row * CELL_COLUMNS + column] = probability;
        }
        cells
    }

    #[test]
    fn the_input_has_the_shape_of_the_first_pass() {
        let canvas = FIRST_PASS.canvas;
        assert_eq!(INPUT.width * canvas.height, INPUT.height * canvas.width);
        assert_eq!(canvas.height as usize / CELL_ROWS, canvas.width as usize / CELL_COLUMNS);
    }

    #[test]
    fn rows_are_those_of_all_cells_that_may_show_a_number() {
        assert_eq!(rows_with_number(&cells(&[(4, 3, 0.9), (5, 2, 0.06), (9, 1, 0.051)]), 0.9), 4..10);
        assert_eq!(rows_with_number(&cells(&[(4, 3, 0.9), (9, 1, 0.05)]), 0.9), 4..5);
        assert_eq!(rows_with_number(&cells(&[(0, 0, 0.9), (11, 7, 0.9)]), 0.9), 0..12);
    }

    #[test]
    fn of_a_faint_number_the_cells_of_half_its_score_count() {
        assert_eq!(rows_with_number(&cells(&[(6, 3, 0.06), (7, 3, 0.04), (8, 3, 0.02)]), 0.06), 6..8);
    }

    #[test]
    fn an_empty_map_has_no_rows() {
        assert_eq!(rows_with_number(&[0.0; CELL_ROWS * CELL_COLUMNS], 0.0), 0..0);
    }

    #[test]
    fn thresholds_come_from_the_file_or_are_the_default() {
        let read = |key: &str| (key == SKIP_BELOW).then(|| "0.03".to_owned());
        let thresholds = GateThresholds::from_metadata("gate", read).unwrap();
        assert_eq!(thresholds, GateThresholds { skip_below: 0.03, ..GateThresholds::default() });
        for wrong in ["-0.1", "1.5", "NaN", "a tenth"] {
            let error = GateThresholds::from_metadata("gate", |_| Some(wrong.to_owned())).unwrap_err();
            assert!(error.to_string().contains("skip_below"), "{error}");
        }
    }
}
