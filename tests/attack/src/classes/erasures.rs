//! Erasures under attack: confirmations of others, changed and used twice, while photos are read, searched, deleted and
//! reprocessed. At the end every receipt is true: nothing of what was erased is found.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use photofinish_tests::harness::Partner;
use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::class::{Class, no_settings};
use crate::findings::Findings;
use crate::site::Site;

pub(super) const ERASURES: Class = Class {
    name: "erasures",
    description: "confirmations of erasures changed in every character, of other requests, albums and tenants; a bib and a \
                  face erased by 6 threads at once while the photos are read again, searched, deleted, and a start list with \
                  the bib is imported; then every receipt is verified",
    settings: no_settings,
    stops_service: false,
    run,
};

const THREADS: usize = 6;
const PHOTOS: usize = 5;
/// How long all receipts may take: the files of the database are cleaned between the normal client's searches.
const RECEIPT_TIMEOUT: Duration = Duration::from_secs(120);
/// What any of the calls may be answered with while others erase and delete the same photos.
const PERMITTED: &[u16] = &[200, 404, 409, 412];

/// What is asked to be erased.
#[derive(Clone)]
struct Asked {
    path: &'static str,
    input: Value,
}

struct Erasing<'a> {
    site: &'a Site,
    findings: &'a Findings,
    partner: &'a Partner,
    album: String,
    photos: Vec<String>,
    image: String,
    receipts: AtomicUsize,
}

