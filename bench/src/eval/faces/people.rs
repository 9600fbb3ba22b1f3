//! Who is searched for, in which photos they are, and which photos an album can be filled with.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::paths::InputPaths;
use crate::photos::labels::{self, LabelledFace};

/// A face to search with.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Name in lists.
    pub name: String,
    /// The photo that it is from.
    pub file: String,
    /// Left, top, right, bottom of the face, in pixels; without it the whole photo is the probe.
    pub face_box: Option<[f64; 4]>,
    /// Other files that show the same person.
    pub right: BTreeSet<String>,
    /// Files that show the person without a label: right when found, not counted when missed.
    pub unlabelled: BTreeSet<String>,
}

#[cfg(test)]
impl Probe {
    /// A probe of a photo that no other photo is like.
    pub fn of(name: &str, file: &str) -> Self {
        let (right, unlabelled) = (BTreeSet::new(), BTreeSet::new());
        Self { name: name.into(), file: file.into(), face_box: None, right, unlabelled }
    }
}

/// The photos of one event, and the persons to search for in them.
#[derive(Clone, Debug)]
pub struct Event {
    /// The folder of its photos.
    pub name: String,
    /// All its photos.
    pub files: Vec<String>,
    /// Who is in two photos or more.
    pub probes: Vec<Probe>,
}

/// Everything to search in.
#[derive(Clone, Debug)]
pub struct People {
    /// Races, by the folders of the labelled photos.
    pub races: Vec<Event>,
    /// Portraits, as one event.
    pub portraits: Event,
    /// Photos of other people.
    pub others: Vec<String>,
}

impl People {
    /// All photos.
    pub fn all_files(&self) -> Vec<String> {
        let events = self.races.iter().chain([&self.portraits]).flat_map(|event| &event.files);
        let files: BTreeSet<&String> = events.chain(&self.others).collect();
        files.into_iter().cloned().collect()
    }
}

/// Reads the labels.
///
/// # Errors
/// When a file of labels is missing or damaged.
pub fn load_people(paths: &InputPaths) -> anyhow::Result<People> {
    let photos = labels::load_photos(&paths.find_shared("photos/bibs.csv")?)?;
    let faces = labels::load_faces(&paths.find_shared("photos/rbnr_boxes.csv")?, &photos)?;
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for photo in &photos {
        files.entry(folder_of(&photo.file)).or_default().push(photo.file.clone());
    }
    let race = |(name, files): (String, Vec<String>)| {
        let probes = find_runners(&faces, &files);
        Event { name, files, probes }
    };
    Ok(People {
        races: files.into_iter().map(race).collect(),
        portraits: load_portraits(paths)?,
        others: labels::load_groups(&paths.find_shared("photos/face_counts.csv")?)?,
    })
}

/// Returns the name of the folder that a file is in.
fn folder_of(file: &str) -> String {
    let folder = Path::new(file).parent().and_then(Path::file_name);
    folder.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Returns a probe for each labelled face of a runner who is in two photos of the event or more.
fn find_runners(faces: &[LabelledFace], files: &[String]) -> Vec<Probe> {
    let of_event: Vec<&LabelledFace> = faces.iter().filter(|face| files.contains(&face.file)).collect();
    let probe = |face: &&LabelledFace| {
        let others = of_event.iter().filter(|other| other.bib == face.bib && other.file != face.file);
        let unlabelled = files.iter().filter(|file| labels::shows_unlabelled_runner(file, &face.bib));
        Probe {
            name: format!("{} in {}", face.bib, face.file),
            file: face.file.clone(),
            face_box: Some(face.face_box),
            right: others.map(|other| other.file.clone()).collect(),
            unlabelled: unlabelled.cloned().collect(),
        }
    };
    of_event.iter().map(probe).filter(|probe| !probe.right.is_empty()).collect()
}

fn load_portraits(paths: &InputPaths) -> anyhow::Result<Event> {
    let portraits = labels::load_portraits(&paths.find_shared("photos/faces.csv")?)?;
    let probe = |portrait: &labels::LabelledPortrait| {
        let same =
            portraits.iter().filter(|other| other.person == portrait.person && other.file != portrait.file);
        Probe {
            name: format!("{} in {}", portrait.person, portrait.file),
            file: portrait.file.clone(),
            face_box: None,
            right: same.map(|other| other.file.clone()).collect(),
            unlabelled: BTreeSet::new(),
        }
    };
    Ok(Event {
        name: "portraits".to_owned(),
        files: portraits.iter().map(|portrait| portrait.file.clone()).collect(),
        probes: portraits.iter().map(probe).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runners_are_the_same_only_within_their_event() {
        let face = |file: &str, bib: &str| LabelledFace {
            file: file.into(),
            bib: bib.into(),
            face_box: [0.0, 0.0, 1.0, 1.0],
        };
        let faces = [face("a/1", "7"), face("a/2", "7"), face("a/3", "8"), face("b/1", "7")];
        let files = ["a/1", "a/2", "a/3"].map(str::to_owned);
        let probes = find_runners(&faces, &files);
        let found: Vec<(&str, Vec<&str>)> = probes
            .iter()
            .map(|probe| (probe.file.as_str(), probe.right.iter().map(String::as_str).collect()))
            .collect();
        assert_eq!(found, [("a/1", vec!["a/2"]), ("a/2", vec!["a/1"])]);
        assert_eq!(folder_of("rbnr/set1_org/a.JPG"), "set1_org");
    }
}
