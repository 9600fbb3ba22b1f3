//! The bib reader: faces say where bibs are, so text is looked for on torsos only, at a scale where digits have the
//! size that the text network reads best. Every constant was measured; `docs/READING.md`
//! says how.
//!
//! Of each runner one look ([`torso`], [`finder`]); all texts of a photo are thinned and read ([`recogniser`]); who
//! is still without a sure bib, and shows a trace of text, gets a second look at a larger scale. The whole photo is
//! read when no bib was found, and in place of the looks where a crowd would make them dearer. Which of two readings
//! stands is settled in [`readings`].
//!
//! Knows nothing of albums but the pattern of their bibs.

mod finder;
mod readings;
mod recogniser;
mod torso;

use std::sync::{Arc, Mutex, PoisonError};

use photofinish_kernels::device::Device;
use photofinish_kernels::frame::Frame;
use photofinish_kernels::geometry::Quad;

use self::finder::TextFinder;
use self::readings::{Reading, merge, without_overlaps};
use self::recogniser::Recogniser;
use self::torso::{FIRST_LOOK, Runner, SECOND_LOOK, runners};
use crate::session::{Network, Workload};
use crate::traits::{BibPattern, BibReader, BibText, ModelError, ModelIdentity, ReadRequest};

/// Highest text probability around a runner in the first look from which a second look can help. Maps are either
/// blank (under .005) or certain (over .3) there.
const LEAST_EVIDENCE: f32 = 0.1;

/// Long side, in pixels, of a photo that is read whole because no bib was found.
const WHOLE_LONG_SIDE: u32 = 960;

/// With more runners than this the photo is read whole. Measured on photos of 5 to 23 runners: looks with their
/// reads cost as much as the whole photo at 8.7 runners, and neither finds more of the labelled bibs.
const MOST_RUNNERS: usize = 8;

/// Long side, in pixels, of a photo that is read whole because it shows a crowd.
const CROWD_LONG_SIDE: u32 = 1280;

/// Readings less sure than this are no candidates, not even for fuzzy search.
const LEAST_CONFIDENCE: f32 = 0.5;

/// The networks that the recipe runs, each with its own session: a session is fastest on one shape.
pub struct ReaderNetworks {
    /// Text detector for first looks; only ever sees 256 x 384.
    pub first_look: Network,
    /// Text detector for second looks; only ever sees 384 x 480.
    pub second_look: Network,
    /// Text detector for whole photos, of any shape.
    pub whole: SharedFinder,
    /// Text recogniser; only ever sees 160 x 48.
    pub recogniser: Network,
    /// Its classes after the blank, in order.
    pub characters: String,
}

/// How [`ReaderNetworks::first_look`] is used.
pub const FIRST_LOOK_WORKLOAD: Workload =
    Workload::TextDetection { width: FIRST_LOOK.canvas.width, height: FIRST_LOOK.canvas.height };
/// How [`ReaderNetworks::second_look`] is used.
pub const SECOND_LOOK_WORKLOAD: Workload =
    Workload::TextDetection { width: SECOND_LOOK.canvas.width, height: SECOND_LOOK.canvas.height };
/// How [`ReaderNetworks::recogniser`] is used.
pub const RECOGNISER_WORKLOAD: Workload = Workload::TextLine { width: recogniser::COLUMNS as u32 };

/// A text detector for whole photos that several readers share: it is seldom used and takes much memory. Cheap to
/// clone; calls wait for each other.
#[derive(Clone)]
pub struct SharedFinder(Arc<Mutex<TextFinder>>);

impl SharedFinder {
    /// A finder around a loaded network.
    pub fn new(device: &Device, network: Network) -> Self {
        Self(Arc::new(Mutex::new(TextFinder::new(device, network))))
    }

    fn everywhere(&self, frame: Frame<'_>, long_side: u32) -> Result<Vec<Quad>, ModelError> {
        // A finder writes all its buffers anew at each call: one that a panic left is as good as another.
        let mut finder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        finder.everywhere(frame, long_side)
    }
}

/// Reads bibs by the recipe; keeps its buffers.
pub struct BibRecipe {
    first_look: TextFinder,
    second_look: TextFinder,
    whole: SharedFinder,
    recogniser: Recogniser,
    identity: ModelIdentity,
}

/// A photo with what its bibs look like.
#[derive(Clone, Copy)]
struct Page<'a> {
    frame: Frame<'a>,
    pattern: &'a BibPattern,
}

