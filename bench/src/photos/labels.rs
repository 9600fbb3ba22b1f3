//! Labels of the labelled photos (`shared/photos/README.md`): bibs, faces with their runner's bib, portraits with their
//! person.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context as _;

/// A photo with its bibs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelledPhoto {
    /// Path below the folder of photos.
    pub file: String,
    /// Bibs that must be found.
    pub bibs: BTreeSet<String>,
    /// Bibs that may be found or missed.
    pub optional: BTreeSet<String>,
}

/// A face with the bib of its runner.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelledFace {
    /// Path of the photo below the folder of photos.
    pub file: String,
    /// The runner's bib.
    pub bib: String,
    /// Left, top, right, bottom, in pixels.
    pub face_box: [f64; 4],
}

/// Where a bib is in a photo.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelledBib {
    /// Path of the photo below the folder of photos.
    pub file: String,
    /// Left, top, right, bottom, in pixels.
    pub bib_box: [f64; 4],
}

impl LabelledBib {
    /// The whole pixels of its box that a photo of this width and height has.
    pub fn within(&self, (width, height): (u32, u32)) -> [u32; 4] {
        let [left, top, right, bottom] = self.bib_box;
        let inside = |value: f64, most: u32| value.clamp(0.0, f64::from(most)) as u32;
        [
            inside(left.floor(), width),
            inside(top.floor(), height),
            inside(right.ceil(), width),
            inside(bottom.ceil(), height),
        ]
    }
}

/// A portrait with its person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelledPortrait {
    /// Path below the folder of photos.
    pub file: String,
    /// Opaque name of the person.
    pub person: String,
}

/// Race photos that show a runner with a readable bib that is missing from their labels. Found by selfie searches and
/// checked by eye. A search that returns one is right; one that does not return it misses nothing.
const MISSING_LABELS: [(&str, &str); 3] =
    [("set1_02.JPG", "3638"), ("set1_81.JPG", "3637"), ("set1_83.JPG", "847")];

/// Whether a photo shows a runner without a label for it.
pub fn shows_unlabelled_runner(file: &str, bib: &str) -> bool {
    MISSING_LABELS.iter().any(|(name, runner)| file.ends_with(name) && *runner == bib)
}

/// Reads a CSV file of bibs: `file,bibs,optional_bibs`, bibs separated by spaces.
///
/// # Errors
/// When it cannot be read or a column is missing.
pub fn load_photos(path: &Path) -> anyhow::Result<Vec<LabelledPhoto>> {
    let set = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    let rows = read_columns(path, &["file", "bibs", "optional_bibs"])?;
    Ok(rows
        .iter()
        .map(|row| LabelledPhoto { file: row[0].clone(), bibs: set(&row[1]), optional: set(&row[2]) })
        .collect())
}

/// Reads a CSV file of face boxes. Bibs are corrected to those of `photos`, whose labels were revised later.
///
/// # Errors
/// When it cannot be read, a column is missing or a box is invalid.
pub fn load_faces(path: &Path, photos: &[LabelledPhoto]) -> anyhow::Result<Vec<LabelledFace>> {
    let known: BTreeMap<&str, &BTreeSet<String>> =
        photos.iter().map(|p| (p.file.as_str(), &p.bibs)).collect();
    let columns = ["file", "bib", "face_x1", "face_y1", "face_x2", "face_y2"];
    let mut faces = Vec::new();
    for row in read_columns(path, &columns)? {
        let face = parse_box(&row[2..]).with_context(|| row[0].clone())?;
        let bib =
            known.get(row[0].as_str()).map_or_else(|| row[1].clone(), |bibs| correct_bib(&row[1], bibs));
        faces.push(LabelledFace { file: row[0].clone(), bib, face_box: face });
    }
    Ok(faces)
}

/// Reads where the bibs are from a CSV file of boxes.
///
/// # Errors
/// When it cannot be read, a column is missing or a box is invalid.
pub fn load_bib_boxes(path: &Path) -> anyhow::Result<Vec<LabelledBib>> {
    let columns = ["file", "bib_x1", "bib_y1", "bib_x2", "bib_y2"];
    let to_bib = |row: Vec<String>| {
        let bib_box = parse_box(&row[1..]).with_context(|| row[0].clone())?;
        Ok(LabelledBib { file: row[0].clone(), bib_box })
    };
    read_columns(path, &columns)?.into_iter().map(to_bib).collect()
}

