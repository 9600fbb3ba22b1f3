//! The partner API as a partner's program calls it: JSON over POST with a key, presigned uploads. It knows the
//! contract and nothing of the service behind it.

use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::{Value, json};

/// A partner. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    agent: ureq::Agent,
    base: String,
    key: String,
}

/// Where to send a photo's bytes, and its id.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UploadTicket {
    /// Presigned.
    pub upload_url: String,
    /// The photo's.
    pub photo_id: String,
}

/// Where to send a selfie's bytes, and its id.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeTicket {
    /// Presigned.
    pub upload_url: String,
    /// The probe's.
    pub image_id: String,
}

/// How far an album is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Progress {
    /// Waiting for a worker.
    pub queued: u64,
    /// With a worker.
    pub processing: u64,
    /// Searchable.
    pub ready: u64,
    /// Never to be.
    pub failed: u64,
}

/// A photo found by face or by text.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hit {
    /// The photo.
    pub id: String,
    /// 0 to 100.
    pub confidence: f64,
}

#[derive(Deserialize)]
struct Hits {
    photos: Vec<Hit>,
}

/// What was seen in a photo.
#[derive(Clone, Debug, Deserialize)]
pub struct PhotoDetail {
    /// All faces.
    pub faces: Vec<SeenFace>,
    /// All texts.
    pub texts: Vec<SeenText>,
}

/// A face seen.
#[derive(Clone, Debug, Deserialize)]
pub struct SeenFace {
    /// Whether it can be searched.
    pub indexed: bool,
}

/// A text read.
#[derive(Clone, Debug, Deserialize)]
pub struct SeenText {
    /// As read.
    pub text: String,
    /// Whether it can be searched exactly.
    pub indexed: bool,
}

/// An answer that is not 200.
#[derive(Debug)]
pub struct Refused {
    /// The call.
    pub path: String,
    /// HTTP status.
    pub status: u16,
    /// The body as it came.
    pub body: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} answered {}: {}", self.path, self.status, self.body)
    }
}

impl std::error::Error for Refused {}

