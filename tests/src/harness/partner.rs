//! A partner's program: one API key and the calls of the contract, as JSON, so that tests see every field.

use std::time::Duration;

use photofinish_client::{Client, PhotoFile, UploadTicket};
use serde_json::{Value, json};

use super::response::Response;

/// How long the photos of a test may go without one becoming ready or failed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// Between two polls of an album's progress.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Calls with one key.
#[derive(Clone)]
pub struct Partner {
    client: Client,
}

/// A file as a partner declares it.
#[derive(Clone, Copy, Debug)]
pub struct UploadFile<'a> {
    /// Its name.
    pub name: &'a str,
    /// The declared media type.
    pub content_type: &'a str,
    /// What it contains.
    pub bytes: &'a [u8],
}

impl Partner {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// The typed client, whose calls return errors in place of panicking.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The key.
    pub fn key(&self) -> &str {
        self.client.key()
    }

    /// Calls an operation; `path` as in the contract, for example `/albums/create`.
    pub fn call(&self, path: &str, input: &Value) -> Response {
        self.post(path, &[("content-type", "application/json")], input.to_string().as_bytes())
    }

    /// Calls an operation with these headers and this body; the key is added.
    pub fn post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        self.send("POST", &format!("/openapi{path}"), headers, body)
    }

    /// Gets a path of the service or a whole URL, without the key.
    pub fn get(&self, target: &str) -> Response {
        self.send("GET", target, &[], b"")
    }

    /// Uploads bytes to a presigned URL, without the key.
    pub fn put(&self, url: &str, content_type: &str, bytes: &[u8]) -> Response {
        self.send("PUT", url, &[("content-type", content_type)], bytes)
    }

    #[track_caller]
    fn send(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        match self.client.raw(method, target, headers, body) {
            Ok(response) => Response(response),
            Err(error) => panic!("no response: {error}"),
        }
    }

    /// Calls an operation that must succeed.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn call_ok(&self, path: &str, input: &Value) -> Value {
        self.call(path, input).expect_ok()
    }

    /// Creates an album; returns its id.
    #[track_caller]
    pub fn create_album(&self, title: &str) -> String {
        self.create_album_with(&json!({ "title": title }))
    }

    /// Creates an album from this input; returns its id.
    #[track_caller]
    pub fn create_album_with(&self, input: &Value) -> String {
        expect_string(&self.call_ok("/albums/create", input)["id"])
    }

    /// Gets an upload ticket for a photo.
    #[track_caller]
    pub fn sign_photo(&self, album: &str, filename: &str, content_type: &str) -> UploadTicket {
        let file = PhotoFile { filename: filename.to_owned(), content_type: content_type.to_owned() };
        self.client.sign_photo(album, &file).expect("a ticket")
    }

    /// Confirms an upload.
    pub fn confirm_photo(&self, album: &str, photo: &str) -> Response {
        self.call("/photos/photo/success", &json!({ "albumId": album, "photoId": photo }))
    }

    /// Signs, uploads and confirms a JPEG; returns its id.
    #[track_caller]
    pub fn upload_photo(&self, album: &str, filename: &str, bytes: &[u8]) -> String {
        self.upload_file(album, UploadFile { name: filename, content_type: "image/jpeg", bytes })
    }

    /// Signs, uploads and confirms a file; returns its id.
    #[track_caller]
    pub fn upload_file(&self, album: &str, file: UploadFile<'_>) -> String {
        let ticket = self.sign_photo(album, file.name, file.content_type);
        let sent = self.put(&ticket.upload_url, file.content_type, file.bytes);
        assert_eq!(sent.status, 200, "{}", sent.text());
        let confirmed = self.confirm_photo(album, &ticket.photo_id).expect_ok();
        assert_eq!(confirmed["success"], true, "{confirmed}");
        assert!(confirmed["message"].is_string(), "{confirmed}");
        ticket.photo_id
    }

    /// Uploads a JPEG to a service that may stop at any moment; returns its id once its confirmation succeeded.
    pub fn try_upload_photo(&self, album: &str, filename: &str, bytes: &[u8]) -> Option<String> {
        let file = PhotoFile { filename: filename.to_owned(), content_type: "image/jpeg".to_owned() };
        self.client.upload_photo(album, &file, bytes).ok()
    }

    /// Signs and uploads a selfie; returns its image id.
    #[track_caller]
    pub fn upload_selfie(&self, album: &str, bytes: &[u8]) -> String {
        self.client.upload_selfie(album, "image/jpeg", bytes).expect("a selfie is uploaded")
    }

    /// Searches by a selfie uploaded before.
    pub fn search_by_image(&self, album: &str, image: &str) -> Response {
        self.call("/photos/search/face/list", &json!({ "albumId": album, "imageId": image }))
    }

    /// Uploads a selfie and returns the hits of a search by it.
    #[track_caller]
    pub fn search_by_selfie(&self, album: &str, selfie: &[u8]) -> Vec<Value> {
        let image = self.upload_selfie(album, selfie);
        expect_hits(&self.search_by_image(album, &image).expect_ok())
    }

    /// The hits of a bib number, similar ones too.
    #[track_caller]
    pub fn search_by_bib(&self, album: &str, bib: &str) -> Vec<Value> {
        expect_hits(&self.call_ok("/photos/search/text/list", &json!({ "albumId": album, "text": bib })))
    }

    /// The exact hits of a bib number.
    #[track_caller]
    pub fn search_by_bib_exact(&self, album: &str, bib: &str) -> Vec<Value> {
        let input = json!({ "albumId": album, "text": bib, "exact": true });
        expect_hits(&self.call_ok("/photos/search/text/list", &input))
    }

    /// One photo with what was detected in it.
    #[track_caller]
    pub fn get_photo(&self, album: &str, photo: &str) -> Value {
        self.call_ok("/photos/photo/get", &json!({ "albumId": album, "photoId": photo }))
    }

    /// Every photo of an album, page by page.
    #[track_caller]
    pub fn list_photos(&self, album: &str) -> Vec<Value> {
        let mut photos = Vec::new();
        let mut input = json!({ "albumId": album, "limit": 100 });
        loop {
            let mut page = self.call_ok("/photos/photo/list", &input);
            let Value::Array(found) = page["photos"].take() else { panic!("no photos: {page}") };
            photos.extend(found);
            match page["nextCursor"].take() {
                Value::Null => return photos,
                cursor => input["cursor"] = cursor,
            }
        }
    }

    /// The numbers of photos by state.
    #[track_caller]
    pub fn album_progress(&self, album: &str) -> Value {
        self.call_ok("/albums/progress", &json!({ "albumId": album }))
    }

    /// Waits until no photo of the album is queued or processing; returns the progress.
    ///
    /// # Panics
    /// When no photo becomes ready or failed for ten minutes.
    #[track_caller]
    pub fn wait_until_idle(&self, album: &str) -> Value {
        self.client.wait_until_idle(album, POLL_INTERVAL, IDLE_TIMEOUT, |_| ()).expect("the album gets idle");
        self.album_progress(album)
    }
}

/// A JSON string.
///
/// # Panics
/// When it is anything else.
#[track_caller]
pub fn expect_string(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("a string was expected: {value}")).to_owned()
}

/// The hits of a search, checked against `total`.
#[track_caller]
fn expect_hits(page: &Value) -> Vec<Value> {
    let photos = page["photos"].as_array().unwrap_or_else(|| panic!("no photos: {page}")).clone();
    assert_eq!(page["total"], photos.len(), "{page}");
    photos
}
