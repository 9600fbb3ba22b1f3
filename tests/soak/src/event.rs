//! An event of which everything is known: photos with painted marks, and files that are no photos.

use std::sync::Arc;

use photofinish_tests::harness::test_photo::TestPhoto;

/// The bib in every good photo.
pub const COMMON_BIB: &str = "4242";
/// The person in every good photo.
pub const COMMON_PERSON: u16 = 1;
/// Every good photo shows one of so many other persons.
pub const OTHER_PERSONS: u16 = 3;

/// The name of the photo that crashes every worker that reads it.
pub const KILLER_PHOTO: &str = "killer.jpg";

/// One photo in so many is bad.
const BAD_EVERY: usize = 12;

/// A file as it is uploaded, and its expected outcome.
pub struct EventPhoto {
    /// Unique in its event.
    pub name: String,
    /// Its content.
    pub bytes: Vec<u8>,
    /// How its processing must end.
    pub expected: ExpectedOutcome,
}

/// How the processing of a photo must end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedOutcome {
    /// Ready, with two persons and two bibs: the common ones, and these.
    Ready {
        /// In no other photo.
        bib: String,
        /// One of the other persons.
        person: u16,
    },
    /// Ready, with no face and no text.
    Blank,
    /// Failed, for this reason.
    Failed(&'static str),
}

/// The photos of an event.
pub struct Event {
    /// In the order of their upload.
    pub photos: Vec<Arc<EventPhoto>>,
}

impl Event {
    /// Paints an event of so many photos.
    pub fn paint(count: usize) -> Self {
        let painters = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let photos = std::thread::scope(|scope| {
            let share = count.div_ceil(painters).max(1);
            let paint = |from: usize| {
                move || {
                    (from..count.min(from + share))
                        .map(|number| Arc::new(paint_photo(number)))
                        .collect::<Vec<_>>()
                }
            };
            let shares: Vec<_> = (0..count).step_by(share).map(|from| scope.spawn(paint(from))).collect();
            shares.into_iter().flat_map(|share| share.join().expect("painting does not fail")).collect()
        });
        Self { photos }
    }

    /// An event of so many small photos without faces and texts.
    pub fn blank(count: usize) -> Self {
        let bytes = TestPhoto::new(320, 240).to_jpeg();
        let photo = |number: usize| {
            let (name, fate) = (format!("{number:04}.jpg"), ExpectedOutcome::Blank);
            Arc::new(EventPhoto { name, bytes: bytes.clone(), expected: fate })
        };
        Self { photos: (0..count).map(photo).collect() }
    }

    /// The same, with a photo that crashes every worker that reads it after the first third.
    #[must_use]
    pub fn with_killer_photo(&self) -> Self {
        let bytes = TestPhoto::new(1000, 750).with_bib("ABORT", [200, 500]).to_jpeg();
        let killer = EventPhoto {
            name: KILLER_PHOTO.into(),
            bytes,
            expected: ExpectedOutcome::Failed("PROCESSING_CRASHED"),
        };
        let mut photos = self.photos.clone();
        photos.insert(photos.len() / 3, Arc::new(killer));
        Self { photos }
    }
}

fn paint_photo(number: usize) -> EventPhoto {
    let name = format!("{number:04}.jpg");
    // Five digits: more than one edit apart from the common bib of four.
    let (bib, person) = ((70_100 + number).to_string(), COMMON_PERSON + 1 + number as u16 % OTHER_PERSONS);
    let good = || {
        let faces = TestPhoto::new(1000, 750)
            .with_face(COMMON_PERSON, [100, 100, 140])
            .with_face(person, [600, 100, 140]);
        faces.with_bib(COMMON_BIB, [100, 500]).with_bib(&bib, [600, 500]).to_jpeg()
    };
    match (number % BAD_EVERY, number / BAD_EVERY % 2) {
        (5, 0) => {
            let mut bytes = good();
            bytes.truncate(bytes.len() / 3);
            EventPhoto { name, bytes, expected: ExpectedOutcome::Failed("CORRUPT_IMAGE") }
        }
        (5, _) => {
            let bytes = b"The race starts at nine.\n".repeat(100);
            EventPhoto { name, bytes, expected: ExpectedOutcome::Failed("UNSUPPORTED_FORMAT") }
        }
        _ => EventPhoto { name, bytes: good(), expected: ExpectedOutcome::Ready { bib, person } },
    }
}
