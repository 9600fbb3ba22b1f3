//! The real photos of `../shared/photos`, when they are there, against libjpeg-turbo; required with `REQUIRE_SHARED=1`.

#[cfg(test)]
#[path = "../turbo/reference.rs"]
mod reference;
#[cfg(test)]
#[path = "../turbo/same.rs"]
mod same;

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use photofinish_jpeg::{Decoder, Header, Scale};

    use super::reference;
    use super::same::assert_same_pixels_at;

    /// Larger photos are compared at the scales that matter for them.
    const LARGE_PIXELS: usize = 2_000_000;

    fn shared_photo_dir() -> Option<PathBuf> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/photos/files");
        if dir.is_dir() {
            return Some(dir);
        }
        #[expect(clippy::disallowed_methods, reason = "a switch of the tests, not a setting of the service")]
        let is_required =
            std::env::var("REQUIRE_SHARED").is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
        assert!(!is_required, "REQUIRE_SHARED=1, and there is no {}", dir.display());
        println!("SKIPPED: no real photos at {}", dir.display());
        None
    }

    fn list_files(dir: &Path, files: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            if entry.path().is_dir() { list_files(&entry.path(), files) } else { files.push(entry.path()) }
        }
    }

    #[test]
    fn real_photos_have_the_same_pixels() {
        let Some(dir) = shared_photo_dir() else { return };
        let mut files = Vec::new();
        list_files(&dir, &mut files);
        files.sort();
        // The plain code is compared on drawings.
        let mut decoders = [Decoder::new()];
        let (mut compared, mut damaged) = (0, 0);
        for path in &files {
            let file = std::fs::read(path).unwrap();
            let Ok(header) = Header::read(&file) else { continue };
            let is_large = header.size().width * header.size().height > LARGE_PIXELS;
            let scales = if is_large { &[Scale::ThreeEighths, Scale::Half][..] } else { Scale::ALL };
            match reference::decode(&file, &header, Scale::Eighth) {
                Ok(_) => {
                    assert_same_pixels_at(scales, &file, &mut decoders, &path.display().to_string());
                    compared += 1;
                }
                Err(_) => damaged += 1,
            }
        }
        println!("{compared} photos compared, {damaged} damaged, of {} files", files.len());
        assert!(compared > 100, "{compared} of {} files", files.len());
    }
}
