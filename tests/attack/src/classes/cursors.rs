//! Cursors: changed, cut, of other operations, albums and tenants. They are positions, so a well-formed one is served;
//! but only with what the caller may see.

use std::collections::BTreeSet;

use anyhow::Context as _;
use photofinish_tests::harness::Partner;
use rand::RngExt as _;
use serde_json::{Value, json};

use super::class::{Class, no_settings};
use crate::findings::Findings;
use crate::site::Site;

pub(super) const CURSORS: Class = Class {
    name: "cursors",
    description: "cursors of albums/list, photo/list and both searches: every character changed, cut, extended, in \
                  capitals, random, of other operations, albums and tenants",
    settings: no_settings,
    stops_service: false,
    run,
};

/// An operation that pages.
struct Paged {
    path: &'static str,
    input: Value,
    /// The member of the page that is the list.
    list: &'static str,
    cursor: String,
    /// The ids that the caller may see in it.
    visible: BTreeSet<String>,
}

impl Paged {
    /// The lengths that its cursors may have: those of searches are there with a proof and without one.
    fn lengths(&self) -> Vec<usize> {
        if self.path.contains("/search/") { vec![48, 80] } else { vec![self.cursor.len()] }
    }
}

fn run(site: &Site, findings: &Findings) -> anyhow::Result<()> {
    let (owner, victim) = (site.tenant("Cursor Timing"), site.tenant("Cursor Victim"));
    let own = prepare(site, &owner)?;
    let foreign = prepare(site, &victim)?;
    let mut rng = site.rng("cursors");
    for (index, paged) in own.iter().enumerate() {
        let attempt = Attempt { site, findings, key: owner.key(), paged };
        let cursor = &paged.cursor;
        for at in 0..cursor.len() {
            for letter in ["0", "f", "g", "F", " ", "\u{e9}", "\0"] {
                attempt.make(&format!("{}{letter}{}", &cursor[..at], &cursor[at + 1..]));
            }
        }
        for changed in [
            String::new(),
            cursor[1..].to_owned(),
            cursor[..cursor.len() - 1].to_owned(),
            format!("{cursor}0"),
            cursor.to_uppercase(),
            format!("{cursor}{cursor}"),
            "../../etc/passwd".to_owned(),
            "' or 1=1 --".to_owned(),
            "f".repeat(100_000),
        ] {
            attempt.make(&changed);
        }
        for _ in 0..site.extent.pick(20, 300) {
            let random: Vec<u8> = (0..cursor.len() / 2).map(|_| rng.random_range(0..=255)).collect();
            attempt.make(&random.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        }
        for other in own.iter().chain(&foreign).enumerate().filter(|(number, _)| *number != index) {
            attempt.make(&other.1.cursor);
        }
        for value in [json!(null), json!(1), json!([cursor]), json!({ "cursor": cursor }), json!(true)] {
            attempt.make_value(value);
        }
    }
    Ok(())
}

struct Attempt<'a> {
    site: &'a Site,
    findings: &'a Findings,
    key: &'a str,
    paged: &'a Paged,
}

impl Attempt<'_> {
    fn make(&self, cursor: &str) {
        self.make_value(json!(cursor));
    }

    fn make_value(&self, cursor: Value) {
        let paged = self.paged;
        let mut input = paged.input.clone();
        let is_well_formed = cursor.as_str().is_some_and(|text| {
            let is_hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            paged.lengths().contains(&text.len()) && text.bytes().all(is_hexadecimal)
        });
        let case: String = format!("{} with the cursor {cursor}", paged.path).chars().take(200).collect();
        input["cursor"] = cursor;
        let status: &[u16] = if is_well_formed { &[200] } else { &[400, 413] };
        let reaction = self.site.call(paged.path, self.key, &input);
        let Some(answer) = self.findings.expect(&case, reaction, status) else { return };
        if answer.status != 200 {
            return;
        }
        let page = answer.json();
        let Some(items) = page[paged.list].as_array() else {
            return self.findings.wrong(format!("{case}: a page without {}: {page}", paged.list));
        };
        for item in items {
            let id = item["id"].as_str().unwrap_or_default();
            self.findings.check(paged.visible.contains(id), || format!("{case}: {id} is not the caller's"));
        }
    }
}

/// Albums and photos with which each operation has more than one page.
fn prepare(site: &Site, partner: &Partner) -> anyhow::Result<Vec<Paged>> {
    let album = partner.create_album("First");
    let other = partner.create_album("Second");
    let photos: BTreeSet<String> = (0..3)
        .map(|number| partner.upload_photo(&album, &format!("{number}.jpg"), site.material.photo(0)))
        .collect();
    partner.upload_photo(&other, "other.jpg", site.material.photo(0));
    let image = partner.upload_selfie(&album, &site.material.selfie);
    partner.wait_until_idle(&album);
    partner.wait_until_idle(&other);
    let page = |path: &'static str, list: &'static str, mut input: Value| {
        input["limit"] = json!(1);
        let page = partner.call_ok(path, &input);
        let cursor = page["nextCursor"].as_str().with_context(|| format!("{path} has one page: {page}"))?;
        let visible =
            if list == "albums" { [&album, &other].into_iter().cloned().collect() } else { photos.clone() };
        anyhow::Ok(Paged { path, input, list, cursor: cursor.to_owned(), visible })
    };
    let text = &site.material.bib;
    Ok(vec![
        page("/albums/list", "albums", json!({}))?,
        page("/photos/photo/list", "photos", json!({ "albumId": album }))?,
        page("/photos/search/text/list", "photos", json!({ "albumId": album, "text": text }))?,
        page("/photos/search/face/list", "photos", json!({ "albumId": album, "imageId": image }))?,
    ])
}
