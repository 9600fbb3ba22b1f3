//! The same on a GPU: homographies from the host, and launches that fit its buffers.

use super::types::{Face, Text, WARP};
use crate::batch::letterbox::canvas_words;
use crate::batch::pixels::{PixelBuffer, Rows};
use crate::gpu::{Gpu, GpuError, MAX_GROUPS, Program, to_floats};
use crate::image::frame::{Frame, Size};
use crate::image::tensor::{Normalisation, Tensor};
use crate::warp::align::{Template, homography_to_face};
use crate::warp::rectify::StripPlan;
use crate::warp::{Border, Homography};

/// What one item of the tensor shows.
pub(super) struct Item<'a> {
    frame: Frame<'a>,
    border: Border,
    /// `None`: it is black.
    homography: Option<Homography>,
    oversampling: u32,
    /// What is photo, at the left.
    columns: u32,
}

impl<'a> Item<'a> {
    pub(super) fn face(face: &Face<'a>, template: &Template) -> Self {
        let homography = homography_to_face(&face.landmarks, template);
        let columns = template.side;
        Self { frame: face.frame, border: Border::Black, homography, oversampling: 1, columns }
    }

    pub(super) fn text(text: &Text<'a>, strip: Size) -> Self {
        let plan = StripPlan::new(&text.quad, strip);
        Self {
            frame: text.frame,
            border: Border::Nearest,
            homography: Some(plan.homography()),
            oversampling: plan.oversampling,
            columns: plan.strip.width,
        }
    }

    fn words(&self, offset: u32, out: usize) -> [u32; 16] {
        let black = Homography { x: [0.0; 3], y: [0.0; 3], w: [0.0; 2] };
        let Homography { x, y, w } = self.homography.unwrap_or(black);
        let whole = [
            offset,
            self.frame.width(),
            self.frame.height(),
            u32::from(self.border == Border::Nearest),
            self.oversampling,
            self.columns,
            out as u32,
            u32::from(self.homography.is_none()),
        ];
        let numbers = [x[0], x[1], x[2], w[0], y[0], y[1], y[2], w[1]].map(f32::to_bits);
        std::array::from_fn(|index| if index < 8 { whole[index] } else { numbers[index - 8] })
    }
}

pub(super) fn warp_all(
    gpu: &dyn Gpu,
    items: &[Item<'_>],
    normalisation: &Normalisation,
    out: &mut Tensor,
) -> Result<(), GpuError> {
    let (canvas, limit) = (out.item_size(), gpu.max_buffer_bytes());
    let values = canvas.area() * 3;
    let mut first = 0;
    while first < items.len() {
        let (mut pixels, mut table, mut count) = (PixelBuffer::default(), Vec::new(), 0);
        for item in &items[first..] {
            let rows = Rows::all(item.frame);
            let needed = pixels.bytes_with(&rows).max((count + 1) * values * 4);
            if needed > limit && count == 0 {
                return Err(GpuError::TooLarge { bytes: needed, limit });
            }
            if needed > limit || count == MAX_GROUPS {
                break;
            }
            table.extend(item.words(pixels.add(rows), count * values));
            count += 1;
        }
        let mut program = Program::default();
        let bindings = [
            program.input(pixels.into_bytes()),
            program.words(&table),
            program.words(&canvas_words([canvas.width, canvas.height], normalisation)),
            program.output(count * values * 4),
        ];
        program.launch(&WARP, &bindings, [canvas.width as usize, canvas.height as usize, count]);
        let outputs = gpu.run(&program)?;
        let found = outputs.first().map(|bytes| to_floats(bytes)).unwrap_or_default();
        out.data_mut()[first * values..(first + count) * values].copy_from_slice(&found);
        first += count;
    }
    Ok(())
}
