//! The console and a gallery under attack: passwords, cookies and links guessed, forms posted from other sites, other
//! organizations' ids, a gallery flooded with searches and reports, tickets of files changed.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use photofinish_tests::harness::Partner;
use rand::RngExt as _;
use serde_json::{Value, json};

use super::class::{Class, no_settings};
use crate::findings::Findings;
use crate::site::{Extent, PATIENCE, Site};
use crate::wire::{self, Answer, Endpoint, Reaction};

pub(super) const PAGES: Class = Class {
    name: "pages",
    description: "passwords guessed by 4 threads, cookies and links of galleries and files guessed and changed, forms of \
                  other sites, ids of other organizations with a session, a gallery flooded with searches, reports and \
                  selfies without consent",
    settings: no_settings,
    stops_service: false,
    run,
};

const JSON: (&str, &str) = ("content-type", "application/json");
const OWN_PAGE: (&str, &str) = ("sec-fetch-site", "same-origin");
/// How galleries and sessions refuse those who ask too often.
const TOO_MANY: u16 = 429;
const THREADS: usize = 4;
/// Guessed links of a long attack, at least.
const GUESSED_LINKS: usize = 300;
/// After so many a network has been refused: it may ask for 600 a minute, and one takes far less than a tenth of a second.
const MAX_GUESSED_LINKS: usize = 6_000;
/// The second byte of the addresses of each kind of client: what one network may ask for is counted for each kind alone.
const VISITORS: u8 = 2;
const GUESSERS: u8 = 3;
const DOWNLOADERS: u8 = 4;
const UNKNOWN: &str = "01890000-0000-7000-8000-0000000000ff";

struct Pages<'a> {
    site: &'a Site,
    findings: &'a Findings,
    owner: &'a Partner,
    album: String,
    photo: String,
    /// The path of the gallery.
    gallery: String,
}

fn run(site: &Site, findings: &Findings) -> anyhow::Result<()> {
    let (owner, victim) = (site.tenant("Page Timing"), site.tenant("Page Victim"));
    let pages = Pages::prepare(site, findings, &owner)?;
    let victims = Pages::prepare(site, findings, &victim)?;
    let email = format!("owner-{}@page.example", pages.album);
    let cookie = pages.sign_in(&email)?;
    let guesses = Guesses::default();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (pages, email, guesses) = (&pages, &email, &guesses);
            scope.spawn(move || pages.guess_passwords(thread, email, guesses));
        }
        scope.spawn(|| pages.flood_gallery());
    });
    guesses.check(site, findings);
    pages.forge_sessions(&cookie);
    pages.post_from_elsewhere(&cookie);
    pages.try_foreign_ids(&cookie, &victims);
    pages.guess_links();
    pages.change_tickets()?;
    // Whoever guessed has locked nobody out who is signed in.
    let seen = pages.console("albums/list", &cookie, &json!({}));
    findings.check(seen.is_some_and(|answer| answer.status == 200), || "the session ended".to_owned());
    let title = victim.call_ok("/albums/get", &json!({ "albumId": victims.album }))["title"].clone();
    findings.check(title == "Pages", || format!("the victim's album is called {title}"));
    Ok(())
}

/// How guessed passwords were answered.
#[derive(Default)]
struct Guesses {
    tried: AtomicUsize,
    refused: AtomicUsize,
}

impl Guesses {
    fn count(&self, status: u16) {
        match status {
            401 => self.tried.fetch_add(1, Ordering::SeqCst),
            TOO_MANY => self.refused.fetch_add(1, Ordering::SeqCst),
            _ => return,
        };
    }

    fn check(&self, site: &Site, findings: &Findings) {
        let [tried, refused] = [&self.tried, &self.refused].map(|counter| counter.load(Ordering::SeqCst));
        let counts = || format!("of guessed passwords {tried} were tried and {refused} refused untried");
        // In later rounds the network has still to wait.
        findings.check(tried > 0 || site.round() > 0, counts);
        // A hundred from one network in an hour, and a few for one address: a long attack makes more.
        findings.check(refused > 0 || site.extent == Extent::Quick, counts);
    }
}