impl Client {
    /// A partner of the service at `url` (without `/openapi`) with this key.
    pub fn new(url: &str, key: &str) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(120)))
            .max_idle_connections_per_host(32)
            .build();
        Self { agent: config.into(), base: url.trim_end_matches('/').to_owned(), key: key.to_owned() }
    }

    /// Makes an album; `config` is whole or partial.
    pub fn create_album(&self, title: &str, config: &Value) -> anyhow::Result<String> {
        let mut body = json!({ "title": title });
        if !config.is_null() {
            body["config"] = config.clone();
        }
        let album = self.call("albums/create", &body)?;
        album["id"].as_str().map(str::to_owned).context("an album without id")
    }

    /// Upload tickets for photos named so, in order.
    pub fn sign(&self, album: &str, filenames: &[String]) -> anyhow::Result<Vec<UploadTicket>> {
        let one = |name: &String| {
            let body = json!({ "albumId": album, "filename": name, "contentType": media_type(name) });
            Ok(serde_json::from_value(self.call("photos/photo/signed", &body)?)?)
        };
        filenames.iter().map(one).collect()
    }

    /// Sends bytes to a presigned URL.
    pub fn put(&self, url: &str, media_type: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let mut answer = self.agent.put(url).header("content-type", media_type).send(bytes)?;
        let status = answer.status().as_u16();
        if status != 200 {
            let body = answer.body_mut().read_to_string().unwrap_or_default();
            return Err(Refused { path: "PUT of an upload".to_owned(), status, body }.into());
        }
        Ok(())
    }

    /// Confirms one upload.
    pub fn confirm(&self, album: &str, photo: &str) -> anyhow::Result<()> {
        let answer = self.call("photos/photo/success", &json!({ "albumId": album, "photoId": photo }))?;
        anyhow::ensure!(answer["success"] == true, "the confirmation of {photo} was answered {answer}");
        Ok(())
    }

    /// How far an album is.
    pub fn progress(&self, album: &str) -> anyhow::Result<Progress> {
        Ok(serde_json::from_value(self.call("albums/progress", &json!({ "albumId": album }))?)?)
    }

    /// What was seen in a photo.
    pub fn photo(&self, album: &str, photo: &str) -> anyhow::Result<PhotoDetail> {
        let body = json!({ "albumId": album, "photoId": photo });
        Ok(serde_json::from_value(self.call("photos/photo/get", &body)?)?)
    }

    /// Photos whose text matches, best first.
    pub fn search_text(&self, album: &str, text: &str, exact: bool) -> anyhow::Result<Vec<Hit>> {
        let body = json!({ "albumId": album, "text": text, "exact": exact, "limit": 1000 });
        let hits: Hits = serde_json::from_value(self.call("photos/search/text/list", &body)?)?;
        Ok(hits.photos)
    }

    /// Uploads a selfie (PNG or JPEG bytes); answers its `imageId`.
    pub fn upload_probe(&self, album: &str, media_type: &str, bytes: &[u8]) -> anyhow::Result<String> {
        let body = json!({ "albumId": album, "contentType": media_type });
        let ticket: ProbeTicket = serde_json::from_value(self.call("photos/search/face/signed", &body)?)?;
        self.put(&ticket.upload_url, media_type, bytes)?;
        Ok(ticket.image_id)
    }

    /// Photos with the face of a probe, best first.
    pub fn search_face(&self, album: &str, image: &str) -> anyhow::Result<Vec<Hit>> {
        let body = json!({ "albumId": album, "imageId": image, "limit": 1000 });
        let hits: Hits = serde_json::from_value(self.call("photos/search/face/list", &body)?)?;
        Ok(hits.photos)
    }

    /// Calls an operation; `path` is below `/openapi`.
    ///
    /// # Errors
    /// [`Refused`] when the answer is not 200.
    pub fn call(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let url = format!("{}/openapi/{path}", self.base);
        let mut answer = self.agent.post(&url).header("x-api-key", &self.key).send_json(body)?;
        let status = answer.status().as_u16();
        let text = answer.body_mut().read_to_string().with_context(|| format!("the answer of {path}"))?;
        if status != 200 {
            return Err(Refused { path: path.to_owned(), status, body: text }.into());
        }
        serde_json::from_str(&text).with_context(|| format!("{path} answered no JSON: {text}"))
    }

    /// The Prometheus text of the service.
    pub fn metrics(&self) -> anyhow::Result<String> {
        let mut answer = self.agent.get(format!("{}/metrics", self.base)).call()?;
        anyhow::ensure!(answer.status().is_success(), "/metrics answered {}", answer.status());
        Ok(answer.body_mut().read_to_string()?)
    }
}

/// The media type of a file by its ending, whose case does not matter.
pub fn media_type(filename: &str) -> &'static str {
    let ending = filename.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    match ending.as_str() {
        "png" => "image/png",
        "webp" => "image/webp",
        _ => "image/jpeg",
    }
}

/// Sums of one Prometheus metric over a label: label value to number.
pub fn metric_by_label(text: &str, metric: &str, label: &str) -> std::collections::BTreeMap<String, f64> {
    let mut sums = std::collections::BTreeMap::new();
    let mark = format!("{label}=\"");
    for line in text.lines().filter(|line| line.starts_with(metric)) {
        let Some((labels, number)) =
            line[metric.len()..].strip_prefix('{').and_then(|rest| rest.rsplit_once('}'))
        else {
            continue;
        };
        let value = labels.split_once(&mark).and_then(|(_, rest)| rest.split_once('"'));
        if let (Some((value, _)), Ok(number)) = (value, number.trim().parse::<f64>()) {
            *sums.entry(value.to_owned()).or_default() += number;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_summed_by_label_and_longer_names_are_others() {
        let text = "# HELP stage_seconds x\nstage_seconds{stage=\"decode\",part=\"a\"} 1.5\n\
                    stage_seconds{part=\"b\",stage=\"decode\"} 2\nstage_seconds{stage=\"read\"} 4e-1\n\
                    stage_seconds_total{stage=\"read\"} 9\n";
        let sums = metric_by_label(text, "stage_seconds", "stage");
        assert_eq!(
            sums.into_iter().collect::<Vec<_>>(),
            [("decode".to_owned(), 3.5), ("read".to_owned(), 0.4)]
        );
    }

    #[test]
    fn endings_in_capitals_are_endings() {
        assert_eq!((media_type("A.JPG"), media_type("b.PNG")), ("image/jpeg", "image/png"));
    }
}
