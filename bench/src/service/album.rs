//! Puts a folder of photos into an album of a running service: uploads, confirms, waits for processing.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context as _;
use photofinish_client::{Client, PhotoFile, Progress, media_type};
use serde_json::{Value, json};

/// Concurrent uploads.
const UPLOADERS: usize = 4;
/// Pause between two polls of an album's progress.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A measurement fails when no photo becomes ready or failed for so long.
const STALL_LIMIT: Duration = Duration::from_secs(300);

/// A photo in an album.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadedPhoto {
    /// Path below the folder.
    pub file: String,
    /// Photo id in the service.
    pub id: String,
}

/// An album with its photos.
pub struct UploadedAlbum {
    /// Album id.
    pub id: String,
    /// In the order of the files.
    pub photos: Vec<UploadedPhoto>,
}

impl UploadedAlbum {
    /// Creates an album and uploads files below `folder` to it, without confirming them.
    ///
    /// # Errors
    /// When a file cannot be read or the service returns an error.
    pub fn upload(
        client: &Client,
        config: Option<&Value>,
        folder: &Path,
        files: &[String],
    ) -> anyhow::Result<Self> {
        let id = client.create_album("bench", config)?.id;
        let queue = Mutex::new(files.iter().enumerate());
        let done = Mutex::new(vec![None; files.len()]);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..UPLOADERS)
                .map(|_| {
                    scope.spawn(|| -> anyhow::Result<()> {
                        loop {
                            let next = queue.lock().expect("no uploader panics").next();
                            let Some((index, file)) = next else { return Ok(()) };
                            let photo = upload_photo(client, &id, folder, file)?;
                            done.lock().expect("no uploader panics")[index] = Some(photo);
                        }
                    })
                })
                .collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("no uploader panics"))
        })?;
        let photos = done.into_inner().expect("no uploader panics").into_iter().flatten().collect();
        Ok(Self { id, photos })
    }

    /// Confirms all photos.
    ///
    /// # Errors
    /// When the service returns an error.
    pub fn confirm_all(&self, client: &Client) -> anyhow::Result<()> {
        self.photos.iter().try_for_each(|photo| Ok(client.confirm_photo(&self.id, &photo.id)?))
    }

    /// Queues all its photos again, which are ready.
    ///
    /// # Errors
    /// When the service returns an error.
    pub fn reprocess(&self, client: &Client) -> anyhow::Result<()> {
        let _queued: Value = client.call("albums/reprocess", &json!({ "albumId": self.id }))?;
        Ok(())
    }

    /// Waits until no photo is queued or processed.
    ///
    /// # Errors
    /// When no photo becomes ready or failed for five minutes.
    pub fn wait_until_idle(&self, client: &Client) -> anyhow::Result<Progress> {
        Ok(client.wait_until_idle(&self.id, POLL_INTERVAL, STALL_LIMIT, |_| ())?)
    }

    /// Uploads, confirms and waits.
    ///
    /// # Errors
    /// As of the three steps, and when a photo failed.
    pub fn ingest(
        client: &Client,
        config: Option<&Value>,
        folder: &Path,
        files: &[String],
    ) -> anyhow::Result<Self> {
        let album = Self::upload(client, config, folder, files)?;
        album.confirm_all(client)?;
        let progress = album.wait_until_idle(client)?;
        anyhow::ensure!(progress.failed == 0, "{} of {} photos failed", progress.failed, files.len());
        Ok(album)
    }

    /// Deletes a photo.
    ///
    /// # Errors
    /// When the service returns an error.
    pub fn remove(&mut self, client: &Client, file: &str) -> anyhow::Result<()> {
        for photo in self.photos.extract_if(.., |photo| photo.file == file) {
            client.delete_photo(&self.id, &photo.id)?;
        }
        Ok(())
    }

    /// Adds a photo and waits until it is processed.
    ///
    /// # Errors
    /// When the photo cannot be read or fails, or the service returns an error.
    pub fn add(&mut self, client: &Client, folder: &Path, file: &str) -> anyhow::Result<()> {
        let photo = upload_photo(client, &self.id, folder, file)?;
        client.confirm_photo(&self.id, &photo.id)?;
        let progress = self.wait_until_idle(client)?;
        anyhow::ensure!(progress.failed == 0, "{file} failed");
        self.photos.push(photo);
        Ok(())
    }

    /// Returns the file of a photo.
    pub fn find_file(&self, id: &str) -> Option<&str> {
        self.photos.iter().find(|photo| photo.id == id).map(|photo| photo.file.as_str())
    }
}

fn upload_photo(client: &Client, album: &str, folder: &Path, file: &str) -> anyhow::Result<UploadedPhoto> {
    let path = folder.join(file);
    let filename = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let content_type = media_type(&filename).unwrap_or("image/jpeg").to_owned();
    let declared = PhotoFile { filename, content_type };
    let ticket = client.sign_photo(album, &declared)?;
    client.upload_file(&ticket.upload_url, &declared.content_type, &path)?;
    Ok(UploadedPhoto { file: file.to_owned(), id: ticket.photo_id })
}

/// Lists the JPEG files of a folder, sorted by name.
///
/// # Errors
/// When the folder cannot be read or has none.
pub fn list_jpegs(folder: &Path) -> anyhow::Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut files: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| {
            let extension = PathBuf::from(name).extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
            matches!(extension.as_deref(), Some("jpg" | "jpeg"))
        })
        .collect();
    files.sort();
    anyhow::ensure!(!files.is_empty(), "{} has no JPEG files", folder.display());
    Ok(files)
}
