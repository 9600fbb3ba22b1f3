//! Writes a whole event to disk: photos of three people, a selfie of each, and `truth.json` with the ground truth.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::canvas::Color;
use crate::head::Head;
use crate::jpeg::{self, CameraExif};
use crate::photo::{Entrant, PhotoPlan, PhotoRenderer, draw_selfie};
use crate::portrait::{Portrait, PortraitFile};

/// Name of the folder of photos in the event's folder.
pub const PHOTOS_FOLDER: &str = "photos";
/// Name of the folder of selfies in the event's folder.
pub const SELFIES_FOLDER: &str = "selfies";
/// File name of the ground truth.
pub const TRUTH_FILE: &str = "truth.json";

/// The ground truth of an event: the content of `truth.json`.
#[derive(Debug, Deserialize, Serialize)]
pub struct Truth {
    /// All runners.
    pub runners: Vec<TruthRunner>,
    /// All photos.
    pub photos: Vec<TruthPhoto>,
}

/// A runner.
#[derive(Debug, Deserialize, Serialize)]
pub struct TruthRunner {
    /// Short name.
    pub name: String,
    /// The only race number of this runner.
    pub bib: String,
    /// File name in the folder of selfies.
    pub selfie: String,
    /// Whether the selfie is made from a portrait that no photo uses.
    pub selfie_is_another_photograph: bool,
}

/// A photo.
#[derive(Debug, Deserialize, Serialize)]
pub struct TruthPhoto {
    /// File name in the folder of photos.
    pub file: String,
    /// Short names of the runners in it, from left to right.
    pub runners: Vec<String>,
    /// Their race numbers, in the same order.
    pub bibs: Vec<String>,
    /// Capture time as in the EXIF data: `2026:05:17 09:41:07`.
    pub taken_at: String,
}

/// A runner of the event, and the portraits that show them.
struct Person {
    name: &'static str,
    bib: &'static str,
    shirt: Color,
    photo_portraits: &'static [PortraitFile],
    selfie_portrait: PortraitFile,
}

const ASTRONAUT: PortraitFile =
    PortraitFile { file: "astronaut.png", face: [178.0, 65.0, 92.0, 111.0], hair: 0.5, half_width: 0.74 };
const BIDEN: PortraitFile =
    PortraitFile { file: "biden.jpg", face: [425.0, 183.0, 273.0, 379.0], hair: 0.2, half_width: 0.62 };
const OBAMA: PortraitFile =
    PortraitFile { file: "obama.jpg", face: [377.0, 73.0, 227.0, 357.0], hair: 0.2, half_width: 0.56 };
const OBAMA_SPEAKING: PortraitFile =
    PortraitFile { file: "obama2.jpg", face: [205.0, 227.0, 267.0, 404.0], hair: 0.2, half_width: 0.56 };
const OBAMA_STANDING: PortraitFile =
    PortraitFile { file: "obama3.jpg", face: [649.0, 260.0, 260.0, 347.0], hair: 0.2, half_width: 0.58 };

const PEOPLE: [Person; 3] = [
    Person {
        name: "collins",
        bib: "1234",
        shirt: [226.0, 96.0, 42.0],
        photo_portraits: &[ASTRONAUT],
        selfie_portrait: ASTRONAUT,
    },
    Person {
        name: "obama",
        bib: "2086",
        shirt: [44.0, 92.0, 164.0],
        photo_portraits: &[OBAMA, OBAMA_STANDING],
        selfie_portrait: OBAMA_SPEAKING,
    },
    Person {
        name: "biden",
        bib: "573",
        shirt: [58.0, 142.0, 96.0],
        photo_portraits: &[BIDEN],
        selfie_portrait: BIDEN,
    },
];

/// Who is in a photo, by index into [`PEOPLE`]; photos cycle through the list.
const GROUPS: [&[usize]; 6] = [&[0], &[1], &[2], &[0, 1], &[2, 1], &[0, 2]];

/// Width, height and EXIF orientation; photos cycle through the list. Its length has no common factor with that of
/// [`GROUPS`], so that everybody is in photos of each format.
const FORMATS: [(u32, u32, u16); 5] =
    [(3000, 2000, 1), (3600, 2400, 1), (2400, 3200, 6), (4000, 3000, 1), (2200, 3000, 8)];

/// Writes an event of `count` photos into `folder`, drawn with the portraits in the folder `portraits`.
///
/// # Errors
/// When a portrait or the font is missing, or the folder cannot be written.
pub fn write_event(folder: &Path, portraits: &Path, count: usize) -> anyhow::Result<Truth> {
    for name in [PHOTOS_FOLDER, SELFIES_FOLDER] {
        let path = folder.join(name);
        std::fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
    }
    let mut runners = Vec::new();
    for (index, person) in PEOPLE.iter().enumerate() {
        runners.push(write_selfie(folder, portraits, person, 1000 + index as u64)?);
    }
    let photos = write_photos(folder, portraits, count)?;
    let truth = Truth { runners, photos };
    std::fs::write(folder.join(TRUTH_FILE), serde_json::to_vec_pretty(&truth)?)?;
    Ok(truth)
}

