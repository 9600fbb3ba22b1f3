//! The partner API, by way of `curl`: set-up needs that program anyway, and this crate no HTTP library.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::process::{capture_output, capture_output_with_input};

/// The most that a page of anything holds.
const PAGE: u32 = 200;

/// One service with one key.
pub struct Api {
    base: String,
    key: String,
}

/// Found photos.
pub struct Hit {
    /// The photo's id.
    pub photo: String,
    /// Its preview, for an hour.
    pub url: String,
    /// 0 to 100.
    pub confidence: f64,
    /// The bib that was read, in a search by bib.
    pub matched_text: Option<String>,
}

/// How far an album is.
pub struct Progress(Value);

impl Api {
    /// `address` is the service's, without a path.
    pub fn new(address: &str, key: &str) -> Self {
        Self { base: format!("{address}/openapi"), key: key.to_owned() }
    }

    /// The key it speaks with.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The id of the album with this title, made when there is none.
    pub fn album(&self, title: &str) -> anyhow::Result<String> {
        let known = self.call("albums/list", &json!({ "title": title, "limit": PAGE }))?;
        let same = known["albums"].as_array().into_iter().flatten().find(|album| album["title"] == title);
        let album = match same {
            Some(album) => album.clone(),
            None => self.call("albums/create", &json!({ "title": title }))?,
        };
        text(&album, "id")
    }

    /// How far an album is.
    pub fn progress(&self, album: &str) -> anyhow::Result<Progress> {
        self.call("albums/progress", &json!({ "albumId": album })).map(Progress)
    }

    /// Every photo of an album, as the API describes it.
    pub fn photos(&self, album: &str) -> anyhow::Result<Vec<Value>> {
        let mut photos = Vec::new();
        let mut body = json!({ "albumId": album, "limit": PAGE });
        loop {
            let mut page = self.call("photos/photo/list", &body)?;
            let Value::Array(found) = page["photos"].take() else { bail!("a page without photos") };
            photos.extend(found);
            match page["nextCursor"].take() {
                Value::Null => return Ok(photos),
                cursor => body["cursor"] = cursor,
            }
        }
    }

    /// One photo with everything that was seen in it.
    pub fn photo(&self, album: &str, photo: &str) -> anyhow::Result<Value> {
        self.call("photos/photo/get", &json!({ "albumId": album, "photoId": photo }))
    }

    /// Photos with a bib.
    pub fn by_bib(&self, album: &str, bib: &str) -> anyhow::Result<Vec<Hit>> {
        self.hits("photos/search/text/list", json!({ "albumId": album, "text": bib, "limit": 1000 }))
    }

    /// Photos with the person of a selfie, a JPEG file.
    pub fn by_selfie(&self, album: &str, selfie: &Path) -> anyhow::Result<Vec<Hit>> {
        let ticket = self.call("photos/search/face/signed", &json!({ "albumId": album }))?;
        let mut send = Command::new("curl");
        send.args(["--fail", "--silent", "--show-error", "--header", "content-type: image/jpeg"]);
        send.arg("--upload-file").arg(selfie).arg(text(&ticket, "uploadUrl")?);
        capture_output(&mut send).with_context(|| format!("cannot send {}", selfie.display()))?;
        let image = text(&ticket, "imageId")?;
        self.hits("photos/search/face/list", json!({ "albumId": album, "imageId": image, "limit": 1000 }))
    }

    fn hits(&self, operation: &str, body: Value) -> anyhow::Result<Vec<Hit>> {
        let answer = self.call(operation, &body)?;
        let found =
            answer["photos"].as_array().with_context(|| format!("{operation}: no photos in the answer"))?;
        found
            .iter()
            .map(|hit| {
                Ok(Hit {
                    photo: text(hit, "id")?,
                    url: text(hit, "url")?,
                    confidence: hit["confidence"].as_f64().unwrap_or_default(),
                    matched_text: hit["matchedText"].as_str().map(str::to_owned),
                })
            })
            .collect()
    }

    /// Calls an operation. The key goes by standard input, where no list of processes shows it.
    fn call(&self, operation: &str, body: &Value) -> anyhow::Result<Value> {
        let config = format!(
            "url = {}\nheader = {}\nheader = \"content-type: application/json\"\ndata = {}\n",
            quoted(&format!("{}/{operation}", self.base)),
            quoted(&format!("x-api-key: {}", self.key)),
            quoted(&body.to_string()),
        );
        let mut curl = Command::new("curl");
        curl.args([
            "--silent",
            "--show-error",
            "--max-time",
            "120",
            "--write-out",
            "\n%{http_code}",
            "--config",
            "-",
        ]);
        let answer =
            capture_output_with_input(&mut curl, &config).with_context(|| format!("calling {operation}"))?;
        let (answer, status) = answer.rsplit_once('\n').unwrap_or(("", &answer));
        if status != "200" {
            bail!("{operation} answered {status}: {answer}");
        }
        serde_json::from_str(answer).with_context(|| format!("{operation} did not answer in JSON"))
    }
}

impl Progress {
    fn count(&self, field: &str) -> u64 {
        self.0[field].as_u64().unwrap_or_default()
    }

    /// Whether nothing is left to do.
    pub fn is_idle(&self) -> bool {
        self.count("queued") + self.count("processing") == 0
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ready, failed) = (self.count("ready"), self.count("failed"));
        write!(f, "{ready} of {} ready", self.count("total"))?;
        if failed > 0 {
            write!(f, ", {failed} failed")?;
        }
        if let Some(speed) = self.0["photosPerSecond"].as_f64() {
            write!(f, ", {speed:.1} photos a second")?;
        }
        if let Some(seconds) = self.0["secondsLeft"].as_f64() {
            write!(f, ", {seconds:.0} s left")?;
        }
        if let Some(stage) = self.0["bottleneck"].as_str() {
            write!(f, ", slowest stage: {stage}")?;
        }
        Ok(())
    }
}

fn text(value: &Value, field: &str) -> anyhow::Result<String> {
    value[field].as_str().map(str::to_owned).with_context(|| format!("no `{field}` in the answer"))
}

/// A value as curl's configuration wants it.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_survives_quoting_for_curl() {
        assert_eq!(quoted(r#"{"a":"b\n"}"#), r#""{\"a\":\"b\\n\"}""#);
    }

    #[test]
    fn progress_reads_as_a_sentence() {
        let answer = json!({
            "total": 48, "ready": 12, "failed": 1, "queued": 30, "processing": 5,
            "photosPerSecond": 2.86, "secondsLeft": 11.0, "bottleneck": "decode",
        });
        let progress = Progress(answer);
        assert!(!progress.is_idle());
        let sentence = "12 of 48 ready, 1 failed, 2.9 photos a second, 11 s left, slowest stage: decode";
        assert_eq!(progress.to_string(), sentence);
        assert!(Progress(json!({ "total": 1, "ready": 1, "queued": 0, "processing": 0 })).is_idle());
    }
}
