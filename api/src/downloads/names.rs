//! The names of files in a ZIP file, and of the file itself.

use std::collections::{HashMap, HashSet};

use photofinish_store::model::download::DownloadFile;
use photofinish_store::model::photo::Photo;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

/// Sorts as time goes by in any file manager.
const TIME: &[BorrowedFormatItem<'static>] = format_description!("[year][month][day]-[hour][minute][second]");

/// Longest name without its ending, characters. File systems take 255 bytes.
const MAX_STEM: usize = 60;

/// Gives each photo a name that no other has: when it was taken, and what the partner called it. Compares names in lower case:
/// file systems of phones and of Windows take those for equal that differ in their case.
pub(crate) struct FileNames {
    used: HashSet<String>,
    /// The number that is tried next, of names that several photos would have: all below it are used. Cameras count to 9,999
    /// and begin again, and some programs call every photo the same.
    next_numbers: HashMap<String, u32>,
}

impl FileNames {
    /// No photo gets the name of this file.
    pub(crate) fn beside(other: &str) -> Self {
        Self { used: HashSet::from([other.to_lowercase()]), next_numbers: HashMap::new() }
    }

    /// Returns the name of a photo's file.
    pub(crate) fn name(&mut self, photo: &Photo, file: DownloadFile) -> String {
        let (stem, ending) = split_name(&photo.filename, file);
        let time = photo.taken_at.and_then(|time| time.format(TIME).ok());
        let prefix = time.map(|time| format!("{time}-")).unwrap_or_default();
        let stem = format!("{prefix}{}", clean(stem));
        let name = format!("{stem}{ending}");
        let folded = name.to_lowercase();
        if self.used.insert(folded.clone()) {
            return name;
        }
        let number = self.next_numbers.entry(folded).or_insert(2);
        loop {
            let name = format!("{stem}-{number}{ending}");
            *number += 1;
            if self.used.insert(name.to_lowercase()) {
                return name;
            }
        }
    }
}

/// Returns the name of a photo's file that is downloaded alone: as the partner called it, with the ending of what it is.
pub(crate) fn file_name(filename: &str, file: DownloadFile) -> String {
    let (stem, ending) = split_name(filename, file);
    format!("{stem}{ending}")
}

/// Returns a name without its ending, and the ending that the file has, with its dot: all but the original are JPEGs.
fn split_name(filename: &str, file: DownloadFile) -> (&str, &str) {
    let dot = filename.rfind('.').filter(|dot| *dot > 0 && is_ending(&filename[dot + 1..]));
    let (stem, ending) = filename.split_at(dot.unwrap_or(filename.len()));
    (stem, if file == DownloadFile::Original { ending } else { ".jpg" })
}

fn is_ending(text: &str) -> bool {
    (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// The name of the ZIP file of an album.
pub(crate) fn archive_name(title: &str) -> String {
    format!("{}.zip", clean(title))
}

/// Keeps what every file system takes: no paths, no control characters, none of the characters that Windows refuses.
fn clean(text: &str) -> String {
    let is_refused = |c: char| c.is_control() || r#"/\:*?"<>|"#.contains(c);
    let kept: String = text.chars().map(|c| if is_refused(c) { '_' } else { c }).take(MAX_STEM).collect();
    let kept = kept.trim_matches(|c: char| c == '.' || c.is_whitespace());
    if kept.is_empty() { "photo".to_owned() } else { kept.to_owned() }
}

#[cfg(test)]
mod tests {
    use photofinish_store::model::ids::{AlbumId, PhotoId};
    use photofinish_store::model::photo::PhotoState;
    use time::OffsetDateTime;

    use super::*;

    fn photo(filename: &str, taken_at: Option<OffsetDateTime>) -> Photo {
        Photo {
            id: PhotoId::generate(),
            album: AlbumId::generate(),
            filename: filename.to_owned(),
            content_type: "image/jpeg".to_owned(),
            state: PhotoState::Ready,
            failure: None,
            size: None,
            taken_at,
            camera: None,
            skipped_runners: 0,
            is_marked: false,
            created_at: OffsetDateTime::UNIX_EPOCH,
            updated_at: OffsetDateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn names_sort_by_time_and_are_unique() {
        let mut names = FileNames::beside("MISSING.txt");
        let time = OffsetDateTime::UNIX_EPOCH + time::Duration::hours(30);
        let mut name = |filename, time| names.name(&photo(filename, time), DownloadFile::Original);
        assert_eq!(name("IMG_1.JPG", Some(time)), "19700102-060000-IMG_1.JPG");
        assert_eq!(name("img_1.jpg", Some(time)), "19700102-060000-img_1-2.jpg");
        assert_eq!(name("IMG_1.JPG", None), "IMG_1.JPG");
        assert_eq!(name("IMG_1.JPG", None), "IMG_1-2.JPG");
        assert_eq!(name("no ending", None), "no ending");
        assert_eq!(
            name("missing.TXT", None),
            "missing-2.TXT",
            "the note on photos that are gone has this name"
        );
    }

    /// Looking through all numbers for each photo took 200 million names for these, minutes of a thread.
    #[test]
    fn many_photos_of_one_name_are_numbered_at_once() {
        const PHOTOS: usize = 20_000;
        let mut names = FileNames::beside("MISSING.txt");
        let mut name = |filename: &str| names.name(&photo(filename, None), DownloadFile::Original);
        // They look like what others are about to be called.
        assert_eq!(name("A-2.jpg"), "A-2.jpg");
        assert_eq!(name("a-4.JPG"), "a-4.JPG");
        let given: Vec<String> = (0..PHOTOS).map(|at| name(["a.jpg", "A.JPG"][at % 2])).collect();
        assert_eq!(given[..5], ["a.jpg", "A-3.JPG", "a-5.jpg", "A-6.JPG", "a-7.jpg"]);
        assert_eq!(name("a-7.jpg"), "a-7-2.jpg");
        let distinct: HashSet<String> = given.iter().map(|name| name.to_lowercase()).collect();
        assert_eq!(distinct.len(), PHOTOS);
    }

    #[test]
    fn a_preview_is_a_jpeg_whatever_the_original_was() {
        let preview = FileNames::beside("MISSING.txt").name(&photo("start.png", None), DownloadFile::Preview);
        assert_eq!(preview, "start.jpg");
        for (filename, original, other) in [
            ("start.PNG", "start.PNG", "start.jpg"),
            ("a.b/start.heic", "a.b/start.heic", "a.b/start.jpg"),
            ("no ending", "no ending", "no ending.jpg"),
        ] {
            assert_eq!(file_name(filename, DownloadFile::Original), original);
            assert_eq!(file_name(filename, DownloadFile::Preview), other);
            assert_eq!(file_name(filename, DownloadFile::Marked), other);
        }
    }

    #[test]
    fn no_name_leaves_its_folder() {
        for (hostile, expected) in [
            ("../../etc/passwd", "_.._etc_passwd"),
            ("C:\\autoexec.bat", "C__autoexec.bat"),
            ("a\u{0}b\n.jpg", "a_b_.jpg"),
            ("..", "photo"),
            ("a.b/c", "a.b_c"),
            ("", "photo"),
            ("/", "_"),
        ] {
            let name = FileNames::beside("MISSING.txt").name(&photo(hostile, None), DownloadFile::Original);
            assert_eq!(name, expected, "{hostile:?}");
        }
        assert_eq!(archive_name("Lauf \"A/B\" 2026 "), "Lauf _A_B_ 2026.zip");
    }
}
