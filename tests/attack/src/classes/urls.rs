//! Presigned URLs of the local storage: every byte changed, removed, doubled and spelled otherwise, parameters added,
//! repeated and reordered, other methods and media types, and after their expiry. What was not signed is refused.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use photofinish_store::conformance::other_spellings;
use photofinish_tests::harness::{Partner, wait_until};
use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::json;

use super::class::{Class, no_settings};
use crate::findings::Findings;
use crate::site::{Extent, Site};
use crate::wire::Reaction;

pub(super) const URLS: Class = Class {
    name: "urls",
    description: "presigned URLs with every byte changed, removed, doubled or percent-encoded, with parameters added, \
                  repeated and reordered, with other methods and media types, and expired",
    settings: no_settings,
    stops_service: false,
    run,
};

/// Every refusal of a storage request.
const REFUSALS: &[u16] = &[400, 403, 404, 405];
const JPEG: &str = "image/jpeg";

/// A way to change a URL.
#[derive(Clone, Copy, Debug)]
enum Change {
    Replace,
    Remove,
    Double,
    Encode,
}

fn run(site: &Site, findings: &Findings) -> anyhow::Result<()> {
    let partner = site.tenant("URL Timing");
    let album = partner.create_album("URLs");
    let photo = partner.upload_photo(&album, "ready.jpg", site.material.photo(0));
    partner.wait_until_idle(&album);
    let preview = partner.get_photo(&album, &photo)["url"].as_str().context("a preview")?.to_owned();
    let download = site.target_of(&preview);
    let upload = sign_upload(site, &partner, &album);
    let mut rng = site.rng("urls");
    for (method, target) in [("PUT", &upload), ("GET", &download)] {
        for changed in changed_targets(target, site.extent, &mut rng) {
            refuse(site, findings, method, &changed);
        }
        for changed in changed_parameters(target) {
            refuse(site, findings, method, &changed);
        }
    }
    try_other_methods(site, findings, &upload, &download);
    try_other_types(site, findings, &upload);
    // What is refused otherwise is accepted as it was signed.
    let sent = put(site, &upload, Some(JPEG));
    findings.expect("the upload URL itself", sent, &[200]);
    findings.expect("the download URL itself", site.request("GET", &download, &[], b""), &[200]);
    try_expired(site, findings)
}

fn sign_upload(site: &Site, partner: &Partner, album: &str) -> String {
    site.target_of(&partner.sign_photo(album, "a.jpg", JPEG).upload_url)
}

fn put(site: &Site, target: &str, content_type: Option<&str>) -> Reaction {
    let headers: Vec<(&str, &str)> = content_type.map(|text| ("content-type", text)).into_iter().collect();
    site.request("PUT", target, &headers, &site.material.selfie)
}

fn refuse(site: &Site, findings: &Findings, method: &str, target: &str) {
    let reaction = match method {
        "PUT" => put(site, target, Some(JPEG)),
        _ => site.request(method, target, &[], b""),
    };
    findings.expect(&format!("{method} {target}"), reaction, REFUSALS);
}

/// The target with each of its bytes changed in each way. Quickly: with every 11th.
fn changed_targets(target: &str, extent: Extent, rng: &mut StdRng) -> Vec<String> {
    let mut changed = Vec::new();
    for at in (1..target.len()).step_by(extent.pick(11, 1)) {
        for change in [Change::Replace, Change::Remove, Change::Double, Change::Encode] {
            let (before, byte, after) = (&target[..at], &target[at..=at], &target[at + 1..]);
            let middle = match change {
                Change::Replace => other_letter(byte, rng).to_string(),
                Change::Remove => String::new(),
                Change::Double => byte.repeat(2),
                Change::Encode => format!("%{:02x}", byte.as_bytes()[0]),
            };
            changed.push(format!("{before}{middle}{after}"));
        }
    }
    // Removing either of two equal neighbours, or none at all, is no change.
    changed.retain(|text| text != target);
    changed
}

fn other_letter(byte: &str, rng: &mut StdRng) -> char {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789ABCDEF-._~";
    loop {
        let letter = char::from(LETTERS[rng.random_range(0..LETTERS.len())]);
        if !byte.starts_with(letter) {
            return letter;
        }
    }
}

/// The target with whole parameters added, repeated, removed, reordered and spelled otherwise.
fn changed_parameters(target: &str) -> Vec<String> {
    let Some((path, query)) = target.split_once('?') else { return Vec::new() };
    let parameters: Vec<&str> = query.split('&').collect();
    let mut queries = other_spellings(query);
    queries.extend([String::new(), query.replace('&', ";")]);
    let (rest, signature) = query.split_once("signature=").unwrap_or((query, ""));
    queries.push(format!("{rest}signature="));
    queries.push(format!("{rest}signature={}", "0".repeat(signature.len())));
    for at in 0..parameters.len() {
        let mut without = parameters.clone();
        let parameter = without.remove(at);
        queries.push(without.join("&"));
        queries.push(format!("{query}&{parameter}"));
        queries.push(format!("{parameter}&{query}"));
        if at + 1 < parameters.len() {
            let mut swapped = parameters.clone();
            swapped.swap(at, at + 1);
            queries.push(swapped.join("&"));
        }
    }
    queries.retain(|changed| changed != query);
    let mut targets: Vec<String> = queries.iter().map(|query| format!("{path}?{query}")).collect();
    for other in [format!("{path}/"), path.replacen("/o/", "//o/", 1), path.replacen("/o/", "/o/./", 1)] {
        targets.push(format!("{other}?{query}"));
    }
    targets.push(path.to_owned());
    targets
}

fn try_other_methods(site: &Site, findings: &Findings, upload: &str, download: &str) {
    for method in ["GET", "HEAD", "POST", "DELETE", "PATCH", "TRACE", "PROPFIND"] {
        findings.expect(
            &format!("{method} of an upload URL"),
            site.request(method, upload, &[], b""),
            REFUSALS,
        );
    }
    for method in ["PUT", "POST", "DELETE", "PATCH"] {
        let body = &site.material.selfie;
        let reaction = site.request(method, download, &[("content-type", JPEG)], body);
        findings.expect(&format!("{method} of a download URL"), reaction, REFUSALS);
    }
}

fn try_other_types(site: &Site, findings: &Findings, upload: &str) {
    for content_type in
        [None, Some("image/png"), Some("text/html"), Some("image/jpeg; charset=utf-8"), Some("*/*")]
    {
        let reaction = put(site, upload, content_type);
        findings.expect(&format!("an upload as {content_type:?}"), reaction, &[400, 403, 415]);
    }
}

/// A service of its own, whose URLs live for a second.
fn try_expired(site: &Site, findings: &Findings) -> anyhow::Result<()> {
    let options = site.options.clone().with_role("serve").with_setting("PHOTOFINISH_UPLOAD_SECONDS", "1");
    let short = Site::start(options, std::sync::Arc::clone(&site.material), site.extent, 0);
    let partner = short.tenant("URL Timing");
    let album = partner.create_album("URLs");
    let target = sign_upload(&short, &partner, &album);
    let expires = target.split("expires=").nth(1).and_then(|rest| rest.split('&').next());
    let expires: u64 = expires.context("an expiry")?.parse()?;
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    wait_until("the URL expires", || now() > expires);
    if let Some(answer) = findings.expect("an expired URL", put(&short, &target, Some(JPEG)), &[403]) {
        let code = answer.json()["data"]["code"].clone();
        findings.check(code == json!("URL_EXPIRED"), || format!("an expired URL: code {code}"));
    }
    Ok(())
}
