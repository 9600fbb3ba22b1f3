//! What the operations take and return. Field names are the contract's, in Rust's case; fields that a service does not
//! send are empty.

use std::fmt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;

/// One event.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Album {
    /// Its id.
    pub id: String,
    /// Its title.
    pub title: String,
    /// How its photos are read and searched.
    #[serde(default)]
    pub config: Value,
}

/// A file as it is declared before its upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PhotoFile {
    /// Its name in the album.
    pub filename: String,
    /// Its media type; the upload must have the same.
    pub content_type: String,
}

/// Where to upload a photo, and its id.
#[derive(Clone, Debug)]
pub struct UploadTicket {
    /// Takes the PUT.
    pub upload_url: String,
    /// The photo's id.
    pub photo_id: String,
    /// When the URL expires by this machine's monotonic clock; `None` when the service did not say.
    pub(crate) expires: Option<Instant>,
}

impl UploadTicket {
    /// Whether its URL has expired.
    pub fn has_expired(&self) -> bool {
        self.expires.is_some_and(|expires| expires <= Instant::now())
    }
}

/// A ticket as it is sent.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TicketBody {
    upload_url: String,
    photo_id: String,
    #[serde(default, with = "time::serde::rfc3339::option")]
    expires_at: Option<OffsetDateTime>,
}

impl TicketBody {
    /// The ticket, whose time left is counted from now: this machine's clock may differ from the service's.
    pub(crate) fn into_ticket(self, service_time: OffsetDateTime) -> UploadTicket {
        let left = self.expires_at.map(|end| Duration::try_from(end - service_time).unwrap_or_default());
        let expires = left.and_then(|left| Instant::now().checked_add(left));
        UploadTicket { upload_url: self.upload_url, photo_id: self.photo_id, expires }
    }
}

/// Where to upload a selfie, and its id.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SelfieTicket {
    /// Takes the PUT.
    pub upload_url: String,
    /// The id that searches name.
    pub image_id: String,
}

/// The state of a photo.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum PhotoState {
    /// Signed, not confirmed.
    AwaitingUpload,
    /// Confirmed, waiting for a worker.
    Queued,
    /// With a worker.
    Processing,
    /// Searchable.
    Ready,
    /// Not readable; see [`Photo::failure`].
    Failed,
}

/// A photo of an album.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Photo {
    /// Its id.
    pub id: String,
    /// Its album's id.
    #[serde(default)]
    pub album_id: String,
    /// As it was declared.
    #[serde(default)]
    pub filename: String,
    /// Where it is on its way.
    pub state: PhotoState,
    /// Why it failed.
    pub failure: Option<String>,
    /// When it was signed, by the service's clock.
    #[serde(default, with = "time::serde::rfc3339::option")]
    pub created_at: Option<OffsetDateTime>,
    /// The URL of its preview, once it is ready.
    pub url: Option<String>,
}

/// A page of the photos of an album.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PhotoPage {
    /// Oldest first.
    pub photos: Vec<Photo>,
    /// Names the next page.
    pub next_cursor: Option<String>,
    /// The service's clock when it sent the page.
    #[serde(skip, default = "OffsetDateTime::now_utc")]
    pub service_time: OffsetDateTime,
}

/// A photo with what was detected in it.
#[derive(Clone, Debug, Deserialize)]
pub struct PhotoDetail {
    /// The photo.
    #[serde(flatten)]
    pub photo: Photo,
    /// All faces.
    #[serde(default)]
    pub faces: Vec<DetectedFace>,
    /// All texts.
    #[serde(default)]
    pub texts: Vec<DetectedText>,
}

/// A face in a photo.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DetectedFace {
    /// Where it is.
    pub bounding_box: BoundingBox,
    /// Whether searches find it.
    pub indexed: bool,
}

/// A text in a photo.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DetectedText {
    /// As it was read.
    pub text: String,
    /// Whether exact searches find it.
    pub indexed: bool,
}

/// A rectangle, as fractions of the photo's width and height.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
pub struct BoundingBox {
    /// Upper edge.
    pub top: f64,
    /// Left edge.
    pub left: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

/// A photo that a search found.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hit {
    /// The photo's id.
    pub id: String,
    /// 0 to 100.
    pub confidence: f64,
    /// The URL of its preview.
    pub url: String,
    /// The text that was found, in a search by text.
    pub matched_text: Option<String>,
}

/// All hits of a search.
#[derive(Deserialize)]
pub(crate) struct HitPage {
    pub(crate) photos: Vec<Hit>,
    pub(crate) total: u64,
}

/// Photos of an album by state.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Progress {
    /// All photos.
    pub total: u64,
    /// Signed, not confirmed.
    pub awaiting_upload: u64,
    /// Confirmed, waiting for a worker.
    pub queued: u64,
    /// With a worker.
    pub processing: u64,
    /// Searchable.
    pub ready: u64,
    /// Not readable.
    pub failed: u64,
    /// Speed of late; `None` when idle.
    pub photos_per_second: Option<f64>,
    /// Until the album is idle; `None` when idle.
    pub seconds_left: Option<f64>,
    /// The slowest stage; `None` when idle.
    pub bottleneck: Option<String>,
}

impl Progress {
    /// Whether no photo is queued or processed.
    pub fn is_idle(&self) -> bool {
        self.queued + self.processing == 0
    }

    /// Photos that are ready or failed.
    pub fn settled(&self) -> u64 {
        self.ready + self.failed
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} ready", self.ready, self.total)?;
        if self.failed > 0 {
            write!(f, ", {} failed", self.failed)?;
        }
        if let Some(speed) = self.photos_per_second {
            write!(f, ", {speed:.1} photos a second")?;
        }
        if let Some(seconds) = self.seconds_left {
            write!(f, ", {seconds:.0} s left")?;
        }
        if let Some(stage) = &self.bottleneck {
            write!(f, ", slowest stage: {stage}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use time::macros::datetime;

    use super::*;

    #[test]
    fn an_upload_ticket_expires_by_the_clock_of_the_service() {
        let now = datetime!(1994-11-06 08:49:37 UTC);
        let has_expired = |expires_at| {
            let (upload_url, photo_id) = ("http://storage/1".to_owned(), "1".to_owned());
            TicketBody { upload_url, photo_id, expires_at }.into_ticket(now).has_expired()
        };
        assert!(has_expired(Some(now - Duration::from_secs(1))));
        assert!(!has_expired(Some(now + Duration::from_secs(900))));
        assert!(!has_expired(None));
    }

    #[test]
    fn progress_reads_as_a_sentence() {
        let progress: Progress = serde_json::from_value(json!({
            "albumId": "a", "total": 48, "awaitingUpload": 0, "ready": 12, "failed": 1, "queued": 30, "processing": 5,
            "photosPerSecond": 2.86, "secondsLeft": 11.0, "bottleneck": "decode",
        }))
        .unwrap();
        assert!(!progress.is_idle());
        let sentence = "12 of 48 ready, 1 failed, 2.9 photos a second, 11 s left, slowest stage: decode";
        assert_eq!(progress.to_string(), sentence);
        assert!(Progress { total: 1, ready: 1, ..Progress::default() }.is_idle());
    }
}