impl<'a> Pages<'a> {
    fn prepare(site: &'a Site, findings: &'a Findings, owner: &'a Partner) -> anyhow::Result<Self> {
        let album = owner.create_album("Pages");
        let photo = owner.upload_photo(&album, "1.jpg", site.material.photo(0));
        owner.wait_until_idle(&album);
        let settings = json!({
            "albumId": album, "enabled": true, "browse": true, "selfieSearch": true,
            "contact": "privacy@page.example", "privacyUrl": "https://page.example/privacy",
        });
        let opened = owner.call_ok("/albums/gallery/update", &settings);
        let url = opened["url"].as_str().context("the address of a gallery")?;
        let link = url.rsplit('/').next().context("a link")?;
        let gallery = format!("/g/{link}");
        Ok(Self { site, findings, owner, album, photo, gallery })
    }

    fn post(&self, target: &str, headers: &[(&str, &str)], input: &Value) -> Reaction {
        let request = wire::request("POST", target, headers, input.to_string().as_bytes());
        self.site.endpoint(1).send(&request, PATIENCE)
    }

    /// A client of another kind, from a network that nobody has used in an earlier round.
    fn client(&self, kind: u8) -> Endpoint {
        let round = (self.site.round() % 250) as u8;
        Endpoint { source: Ipv4Addr::new(127, kind, round, 1), ..self.site.endpoint(1) }
    }

    /// Calls an operation of the console with a session.
    fn console(&self, operation: &str, cookie: &str, input: &Value) -> Option<Answer> {
        self.post(&format!("/console/api/{operation}"), &[JSON, OWN_PAGE, ("cookie", cookie)], input).answer()
    }

    fn expect_gallery(&self, operation: &str, input: &Value, statuses: &[u16]) -> Option<Answer> {
        let target = format!("{}/api/gallery/{operation}", self.gallery);
        let request = wire::request("POST", &target, &[JSON, OWN_PAGE], input.to_string().as_bytes());
        self.findings.expect(operation, self.client(VISITORS).send(&request, PATIENCE), statuses)
    }

    /// Makes an owner of the organization by an invitation, and returns the cookie of the session.
    fn sign_in(&self, email: &str) -> anyhow::Result<String> {
        let account = self.owner.call_ok("/albums/get", &json!({ "albumId": self.album }));
        let name = self.site.in_this_round("Page Timing");
        let invite = ["account", "invite", "--role", "owner", "--organization", &name, "--email", email];
        let invited = self.site.service.run(&invite);
        let link = invited.expect_success().trim().to_owned();
        let token = link.rsplit('/').next().context("a token")?;
        let input = json!({ "token": token, "name": "Owner", "password": "four wet dogs run" });
        // From another network than the guesses, which keep everybody of theirs from signing in.
        let honest = Endpoint { source: Ipv4Addr::LOCALHOST, ..self.site.endpoint(1) };
        let body = input.to_string();
        let request =
            wire::request("POST", "/console/api/invitation/accept", &[JSON, OWN_PAGE], body.as_bytes());
        let accepted = honest.send(&request, PATIENCE);
        let answer = accepted.answer().with_context(|| format!("the invitation of {account}"))?;
        let set = answer.header("set-cookie").context("a cookie")?;
        Ok(set.split(';').next().unwrap_or_default().to_owned())
    }

