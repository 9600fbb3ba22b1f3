//! The reference pictures with the results of the reference program.

use std::path::Path;

use photofinish_kernels::geometry::{Point, Quad, Rect};
use photofinish_kernels::image::frame::Picture;
use serde_json::Value;

/// A picture and what the reference program found in it.
pub(crate) struct ReferencePicture {
    pub(crate) name: String,
    pub(crate) pixels: Picture,
    pub(crate) faces: Vec<ReferenceFace>,
    pub(crate) bibs: Vec<(String, Quad)>,
}

/// A face that the reference program found.
pub(crate) struct ReferenceFace {
    pub(crate) rect: Rect,
    pub(crate) score: f32,
    pub(crate) landmarks: [Point; 5],
    json: Value,
}

impl ReferenceFace {
    /// Returns the first eight numbers of an embedder's vector.
    pub(crate) fn vector_start(&self, embedder: &str) -> Vec<f32> {
        parse_numbers(&self.json[embedder]["l2_first8"])
    }
}

impl ReferencePicture {
    /// Loads all pictures of the folder.
    pub(crate) fn load_all(folder: &Path) -> Vec<Self> {
        let text = std::fs::read_to_string(folder.join("reference.json")).unwrap();
        let results: Value = serde_json::from_str(&text).unwrap();
        let pictures = results.as_object().unwrap();
        pictures.iter().map(|(name, results)| Self::from_json(folder, name, results)).collect()
    }

    fn from_json(folder: &Path, name: &str, results: &Value) -> Self {
        let image = image::ImageReader::open(folder.join(name)).unwrap().decode().unwrap().into_rgb8();
        let (width, height) = image.dimensions();
        let faces = results["yunet_n_dynamic"]["faces"].as_array().unwrap();
        let bibs = results["ocr_full_960_v4"].as_array().unwrap();
        let bib = |bib: &Value| (bib["text"].as_str().unwrap().to_owned(), Quad(parse_points(&bib["quad"])));
        Self {
            name: name.to_owned(),
            pixels: Picture::new(image.into_raw(), width, height).unwrap(),
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
