//! A gallery and its visitors.

use anyhow::Context as _;
use photofinish_tests::harness::Partner;
use serde_json::{Value, json};

use super::sessions::PAGE_HEADERS;
use crate::site::{PATIENCE, Site};
use crate::wire::{self, Endpoint, Reaction};

/// The gallery of an album.
pub(super) struct Gallery {
    /// Its path.
    pub(super) path: String,
}

impl Gallery {
    /// Opens the gallery of an album for everything that visitors may do.
    pub(super) fn open(partner: &Partner, album: &Value) -> anyhow::Result<Self> {
        let settings = json!({
            "albumId": album, "enabled": true, "browse": true, "selfieSearch": true, "searchesPerVisitor": 10_000,
            "contact": "privacy@gallery.example", "privacyUrl": "https://gallery.example/privacy",
        });
        let opened = partner.call_ok("/albums/gallery/update", &settings);
        let url = opened["url"].as_str().context("the address of a gallery")?;
        Ok(Self { path: format!("/g/{}", url.rsplit('/').next().context("a link")?) })
    }

    /// Calls an operation of visitors, for example `/gallery/get`.
    pub(super) fn call(&self, visitor: Endpoint, path: &str, input: &Value) -> Reaction {
        let target = format!("{}/api{path}", self.path);
        let request = wire::request("POST", &target, &PAGE_HEADERS, input.to_string().as_bytes());
        visitor.send(&request, PATIENCE)
    }

    /// Calls an operation that must succeed.
    pub(super) fn call_ok(&self, visitor: Endpoint, path: &str, input: &Value) -> anyhow::Result<Value> {
        let reaction = self.call(visitor, path, input);
        let described = reaction.describe();
        let answer = reaction.answer().filter(|answer| answer.status == 200);
        Ok(answer.with_context(|| format!("{path}: {described}"))?.json())
    }

    /// Sends a selfie as a visitor who agrees; returns its id.
    pub(super) fn upload_selfie(&self, site: &Site, visitor: Endpoint) -> anyhow::Result<Value> {
        let mut ticket = self.call_ok(visitor, "/gallery/search/face/signed", &agreement())?;
        let target = site.target_of(ticket["uploadUrl"].as_str().context("a URL")?);
        let jpeg = [("content-type", "image/jpeg")];
        let sent = site.request("PUT", &target, &jpeg, &site.material.selfie);
        let described = sent.describe();
        let is_sent = sent.answer().is_some_and(|answer| answer.status == 200);
        anyhow::ensure!(is_sent, "the selfie of a visitor: {described}");
        Ok(ticket["imageId"].take())
    }
}

/// What a visitor agrees to before a selfie is sent.
pub(super) fn agreement() -> Value {
    json!({ "consent": true, "consentVersion": 1, "language": "de" })
}
