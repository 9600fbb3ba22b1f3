//! Which files of a folder are photos. Only names decide: whether the bytes are an image is for the service to say.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use photofinish_client::media_type;

/// A file to upload.
#[derive(Clone, Debug)]
pub struct LocalPhoto {
    /// The prefix and its path below the folder, with `/`: the `filename` of the API, by which a second run recognises it.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// The media type that its ending stands for.
    pub content_type: &'static str,
}

/// A folder's files.
pub struct Listing {
    /// Photos, by name.
    pub photos: Vec<LocalPhoto>,
    /// How many other files there were.
    pub skipped: usize,
    /// Subfolders that cannot be read, with the reason: those of the system on a card, for example.
    pub unreadable: Vec<String>,
}

/// Walks the folder and its subfolders, and skips names that begin with a dot. `prefix` is put before every name. A folder to
/// which links lead too is walked once.
///
/// # Errors
/// When the folder itself cannot be read.
pub fn list_photos(folder: &Path, prefix: &str) -> io::Result<Listing> {
    list_photos_read_by(folder, prefix, read_folder)
}

fn list_photos_read_by(
    folder: &Path,
    prefix: &str,
    read_folder: impl Fn(&Path) -> io::Result<Vec<PathBuf>>,
) -> io::Result<Listing> {
    let mut listing = Listing { photos: Vec::new(), skipped: 0, unreadable: Vec::new() };
    let mut walked = HashSet::from([folder.canonicalize()?]);
    let mut folders = vec![folder.to_path_buf()];
    while let Some(current) = folders.pop() {
        let paths = match read_folder(&current) {
            Ok(paths) => paths,
            Err(error) if current == folder => return Err(error),
            Err(error) => {
                listing.unreadable.push(format!("{}: {error}", current.display()));
                continue;
            }
        };
        for path in paths {
            if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
                continue;
            }
            if path.is_dir() {
                let real = path.canonicalize().unwrap_or_else(|_| path.clone());
                if walked.insert(real) {
                    folders.push(path);
                }
            } else if let Some(content_type) = media_type(&path.to_string_lossy()) {
                let name = format!("{prefix}{}", name_below(folder, &path));
                listing.photos.push(LocalPhoto { name, path, content_type });
            } else {
                listing.skipped += 1;
            }
        }
    }
    listing.photos.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(listing)
}

fn read_folder(folder: &Path) -> io::Result<Vec<PathBuf>> {
    std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect()
}

fn name_below(folder: &Path, path: &Path) -> String {
    let below = path.strip_prefix(folder).unwrap_or(path);
    let parts: Vec<_> = below.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn photos_are_found_in_subfolders_whatever_the_case_of_their_ending() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("start")).unwrap();
        for name in ["b.JPG", "start/a.jpeg", "notes.txt", ".hidden.jpg"] {
            std::fs::write(folder.path().join(name), b"x").unwrap();
        }
        let listing = list_photos(folder.path(), "").unwrap();
        let names: Vec<&str> = listing.photos.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["b.JPG", "start/a.jpeg"]);
        assert_eq!(listing.skipped, 1);
        assert!(listing.unreadable.is_empty());
        let prefixed = list_photos(folder.path(), "cam2/").unwrap().photos;
        assert_eq!(prefixed[1].name, "cam2/start/a.jpeg");
        assert_eq!(prefixed[1].path, listing.photos[1].path);
    }

    #[test]
    fn a_subfolder_that_cannot_be_read_is_named_and_the_others_are_sent() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["locked", "open"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            std::fs::write(folder.path().join(name).join("a.jpg"), b"x").unwrap();
        }
        // Tests may run as root, whom the system lets read everything.
        let read = |path: &Path| -> io::Result<Vec<PathBuf>> {
            let is_locked = path.ends_with("locked");
            if is_locked { Err(io::ErrorKind::PermissionDenied.into()) } else { read_folder(path) }
        };
        let listing = list_photos_read_by(folder.path(), "", read).unwrap();
        let names: Vec<&str> = listing.photos.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["open/a.jpg"]);
        let locked = folder.path().join("locked");
        assert_eq!(listing.unreadable, [format!("{}: permission denied", locked.display())]);
        assert!(list_photos_read_by(&locked, "", read).is_err(), "there is nothing else to send");
    }

    #[test]
    fn a_link_to_a_folder_above_sends_nothing_twice() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.jpg"), b"x").unwrap();
        std::fs::create_dir(folder.path().join("day 1")).unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("day 1/all")).unwrap();
        let listing = list_photos(folder.path(), "").unwrap();
        assert_eq!(listing.photos.len(), 1);
    }
}
