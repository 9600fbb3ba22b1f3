//! What is known of the reference pictures.

use std::path::Path;

use photofinish_kernels::frame::Picture;
use photofinish_kernels::geometry::{Point, Quad, Rect};
use serde_json::Value;

/// A picture and what is in it.
pub(crate) struct Answers {
    pub(crate) name: String,
    pub(crate) picture: Picture,
    pub(crate) faces: Vec<Known>,
    pub(crate) bibs: Vec<(String, Quad)>,
}

/// A face of it.
pub(crate) struct Known {
    pub(crate) rect: Rect,
    pub(crate) score: f32,
    pub(crate) landmarks: [Point; 5],
    all: Value,
}

impl Known {
    /// The first numbers of the vector of this embedder.
    pub(crate) fn vector_start(&self, embedder: &str) -> Vec<f32> {
        numbers(&self.all[embedder]["l2_first8"])
    }
}

impl Answers {
    /// Every picture of the folder.
    pub(crate) fn all(folder: &Path) -> Vec<Self> {
        let text = std::fs::read_to_string(folder.join("reference.json")).unwrap();
        let answers: Value = serde_json::from_str(&text).unwrap();
        let pictures = answers.as_object().unwrap();
        pictures.iter().map(|(name, answers)| Self::of(folder, name, answers)).collect()
    }

    fn of(folder: &Path, name: &str, answers: &Value) -> Self {
        let image = image::ImageReader::open(folder.join(name)).unwrap().decode().unwrap().into_rgb8();
        let (width, height) = image.dimensions();
        let faces = answers["yunet_n_dynamic"]["faces"].as_array().unwrap();
        let bibs = answers["ocr_full_960_v4"].as_array().unwrap();
        let bib = |bib: &Value| (bib["text"].as_str().unwrap().to_owned(), Quad(points(&bib["quad"])));
        Self {
            name: name.to_owned(),
            picture: Picture::new(image.into_raw(), width, height).unwrap(),
            faces: faces.iter().map(known).collect(),
            bibs: bibs.iter().map(bib).collect(),
        }
    }
}

fn known(face: &Value) -> Known {
    let sides = numbers(&face["box_xyxy"]);
    Known {
        rect: Rect { left: sides[0], top: sides[1], right: sides[2], bottom: sides[3] },
        score: face["score"].as_f64().unwrap() as f32,
        landmarks: points(&face["landmarks_xy"]),
        all: face.clone(),
    }
}

fn numbers(array: &Value) -> Vec<f32> {
    array.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
}

fn points<const N: usize>(array: &Value) -> [Point; N] {
    std::array::from_fn(|index| {
        let pair = numbers(&array[index]);
        Point { x: pair[0], y: pair[1] }
    })
}
