//! A whole event on disk: photos of three people, a selfie of each, and `truth.json`, which says who is where.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::canvas::Color;
use super::jpeg::{self, CameraExif};
use super::photo::{Entrant, PhotoPlan, PhotoRenderer, draw_selfie};
use super::portrait::{Portrait, PortraitFile};

/// Folder of the photos inside the event's.
pub const PHOTOS_FOLDER: &str = "photos";
/// Folder of the selfies inside the event's.
pub const SELFIES_FOLDER: &str = "selfies";
/// The truth's file name.
pub const TRUTH_FILE: &str = "truth.json";

/// What is in each photo.
#[derive(Debug, Deserialize, Serialize)]
pub struct Truth {
    /// Everybody who ran.
    pub runners: Vec<TruthRunner>,
    /// Every photo.
    pub photos: Vec<TruthPhoto>,
}

/// Somebody who ran.
#[derive(Debug, Deserialize, Serialize)]
pub struct TruthRunner {
    /// Short name.
    pub name: String,
    /// The only race number of this runner.
    pub bib: String,
    /// File name in the selfies' folder.
    pub selfie: String,
    /// Whether the selfie is another photograph than those that the photos show.
    pub selfie_is_another_photograph: bool,
}

/// A photo.
#[derive(Debug, Deserialize, Serialize)]
pub struct TruthPhoto {
    /// File name in the photos' folder.
    pub file: String,
    /// Short names of those in it, from left to right.
    pub runners: Vec<String>,
    /// Their race numbers.
    pub bibs: Vec<String>,
    /// As the EXIF says.
    pub taken_at: String,
}

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

/// Who is in a photo, by index into [`PEOPLE`]; the list is gone through again and again.
const GROUPS: [&[usize]; 6] = [&[0], &[1], &[2], &[0, 1], &[2, 1], &[0, 2]];

/// Width, height and EXIF orientation, gone through again and again; out of step with [`GROUPS`], so that everybody
/// is in photos of each kind.
const FORMATS: [(u32, u32, u16); 5] =
    [(3000, 2000, 1), (3600, 2400, 1), (2400, 3200, 6), (4000, 3000, 1), (2200, 3000, 8)];

/// Draws `count` photos and the rest of an event into `folder`, with the portraits of `portraits`.
///
/// # Errors
/// When a portrait or the font is missing, or the folder cannot be written.
pub fn write_event(folder: &Path, portraits: &Path, count: usize) -> anyhow::Result<Truth> {
    for name in [PHOTOS_FOLDER, SELFIES_FOLDER] {
        let path = folder.join(name);
        std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    }
    let mut runners = Vec::new();
    for (index, person) in PEOPLE.iter().enumerate() {
        runners.push(write_selfie(folder, portraits, (index, person))?);
    }
    let photos = write_photos(folder, portraits, count)?;
    let truth = Truth { runners, photos };
    std::fs::write(folder.join(TRUTH_FILE), serde_json::to_vec_pretty(&truth)?)?;
    Ok(truth)
}

fn write_selfie(
    folder: &Path,
    portraits: &Path,
    (index, person): (usize, &Person),
) -> anyhow::Result<TruthRunner> {
    let portrait = Portrait::open(portraits, person.selfie_portrait)?;
    let file = format!("{}.jpg", person.name);
    let picture = draw_selfie(&portrait, 1000 + index as u64);
    let notes = CameraExif { taken_at: "2026:05:17 18:30:00", orientation: 1 };
    std::fs::write(folder.join(SELFIES_FOLDER).join(&file), jpeg::encode(&picture, notes)?)?;
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

/// Draws on every core.
fn write_photos(folder: &Path, portraits: &Path, count: usize) -> anyhow::Result<Vec<TruthPhoto>> {
    let studio = PhotoRenderer::new()?;
    let mut heads = Vec::new();
    for person in &PEOPLE {
        let open = |file: &PortraitFile| Portrait::open(portraits, *file);
        heads.push(person.photo_portraits.iter().map(open).collect::<anyhow::Result<Vec<_>>>()?);
    }
    let artist = EventWriter { renderer: studio, portraits: heads, folder };
    let (next, drawn) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for thread in 0..threads.min(count) {
            let work = || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    let photo = artist.write_photo(index);
                    drawn.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(photo);
                }
            };
            std::thread::Builder::new().name(format!("draw-{thread}")).spawn_scoped(scope, work)?;
        }
        anyhow::Ok(())
    })?;
    let drawn = drawn.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut photos = drawn.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    photos.sort_by(|one, other| one.file.cmp(&other.file));
    Ok(photos)
}

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
                portrait: &self.portraits[who][(index / GROUPS.len()) % self.portraits[who].len()],
                bib: PEOPLE[who].bib,
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