    /// Every guess is refused, and after some of them all are for a while.
    fn guess_passwords(&self, thread: usize, email: &str, guesses: &Guesses) {
        let count = self.site.extent.pick(6, 60);
        for guess in 0..count {
            let email =
                if guess % 2 == 0 { email.to_owned() } else { format!("{thread}-{guess}@page.example") };
            let input = json!({ "email": email, "password": format!("password number {guess}") });
            let answer = self.post("/console/api/session/create", &[JSON, OWN_PAGE], &input);
            if let Some(answer) = self.findings.expect("a guessed password", answer, &[401, TOO_MANY, 503]) {
                guesses.count(answer.status);
            }
        }
        for input in [json!({}), json!({ "email": email }), json!({ "email": 1, "password": [] })] {
            let answer = self.post("/console/api/session/create", &[JSON, OWN_PAGE], &input);
            self.findings.expect("a sign-in without a password", answer, &[400, TOO_MANY]);
        }
        let long = json!({ "email": email, "password": "x".repeat(10_000) });
        let answer = self.post("/console/api/session/create", &[JSON, OWN_PAGE], &long);
        self.findings.expect("a long password", answer, &[400, 401, TOO_MANY]);
    }

    fn forge_sessions(&self, cookie: &str) {
        let step = self.site.extent.pick(9, 1);
        let (name, value) = cookie.split_once('=').unwrap_or((cookie, ""));
        let mut forged = vec![format!("{name}="), format!("{name}={value}{value}"), format!("x={value}")];
        for at in (0..value.len()).step_by(step) {
            let letter = if value[at..].starts_with('0') { '1' } else { '0' };
            forged.push(format!("{name}={}{letter}{}", &value[..at], &value[at + 1..]));
        }
        for cookie in &forged {
            let answer =
                self.post("/console/api/albums/list", &[JSON, OWN_PAGE, ("cookie", cookie)], &json!({}));
            self.findings.expect("a forged cookie", answer, &[401]);
        }
    }

    fn post_from_elsewhere(&self, cookie: &str) {
        let input = json!({ "title": "theirs" });
        let elsewhere: [&[(&str, &str)]; 6] = [
            &[JSON],
            &[JSON, ("sec-fetch-site", "cross-site")],
            &[JSON, ("sec-fetch-site", "same-site")],
            &[JSON, ("sec-fetch-site", "none")],
            &[JSON, ("origin", "https://evil.example")],
            &[("content-type", "text/plain"), OWN_PAGE],
        ];
        for headers in elsewhere {
            let headers: Vec<(&str, &str)> = headers.iter().copied().chain([("cookie", cookie)]).collect();
            let answer = self.post("/console/api/albums/create", &headers, &input);
            self.findings.expect("a form of another site", answer, &[403]);
        }
    }

    fn try_foreign_ids(&self, cookie: &str, victim: &Self) {
        let (album, photo) = (&victim.album, &victim.photo);
        for (operation, input) in [
            ("albums/get", json!({ "albumId": album })),
            ("albums/update", json!({ "albumId": album, "title": "theirs" })),
            ("albums/delete", json!({ "albumId": album })),
            ("albums/gallery/get", json!({ "albumId": album })),
            ("albums/gallery/update", json!({ "albumId": album, "newLink": true })),
            ("albums/gallery/reports", json!({ "albumId": album })),
            ("photos/photo/get", json!({ "albumId": album, "photoId": photo })),
            ("photos/photo/get", json!({ "albumId": self.album, "photoId": photo })),
            ("people/erase", json!({ "albumId": album, "bib": "1", "dryRun": true })),
            ("keys/revoke", json!({ "keyId": UNKNOWN })),
            ("accounts/update", json!({ "accountId": UNKNOWN, "role": "owner" })),
            ("sessions/end", json!({ "sessionId": UNKNOWN })),
        ] {
            let target = format!("/console/api/{operation}");
            let answer = self.post(&target, &[JSON, OWN_PAGE, ("cookie", cookie)], &input);
            self.findings.expect(operation, answer, &[404]);
        }
        let answer =
            self.post("/console/api/operator/get", &[JSON, OWN_PAGE, ("cookie", cookie)], &json!({}));
        self.findings.expect("the operator's page", answer, &[403, 404]);
    }

