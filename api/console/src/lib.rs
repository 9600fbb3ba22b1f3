//! The pages of the console and of the galleries: files that `cargo xtask setup` builds from `web/` and `build.rs` embeds, each
//! beside itself compressed with Brotli.
//!
//! Knows nothing of HTTP. Without built files there is one page, which says how to build them.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The embedded files, by name.
static EMBEDDED: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// The page in place of those that were not built.
const NOT_BUILT: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Photofinish</title>\
    <h1>The pages were not built</h1><p>Run <code>cargo xtask setup</code>, then build the program again. \
    The API is not affected.</p></html>\n";

/// Where files are read from.
#[derive(Clone, Debug, Default)]
pub enum Files {
    /// From the program.
    #[default]
    Embedded,
    /// From a folder, for who works on the pages.
    Folder(PathBuf),
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its bytes.
    pub bytes: Cow<'static, [u8]>,
    /// The same, compressed with Brotli.
    pub brotli: Option<Cow<'static, [u8]>>,
    /// Its media type.
    pub media_type: &'static str,
}

impl Files {
    /// Returns a file by its name, such as `console-4FKXUFC5.js`; `None` if there is none.
    pub fn get(&self, name: &str) -> Option<File> {
        let media_type = media_type(name)?;
        let bytes = self.read(name)?;
        Some(File { bytes, brotli: self.read(&format!("{name}.br")), media_type })
    }

    /// Returns a page by its name, such as `console`; the one that says how to build it if there is none.
    pub fn page(&self, name: &str) -> File {
        self.get(&format!("{name}.html")).unwrap_or(File {
            bytes: Cow::Borrowed(NOT_BUILT.as_bytes()),
            brotli: None,
            media_type: "text/html; charset=utf-8",
        })
    }

    fn read(&self, name: &str) -> Option<Cow<'static, [u8]>> {
        match self {
            Self::Embedded => {
                let found = EMBEDDED.iter().find(|(found, _)| *found == name);
                found.map(|(_, bytes)| Cow::Borrowed(*bytes))
            }
            Self::Folder(folder) => read_file(folder, name).map(Cow::Owned),
        }
    }
}

/// Reads a file of a folder, not of one above it.
fn read_file(folder: &Path, name: &str) -> Option<Vec<u8>> {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if !is_plain || name.starts_with('.') {
        return None;
    }
    std::fs::read(folder.join(name)).ok()
}

/// Returns the media type of a file that may be asked for; `None` for any other.
fn media_type(name: &str) -> Option<&'static str> {
    match name.rsplit_once('.')?.1 {
        "html" => Some("text/html; charset=utf-8"),
        "js" => Some("text/javascript; charset=utf-8"),
        "css" => Some("text/css; charset=utf-8"),
        "json" => Some("application/json"),
        "svg" => Some("image/svg+xml"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_folder_are_found_and_no_others() {
        let folder = std::env::temp_dir().join(format!("photofinish-console-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("pages")).unwrap();
        std::fs::write(folder.join("secret.js"), b"secret").unwrap();
        std::fs::write(folder.join("pages/console.js"), b"a").unwrap();
        std::fs::write(folder.join("pages/console.js.br"), b"b").unwrap();
        let files = Files::Folder(folder.join("pages"));
        let file = files.get("console.js").unwrap();
        assert_eq!((file.bytes.as_ref(), file.brotli.as_deref()), (&b"a"[..], Some(&b"b"[..])));
        assert_eq!(file.media_type, "text/javascript; charset=utf-8");
        for name in ["../secret.js", "..", "", "console.js.br", "missing.js", "/etc/passwd"] {
            assert_eq!(files.get(name), None, "{name}");
        }
        assert!(String::from_utf8_lossy(&files.page("console").bytes).contains("cargo xtask setup"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
