//! The operations of the contract, typed. Operations that are not here are called with [`Client::call`].

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::Client;
use crate::error::{ClientError, ErrorBody};
use crate::types::Photo;
use crate::types::{
    Album, Hit, HitPage, PhotoDetail, PhotoFile, PhotoPage, PhotoState, Progress, SelfieTicket, TicketBody,
    UploadTicket,
};

/// Entries of a page, the most that the contract permits.
const PAGE_ENTRIES: u32 = 200;
/// Hits of a search, the most that the contract permits in one page.
const MAX_HITS: u32 = 1000;

/// The response of a batch: one result for each entry, in their order.
#[derive(Deserialize)]
struct BatchBody {
    results: Vec<BatchResult>,
}

/// The outcome of one entry of a batch: the fields of a single call, or an error.
#[derive(Deserialize)]
struct BatchResult {
    success: bool,
    #[serde(default)]
    error: ErrorBody,
    #[serde(flatten)]
    value: Value,
}

impl Client {
    /// Creates an album; `config` may be partial.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn create_album(&self, title: &str, config: Option<&Value>) -> Result<Album, ClientError> {
        let mut input = json!({ "title": title });
        if let Some(config) = config {
            input["config"] = config.clone();
        }
        self.call("albums/create", &input)
    }

    /// The newest album with exactly this title.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn find_album(&self, title: &str) -> Result<Option<Album>, ClientError> {
        #[derive(Deserialize)]
        struct Page {
            albums: Vec<Album>,
        }
        let page: Page = self.call("albums/list", &json!({ "title": title, "limit": PAGE_ENTRIES }))?;
        Ok(page.albums.into_iter().find(|album| album.title == title))
    }

    /// Photos of an album by state.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn album_progress(&self, album: &str) -> Result<Progress, ClientError> {
        self.call("albums/progress", &json!({ "albumId": album }))
    }

    /// Polls an album until no photo is queued or processed, and passes each progress to `observe`.
    ///
    /// # Errors
    /// [`ClientError::Stalled`] when no photo became ready or failed for `stall_limit`; as [`Client::call`].
    pub fn wait_until_idle(
        &self,
        album: &str,
        poll_interval: Duration,
        stall_limit: Duration,
        mut observe: impl FnMut(&Progress),
    ) -> Result<Progress, ClientError> {
        let (mut settled, mut changed_at) = (0, Instant::now());
        loop {
            let progress = self.album_progress(album)?;
            observe(&progress);
            if progress.is_idle() {
                return Ok(progress);
            }
            if progress.settled() != settled {
                (settled, changed_at) = (progress.settled(), Instant::now());
            }
            if changed_at.elapsed() > stall_limit {
                return Err(ClientError::Stalled { limit: stall_limit, progress: Box::new(progress) });
            }
            std::thread::sleep(poll_interval);
        }
    }

    /// Gets an upload ticket for a photo.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn sign_photo(&self, album: &str, file: &PhotoFile) -> Result<UploadTicket, ClientError> {
        let PhotoFile { filename, content_type } = file;
        let input = json!({ "albumId": album, "filename": filename, "contentType": content_type });
        let ticket = self.call_dated::<TicketBody>("photos/photo/signed", &input)?;
        Ok(ticket.value.into_ticket(ticket.service_time))
    }

    /// Gets upload tickets for photos: for each file, in order, its ticket or why there is none.
    ///
    /// # Errors
    /// As [`Client::call`], for the batch as a whole.
    pub fn sign_photos(
        &self,
        album: &str,
        files: &[PhotoFile],
    ) -> Result<Vec<Result<UploadTicket, ErrorBody>>, ClientError> {
        const OPERATION: &str = "photos/photo/signed/batch";
        let input = json!({ "albumId": album, "entries": files });
        let batch = self.call_dated::<BatchBody>(OPERATION, &input)?;
        let results = check_length(OPERATION, batch.value, files.len())?;
        let ticket = |result: BatchResult| {
            if !result.success {
                return Ok(Err(result.error));
            }
            let body: TicketBody = serde_json::from_value(result.value)
                .map_err(|error| invalid(OPERATION, error.to_string()))?;
            Ok(Ok(body.into_ticket(batch.service_time)))
        };
        results.into_iter().map(ticket).collect()
    }

    /// Confirms the upload of a photo, which is queued by it. May be repeated.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn confirm_photo(&self, album: &str, photo: &str) -> Result<(), ClientError> {
        const OPERATION: &str = "photos/photo/success";
        let response: Value = self.call(OPERATION, &json!({ "albumId": album, "photoId": photo }))?;
        if response["success"] == true { Ok(()) } else { Err(invalid(OPERATION, response.to_string())) }
    }

    /// Confirms the uploads of photos: for each, in order, nothing or why it is not confirmed.
    ///
    /// # Errors
    /// As [`Client::call`], for the batch as a whole.
    pub fn confirm_photos(
        &self,
        album: &str,
        photos: &[&str],
    ) -> Result<Vec<Result<(), ErrorBody>>, ClientError> {
        const OPERATION: &str = "photos/photo/success/batch";
        let batch = self.call(OPERATION, &json!({ "albumId": album, "photoIds": photos }))?;
        let results = check_length(OPERATION, batch, photos.len())?;
        let confirmed = |result: BatchResult| if result.success { Ok(()) } else { Err(result.error) };
        Ok(results.into_iter().map(confirmed).collect())
    }

    /// Signs, uploads and confirms a photo; returns its id.
    ///
    /// # Errors
    /// As the three steps.
    pub fn upload_photo(&self, album: &str, file: &PhotoFile, bytes: &[u8]) -> Result<String, ClientError> {
        let ticket = self.sign_photo(album, file)?;
        self.upload_bytes(&ticket.upload_url, &file.content_type, bytes)?;
        self.confirm_photo(album, &ticket.photo_id)?;
        Ok(ticket.photo_id)
    }

    /// One page of the photos of an album, oldest first.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn list_photos_page(&self, album: &str, cursor: Option<&str>) -> Result<PhotoPage, ClientError> {
        let mut input = json!({ "albumId": album, "limit": PAGE_ENTRIES });
        if let Some(cursor) = cursor {
            input["cursor"] = json!(cursor);
        }
        let page = self.call_dated::<PhotoPage>("photos/photo/list", &input)?;
        Ok(PhotoPage { service_time: page.service_time, ..page.value })
    }

    /// All photos of an album, oldest first.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn list_photos(&self, album: &str) -> Result<Vec<Photo>, ClientError> {
        let mut photos = Vec::new();
        let mut cursor = None;
        loop {
            let page = self.list_photos_page(album, cursor.as_deref())?;
            photos.extend(page.photos);
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(photos);
            }
        }
    }

    /// One photo with what was detected in it.
    ///
    /// # Errors
    /// As [`Client::call`]; a photo that does not exist is [`ClientError::Refused`] with status 404.
    pub fn get_photo(&self, album: &str, photo: &str) -> Result<PhotoDetail, ClientError> {
        self.call("photos/photo/get", &json!({ "albumId": album, "photoId": photo }))
    }

    /// The state of a photo; `None` when there is no such photo.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn photo_state(&self, album: &str, photo: &str) -> Result<Option<PhotoState>, ClientError> {
        none_if_missing(self.get_photo(album, photo).map(|detail| detail.photo.state))
    }

    /// Deletes a photo. One that does not exist counts as deleted.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn delete_photo(&self, album: &str, photo: &str) -> Result<(), ClientError> {
        let input = json!({ "albumId": album, "photoId": photo });
        none_if_missing(self.call::<Value>("photos/photo/delete", &input)).map(drop)
    }

    /// The photos with a text (a bib number), best first: with exactly this one, or also with similar ones.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn search_text(&self, album: &str, text: &str, exact: bool) -> Result<Vec<Hit>, ClientError> {
        let input = json!({ "albumId": album, "text": text, "exact": exact, "limit": MAX_HITS });
        self.search("photos/search/text/list", &input)
    }

    /// Uploads a selfie and returns its image id.
    ///
    /// # Errors
    /// As [`Client::call`] and [`Client::upload_bytes`].
    pub fn upload_selfie(
        &self,
        album: &str,
        content_type: &str,
        bytes: &[u8],
    ) -> Result<String, ClientError> {
        let ticket: SelfieTicket = self.call("photos/search/face/signed", &json!({ "albumId": album }))?;
        self.upload_bytes(&ticket.upload_url, content_type, bytes)?;
        Ok(ticket.image_id)
    }

    /// The photos with the face of a selfie that was uploaded, best first.
    ///
    /// # Errors
    /// As [`Client::call`]; a selfie without a usable face is [`ClientError::Refused`] with status 422.
    pub fn search_face(&self, album: &str, image: &str) -> Result<Vec<Hit>, ClientError> {
        let input = json!({ "albumId": album, "imageId": image, "limit": MAX_HITS });
        self.search("photos/search/face/list", &input)
    }

    fn search(&self, operation: &str, input: &Value) -> Result<Vec<Hit>, ClientError> {
        let page: HitPage = self.call(operation, input)?;
        let (hits, total) = (page.photos.len() as u64, page.total);
        // More than a page of hits: the callers of this client have no such albums.
        if hits != total.min(u64::from(MAX_HITS)) {
            return Err(invalid(operation, format!("{hits} hits of a total of {total}")));
        }
        Ok(page.photos)
    }
}

fn check_length(operation: &str, batch: BatchBody, entries: usize) -> Result<Vec<BatchResult>, ClientError> {
    if batch.results.len() == entries {
        return Ok(batch.results);
    }
    Err(invalid(operation, format!("{} results for {entries} entries", batch.results.len())))
}

fn none_if_missing<T>(result: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match result {
        Err(error) if error.status() == Some(404) => Ok(None),
        result => result.map(Some),
    }
}

fn invalid(operation: &str, reason: String) -> ClientError {
    ClientError::InvalidResponse { operation: operation.to_owned(), reason }
}