    /// Visitors search, report and send selfies as often as they like, and get what the gallery gives.
    fn flood_gallery(&self) {
        let bib = json!({ "text": self.site.material.bib });
        // Whoever comes first is served.
        let found = self.expect_gallery("search/text", &bib, &[200]);
        let total = found.map_or(Value::Null, |answer| answer.json()["total"].clone());
        self.findings.check(total.as_u64() > Some(0), || format!("the first visitor finds {total} photos"));
        let mut has_reported = false;
        for n in 0..self.site.extent.pick(12, 150) {
            self.expect_gallery("search/text", &bib, &[200, TOO_MANY]);
            let said = json!({ "photoId": self.photo, "kind": "report", "note": "<script>".repeat(n % 50) });
            let answer = self.expect_gallery("report", &said, &[200, TOO_MANY]);
            has_reported |= answer.is_some_and(|answer| answer.status == 200);
            let refused = json!({ "consent": false, "consentVersion": 1, "language": "de" });
            self.expect_gallery("search/face/signed", &refused, &[412, TOO_MANY]);
            self.expect_gallery("search/face/list", &json!({ "imageId": UNKNOWN }), &[404, TOO_MANY]);
            self.expect_gallery("erase/faces", &json!({ "imageId": UNKNOWN }), &[404, TOO_MANY]);
            self.expect_gallery("albums/list", &json!({}), &[404]);
        }
        // A partner's selfie has no consent of a visitor.
        let image = self.owner.upload_selfie(&self.album, &self.site.material.selfie);
        self.expect_gallery("search/face/list", &json!({ "imageId": image }), &[404, TOO_MANY]);
        self.findings.check(has_reported, || "no visitor could report a photo".to_owned());
        let reports = self.owner.call_ok("/albums/gallery/reports", &json!({ "albumId": self.album }));
        let count = reports["reports"].as_array().map_or(0, Vec::len);
        self.findings.check(count == 1, || format!("{count} reports of one network on one photo"));
    }

    /// No guessed link is there, and who goes on guessing is refused for a while.
    fn guess_links(&self) {
        let (mut rng, guesser) = (self.site.rng("links"), self.client(GUESSERS));
        let letters = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let mut is_refused = false;
        for guess in 0..self.site.extent.pick(20, MAX_GUESSED_LINKS) {
            let link: String =
                (0..22).map(|_| char::from(letters[rng.random_range(0..letters.len())])).collect();
            let target = format!("/g/{link}/api/gallery/get");
            let request = wire::request("POST", &target, &[JSON, OWN_PAGE], b"{}");
            let reaction = guesser.send(&request, PATIENCE);
            let Some(answer) = self.findings.expect("a guessed link", reaction, &[404, TOO_MANY]) else {
                return;
            };
            is_refused |= answer.status == TOO_MANY;
            if is_refused && guess >= GUESSED_LINKS {
                break;
            }
        }
        self.findings.check(is_refused || self.site.extent == Extent::Quick, || {
            format!("none of {MAX_GUESSED_LINKS} guessed links is refused as one too many")
        });
    }

    fn change_tickets(&self) -> anyhow::Result<()> {
        let input = json!({ "albumId": self.album, "photoIds": [self.photo] });
        let made = self.owner.call_ok("/photos/download/create", &input);
        let target = self.site.target_of(made["url"].as_str().context("a URL")?);
        let client = self.client(DOWNLOADERS);
        let fetch = |target: &str| client.send(&wire::request("GET", target, &[], b""), PATIENCE);
        let from = target.rfind('/').context("a path")? + 1;
        for at in (from..target.len()).step_by(self.site.extent.pick(7, 1)) {
            let letter = if target[at..].starts_with('0') { '1' } else { '0' };
            let changed = format!("{}{letter}{}", &target[..at], &target[at + 1..]);
            self.findings.expect("a changed ticket", fetch(&changed), &[404]);
        }
        self.findings.expect("the ticket itself", fetch(&target), &[200]);
        Ok(())
    }
}
