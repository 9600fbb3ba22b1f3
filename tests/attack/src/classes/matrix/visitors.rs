//! The operations of visitors with every kind of link and of ids: nobody sees more than the gallery whose link they have.

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::classes::galleries::{Gallery, agreement};
use crate::classes::sessions::client;
use crate::findings::Findings;
use crate::site::Site;
use crate::wire::Endpoint;

/// What the ids of a request are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    Nothing,
    Photo,
    Selfie,
}

/// The ids that a request names, and a bib that every gallery has.
#[derive(Clone, Debug)]
struct Ids {
    photo: Value,
    image: Value,
    bib: String,
}

/// An operation.
pub(super) struct VisitorOperation {
    /// Its path below `/g/{link}/api`.
    pub(super) path: &'static str,
    names: Names,
    /// The status for ids of others and of nobody.
    foreign: u16,
    input: fn(&Ids) -> Value,
}

const fn operation(path: &'static str, names: Names, input: fn(&Ids) -> Value) -> VisitorOperation {
    VisitorOperation { path, names, foreign: 404, input }
}

fn of_selfie(ids: &Ids) -> Value {
    json!({ "imageId": ids.image })
}

fn of_bib(ids: &Ids) -> Value {
    json!({ "text": ids.bib })
}

/// Every operation. The last one deletes the selfie that others need.
pub(super) static VISITOR_OPERATIONS: [VisitorOperation; 11] = [
    operation("/gallery/get", Names::Nothing, |_| json!({})),
    operation("/gallery/search/text", Names::Nothing, of_bib),
    operation("/gallery/search/face/signed", Names::Nothing, |_| agreement()),
    operation("/gallery/search/face/list", Names::Selfie, of_selfie),
    operation("/gallery/photos/list", Names::Nothing, |_| json!({})),
    operation("/gallery/download", Names::Photo, |ids| json!({ "photoId": ids.photo })),
    operation("/gallery/download/create", Names::Photo, |ids| json!({ "photoIds": [ids.photo] })),
    operation("/gallery/report", Names::Photo, |ids| json!({ "photoId": ids.photo, "kind": "report" })),
    // Without `confirm`, so that nothing is erased.
    operation("/gallery/erase/faces", Names::Selfie, of_selfie),
    operation("/gallery/erase/request", Names::Nothing, of_bib),
    // Says nothing of selfies that are not this gallery's.
    VisitorOperation { foreign: 200, ..operation("/gallery/search/face/forget", Names::Selfie, of_selfie) },
];

/// The link that a visitor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Open,
    Closed,
    Unknown,
    Malformed,
}

/// Whose ids a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Own,
    Foreign,
    Unknown,
    Malformed,
}

const TARGETS: [Target; 4] = [Target::Own, Target::Foreign, Target::Unknown, Target::Malformed];
/// The second byte of the addresses of visitors.
const VISITORS: u8 = 6;
const VICTIMS_TITLE: &str = "A gallery whose link nobody has";

/// A gallery with a photo and a selfie.
struct Visited {
    gallery: Gallery,
    ids: Ids,
}

/// Tries every operation.
pub(super) fn run(site: &Site, findings: &Findings) -> anyhow::Result<()> {
    let visitor = client(site, VISITORS);
    let own = Visited::prepare(site, visitor, "A gallery")?;
    let victim = Visited::prepare(site, visitor, VICTIMS_TITLE)?;
    let closed = close_gallery(site)?;
    let link = |path: &str| Gallery { path: path.to_owned() };
    let links = [
        (Link::Open, own.gallery),
        (Link::Closed, closed),
        (Link::Unknown, link("/g/AAAAAAAAAAAAAAAAAAAAAA")),
        (Link::Malformed, link("/g/%2e%2e")),
    ];
    // With the open link last: it is the one that deletes.
    for operation in &VISITOR_OPERATIONS {
        for (link, gallery) in links.iter().rev() {
            for target in TARGETS.iter().rev() {
                let ids = match target {
                    Target::Own => own.ids.clone(),
                    Target::Foreign => victim.ids.clone(),
                    Target::Unknown => own.ids.of("01890000-0000-7000-8000-0000000000ff"),
                    Target::Malformed => own.ids.of("no-uuid"),
                };
                let case = format!("{} with the link {link:?}, {target:?} ids", operation.path);
                let reaction = gallery.call(visitor, operation.path, &(operation.input)(&ids));
                let answer = findings.expect(&case, reaction, expected(operation, *link, *target));
                let text = answer.map(|answer| answer.text()).unwrap_or_default();
                findings.check(!text.contains(VICTIMS_TITLE), || format!("{case}: {text}"));
            }
        }
    }
    // Nobody has deleted the victim's selfie, and it finds what it found.
    let search = json!({ "imageId": victim.ids.image });
    let reaction = victim.gallery.call(visitor, "/gallery/search/face/list", &search);
    findings.expect("the selfie of another gallery", reaction, &[200]);
    Ok(())
}

/// The statuses that the contract permits.
fn expected(operation: &VisitorOperation, link: Link, target: Target) -> &'static [u16] {
    match (link, operation.names, target) {
        // The router knows no such path.
        (Link::Malformed, _, _) => &[404],
        // The body is read before the gallery is looked for.
        (_, Names::Photo, Target::Malformed) => &[400],
        (Link::Closed | Link::Unknown, _, _) => &[404],
        (Link::Open, Names::Nothing, _) | (Link::Open, _, Target::Own) => &[200],
        // No selfie has an id of another form.
        (Link::Open, Names::Selfie, Target::Malformed) => &[404],
        (Link::Open, _, _) if operation.foreign == 200 => &[200],
        (Link::Open, _, _) => &[404],
    }
}

impl Ids {
    /// The same id for everything.
    fn of(&self, id: &str) -> Self {
        Self { photo: json!(id), image: json!(id), bib: self.bib.clone() }
    }
}

impl Visited {
    fn prepare(site: &Site, visitor: Endpoint, title: &str) -> anyhow::Result<Self> {
        let partner = site.tenant(title);
        let album = partner.create_album(title);
        let photo = partner.upload_photo(&album, "1.jpg", site.material.photo(0));
        partner.wait_until_idle(&album);
        let gallery = Gallery::open(&partner, &json!(album))?;
        let image = gallery.upload_selfie(site, visitor).with_context(|| title.to_owned())?;
        Ok(Self { gallery, ids: Ids { photo: json!(photo), image, bib: site.material.bib.clone() } })
    }
}

/// The gallery of an album that was open before.
fn close_gallery(site: &Site) -> anyhow::Result<Gallery> {
    let partner = site.tenant("Closed Timing");
    let album = json!(partner.create_album("A closed gallery"));
    let gallery = Gallery::open(&partner, &album)?;
    partner.call_ok("/albums/gallery/update", &json!({ "albumId": album, "enabled": false }));
    Ok(gallery)
}
