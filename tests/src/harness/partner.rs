//! A partner's program: one API key and the calls of the contract.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::service::Service;
use crate::harness::response::Response;

/// How long the photos of a test may take.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// Calls with one key.
#[derive(Clone)]
pub struct Partner<'a> {
    service: &'a Service,
    key: String,
}

/// Where to send bytes, and what they will be called.
#[derive(Clone, Debug)]
pub struct UploadTicket {
    /// Takes the PUT.
    pub url: String,
    /// `photoId` or `imageId`.
    pub id: String,
}

/// A file as a partner declares it.
#[derive(Clone, Copy, Debug)]
pub struct UploadFile<'a> {
    /// Its name.
    pub name: &'a str,
    /// The media type that it is said to have.
    pub content_type: &'a str,
    /// What it holds.
    pub bytes: &'a [u8],
}

impl<'a> Partner<'a> {
    pub(super) fn new(service: &'a Service, key: String) -> Self {
        Self { service, key }
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// One call; `path` as in the contract, for example `/albums/create`.
    pub fn call(&self, path: &str, input: &Value) -> Response {
        let body = serde_json::to_vec(input).expect("a value is JSON");
        self.post(path, &[("content-type", "application/json")], &body)
    }

    /// One call with these headers and this body; the key is added.
    ///
    /// # Panics
    /// When no answer comes.
    pub fn post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        let mut request = self.service.agent().post(format!("{}/openapi{path}", self.service.origin()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if !self.key.is_empty() {
            request = request.header("x-api-key", &self.key);
        }
        read_response(request.send(body))
    }

    /// Gets a URL, without the key.
    pub fn get(&self, url: &str) -> Response {
        read_response(self.service.agent().get(url).call())
    }

    /// Sends bytes to an upload URL, without the key.
    pub fn put(&self, url: &str, content_type: &str, bytes: &[u8]) -> Response {
        read_response(self.service.agent().put(url).header("content-type", content_type).send(bytes))
    }

    /// The answer of a call that must succeed.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn call_ok(&self, path: &str, input: &Value) -> Value {
        self.call(path, input).expect_ok()
    }

    /// Makes an album.
    #[track_caller]
    pub fn create_album(&self, title: &str) -> String {
        self.create_album_with(&json!({ "title": title }))
    }

    /// Makes an album from this input.
    #[track_caller]
    pub fn create_album_with(&self, input: &Value) -> String {
        expect_string(&self.call_ok("/albums/create", input)["id"])
    }

    /// Asks for an upload URL of a photo.
    #[track_caller]
    pub fn sign_photo(&self, album: &str, filename: &str, content_type: &str) -> UploadTicket {
        let input = json!({ "albumId": album, "filename": filename, "contentType": content_type });
        let ticket = self.call_ok("/photos/photo/signed", &input);
        UploadTicket { url: expect_string(&ticket["uploadUrl"]), id: expect_string(&ticket["photoId"]) }
    }

    /// Confirms an upload.
    pub fn confirm_photo(&self, album: &str, photo: &str) -> Response {
        self.call("/photos/photo/success", &json!({ "albumId": album, "photoId": photo }))
    }

    /// Sends a JPEG: signed, PUT, success. Answers its id.
    #[track_caller]
    pub fn upload_photo(&self, album: &str, filename: &str, bytes: &[u8]) -> String {
        self.upload_file(album, UploadFile { name: filename, content_type: "image/jpeg", bytes })
    }

    /// Sends a file: signed, PUT, success. Answers its id.
    #[track_caller]
    pub fn upload_file(&self, album: &str, file: UploadFile<'_>) -> String {
        let ticket = self.sign_photo(album, file.name, file.content_type);
        let sent = self.put(&ticket.url, file.content_type, file.bytes);
        assert_eq!(sent.status, 200, "{}", sent.text());
        let confirmed = self.confirm_photo(album, &ticket.id).expect_ok();
        assert_eq!(confirmed["success"], true, "{confirmed}");
        assert!(confirmed["message"].is_string(), "{confirmed}");
        ticket.id
    }

    /// Sends a JPEG to a service that may go away; answers its id once the confirmation was answered with success.
    pub fn try_upload_photo(&self, album: &str, filename: &str, bytes: &[u8]) -> Option<String> {
        let sign = json!({ "albumId": album, "filename": filename, "contentType": "image/jpeg" });
        let ticket = self.try_call("/photos/photo/signed", &sign)?;
        let sent =
            self.service.agent().put(ticket["uploadUrl"].as_str()?).header("content-type", "image/jpeg");
        if sent.send(bytes).ok()?.status() != 200 {
            return None;
        }
        let photo = ticket["photoId"].as_str()?;
        let confirmed =
            self.try_call("/photos/photo/success", &json!({ "albumId": album, "photoId": photo }))?;
        (confirmed["success"] == true).then(|| photo.to_owned())
    }

    /// Photos by state, when the service answers.
    pub fn try_album_progress(&self, album: &str) -> Option<Value> {
        self.try_call("/albums/progress", &json!({ "albumId": album }))
    }

    /// Reads an event stream to its end, wherever that is.
    pub fn read_event_stream(&self, path: &str, input: &Value) -> Vec<u8> {
        let url = format!("{}/openapi{path}", self.service.origin());
        let request = self
            .service
            .agent()
            .post(url)
            .header("x-api-key", &self.key)
            .header("accept", "text/event-stream");
        let Ok(answer) = request.send_json(input) else {
            return Vec::new();
        };
        let mut stream = answer.into_body().into_reader();
        let mut read = Vec::new();
        // The stream of a service that stops may end in the middle.
        if let Err(error) = std::io::Read::read_to_end(&mut stream, &mut read) {
            eprintln!("the stream ended early: {error}");
        }
        read
    }

    fn try_call(&self, path: &str, input: &Value) -> Option<Value> {
        let url = format!("{}/openapi{path}", self.service.origin());
        let mut answer =
            self.service.agent().post(url).header("x-api-key", &self.key).send_json(input).ok()?;
        (answer.status() == 200).then(|| answer.body_mut().read_json().ok()).flatten()
    }

    /// Sends a selfie: signed, PUT. Answers its `imageId`.
    #[track_caller]
    pub fn upload_selfie(&self, album: &str, bytes: &[u8]) -> String {
        let ticket = self.sign_selfie(album);
        let sent = self.put(&ticket.url, "image/jpeg", bytes);
        assert_eq!(sent.status, 200, "{}", sent.text());
        ticket.id
    }

    /// Asks for an upload URL of a selfie.
    #[track_caller]
    pub fn sign_selfie(&self, album: &str) -> UploadTicket {
        let ticket = self.call_ok("/photos/search/face/signed", &json!({ "albumId": album }));
        UploadTicket { url: expect_string(&ticket["uploadUrl"]), id: expect_string(&ticket["imageId"]) }
    }

    /// Searches by a selfie sent before.
    pub fn search_by_image(&self, album: &str, image: &str) -> Response {
        self.call("/photos/search/face/list", &json!({ "albumId": album, "imageId": image }))
    }

    /// Sends a selfie and answers the hits.
    #[track_caller]
    pub fn search_by_selfie(&self, album: &str, selfie: &[u8]) -> Vec<Value> {
        let image = self.upload_selfie(album, selfie);
        expect_hits(&self.search_by_image(album, &image).expect_ok())
    }

    /// Answers the hits of a bib number, fuzzy ones too.
    #[track_caller]
    pub fn search_by_bib(&self, album: &str, bib: &str) -> Vec<Value> {
        expect_hits(&self.call_ok("/photos/search/text/list", &json!({ "albumId": album, "text": bib })))
    }

    /// Answers the exact hits of a bib number.
    #[track_caller]
    pub fn search_by_bib_exact(&self, album: &str, bib: &str) -> Vec<Value> {
        let input = json!({ "albumId": album, "text": bib, "exact": true });
        expect_hits(&self.call_ok("/photos/search/text/list", &input))
    }

    /// One photo with what was seen in it.
    #[track_caller]
    pub fn get_photo(&self, album: &str, photo: &str) -> Value {
        self.call_ok("/photos/photo/get", &json!({ "albumId": album, "photoId": photo }))
    }

    /// Every photo of an album, page by page.
    #[track_caller]
    pub fn list_photos(&self, album: &str) -> Vec<Value> {
        let mut photos = Vec::new();
        let mut cursor = Value::Null;
        loop {
            let mut input = json!({ "albumId": album, "limit": 100 });
            if !cursor.is_null() {
                input["cursor"] = cursor;
            }
            let page = self.call_ok("/photos/photo/list", &input);
            photos.extend(page["photos"].as_array().expect("a list of photos").iter().cloned());
            cursor = page["nextCursor"].clone();
            if cursor.is_null() {
                return photos;
            }
        }
    }

    /// Photos by state.
    #[track_caller]
    pub fn album_progress(&self, album: &str) -> Value {
        self.call_ok("/albums/progress", &json!({ "albumId": album }))
    }

    /// Waits until no photo of the album is queued or processing; answers the progress.
    ///
    /// # Panics
    /// When that takes longer than two minutes.
    #[track_caller]
    pub fn wait_until_idle(&self, album: &str) -> Value {
        let begun = Instant::now();
        loop {
            let progress = self.album_progress(album);
            if progress["queued"] == 0 && progress["processing"] == 0 {
                return progress;
            }
            assert!(begun.elapsed() < IDLE_TIMEOUT, "still at work after {IDLE_TIMEOUT:?}: {progress}");
            std::thread::sleep(Duration::from_millis(25));
        }
    }
}

/// A JSON string.
///
/// # Panics
/// When it is none.
#[track_caller]
pub fn expect_string(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("a string was expected: {value}")).to_owned()
}

/// The hits of a search, checked against `total`.
#[track_caller]
fn expect_hits(answer: &Value) -> Vec<Value> {
    let photos = answer["photos"].as_array().unwrap_or_else(|| panic!("no photos: {answer}")).clone();
    assert_eq!(answer["total"], photos.len(), "{answer}");
    photos
}

/// Reads an answer whole.
#[track_caller]
fn read_response(answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Response {
    let mut response = match answer {
        Ok(response) => response,
        Err(error) => panic!("no answer: {error}"),
    };
    let headers = response
        .headers()
        .iter()
        .map(|(name, value)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        })
        .collect();
    let bytes = match response.body_mut().with_config().limit(1 << 30).read_to_vec() {
        Ok(bytes) => bytes,
        Err(error) => panic!("the answer broke off: {error}"),
    };
    Response { status: response.status().as_u16(), headers, body: bytes }
}