/// Draws a photo of the three people beside each other and encodes it as a camera does; `bibs` says what each wears.
///
/// # Errors
/// When a portrait or the font is missing.
pub fn draw_group_photo(portraits: &Path, bibs: [Option<&str>; 3], seed: u64) -> anyhow::Result<Vec<u8>> {
    let open = |person: &Person| Portrait::open(portraits, person.photo_portraits[0]);
    let heads = PEOPLE.iter().map(open).collect::<anyhow::Result<Vec<_>>>()?;
    let entrants: Vec<Entrant<'_>> = PEOPLE
        .iter()
        .zip(&heads)
        .zip(bibs)
        .map(|((person, portrait), bib)| Entrant { head: Head::Portrait(portrait), bib, shirt: person.shirt })
        .collect();
    let plan = PhotoPlan { width: 3000, height: 2000, entrants: &entrants, seed };
    let picture = PhotoRenderer::new()?.draw_photo(&plan);
    jpeg::encode(&picture, CameraExif { taken_at: "2026:05:17 09:41:07", orientation: 1 })
}

fn write_selfie(folder: &Path, portraits: &Path, person: &Person, seed: u64) -> anyhow::Result<TruthRunner> {
    let portrait = Portrait::open(portraits, person.selfie_portrait)?;
    let file = format!("{}.jpg", person.name);
    let picture = draw_selfie(&portrait, seed);
    let exif = CameraExif { taken_at: "2026:05:17 18:30:00", orientation: 1 };
    std::fs::write(folder.join(SELFIES_FOLDER).join(&file), jpeg::encode(&picture, exif)?)?;
    Ok(TruthRunner {
        name: person.name.into(),
        bib: person.bib.into(),
        selfie: file,
        selfie_is_another_photograph: person
            .photo_portraits
            .iter()
            .all(|used| used.file != person.selfie_portrait.file),
    })
}

/// Draws the photos on all cores.
fn write_photos(folder: &Path, portraits: &Path, count: usize) -> anyhow::Result<Vec<TruthPhoto>> {
    let renderer = PhotoRenderer::new()?;
    let mut portraits_of_people = Vec::new();
    for person in &PEOPLE {
        let open = |file: &PortraitFile| Portrait::open(portraits, *file);
        portraits_of_people
            .push(person.photo_portraits.iter().map(open).collect::<anyhow::Result<Vec<_>>>()?);
    }
    let writer = EventWriter { renderer, portraits: portraits_of_people, folder };
    let (next, drawn) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for thread in 0..threads.min(count) {
            let draw_photos = || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    let photo = writer.write_photo(index);
                    drawn.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(photo);
                }
            };
            std::thread::Builder::new().name(format!("draw-{thread}")).spawn_scoped(scope, draw_photos)?;
        }
        anyhow::Ok(())
    })?;
    let drawn = drawn.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut photos = drawn.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    photos.sort_by(|one, other| one.file.cmp(&other.file));
    Ok(photos)
}

/// Draws and writes photos; shared by the drawing threads.
struct EventWriter<'a> {
    renderer: PhotoRenderer,
    /// The portraits of each person of [`PEOPLE`].
    portraits: Vec<Vec<Portrait>>,
    folder: &'a Path,
}

impl EventWriter<'_> {
    fn write_photo(&self, index: usize) -> anyhow::Result<TruthPhoto> {
        let group = GROUPS[index % GROUPS.len()];
        let (width, height, orientation) = FORMATS[index % FORMATS.len()];
        let entrants: Vec<Entrant<'_>> = group
            .iter()
            .map(|&who| Entrant {
                head: Head::Portrait(
                    &self.portraits[who][(index / GROUPS.len()) % self.portraits[who].len()],
                ),
                bib: Some(PEOPLE[who].bib),
                shirt: PEOPLE[who].shirt,
            })
            .collect();
        let picture =
            self.renderer.draw_photo(&PhotoPlan { width, height, entrants: &entrants, seed: index as u64 });
        let taken_at = format!("2026:05:17 09:{:02}:{:02}", 10 + index / 60, index % 60);
        let file = format!("IMG_{:04}.jpg", 2001 + index);
        let path = self.folder.join(PHOTOS_FOLDER).join(&file);
        std::fs::write(&path, jpeg::encode(&picture, CameraExif { taken_at: &taken_at, orientation })?)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(TruthPhoto {
            file,
            runners: group.iter().map(|&who| PEOPLE[who].name.to_owned()).collect(),
            bibs: group.iter().map(|&who| PEOPLE[who].bib.to_owned()).collect(),
            taken_at,
        })
    }
}
