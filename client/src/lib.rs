//! The partner API as a program calls it: typed operations with retries, presigned uploads, progress streams, and a raw
//! way out for everything else.
//!
//! Blocking, over `ureq`. It knows the contract and nothing of the service behind it: no other crate of this workspace is
//! a dependency. Ids are text, as in the contract: a partner stores them and never parses them.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use photofinish_client::{Client, ClientOptions, PhotoFile};
//!
//! # fn main() -> Result<(), photofinish_client::ClientError> {
//! let client = Client::new("http://127.0.0.1:8080", "svc_test_...", ClientOptions::default());
//! let album = client.create_album("Harbour Run", None)?;
//! let file = PhotoFile { filename: "IMG_1.jpg".into(), content_type: "image/jpeg".into() };
//! let ticket = client.sign_photo(&album.id, &file)?;
//! client.upload_file(&ticket.upload_url, &file.content_type, Path::new("IMG_1.jpg"))?;
//! client.confirm_photo(&album.id, &ticket.photo_id)?;
//! for hit in client.search_text(&album.id, "1204", true)? {
//!     println!("{:.0} % {}", hit.confidence, hit.url);
//! }
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod client;
mod error;
mod operations;
mod progress;
mod raw;
mod retry;
mod types;
mod upload;

pub use client::{Client, ClientOptions};
pub use error::{ClientError, ErrorBody};
pub use progress::ProgressStream;
pub use raw::RawResponse;
pub use retry::{RetriedUploadStatuses, RetryPolicy};
pub use types::{
    Album, BoundingBox, DetectedFace, DetectedText, Hit, Photo, PhotoDetail, PhotoFile, PhotoPage,
    PhotoState, Progress, SelfieTicket, UploadTicket,
};
pub use upload::media_type;
