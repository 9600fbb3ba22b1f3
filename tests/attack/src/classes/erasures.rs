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
/// How long all receipts may take. Of a photo that was deleted while a worker had it there is none before its lease of a minute is
/// over, and another minute in which pictures may still be written; then the files of the database are cleaned between the normal
/// client's searches.
const RECEIPT_TIMEOUT: Duration = Duration::from_secs(300);
/// A bib of somebody who stays on the start list.
const OTHER_BIB: &str = "33";
/// What any of the calls may be answered with while others erase and delete the same photos.
const PERMITTED: &[u16] = &[200, 404, 409, 412];

/// What is asked to be erased.
#[derive(Clone)]
struct Asked {
    kind: Kind,
    path: &'static str,
    input: Value,
}

/// What an erasure is about.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Bib,
    Face,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Bib, Self::Face];

    /// Its name in a receipt.
    fn name(self) -> &'static str {
        match self {
            Self::Bib => "bib",
            Self::Face => "face",
        }
    }
}

struct Erasing<'a> {
    site: &'a Site,
    findings: &'a Findings,
    partner: &'a Partner,
    album: String,
    photos: Vec<String>,
    image: String,
    /// Erasures that were answered as made, by kind.
    made: [AtomicUsize; Kind::ALL.len()],
}

