//! Value parsers of the settings. What a parser says about a wrong value, "must be ...", is also what the table in
//! `docs/OPERATIONS.md` says is allowed.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::time::Duration;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command};
use photofinish_store::DatabaseKind;
use photofinish_store::blobs::storage;
use photofinish_store::model::album::RetentionConfig;
use tracing_subscriber::EnvFilter;
use url::Url;

/// Bytes in a megabyte, and pixels in a megapixel.
pub const MEGABYTE: u64 = 1_000_000;

/// The largest value of most numbers: sums of a few of them cannot overflow.
const MAX_INTEGER: u64 = 1_000_000;
/// A photo is read from the storage within 26 s: one of this size at 20 MB/s.
const MAX_PHOTO_MEGABYTES: u64 = 500;
/// An album's grid has at most 16 rows and 16 columns.
const MAX_GRID_CELLS: u64 = 256;

/// A frame of 2048 pixels has room for a few hundred faces whose bibs are large enough to be read.
const MAX_RUNNERS: u64 = 1000;
/// The console and a partner that was away for a season's break read what is kept.
const MAX_EVENT_DAYS: u64 = 90;

/// The longest time that faces and photos are kept unless for ever, days: ten years.
const MAX_RETENTION_DAYS: u64 = 3_650;

/// The longest time that backups are kept, days: ten years.
const MAX_BACKUP_DAYS: u64 = 3_650;
/// The largest number of replicas that JetStream allows.
const MAX_REPLICAS: u64 = 5;

/// Parses a switch.
pub(super) const ON_OFF: Choice<bool> = Choice(&[("on", true), ("off", false)]);

/// Parses one of a list of names.
#[derive(Clone)]
pub struct Choice<T: 'static>(pub &'static [(&'static str, T)]);

impl<T: Copy + Send + Sync> TypedValueParser for Choice<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        let options = self.0;
        // A function is a parser too: it turns a message into an error of clap.
        let parse = move |text: &str| {
            let found = options.iter().find(|(name, _)| *name == text);
            found.map(|(_, value)| *value).ok_or_else(|| format!("must be one of {}", names(options)))
        };
        parse.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(|(name, _)| PossibleValue::new(*name))))
    }
}

fn names<T>(options: &[(&str, T)]) -> String {
    options.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// Parses an address and port.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "must be an IP address and a port, such as 127.0.0.1:8080".to_owned())
}

/// Parses an `http` or `https` URL.
pub fn http_url(text: &str) -> Result<Url, String> {
    let url = text.parse::<Url>().ok();
    url.filter(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some())
        .ok_or_else(|| "must be a URL that begins with http:// or https://".to_owned())
}

/// Parses the base of presigned URLs. It is sent to every partner and browser, so it contains no credentials; and their
/// query is the signature's alone.
pub fn public_url(text: &str) -> Result<Url, String> {
    let is_base = |url: &Url| !has_credentials(url) && url.query().is_none() && url.fragment().is_none();
    http_url(text).ok().filter(is_base).ok_or_else(|| {
        "must be a URL that begins with http:// or https://, without user name, password, query and fragment"
            .to_owned()
    })
}

fn has_credentials(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// Parses the origin of an endpoint: scheme, host and port. A path would be signed too, and a proxy that removes it would
/// invalidate every signature.
pub fn http_origin(text: &str) -> Result<Url, String> {
    let is_origin = |url: &Url| {
        url.path() == "/" && url.query().is_none() && url.fragment().is_none() && !has_credentials(url)
    };
    http_url(text)
        .ok()
        .filter(is_origin)
        .ok_or_else(|| "must be http:// or https:// and a host, with nothing after it".to_owned())
}

/// Checks the URL of a database.
pub fn database_url(text: &str) -> Result<String, String> {
    match DatabaseKind::from_url(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("must be a URL that begins with sqlite: or postgres:".to_owned()),
    }
}

/// Checks the URL of a storage.
pub fn storage_url(text: &str) -> Result<String, String> {
    match storage::check_url(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(error) => Err(format!(
            "must be file:FOLDER, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX ({error})"
        )),
    }
}

/// Checks the name of a JetStream stream.
pub fn stream_name(text: &str) -> Result<String, String> {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    if text.is_empty() || !text.chars().all(is_allowed) {
        return Err("must be letters, digits, - and _".to_owned());
    }
    Ok(text.to_owned())
}

/// Checks a filter of log events.
pub fn log_filter(text: &str) -> Result<String, String> {
    match EnvFilter::try_new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("must be a filter of the crate tracing-subscriber ({error})")),
    }
}

