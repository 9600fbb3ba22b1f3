//! What the partner API answers, as far as `upload` reads it, and the service's clock that goes with it.

use std::time::{Duration, Instant};

use anyhow::bail;
use serde::Deserialize;
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

/// An answer whose body is not read yet.
pub type Answer = ureq::http::Response<ureq::Body>;

/// One entry of a batch answer, by position.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Whether it went well.
    pub success: bool,
    upload_url: Option<String>,
    photo_id: Option<String>,
    #[serde(default, with = "time::serde::rfc3339::option")]
    expires_at: Option<OffsetDateTime>,
    /// Why it did not.
    pub error: Option<Value>,
}

/// A batch answer.
#[derive(Deserialize)]
pub struct Results {
    /// By position.
    pub results: Vec<Entry>,
}

/// A page of an album.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// Oldest first.
    pub photos: Vec<Listed>,
    /// Gives the next page.
    pub next_cursor: Option<String>,
}

/// A photo of an album.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// Its `photoId`.
    pub id: String,
    /// As it was signed.
    pub filename: String,
    /// Where it is on its way.
    pub state: String,
    /// When it was signed, by the service's clock.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

/// A photo asked for alone.
#[derive(Deserialize)]
pub struct Standing {
    /// Where it is on its way.
    pub state: String,
}

/// Where a file is to be sent.
pub struct Ticket {
    /// Takes the PUT.
    pub url: String,
    /// Its `photoId`.
    pub photo: String,
    /// When the URL ends, as far as the service said so.
    until: Option<Instant>,
}

impl Ticket {
    /// What was signed when the service's clock showed `now`.
    ///
    /// # Errors
    /// When it was not signed.
    pub fn of(entry: Entry, now: OffsetDateTime) -> anyhow::Result<Self> {
        let (Some(url), Some(photo)) = (entry.upload_url, entry.photo_id) else {
            bail!("not signed: {}", entry.error.unwrap_or_default());
        };
        // What is left when it arrives, and not a date: this machine's clock may be wrong.
        let left = entry.expires_at.map(|end| Duration::try_from(end - now).unwrap_or_default());
        Ok(Self { url, photo, until: left.and_then(|left| Instant::now().checked_add(left)) })
    }

    /// Whether its URL has ended.
    pub fn is_over(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
    }
}

/// The service's clock, by which a photo's age is told; this machine's where the answer has no date.
pub fn clock_of(answer: &Answer) -> OffsetDateTime {
    let date = answer.headers().get("date").and_then(|date| date.to_str().ok());
    date.and_then(http_date).unwrap_or_else(OffsetDateTime::now_utc)
}

/// A date of HTTP, which is one of mail that ends with `GMT`.
fn http_date(text: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(text, &Rfc2822).ok()
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn an_http_date_is_parsed() {
        let date = http_date("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(date, Some(datetime!(1994-11-06 08:49:37 UTC)));
        assert_eq!(http_date("yesterday"), None);
    }

    #[test]
    fn an_upload_ticket_expires_by_the_clock_of_the_service() {
        let now = datetime!(1994-11-06 08:49:37 UTC);
        let entry = |expires_at| Entry {
            success: true,
            upload_url: Some("http://storage/1".to_owned()),
            photo_id: Some("1".to_owned()),
            expires_at,
            error: None,
        };
        let is_over = |expires_at| Ticket::of(entry(expires_at), now).unwrap().is_over();
        assert!(is_over(Some(now - Duration::from_secs(1))));
        assert!(!is_over(Some(now + Duration::from_secs(900))));
        assert!(!is_over(None));
    }
}