fn run(site: &Site, findings: &Findings) -> anyhow::Result<()> {
    let (owner, stranger) = (site.tenant("Erasure Timing"), site.tenant("Erasure Stranger"));
    for round in 0..site.extent.pick(1, 4) {
        let erasing = Erasing::prepare(site, findings, &owner);
        erasing.try_confirmations(&stranger)?;
        site.in_threads(&format!("erasures {round}"), THREADS, |thread, rng| erasing.act(thread, rng));
        for kind in Kind::ALL {
            findings.check(erasing.made(kind) > 0, || format!("no {} was erased in a race", kind.name()));
        }
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
        Self { site, findings, partner, album, photos, image, made: Default::default() }
    }

    fn made(&self, kind: Kind) -> usize {
        self.made[kind as usize].load(Ordering::SeqCst)
    }

    fn call(&self, path: &str, input: &Value, statuses: &[u16]) -> Option<Value> {
        let reaction = self.site.call(path, self.partner.key(), input);
        self.findings.expect(path, reaction, statuses).filter(|answer| answer.status == 200).map(|a| a.json())
    }

    fn of_bib(&self) -> Asked {
        let input = json!({ "albumId": self.album, "bib": self.site.material.bib });
        Asked { kind: Kind::Bib, path: "/people/erase", input }
    }

    fn of_face(&self, image: &str) -> Asked {
        let input = json!({ "albumId": self.album, "imageId": image });
        Asked { kind: Kind::Face, path: "/faces/erase", input }
    }

    /// Returns the confirmation that a dry run gives.
    fn ask(&self, asked: &Asked, statuses: &[u16]) -> Option<String> {
        let mut dry = asked.input.clone();
        dry["dryRun"] = json!(true);
        let shown = self.call(asked.path, &dry, statuses)?;
        let confirm = shown["confirm"].as_str().map(str::to_owned);
        self.findings.check(confirm.is_some(), || format!("a dry run gives no confirmation: {shown}"));
        confirm
    }

    fn confirm(&self, asked: &Asked, confirm: &str, statuses: &[u16]) -> Option<Value> {
        let mut confirmed = asked.input.clone();
        confirmed["confirm"] = json!(confirm);
        self.call(asked.path, &confirmed, statuses)
    }

    /// No confirmation but the request's own is accepted.
    fn try_confirmations(&self, stranger: &Partner) -> anyhow::Result<()> {
        let bib = self.of_bib();
        let (before, by_face) = (self.count_by_bib(), self.count_by_face());
        // Else nobody would notice that it is not erased.
        self.findings.check(by_face > 0, || "the face is not found before it is erased".to_owned());
        let confirm = self.ask(&bib, &[200]).context("a dry run")?;
        let but = |name: &str, value: Value| {
            let mut other = bib.clone();
            other.input[name] = value;
            other
        };
        let (other_bib, deleting, without_faces) =
            (but("bib", json!("77")), but("photos", json!("delete")), but("faces", json!(false)));
        for other in [&other_bib, &deleting, &without_faces, &self.of_face(&self.image)] {
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

    /// Counts by a new selfie: an erasure of the face takes those before with it.
    fn count_by_face(&self) -> usize {
        self.partner.search_by_selfie(&self.album, &self.site.material.selfie).len()
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

    /// Makes random calls around two erasures, of which each is made at least once.
    fn act(&self, thread: usize, mut rng: StdRng) {
        match thread {
            0 => self.erase(&self.of_bib(), PERMITTED),
            1 => self.erase(&self.of_face(&self.image), PERMITTED),
            _ => {}
        }
        let on_album = json!({ "albumId": self.album });
        let text = json!({ "albumId": self.album, "text": self.site.material.bib });
        let face = json!({ "albumId": self.album, "imageId": self.image });
        let list = self.start_list();
        for _ in 0..self.site.extent.pick(8, 30) {
            let photo = &self.photos[rng.random_range(0..PHOTOS)];
            let on_photo = json!({ "albumId": self.album, "photoId": photo });
            match rng.random_range(0..24) {
                0..4 => self.erase(&self.of_bib(), PERMITTED),
                4..8 => self.erase(&self.of_face(&self.image), PERMITTED),
                8..11 => drop(self.call("/albums/reprocess", &on_album, PERMITTED)),
                11..15 => drop(self.call("/photos/search/text/list", &text, PERMITTED)),
                15..19 => drop(self.call("/photos/search/face/list", &face, PERMITTED)),
                19..21 => drop(self.call("/albums/startlist/import", &list, PERMITTED)),
                21..23 => drop(self.call("/photos/photo/get", &on_photo, PERMITTED)),
                _ => drop(self.call("/photos/photo/delete", &on_photo, PERMITTED)),
            }
        }
    }

    /// A start list with the bib that is erased and another.
    fn start_list(&self) -> Value {
        let csv = format!("bib,wave\n{},A\n{OTHER_BIB},B", self.site.material.bib);
        json!({ "albumId": self.album, "csv": csv })
    }

    /// Asks for a confirmation and erases with it, unless another answer that is permitted ends it before.
    fn erase(&self, asked: &Asked, statuses: &[u16]) {
        let Some(confirm) = self.ask(asked, statuses) else { return };
        if self.confirm(asked, &confirm, statuses).is_some() {
            self.made[asked.kind as usize].fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Erases both once more, reads all photos again, and looks everywhere.
    fn check_gone(&self) -> anyhow::Result<()> {
        self.erase(&self.of_bib(), &[200]);
        // Of a photo that is being read again only what was known of it before is erased.
        self.partner.wait_until_idle(&self.album);
        let image = self.partner.upload_selfie(&self.album, &self.site.material.selfie);
        self.erase(&self.of_face(&image), &[200]);
        self.call("/albums/reprocess", &json!({ "albumId": self.album }), &[200]);
        self.partner.wait_until_idle(&self.album);
        let (by_bib, by_face) = (self.count_by_bib(), self.count_by_face());
        self.findings.check(by_bib == 0, || format!("the erased bib is found in {by_bib} photos"));
        self.findings.check(by_face == 0, || format!("the erased face is found in {by_face} photos"));
        self.check_start_list();
        self.check_receipts()?;
        self.partner.call("/albums/delete", &json!({ "albumId": self.album })).expect_ok();
        Ok(())
    }

    /// A list that is imported now has only the bib that was not erased.
    fn check_start_list(&self) {
        self.call("/albums/startlist/import", &self.start_list(), &[200]);
        let listed = self.partner.call_ok("/albums/startlist/entries", &json!({ "albumId": self.album }));
        let has = |bib: &str| listed.to_string().contains(&format!("\"{bib}\""));
        self.findings.check(!has(&self.site.material.bib), || {
            format!("the erased bib is on the start list: {listed}")
        });
        self.findings
            .check(has(OTHER_BIB), || format!("the bib of somebody else is not on the start list: {listed}"));
    }

    /// There is a receipt of every erasure that was answered as made, and each is true.
    fn check_receipts(&self) -> anyhow::Result<()> {
        let erasures = self.wait_for_receipts()?;
        for kind in Kind::ALL {
            let of_kind = |erasure: &&Value| erasure["subject"]["kind"] == kind.name();
            let (receipts, made) = (erasures.iter().filter(of_kind).count(), self.made(kind));
            self.findings.check(receipts > 0 && receipts >= made, || {
                format!("{receipts} receipts of {made} erasures of a {}", kind.name())
            });
        }
        for erasure in erasures.iter().take(self.site.extent.pick(4, 40)) {
            let verified =
                self.partner.call_ok("/erasures/verify", &json!({ "receiptId": erasure["receiptId"] }));
            self.findings.check(verified["left"] == 0, || format!("a receipt is not true: {verified}"));
        }
        Ok(())
    }
}
