//! The reference: each row and probe with the arithmetic of the kernels.

use super::plan::Bounds;
use super::types::NearRows;
use crate::quantised::{ProbeBatch, QuantisedRows};

pub(super) fn find(probes: &ProbeBatch, lists: &[&QuantisedRows], bounds: &Bounds, near: &mut NearRows) {
    for (list, rows) in lists.iter().enumerate() {
        for probe in 0..probes.len() {
            let [scale, norm, margin, min_score] = bounds.get(list, probe);
            for row in 0..rows.len() {
                let (row_scale, error) = rows.row_factors(row);
                let upper =
                    probes.dot(probe, rows, row) as f32 * (scale * row_scale) + (norm * error + margin);
                if upper >= min_score || !(row_scale.is_finite() && error.is_finite()) {
                    near.mark(list, probe, row);
                }
            }
        }
    }
}
