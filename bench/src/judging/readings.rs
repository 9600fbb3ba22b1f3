//! Real readings of the labelled photos, as the pipeline stores them.

use std::path::Path;

use photofinish_kernels::image::frame::Picture;
use photofinish_models::traits::{BibPattern, BibText, ModelFactory, ReadRequest};
use photofinish_store::model::album::DEFAULT_BIB_PATTERN;
use photofinish_store::model::photo::{
    BoundingBox, DetectedText, TextIndexState, TextLattice, UnindexedReason,
};

use crate::networks;
use crate::paths::InputPaths;
use crate::photos::enlarge::{load_picture, pick_evenly};
use crate::photos::labels;
use crate::report::Table;

/// The working size at which faces are looked for, as in the pipeline.
const FACE_LONG_SIDE: u32 = 640;

/// Least confidence of a text that exact searches find, and of one that is kept (docs/READING.md, step 16).
const INDEXED_CONFIDENCE: f32 = 0.9;
const CANDIDATE_CONFIDENCE: f32 = 0.5;

/// What was read.
pub(super) struct Readings {
    /// The texts of each photo.
    pub(super) photos: Vec<Vec<DetectedText>>,
    /// The bibs that the photos show.
    pub(super) labels: Vec<String>,
}

impl Readings {
    /// Reads up to `count` labelled photos with the networks of the service.
    pub(super) fn of_labelled_photos(paths: &InputPaths, count: usize) -> anyhow::Result<Self> {
        let all = labels::load_photos(&paths.find_shared("photos/bibs.csv")?)?;
        let chosen = pick_evenly(&all, count.min(all.len()));
        let folder = paths.find_shared("photos/files")?;
        let models = networks::open_on_cpu(paths)?;
        let texts = read_photos(models.as_ref(), &folder, chosen.iter().map(|photo| photo.file.as_str()))?;
        let mut bibs: Vec<String> = chosen.iter().flat_map(|photo| photo.bibs.iter().cloned()).collect();
        bibs.sort();
        bibs.dedup();
        Ok(Self { photos: texts, labels: bibs })
    }

    /// The sizes of the lattices.
    pub(super) fn to_table(&self) -> Table {
        let lattices: Vec<&[u8]> = self
            .photos
            .iter()
            .flatten()
            .filter_map(|text| text.lattice.as_ref().map(|lattice| lattice.lattice.as_bytes()))
            .collect();
        let caption = format!("Lattices of {} labelled photos, each read as it is.", self.photos.len());
        let columns = ["", "mean", "median", "of a hundred the largest", "most"];
        let mut table = Table::new(&caption, &columns);
        let mut add = |what: &str, mut sizes: Vec<usize>| {
            sizes.sort_unstable();
            let mean = sizes.iter().sum::<usize>() as f64 / sizes.len().max(1) as f64;
            let at = |part: f64| sizes.get((part * sizes.len() as f64) as usize).copied().unwrap_or_default();
            let most = sizes.last().copied().unwrap_or_default();
            let cells = [at(0.5), at(0.99), most].map(|size| size.to_string());
            table.add_row([what.to_owned(), format!("{mean:.1}")].into_iter().chain(cells));
        };
        add("texts a photo", self.photos.iter().map(Vec::len).collect());
        add("columns a text", lattices.iter().map(|bytes| usize::from(bytes[1])).collect());
        add(
            "characters and blanks a text",
            lattices.iter().map(|bytes| (bytes.len() - 2 - usize::from(bytes[1])) / 2).collect(),
        );
        add("bytes a text", lattices.iter().map(|bytes| bytes.len()).collect());
        table
    }
}

fn read_photos<'a>(
    models: &dyn ModelFactory,
    folder: &Path,
    files: impl Iterator<Item = &'a str>,
) -> anyhow::Result<Vec<Vec<DetectedText>>> {
    let mut detector = models.create_face_detector()?;
    let mut reader = models.create_bib_reader()?;
    let pattern = BibPattern::new(DEFAULT_BIB_PATTERN)?;
    let recogniser = reader.identity().to_string();
    let mut photos = Vec::new();
    for file in files {
        let picture = load_picture(&folder.join(file))?;
        let (width, height) = picture.dimensions();
        let picture = Picture::new(picture.into_raw(), width, height)?;
        let frame = picture.frame();
        let faces = detector.detect(&[frame], FACE_LONG_SIDE)?.pop().unwrap_or_default();
        let request = ReadRequest { frame, faces: &faces, pattern: &pattern };
        let texts = reader.read(&[request])?.pop().unwrap_or_default();
        photos.push(texts.into_iter().filter_map(|text| to_detected_text(text, &recogniser)).collect());
    }
    Ok(photos)
}

/// The text as it is stored; `None` for one that is dropped. Where it is does not matter here.
fn to_detected_text(text: BibText, recogniser: &str) -> Option<DetectedText> {
    let index_state = match (text.is_bib, text.confidence) {
        (_, confidence) if confidence < CANDIDATE_CONFIDENCE => return None,
        (false, _) => TextIndexState::Unindexed(UnindexedReason::NotABib),
        (true, confidence) if confidence < INDEXED_CONFIDENCE => TextIndexState::Candidate,
        (true, _) => TextIndexState::Indexed,
    };
    Some(DetectedText {
        text: text.text,
        bounding_box: BoundingBox { top: 0.4, left: 0.4, width: 0.1, height: 0.05 },
        confidence: f64::from(text.confidence),
        max_confidence: f64::from(text.max_confidence),
        index_state,
        read: None,
        lattice: Some(TextLattice { recogniser: recogniser.to_owned(), lattice: text.lattice }),
    })
}
