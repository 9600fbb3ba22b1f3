//! Cursors: changed, cut, of other operations, albums and tenants. They are positions, so a well-formed one is served;
//! but only with what the caller may see.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use photofinish_api::fuzzing::Surface;
use photofinish_tests::harness::{Partner, wait_until};
use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::class::{Class, Setting};
use super::galleries::Gallery;
use super::hooks::{ALLOW_HOOK, create_hook, test_hook};
use super::sessions::client;
use crate::findings::Findings;
use crate::site::{Extent, Site};
use crate::wire::{Endpoint, Reaction};

pub(super) const CURSORS: Class = Class {
    name: "cursors",
    description: "cursors of every list and search, those of galleries too: every character changed, cut, extended, in \
                  capitals, random, of other operations, albums and tenants",
    settings,
    stops_service: false,
    run,
};

const THREADS: usize = 4;
/// The second byte of the first address from which visitors come, and requests of one of their networks: it may make 600 a minute.
const VISITORS: u8 = 100;
const REQUESTS_OF_NETWORK: usize = 200;
/// Of this byte visitors use so many values, one in each round.
const VISITED_ROUNDS: u64 = 100;

fn settings(_: Extent) -> Vec<Setting> {
    vec![ALLOW_HOOK]
}

/// An operation with a cursor.
struct Operation {
    surface: Surface,
    path: &'static str,
    /// The member of the page that is the list; empty where the response has none.
    list: &'static str,
    /// Where an item of the list says what it is, as a JSON pointer.
    id: &'static str,
    /// The lengths that its cursors may have: of searches with a proof and without one, of photos with a total and without one.
    lengths: &'static [usize],
}

const fn of_key(path: &'static str, list: &'static str, lengths: &'static [usize]) -> Operation {
    Operation { surface: Surface::Partners, path, list, id: "/id", lengths }
}

const fn of_visitor(path: &'static str, list: &'static str, lengths: &'static [usize]) -> Operation {
    Operation { surface: Surface::Visitors, ..of_key(path, list, lengths) }
}

static OPERATIONS: [Operation; 13] = [
    of_key("/albums/list", "albums", &[40]),
    of_key("/photos/photo/list", "photos", &[32, 44]),
    of_key("/photos/search/text/list", "photos", &[48, 80]),
    of_key("/photos/search/face/list", "photos", &[48, 80]),
    Operation { id: "/bib", ..of_key("/albums/startlist/entries", "entries", &[24]) },
    Operation { id: "/data/albumId", ..of_key("/events/list", "events", &[32]) },
    of_key("/webhooks/list", "webhooks", &[32]),
    of_key("/webhooks/deliveries/list", "deliveries", &[32]),
    Operation { id: "/receiptId", ..of_key("/erasures/list", "erasures", &[32]) },
    of_visitor("/gallery/search/text", "photos", &[48, 80]),
    of_visitor("/gallery/search/face/list", "photos", &[48, 80]),
    of_visitor("/gallery/photos/list", "photos", &[32, 44]),
    // Takes the cursor of a search as the proof that it was charged.
    of_visitor("/gallery/erase/request", "", &[48, 80]),
];

/// Operations whose body has a cursor that they do not read, and why it has one.
#[cfg(test)]
const EXEMPT: [(&str, &str); 2] = [
    ("/gallery/search/face/forget", "its body is that of a search by selfie"),
    ("/gallery/erase/faces", "its body is that of a search by selfie"),
];

/// An operation of a tenant, with a cursor that it gave.
struct Paged {
    operation: &'static Operation,
    input: Value,
    cursor: String,
    /// What the caller may see in it.
    visible: BTreeSet<String>,
}

fn run(site: &Site, findings: &Findings) -> anyhow::Result<()> {
    let (owner, victim) = (site.tenant("Cursor Timing"), site.tenant("Cursor Victim"));
    let own = Tenant::prepare(site, &owner, ["7001", "7002"])?;
    let foreign = Tenant::prepare(site, &victim, ["8001", "8002"])?;
    let visits = AtomicUsize::new(0);
    site.in_threads("cursors", THREADS, |thread, mut rng| {
        for (index, paged) in own.paged.iter().enumerate().skip(thread).step_by(THREADS) {
            let attempt = Attempt { site, findings, key: owner.key(), tenant: &own, paged, visits: &visits };
            attempt.change(&mut rng);
            let others = own.paged.iter().chain(&foreign.paged).enumerate();
            for (_, other) in others.filter(|(number, _)| *number != index) {
                attempt.make(&other.cursor);
            }
        }
    });
    Ok(())
}

