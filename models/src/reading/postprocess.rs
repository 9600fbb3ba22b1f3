//! How the map of a text detector becomes boxes (step 6).

use photofinish_kernels::regions::DbParameters;

/// Thresholds of the DBNet postprocessing (step 6). The network is trained to shrink texts; unclipping by 1.6 undoes it.
pub(super) const POSTPROCESS: DbParameters = DbParameters {
    bin_thresh: 0.3,
    min_side: 3.0,
    box_thresh: 0.5,
    unclip_ratio: 1.6,
    min_unclipped_side: 5.0,
};

/// Those for the light text detector, which is less sure of numbers, on a map of half the size.
pub(super) const LIGHT_POSTPROCESS: DbParameters =
    DbParameters { bin_thresh: 0.2, min_side: 2.0, box_thresh: 0.3, unclip_ratio: 2.1, ..POSTPROCESS };