fn run(site: &Site, findings: &Findings) -> anyhow::Result<()> {
    let (owner, stranger) = (site.tenant("Erasure Timing"), site.tenant("Erasure Stranger"));
    for round in 0..site.extent.pick(1, 4) {
        let erasing = Erasing::prepare(site, findings, &owner);
        erasing.try_confirmations(&stranger)?;
        site.in_threads(&format!("erasures {round}"), THREADS, |_, rng| erasing.act(rng));
        erasing.check_gone().with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

impl<'a> Erasing<'a> {
    fn prepare(site: &'a Site, findings: &'a Findings, partner: &'a Partner) -> Self {
        let album = partner.create_album("Erased");
        let upload = |number: usize| {
            partner.upload_photo(&album, &format!("{number}.jpg"), site.material.photo(number))
        };
        let photos = (0..PHOTOS).map(upload).collect();
        partner.wait_until_idle(&album);
        let image = partner.upload_selfie(&album, &site.material.selfie);
        Self { site, findings, partner, album, photos, image, receipts: AtomicUsize::new(0) }
    }

    fn call(&self, path: &str, input: &Value, statuses: &[u16]) -> Option<Value> {
        let reaction = self.site.call(path, self.partner.key(), input);
        self.findings.expect(path, reaction, statuses).filter(|answer| answer.status == 200).map(|a| a.json())
    }

    fn of_bib(&self) -> Asked {
        let input = json!({ "albumId": self.album, "bib": self.site.material.bib });
        Asked { path: "/people/erase", input }
    }

    fn of_face(&self) -> Asked {
        Asked { path: "/faces/erase", input: json!({ "albumId": self.album, "imageId": self.image }) }
    }

    /// Returns the confirmation that a dry run gives.
    fn ask(&self, asked: &Asked, statuses: &[u16]) -> Option<String> {
        let mut dry = asked.input.clone();
        dry["dryRun"] = json!(true);
        let shown = self.call(asked.path, &dry, statuses)?;
        shown["confirm"].as_str().map(str::to_owned)
    }

    fn confirm(&self, asked: &Asked, confirm: &str, statuses: &[u16]) -> Option<Value> {
        let mut confirmed = asked.input.clone();
        confirmed["confirm"] = json!(confirm);
        self.call(asked.path, &confirmed, statuses)
    }

    /// No confirmation but the request's own is accepted.
    fn try_confirmations(&self, stranger: &Partner) -> anyhow::Result<()> {
        let bib = self.of_bib();
        let before = self.count_by_bib();
        let confirm = self.ask(&bib, &[200]).context("a dry run")?;
        let but = |name: &str, value: Value| {
            let mut other = bib.clone();
            other.input[name] = value;
            other
        };
        let (other_bib, deleting, without_faces) =
            (but("bib", json!("77")), but("photos", json!("delete")), but("faces", json!(false)));
        for other in [&other_bib, &deleting, &without_faces, &self.of_face()] {
            self.confirm(other, &confirm, &[412]);
        }
        let step = self.site.extent.pick(7, 1);
        for at in (0..confirm.len()).step_by(step) {
            for letter in ["0", "a", "F", ".", " ", "\u{e9}"] {
                let changed = format!("{}{letter}{}", &confirm[..at], &confirm[at + 1..]);
                if changed != confirm {
                    self.confirm(&bib, &changed, &[400, 412]);
                }
            }
        }
        // A confirmation is its tenant's, and so is the album.
        let theirs = but("confirm", json!(confirm));
        let foreign = self.site.call(theirs.path, stranger.key(), &theirs.input);
        self.findings.expect("a confirmation of another tenant", foreign, &[404]);
        let found = self.count_by_bib();
        self.findings.check(found == before && before > 0, || {
            format!("{found} of {before} photos are found: something was erased")
        });
        Ok(())
    }

    fn count_by_bib(&self) -> usize {
        self.partner.search_by_bib_exact(&self.album, &self.site.material.bib).len()
    }

    /// Returns the erasures of the album once all have their receipts.
    fn wait_for_receipts(&self) -> anyhow::Result<Vec<Value>> {
        let deadline = Instant::now() + RECEIPT_TIMEOUT;
        loop {
            let input = json!({ "albumId": self.album, "limit": 200 });
            let listed = self.partner.call_ok("/erasures/list", &input)["erasures"].clone();
            let erasures = listed.as_array().context("erasures")?.clone();
            if erasures.iter().all(|erasure| erasure["state"] == "done") {
                return Ok(erasures);
            }
            anyhow::ensure!(Instant::now() < deadline, "no receipt in {RECEIPT_TIMEOUT:?}: {listed}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Makes random calls around two erasures.
    fn act(&self, mut rng: StdRng) {
        let on_album = json!({ "albumId": self.album });
        let text = json!({ "albumId": self.album, "text": self.site.material.bib });
        let face = json!({ "albumId": self.album, "imageId": self.image });
        let list =
            json!({ "albumId": self.album, "csv": format!("bib,wave\n{},A\n33,B", self.site.material.bib) });
        for _ in 0..self.site.extent.pick(8, 30) {
            let photo = &self.photos[rng.random_range(0..PHOTOS)];
            let on_photo = json!({ "albumId": self.album, "photoId": photo });
            match rng.random_range(0..24) {
                0..4 => self.erase(&self.of_bib()),
                4..8 => self.erase(&self.of_face()),
                8..11 => drop(self.call("/albums/reprocess", &on_album, PERMITTED)),
                11..15 => drop(self.call("/photos/search/text/list", &text, PERMITTED)),
                15..19 => drop(self.call("/photos/search/face/list", &face, PERMITTED)),
                19..21 => drop(self.call("/albums/startlist/import", &list, PERMITTED)),
                21..23 => drop(self.call("/photos/photo/get", &on_photo, PERMITTED)),
                _ => drop(self.call("/photos/photo/delete", &on_photo, PERMITTED)),
            }
        }
    }

    fn erase(&self, asked: &Asked) {
        let Some(confirm) = self.ask(asked, PERMITTED) else { return };
        if self.confirm(asked, &confirm, PERMITTED).is_some() {
            self.receipts.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Erases both once more, reads all photos again, and looks everywhere.
    fn check_gone(&self) -> anyhow::Result<()> {
        self.erase(&self.of_bib());
        // A first erasure of the face took the selfie with it.
        self.call("/albums/reprocess", &json!({ "albumId": self.album }), &[200]);
        self.partner.wait_until_idle(&self.album);
        let by_bib = self.count_by_bib();
        self.findings.check(by_bib == 0, || format!("the erased bib is found in {by_bib} photos"));
        let listed = self.partner.call_ok("/albums/startlist/get", &json!({ "albumId": self.album }));
        let entries =
            self.partner.call("/albums/startlist/entries", &json!({ "albumId": self.album })).text();
        let is_listed = entries.contains(&format!("\"{}\"", self.site.material.bib));
        self.findings.check(!is_listed, || format!("the erased bib is on the start list: {listed}"));
        let erasures = self.wait_for_receipts()?;
        let made = self.receipts.load(Ordering::SeqCst);
        self.findings
            .check(erasures.len() >= made, || format!("{} receipts of {made} erasures", erasures.len()));
        for erasure in erasures.iter().take(self.site.extent.pick(4, 40)) {
            let verified =
                self.partner.call_ok("/erasures/verify", &json!({ "receiptId": erasure["receiptId"] }));
            self.findings.check(verified["left"] == 0, || format!("a receipt is not true: {verified}"));
        }
        self.partner.call("/albums/delete", &json!({ "albumId": self.album })).expect_ok();
        Ok(())
    }
}