/// Parses a count from 1.
pub fn count(text: &str) -> Result<u64, String> {
    integer(text, 1, MAX_INTEGER)
}

/// Parses the number of cells of a photo.
pub fn grid_cells(text: &str) -> Result<u32, String> {
    integer(text, 1, MAX_GRID_CELLS).map(|count| count as u32)
}

/// Parses the number of runners of a photo.
pub fn runners(text: &str) -> Result<usize, String> {
    integer(text, 1, MAX_RUNNERS).map(|count| count as usize)
}

/// Parses the number of replicas of a stream.
pub fn replicas(text: &str) -> Result<usize, String> {
    integer(text, 1, MAX_REPLICAS).map(|count| count as usize)
}

/// Parses seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    integer(text, 1, MAX_INTEGER).map(Duration::from_secs)
}

/// Parses hours.
pub fn hours(text: &str) -> Result<Duration, String> {
    integer(text, 1, MAX_INTEGER).map(|hours| Duration::from_secs(hours * 3600))
}

/// Parses the days for which events are kept.
pub fn event_days(text: &str) -> Result<Duration, String> {
    integer(text, 1, MAX_EVENT_DAYS).map(|days| Duration::from_secs(days * 86_400))
}

/// Parses for how many days faces and photos are kept, such as `photos=365,faces=90`; what is not named is kept for ever.
pub fn retention(text: &str) -> Result<RetentionConfig, String> {
    let refused = || "must be days separated by commas, such as photos=365,faces=90".to_owned();
    let mut retention = RetentionConfig::default();
    for part in text.split(',') {
        let (name, days) = part.trim().split_once('=').ok_or_else(refused)?;
        let kept = match name {
            "photos" => &mut retention.photos_days,
            "faces" => &mut retention.faces_days,
            _ => return Err(refused()),
        };
        *kept = Some(integer(days, 1, MAX_RETENTION_DAYS)? as u32);
    }
    Ok(retention)
}

/// Parses for how many days backups are kept.
pub fn backup_days(text: &str) -> Result<u32, String> {
    integer(text, 1, MAX_BACKUP_DAYS).map(|days| days as u32)
}

/// Parses megabytes into bytes, and megapixels into pixels.
pub fn megabytes(text: &str) -> Result<u64, String> {
    integer(text, 1, MAX_INTEGER).map(|megabytes| megabytes * MEGABYTE)
}

/// Parses an amount of megabytes that may be none, into bytes.
pub fn megabytes_or_none(text: &str) -> Result<u64, String> {
    integer(text, 0, MAX_INTEGER).map(|megabytes| megabytes * MEGABYTE)
}

/// Parses the size of the largest photo, megabytes into bytes.
pub fn photo_megabytes(text: &str) -> Result<u64, String> {
    integer(text, 1, MAX_PHOTO_MEGABYTES).map(|megabytes| megabytes * MEGABYTE)
}

/// Parses a confidence in percent.
pub fn confidence(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| (0.0..=100.0).contains(value));
    value.ok_or_else(|| "must be a number from 0 to 100".to_owned())
}

/// Parses a whole number from `min` to `max`.
pub fn integer(text: &str, min: u64, max: u64) -> Result<u64, String> {
    let value = text.parse().ok().filter(|value| (min..=max).contains(value));
    value.ok_or_else(|| format!("must be a whole number from {min} to {max}"))
}
