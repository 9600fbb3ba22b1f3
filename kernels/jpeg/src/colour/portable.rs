//! YCbCr to RGB in plain code.

use crate::colour::ycc_row::YccRow;

/// Writes one row of RGB.
pub(super) fn rgb_from_ycc(row: YccRow<'_>, out: &mut [u8]) {
    let samples = row.y.iter().zip(row.cb).zip(row.cr);
    for (pixel, ((y, cb), cr)) in out.chunks_exact_mut(3).zip(samples) {
        let (y, cb, cr) = (i32::from(*y), i32::from(*cb) - 128, i32::from(*cr) - 128);
        pixel[0] = (y + ((91_881 * cr + 32_768) >> 16)).clamp(0, 255) as u8;
        pixel[1] = (y + ((-22_554 * cb - 46_802 * cr + 32_768) >> 16)).clamp(0, 255) as u8;
        pixel[2] = (y + ((116_130 * cb + 32_768) >> 16)).clamp(0, 255) as u8;
    }
}