struct Attempt<'a> {
    site: &'a Site,
    findings: &'a Findings,
    key: &'a str,
    tenant: &'a Tenant,
    paged: &'a Paged,
    /// Requests of visitors so far.
    visits: &'a AtomicUsize,
}

impl Attempt<'_> {
    /// Tries the cursor with every change.
    fn change(&self, rng: &mut StdRng) {
        let cursor = &self.paged.cursor;
        let is_of_visitor = self.paged.operation.surface == Surface::Visitors;
        // Visitors' cursors are those of keys: a quick attack leaves some out.
        let step = if is_of_visitor { self.site.extent.pick(4, 1) } else { 1 };
        for at in (0..cursor.len()).step_by(step) {
            for letter in ["0", "f", "g", "F", " ", "\u{e9}", "\0"] {
                self.make(&format!("{}{letter}{}", &cursor[..at], &cursor[at + 1..]));
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
            self.make(&changed);
        }
        for _ in 0..self.site.extent.pick(20, 300) {
            let random: Vec<u8> = (0..cursor.len() / 2).map(|_| rng.random_range(0..=255)).collect();
            self.make(&random.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        }
        for value in [json!(null), json!(1), json!([cursor]), json!({ "cursor": cursor }), json!(true)] {
            self.make_value(value);
        }
    }

    fn make(&self, cursor: &str) {
        self.make_value(json!(cursor));
    }

    fn make_value(&self, cursor: Value) {
        let Paged { operation, input, visible, .. } = self.paged;
        let mut input = input.clone();
        let is_well_formed = cursor.as_str().is_some_and(|text| {
            let is_hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            operation.lengths.contains(&text.len()) && text.bytes().all(is_hexadecimal)
        });
        let case: String = format!("{} with the cursor {cursor}", operation.path).chars().take(200).collect();
        input["cursor"] = cursor;
        let status: &[u16] = if is_well_formed { &[200] } else { &[400, 413] };
        let Some(answer) = self.findings.expect(&case, self.call(&input), status) else { return };
        if answer.status != 200 || operation.list.is_empty() {
            return;
        }
        let page = answer.json();
        let Some(items) = page[operation.list].as_array() else {
            return self.findings.wrong(format!("{case}: a page without {}: {page}", operation.list));
        };
        for item in items {
            let id = item.pointer(operation.id).and_then(Value::as_str).unwrap_or_default();
            self.findings.check(visible.contains(id), || format!("{case}: {id} is not the caller's"));
        }
    }

    fn call(&self, input: &Value) -> Reaction {
        let path = self.paged.operation.path;
        match self.paged.operation.surface {
            Surface::Visitors => self.tenant.gallery.call(self.visitor(), path, input),
            Surface::Partners | Surface::Console => self.site.call(path, self.key, input),
        }
    }

    /// A visitor from a network that has not asked too often yet.
    fn visitor(&self) -> Endpoint {
        let network = self.visits.fetch_add(1, Ordering::SeqCst) / REQUESTS_OF_NETWORK % 250;
        let round = VISITORS + (self.site.round() % VISITED_ROUNDS) as u8;
        Endpoint { source: Ipv4Addr::new(127, round, network as u8, 1), ..self.site.endpoint(1) }
    }
}

/// What a tenant pages through.
struct Tenant {
    gallery: Gallery,
    paged: Vec<Paged>,
}

impl Tenant {
    /// Creates so much that each operation has more than one page, and a start list with these bibs and that of the photos.
    fn prepare(site: &Site, partner: &Partner, bibs: [&str; 2]) -> anyhow::Result<Self> {
        let (album, other) = (partner.create_album("First"), partner.create_album("Second"));
        let upload = |album: &str, number: usize| {
            partner.upload_photo(album, &format!("{number}.jpg"), site.material.photo(0))
        };
        let photos: BTreeSet<String> = (0..3).map(|number| upload(&album, number)).collect();
        upload(&other, 3);
        let image = partner.upload_selfie(&album, &site.material.selfie);
        let listed = [site.material.bib.as_str(), bibs[0], bibs[1]];
        let csv = format!("bib\n{}\n", listed.join("\n"));
        partner.call_ok("/albums/startlist/import", &json!({ "albumId": other, "csv": csv }));
        let hooks = ["First", "Second"].map(|label| create_hook(partner, label));
        let deliveries = [(); 2].map(|()| test_hook(partner, &hooks[0]));
        let erasures = [(); 2].map(|()| delete_photo(partner, &other));
        partner.wait_until_idle(&album);
        partner.wait_until_idle(&other);
        let events = json!({ "types": ["photo.ready"] });
        wait_until("photos that are ready are told", || {
            partner.call_ok("/events/list", &events)["events"].as_array().is_some_and(|list| !list.is_empty())
        });
        let gallery = Gallery::open(partner, &json!(album))?;
        let visitor = client(site, VISITORS);
        let selfie = gallery.upload_selfie(site, visitor)?;
        let by_bib = json!({ "text": site.material.bib });
        let of_search = gallery.call_ok(visitor, "/gallery/search/text", &by_bib)?["cursor"].take();
        let albums = [album.clone(), other.clone()].into();
        let text = &site.material.bib;
        let mut pages = Pages { partner, paged: Vec::new() };
        pages.add("/albums/list", json!({}), &albums)?;
        let of_photos = pages.add("/photos/photo/list", json!({ "albumId": album }), &photos)?;
        pages.add("/photos/search/text/list", json!({ "albumId": album, "text": text }), &photos)?;
        let of_faces = json!({ "albumId": album, "imageId": image });
        let of_faces = pages.add("/photos/search/face/list", of_faces, &photos)?;
        let entries = listed.map(str::to_owned).into();
        pages.add("/albums/startlist/entries", json!({ "albumId": other }), &entries)?;
        pages.add("/events/list", events, &albums)?;
        pages.add("/webhooks/list", json!({}), &texts(&hooks))?;
        pages.add("/webhooks/deliveries/list", json!({ "webhookId": hooks[0] }), &texts(&deliveries))?;
        pages.add("/erasures/list", json!({}), &texts(&erasures))?;
        let of_search = of_search.as_str().context("the cursor of a visitor's search")?;
        pages.add_given("/gallery/search/text", by_bib.clone(), of_search, &photos);
        pages.add_given("/gallery/search/face/list", json!({ "imageId": selfie }), &of_faces, &photos);
        pages.add_given("/gallery/photos/list", json!({}), &of_photos, &photos);
        pages.add_given("/gallery/erase/request", by_bib, of_search, &photos);
        Ok(Self { gallery, paged: pages.paged })
    }
}

/// Signs and deletes a photo; returns the id of the erasure.
fn delete_photo(partner: &Partner, album: &str) -> Value {
    let photo = partner.sign_photo(album, "gone.jpg", "image/jpeg").photo_id;
    let deleted = json!({ "albumId": album, "photoId": photo });
    partner.call_ok("/photos/photo/delete", &deleted)["receipt"]["receiptId"].take()
}

fn texts(values: &[Value]) -> BTreeSet<String> {
    values.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Collects the operations of a tenant.
struct Pages<'a> {
    partner: &'a Partner,
    paged: Vec<Paged>,
}

impl Pages<'_> {
    /// Adds an operation with the cursor of its first page, which has one item; returns the cursor.
    fn add(
        &mut self,
        path: &'static str,
        mut input: Value,
        visible: &BTreeSet<String>,
    ) -> anyhow::Result<String> {
        input["limit"] = json!(1);
        let page = self.partner.call_ok(path, &input);
        let cursor = page["nextCursor"].as_str().with_context(|| format!("{path} has one page: {page}"))?;
        self.add_given(path, input, cursor, visible);
        Ok(cursor.to_owned())
    }

    fn add_given(&mut self, path: &'static str, input: Value, cursor: &str, visible: &BTreeSet<String>) {
        let operation = OPERATIONS.iter().find(|operation| operation.path == path).expect("a known path");
        let (cursor, visible) = (cursor.to_owned(), visible.clone());
        self.paged.push(Paged { operation, input, cursor, visible });
    }
}

#[cfg(test)]
mod tests {
    use photofinish_api::fuzzing::served_operations;

    use super::*;

    #[test]
    fn the_cursors_of_every_operation_are_tried() {
        let served = served_operations().into_iter().filter(|operation| operation.takes_cursor);
        let served: BTreeSet<(Surface, String)> =
            served.map(|operation| (operation.surface, operation.path)).collect();
        let tried = OPERATIONS.iter().map(|operation| (operation.surface, operation.path));
        let exempt = EXEMPT.map(|(path, _)| (Surface::Visitors, path));
        let known: BTreeSet<(Surface, String)> =
            tried.chain(exempt).map(|(surface, path)| (surface, path.to_owned())).collect();
        assert_eq!(served, known, "operations with a cursor, and those that are tried or exempt");
    }
}
