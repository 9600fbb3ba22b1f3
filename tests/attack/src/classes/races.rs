//! Races: photos are confirmed, deleted, retried, reprocessed, listed and searched at the same time, and albums deleted
//! beneath it all. At the end every photo is where its last answer says.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use photofinish_tests::harness::Partner;
use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::class::{Class, no_settings};
use crate::findings::Findings;
use crate::site::Site;

pub(super) const RACES: Class = Class {
    name: "races",
    description: "confirm, delete, retry, reprocess, update, list and search on the same photos by 6 threads, every \
                  second time with the album deleted beneath them",
    settings: no_settings,
    stops_service: false,
    run,
};

const THREADS: usize = 6;
/// What any of the calls may be answered with while others change the same photos.
const PERMITTED: &[u16] = &[200, 404, 409, 412];

/// An album with photos whose bytes are uploaded, and what has happened to them.
struct Race<'a> {
    site: &'a Site,
    findings: &'a Findings,
    partner: &'a Partner,
    album: String,
    photos: Vec<String>,
    image: String,
    deleted: Mutex<BTreeSet<String>>,
}

fn run(site: &Site, findings: &Findings) -> anyhow::Result<()> {
    let partner = site.tenant("Race Timing");
    for round in 0..site.extent.pick(2, 8) {
        let race = Race::prepare(site, findings, &partner);
        let album_is_deleted = round % 2 == 1;
        site.in_threads(&format!("races {round}"), THREADS, |thread, rng| {
            race.act(rng, album_is_deleted && thread == 0);
        });
        if album_is_deleted {
            race.check_gone();
        } else {
            race.check_album().with_context(|| format!("round {round}"))?;
        }
    }
    Ok(())
}

impl<'a> Race<'a> {
    fn prepare(site: &'a Site, findings: &'a Findings, partner: &'a Partner) -> Self {
        let album = partner.create_album("Race");
        let upload = |number: usize| {
            let ticket = partner.sign_photo(&album, &format!("{number}.jpg"), "image/jpeg");
            let sent = partner.put(&ticket.upload_url, "image/jpeg", site.material.photo(0));
            findings.check(sent.status == 200, || format!("an upload: {}", sent.text()));
            ticket.photo_id
        };
        let photos = (0..5).map(upload).collect();
        let image = partner.upload_selfie(&album, &site.material.selfie);
        Self { site, findings, partner, album, photos, image, deleted: Mutex::default() }
    }

    fn call(&self, path: &str, input: &Value, statuses: &[u16]) -> Option<Value> {
        let reaction = self.site.call(path, self.partner.key(), input);
        self.findings.expect(path, reaction, statuses).filter(|answer| answer.status == 200).map(|a| a.json())
    }

    /// Makes random calls; the one thread that deletes the album does so after half of them.
    fn act(&self, mut rng: StdRng, deletes_album: bool) {
        let count = self.site.extent.pick(25, 80);
        let on_album = json!({ "albumId": self.album });
        for step in 0..count {
            if deletes_album && step == count / 2 {
                self.call("/albums/delete", &on_album, &[200]);
            }
            let photo = &self.photos[rng.random_range(0..self.photos.len())];
            let on_photo = json!({ "albumId": self.album, "photoId": photo });
            let text = json!({ "albumId": self.album, "text": self.site.material.bib });
            let face = json!({ "albumId": self.album, "imageId": self.image });
            let batch = json!({ "albumId": self.album, "photoIds": self.photos });
            match rng.random_range(0..40) {
                0..8 => drop(self.call("/photos/photo/success", &on_photo, PERMITTED)),
                8..11 => drop(self.call("/photos/photo/success/batch", &batch, PERMITTED)),
                11..15 => drop(self.call("/photos/photo/retry", &on_photo, PERMITTED)),
                15..17 => drop(self.call("/albums/reprocess", &on_album, PERMITTED)),
                17..22 => drop(self.call("/photos/search/text/list", &text, PERMITTED)),
                22..27 => drop(self.call("/photos/search/face/list", &face, PERMITTED)),
                27..30 => drop(self.call("/photos/photo/list", &on_album, PERMITTED)),
                30..33 => drop(self.call("/photos/photo/get", &on_photo, PERMITTED)),
                33..36 => drop(self.call("/albums/progress", &on_album, PERMITTED)),
                36..39 => {
                    let update = json!({ "albumId": self.album, "title": format!("Race {step}") });
                    self.call("/albums/update", &update, PERMITTED);
                }
                _ => {
                    if self.call("/photos/photo/delete", &on_photo, PERMITTED).is_some() {
                        let mut deleted = self.deleted.lock().unwrap_or_else(PoisonError::into_inner);
                        deleted.insert(photo.clone());
                    }
                }
            }
        }
    }

    fn check_gone(&self) {
        for (path, input) in [
            ("/albums/get", json!({ "albumId": self.album })),
            ("/photos/photo/list", json!({ "albumId": self.album })),
            ("/photos/search/text/list", json!({ "albumId": self.album, "text": "1" })),
            ("/photos/search/face/list", json!({ "albumId": self.album, "imageId": self.image })),
            ("/photos/photo/get", json!({ "albumId": self.album, "photoId": self.photos[0] })),
        ] {
            self.call(path, &input, &[404]);
        }
        let listed = self.partner.call_ok("/albums/list", &json!({ "limit": 200 }));
        let is_listed = listed["albums"].to_string().contains(&self.album);
        self.findings.check(!is_listed, || "a deleted album is listed".to_owned());
    }

    /// Confirms what is left, and compares all ways to look at the album.
    fn check_album(&self) -> anyhow::Result<()> {
        let deleted = self.deleted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let left: BTreeSet<String> =
            self.photos.iter().filter(|photo| !deleted.contains(*photo)).cloned().collect();
        for photo in &left {
            let input = json!({ "albumId": self.album, "photoId": photo });
            self.call("/photos/photo/success", &input, &[200]);
        }
        let progress = self.partner.wait_until_idle(&self.album);
        let listed = self.partner.list_photos(&self.album);
        let ids: BTreeSet<String> =
            listed.iter().filter_map(|photo| photo["id"].as_str().map(str::to_owned)).collect();
        let check = |holds: bool, text: &str| {
            self.findings.check(holds, || format!("{text}: listed {ids:?}, left {left:?}, {progress}"));
        };
        check(ids == left && listed.len() == left.len(), "the list has other photos than were left");
        check(listed.iter().all(|photo| photo["state"] == "ready"), "a photo is not ready");
        check(progress["ready"] == left.len() && progress["total"] == left.len(), "the counts differ");
        for photo in &deleted {
            let input = json!({ "albumId": self.album, "photoId": photo });
            self.call("/photos/photo/get", &input, &[404]);
        }
        let hits = |found: Vec<Value>| -> Vec<String> {
            let mut ids: Vec<String> =
                found.iter().filter_map(|hit| hit["id"].as_str().map(str::to_owned)).collect();
            ids.sort();
            ids
        };
        let expected: Vec<String> = left.iter().cloned().collect();
        let by_text = hits(self.partner.search_by_bib_exact(&self.album, &self.site.material.bib));
        check(by_text == expected, &format!("the bib search finds {by_text:?}"));
        let by_face = hits(self.partner.search_by_selfie(&self.album, &self.site.material.selfie));
        check(by_face == expected, &format!("the selfie search finds {by_face:?}"));
        self.partner.call("/albums/delete", &json!({ "albumId": self.album })).expect_ok();
        Ok(())
    }
}
