//! Presigned uploads: a PUT of bytes or of a file to the URL of a ticket.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use ureq::AsSendBody;

use crate::client::{Client, ClientOptions, check_status};
use crate::error::ClientError;
use crate::raw::read_response;
use crate::retry::Exchange;

const OPERATION: &str = "upload";

impl Client {
    /// Uploads bytes to a presigned URL, without the key.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the storage refuses, [`ClientError::Transport`] without a response.
    pub fn upload_bytes(&self, url: &str, content_type: &str, bytes: &[u8]) -> Result<(), ClientError> {
        let size = bytes.len() as u64;
        self.retry(Exchange::Upload, || self.put(url, content_type, size, bytes))
    }

    /// Uploads a file to a presigned URL, without the key, and returns its size in bytes. The file is streamed: it is
    /// never in memory as a whole.
    ///
    /// # Errors
    /// [`ClientError::File`] when the file cannot be read; as [`Self::upload_bytes`].
    pub fn upload_file(&self, url: &str, content_type: &str, path: &Path) -> Result<u64, ClientError> {
        let unreadable = |source| ClientError::File { path: path.to_owned(), source };
        self.retry(Exchange::Upload, || {
            let file = File::open(path).map_err(unreadable)?;
            let size = file.metadata().map_err(unreadable)?.len();
            self.put(url, content_type, size, &file)?;
            Ok(size)
        })
    }

    fn put(
        &self,
        url: &str,
        content_type: &str,
        size: u64,
        body: impl AsSendBody,
    ) -> Result<(), ClientError> {
        let request = self.agent().put(url).header("content-type", content_type);
        let request = request.config().timeout_global(Some(timeout(self.options(), size))).build();
        let response = request.send(body).map_err(|error| ClientError::transport(OPERATION, error))?;
        check_status(OPERATION, read_response(OPERATION, response)?).map(drop)
    }
}

/// The longest time of an upload of so many bytes.
fn timeout(options: ClientOptions, size: u64) -> Duration {
    options.upload_timeout + Duration::from_secs(size / options.min_upload_rate)
}

/// The media type of a file by the ending of its name, in any case; `None` when the service reads no such files.
pub fn media_type(filename: &str) -> Option<&'static str> {
    let (_, ending) = filename.rsplit_once('.')?;
    match ending.to_ascii_lowercase().as_str() {
        "jpg" | "jpeg" | "jpe" => Some("image/jpeg"),
        "png" => Some("image/png"),
        "webp" => Some("image/webp"),
        "heic" | "heif" if cfg!(feature = "heic") => Some("image/heic"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_of_an_upload_grows_with_its_size() {
        let options = ClientOptions::default();
        assert_eq!(timeout(options, 0), Duration::from_secs(60));
        assert_eq!(timeout(options, 64_000_000), Duration::from_secs(2060));
        let quick = ClientOptions { min_upload_rate: u64::MAX, ..options };
        assert_eq!(timeout(quick, 64_000_000), Duration::from_secs(60));
    }

    #[test]
    fn media_types_follow_the_ending_in_any_case() {
        for (filename, expected) in [
            ("a.JPG", Some("image/jpeg")),
            ("b.c.Png", Some("image/png")),
            ("d.webp", Some("image/webp")),
            ("e.gif", None),
            ("jpg", None),
        ] {
            assert_eq!(media_type(filename), expected, "{filename}");
        }
    }
}
