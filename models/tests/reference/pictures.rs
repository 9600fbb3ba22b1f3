//! What is known of the reference pictures.

use std::path::Path;

use photofinish_kernels::frame::Picture;
use photofinish_kernels::geometry::{Point, Quad, Rect};
use serde_json::Value;

/// A picture and what is in it.
pub(crate) struct ReferencePicture {
    pub(crate) name: String,
    pub(crate) picture: Picture,
    pub(crate) faces: Vec<ReferenceFace>,
    pub(crate) bibs: Vec<(String, Quad)>,
}

/// A face of it.
pub(crate) struct ReferenceFace {
    pub(crate) rect: Rect,
    pub(crate) score: f32,
    pub(crate) landmarks: [Point; 5],
    json: Value,
}

impl ReferenceFace {
    /// The first numbers of the vector of this embedder.
    pub(crate) fn vector_start(&self, embedder: &str) -> Vec<f32> {
        parse_numbers(&self.json[embedder]["l2_first8"])
    }
}

impl ReferencePicture {
    /// Every picture of the folder.
    pub(crate) fn load_all(folder: &Path) -> Vec<Self> {
        let text = std::fs::read_to_string(folder.join("reference.json")).unwrap();
        let answers: Value = serde_json::from_str(&text).unwrap();
        let pictures = answers.as_object().unwrap();
        pictures.iter().map(|(name, answers)| Self::from_json(folder, name, answers)).collect()
    }

    fn from_json(folder: &Path, name: &str, answers: &Value) -> Self {
        let image = image::ImageReader::open(folder.join(name)).unwrap().decode().unwrap().into_rgb8();
        let (width, height) = image.dimensions();
        let faces = answers["yunet_n_dynamic"]["faces"].as_array().unwrap();
        let bibs = answers["ocr_full_960_v4"].as_array().unwrap();
        let bib = |bib: &Value| (bib["text"].as_str().unwrap().to_owned(), Quad(parse_points(&bib["quad"])));
        Self {
            name: name.to_owned(),
            picture: Picture::new(image.into_raw(), width, height).unwrap(),
            faces: faces.iter().map(face_from_json).collect(),
            bibs: bibs.iter().map(bib).collect(),
        }
    }
}

fn face_from_json(face: &Value) -> ReferenceFace {
    let sides = parse_numbers(&face["box_xyxy"]);
    ReferenceFace {
        rect: Rect { left: sides[0], top: sides[1], right: sides[2], bottom: sides[3] },
        score: face["score"].as_f64().unwrap() as f32,
        landmarks: parse_points(&face["landmarks_xy"]),
        json: face.clone(),
    }
}

fn parse_numbers(array: &Value) -> Vec<f32> {
    array.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
}

fn parse_points<const N: usize>(array: &Value) -> [Point; N] {
    std::array::from_fn(|index| {
        let pair = parse_numbers(&array[index]);
        Point { x: pair[0], y: pair[1] }
    })
}
