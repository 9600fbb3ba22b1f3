//! Embeds faces: aligns each by its five landmarks to the network's template, runs one call per batch of those that are sharp
//! enough, and scales the vectors to length 1.

use photofinish_kernels::geometry::Point;
use photofinish_kernels::image::frame::{Frame, Size};
use photofinish_kernels::image::tensor::{Channels, Normalisation, Slot, Tensor};
use photofinish_kernels::sharpness::SharpnessMeter;
use photofinish_kernels::warp::align::{Template, align};
use photofinish_zoo::{ChannelOrder, EmbedderContract};

use crate::bucket::{Bucket, padded};
use crate::onnx::session::Network;
use crate::traits::{EmbeddedFace, FaceCrop, FaceEmbedder, ModelError, ModelIdentity};

/// A face embedder for any embedder contract of the zoo.
pub struct AlignedEmbedder {
    network: Network,
    identity: ModelIdentity,
    template: Template,
    normalisation: Normalisation,
    dimensions: usize,
    output: String,
    /// Faces per call.
    bucket: Bucket,
    crop: Vec<u8>,
    input: Tensor,
    sharpness: SharpnessMeter,
}

impl AlignedEmbedder {
    /// Wraps a loaded network; calls take at most `max_batch` faces.
    pub fn new(
        network: Network,
        contract: &EmbedderContract,
        identity: ModelIdentity,
        max_batch: usize,
    ) -> Self {
        let points = contract.template.map(|[x, y]| Point { x, y });
        Self {
            network,
            identity,
            template: Template { points, side: contract.size },
            normalisation: Normalisation {
                channels: match contract.channels {
                    ChannelOrder::Rgb => Channels::Rgb,
                    ChannelOrder::Bgr => Channels::Bgr,
                },
                mean: contract.mean,
                scale: contract.deviation.map(|deviation| 1.0 / deviation),
                padding: 0.0,
            },
            dimensions: contract.dimensions,
            output: contract.output.clone(),
            bucket: Bucket::new(max_batch),
            crop: Vec::new(),
            input: Tensor::default(),
            sharpness: SharpnessMeter::default(),
        }
    }

    fn run(&mut self, faces: &[FaceCrop<'_>]) -> Result<Vec<EmbeddedFace>, ModelError> {
        let side = self.template.side;
        let size = Size { width: side, height: side };
        let stride = side as usize * 3;
        let shape = |items: usize| [items, 3, side as usize, side as usize];
        self.input.reshape(shape(padded(faces.len())));
        let mut embedded = Vec::with_capacity(faces.len());
        let mut sharp = Vec::with_capacity(faces.len());
        for (index, face) in faces.iter().enumerate() {
            align(face.frame, &face.landmarks, &self.template, &mut self.crop);
            let crop = Frame::new(&self.crop, side, side).expect("align writes side * side * 3 bytes");
            let sharpness = self.sharpness.measure(crop);
            embedded.push(EmbeddedFace { vector: Vec::new(), sharpness });
            if sharpness >= face.least_sharpness {
                let item = sharp.len();
                let slot = Slot { tensor: &mut self.input, item, normalisation: &self.normalisation };
                slot.write_rows(size, |y| &self.crop[y as usize * stride..][..stride]);
                sharp.push(index);
            }
        }
        if sharp.is_empty() {
            return Ok(embedded);
        }
        let items = padded(sharp.len());
        self.input.reshape(shape(items));
        let outputs = self.network.run(&self.input)?;
        let vectors = outputs.get(&self.output)?.values;
        if vectors.len() != items * self.dimensions {
            return Err(ModelError::Inference {
                name: self.identity.name.clone(),
                detail: format!("{} numbers for {items} faces", vectors.len()),
            });
        }
        for (index, vector) in sharp.into_iter().zip(vectors.chunks_exact(self.dimensions)) {
            embedded[index].vector = to_unit_vector(vector);
        }
        Ok(embedded)
    }
}

impl FaceEmbedder for AlignedEmbedder {
    fn embed(&mut self, faces: &[FaceCrop<'_>]) -> Result<Vec<EmbeddedFace>, ModelError> {
        let mut bucket = self.bucket;
        let embedded = bucket.run(faces, |batch| self.run(batch));
        self.bucket = bucket;
        embedded
    }

    fn identity(&self) -> &ModelIdentity {
        &self.identity
    }
}

/// Scales the vector to length 1; a zero vector stays zero.
fn to_unit_vector(vector: &[f32]) -> Vec<f32> {
    let length = vector.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
    let scale = if length > 0.0 { (1.0 / length) as f32 } else { 0.0 };
    vector.iter().map(|value| value * scale).collect()
}