/// Parses left, top, right and bottom.
fn parse_box(cells: &[String]) -> anyhow::Result<[f64; 4]> {
    let mut sides = [0.0; 4];
    for (side, text) in sides.iter_mut().zip(cells) {
        *side = text.parse().with_context(|| format!("{text} is not a number"))?;
    }
    anyhow::ensure!(sides[0] < sides[2] && sides[1] < sides[3], "{sides:?} is no box");
    Ok(sides)
}

/// Reads a CSV file of portraits: `file,person`.
///
/// # Errors
/// When it cannot be read or a column is missing.
pub fn load_portraits(path: &Path) -> anyhow::Result<Vec<LabelledPortrait>> {
    let rows = read_columns(path, &["file", "person"])?;
    Ok(rows
        .into_iter()
        .map(|row| LabelledPortrait { file: row[0].clone(), person: row[1].clone() })
        .collect())
}

/// Reads the files of a CSV file of pictures with several people: `file,faces`.
///
/// # Errors
/// When it cannot be read or a column is missing.
pub fn load_groups(path: &Path) -> anyhow::Result<Vec<String>> {
    Ok(read_columns(path, &["file"])?.into_iter().flatten().collect())
}

/// Returns the photo's bib with the same digits as `bib`, in any order and without leading zeros; `bib` itself if there is
/// none.
fn correct_bib(bib: &str, photo_bibs: &BTreeSet<String>) -> String {
    let digits = |text: &str| {
        let mut digits: Vec<char> = text.trim_start_matches('0').chars().collect();
        digits.sort_unstable();
        digits
    };
    if photo_bibs.contains(bib) {
        return bib.to_owned();
    }
    photo_bibs.iter().find(|other| digits(other) == digits(bib)).cloned().unwrap_or_else(|| bib.to_owned())
}

/// Reads the named columns of a CSV file without quotes; the first line is the header.
fn read_columns(path: &Path, columns: &[&str]) -> anyhow::Result<Vec<Vec<String>>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let mut lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let mut indices = Vec::new();
    for column in columns {
        let index = header.iter().position(|name| name == column);
        indices.push(index.with_context(|| format!("{} has no column {column}", path.display()))?);
    }
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            let cell = |&index: &usize| cells.get(index).map(|cell| (*cell).to_owned());
            indices
                .iter()
                .map(cell)
                .collect::<Option<Vec<String>>>()
                .with_context(|| format!("short line: {line}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bibs(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(|&bib| bib.to_owned()).collect()
    }

    #[test]
    fn mistyped_bibs_are_corrected_from_the_photos_own_bibs() {
        assert_eq!(correct_bib("80653", &bibs(&["60511", "80635"])), "80635");
        assert_eq!(correct_bib("891", &bibs(&["0891"])), "0891");
        assert_eq!(correct_bib("123", &bibs(&["456"])), "123");
    }

    #[test]
    fn missing_labels_are_known_by_photo_and_bib() {
        assert!(shows_unlabelled_runner("datasets/set1_org/set1_83.JPG", "847"));
        assert!(!shows_unlabelled_runner("datasets/set1_org/set1_83.JPG", "3637"));
    }

    #[test]
    fn boxes_are_whole_pixels_within_their_photo() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("boxes.csv");
        std::fs::write(&path, "file,bib,bib_x1,bib_y1,bib_x2,bib_y2\na.jpg,12,-1,20.5,50.2,90\n").unwrap();
        let boxes = load_bib_boxes(&path).unwrap();
        assert_eq!(boxes[0].within((40, 100)), [0, 20, 40, 90]);
        std::fs::write(&path, "file,bib_x1,bib_y1,bib_x2,bib_y2\na.jpg,30,20,10,90\n").unwrap();
        assert!(format!("{:#}", load_bib_boxes(&path).unwrap_err()).contains("a.jpg: [30"));
    }

    #[test]
    fn columns_are_found_by_name_and_line_ends_do_not_matter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bibs.csv");
        std::fs::write(&path, "bibs,file,optional_bibs\r\n12 34,a.jpg,\r\n").unwrap();
        let photos = load_photos(&path).unwrap();
        assert_eq!(
            photos,
            [LabelledPhoto { file: "a.jpg".into(), bibs: bibs(&["12", "34"]), optional: bibs(&[]) }]
        );
        std::fs::write(&path, "bibs,file\n").unwrap();
        assert!(super::load_photos(&path).unwrap_err().to_string().contains("optional_bibs"));
    }
}