impl BibRecipe {
    /// A reader whose kernels run on `device`.
    pub fn new(device: &Device, networks: ReaderNetworks, identity: ModelIdentity) -> Self {
        Self {
            first_look: TextFinder::new(device, networks.first_look),
            second_look: TextFinder::new(device, networks.second_look),
            whole: networks.whole,
            recogniser: Recogniser::new(device, networks.recogniser, &networks.characters),
            identity,
        }
    }

    fn read_photo(&mut self, request: &ReadRequest<'_>) -> Result<Vec<BibText>, ModelError> {
        let page = Page { frame: request.frame, pattern: request.pattern };
        let runners = runners(request.faces, page.frame.size());
        if runners.len() > MOST_RUNNERS {
            return self.read_whole(page, CROWD_LONG_SIDE).map(given_out);
        }
        let mut found = self.read_torsos(page, &runners)?;
        if !found.iter().any(Reading::is_accepted) {
            let everywhere = self.read_whole(page, WHOLE_LONG_SIDE)?;
            merge(&mut found, everywhere);
        }
        Ok(given_out(found))
    }

    fn read_torsos(&mut self, page: Page<'_>, runners: &[Runner]) -> Result<Vec<Reading>, ModelError> {
        let mut texts = Vec::new();
        let mut evidence = Vec::with_capacity(runners.len());
        for runner in runners {
            let _step = tracing::debug_span!("first_look").entered();
            let torso = self.first_look.torso(page.frame, runner, &FIRST_LOOK)?;
            texts.extend(torso.texts);
            evidence.push(torso.evidence);
        }
        let mut found = self.recognise(page, texts)?;

        let mut texts = Vec::new();
        for (runner, evidence) in runners.iter().zip(evidence) {
            if evidence <= LEAST_EVIDENCE || found.iter().any(|reading| reading.settles(runner)) {
                continue;
            }
            let _step = tracing::debug_span!("second_look").entered();
            texts.extend(self.second_look.torso(page.frame, runner, &SECOND_LOOK)?.texts);
        }
        let again = self.recognise(page, texts)?;
        merge(&mut found, again);
        Ok(found)
    }

    fn read_whole(&mut self, page: Page<'_>, long_side: u32) -> Result<Vec<Reading>, ModelError> {
        let step = tracing::debug_span!("whole_photo").entered();
        let texts = self.whole.everywhere(page.frame, long_side)?;
        drop(step);
        self.recognise(page, texts)
    }

    /// Reads what is left of the texts once those that lie in larger ones are dropped. The pattern is held against
    /// the text as it was read: letters of bibs are capitals, a small one is a word's (`10k`).
    fn recognise(&mut self, page: Page<'_>, texts: Vec<Quad>) -> Result<Vec<Reading>, ModelError> {
        let mut readings = Vec::with_capacity(texts.len());
        for quad in without_overlaps(texts) {
            let _step = tracing::debug_span!("recognise").entered();
            let line = self.recogniser.read(page.frame, &quad)?;
            let is_bib = !line.text.is_empty() && page.pattern.matches(&line.text);
            readings.push(Reading { quad, text: line.text, confidence: line.confidence, is_bib });
        }
        Ok(readings)
    }
}

impl BibReader for BibRecipe {
    fn read(&mut self, photos: &[ReadRequest<'_>]) -> Result<Vec<Vec<BibText>>, ModelError> {
        photos.iter().map(|photo| self.read_photo(photo)).collect()
    }

    fn identity(&self) -> &ModelIdentity {
        &self.identity
    }
}

/// Readings as the pipeline takes them: in capitals, surest first.
fn given_out(found: Vec<Reading>) -> Vec<BibText> {
    let mut texts: Vec<BibText> = found
        .into_iter()
        .filter(|reading| !reading.text.is_empty() && reading.confidence >= LEAST_CONFIDENCE)
        .map(|reading| BibText {
            text: reading.text.to_ascii_uppercase(),
            quad: reading.quad,
            confidence: reading.confidence,
            is_bib: reading.is_bib,
        })
        .collect();
    texts.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
    texts
}

#[cfg(test)]
mod tests {
    use photofinish_kernels::geometry::Point;

    use super::*;

    fn reading(text: &str, confidence: f32) -> Reading {
        let quad = Quad([Point::default(); 4]);
        Reading { quad, text: text.to_owned(), confidence, is_bib: false }
    }

    #[test]
    fn what_is_given_out_is_in_capitals_sure_enough_and_surest_first() {
        let found = vec![reading("a12", 0.6), reading("", 0.99), reading("77", 0.49), reading("B3", 0.9)];
        let texts: Vec<String> = given_out(found).into_iter().map(|text| text.text).collect();
        assert_eq!(texts, ["B3", "A12"]);
    }
}
