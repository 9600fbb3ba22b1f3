//! The operations of the contract with a valid request of each. [`check_complete`] compares the list with the service's
//! own document, and a test of the matrix with its routes, so that a new operation cannot be forgotten.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::site::Site;

pub(super) const SEARCH: &str = "search:read";
pub(super) const UPLOAD: &str = "photo:upload";
pub(super) const MANAGE: &str = "album:manage";

/// The ids that a request names.
#[derive(Clone, Debug)]
pub(super) struct Ids {
    pub(super) album: Value,
    pub(super) photo: Value,
    pub(super) image: Value,
    /// What a visitor said of a photo of the album.
    pub(super) report: Value,
    pub(super) webhook: Value,
    /// A delivery of it.
    pub(super) delivery: Value,
    /// A webhook that may be deleted.
    pub(super) spare_webhook: Value,
    pub(super) erasure: Value,
    /// An account that nobody of the matrix uses, and its session.
    pub(super) account: Value,
    pub(super) session: Value,
    /// A key that nobody uses.
    pub(super) key: Value,
}

impl Ids {
    /// The same id for everything.
    pub(super) fn of_all(id: &str) -> Self {
        let id = || json!(id);
        Self {
            album: id(),
            photo: id(),
            image: id(),
            report: id(),
            webhook: id(),
            delivery: id(),
            spare_webhook: id(),
            erasure: id(),
            account: id(),
            session: id(),
            key: id(),
        }
    }
}

/// What the ids of a request are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    Nothing,
    Album,
    Photo,
    /// Several photos, each with a result of its own.
    Photos,
    Image,
    Webhook,
    /// A delivery of a webhook.
    Delivery,
    Erasure,
    /// An account, a session or a key.
    Person,
}

/// Which accounts may, beside those whose role has the scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accounts {
    /// None.
    OfScope,
    /// All: they may look.
    All,
    /// Owners alone.
    Owners,
    /// Operators alone.
    Operators,
    /// Nobody needs one.
    NotNeeded,
}

/// An operation.
pub(super) struct Operation {
    /// Its path below `/openapi`.
    pub(super) path: &'static str,
    /// The scope that it needs; `None` if any valid key is enough.
    pub(super) scope: Option<&'static str>,
    pub(super) accounts: Accounts,
    pub(super) names: Names,
    /// Whether its success changes what later requests find.
    pub(super) is_destructive: bool,
    /// The statuses of a permitted request on a ready photo.
    pub(super) success: &'static [u16],
    /// A valid request.
    pub(super) input: fn(&Ids) -> Value,
}

const OK: &[u16] = &[200];
/// What those who may change call it.
pub(super) const CHANGED: &str = "Changed by the matrix";

pub(super) const fn operation(
    path: &'static str,
    scope: Option<&'static str>,
    names: Names,
    input: fn(&Ids) -> Value,
) -> Operation {
    Operation { path, scope, accounts: Accounts::OfScope, names, is_destructive: false, success: OK, input }
}

const fn on_webhook(path: &'static str, input: fn(&Ids) -> Value) -> Operation {
    operation(path, Some(MANAGE), Names::Webhook, input)
}

const fn on_delivery(path: &'static str) -> Operation {
    let input = |ids: &Ids| json!({ "webhookId": ids.webhook, "deliveryId": ids.delivery });
    operation(path, Some(MANAGE), Names::Delivery, input)
}

const fn on_erasure(path: &'static str) -> Operation {
    operation(path, Some(MANAGE), Names::Erasure, |ids| json!({ "receiptId": ids.erasure }))
}

/// Which all accounts may do, and keys with the scope.
const fn to_look(path: &'static str, names: Names, input: fn(&Ids) -> Value) -> Operation {
    Operation { accounts: Accounts::All, ..operation(path, Some(UPLOAD), names, input) }
}

const fn by_owners(operation: Operation) -> Operation {
    Operation { accounts: Accounts::Owners, ..operation }
}

const fn destructive(operation: Operation) -> Operation {
    Operation { is_destructive: true, ..operation }
}

pub(super) fn on_album(ids: &Ids) -> Value {
    json!({ "albumId": ids.album })
}

fn on_photo(ids: &Ids) -> Value {
    json!({ "albumId": ids.album, "photoId": ids.photo })
}

fn sign_batch(ids: &Ids) -> Value {
    let file = json!({ "filename": "a.jpg", "contentType": "image/jpeg" });
    json!({ "albumId": ids.album, "entries": [file] })
}

/// Every operation.
pub(super) static OPERATIONS: [Operation; 53] = [
    operation(
        "/albums/create",
        Some(MANAGE),
        Names::Nothing,
        |_| json!({ "title": "Created by the matrix" }),
    ),
    operation("/albums/list", None, Names::Nothing, |_| json!({ "limit": 200 })),
    operation("/albums/get", None, Names::Album, on_album),
    operation(
        "/albums/update",
        Some(MANAGE),
        Names::Album,
        |ids| json!({ "albumId": ids.album, "tags": ["changed"] }),
    ),
    destructive(operation("/albums/delete", Some(MANAGE), Names::Album, on_album)),
    operation("/albums/reprocess", Some(MANAGE), Names::Album, on_album),
    to_look("/albums/progress", Names::Album, on_album),
    operation(
        "/albums/startlist/import",
        Some(MANAGE),
        Names::Album,
        |ids| json!({ "albumId": ids.album, "csv": "bib,wave\n4242,A\n4243,B" }),
    ),
    operation(
        "/albums/startlist/check",
        Some(MANAGE),
        Names::Album,
        |ids| json!({ "albumId": ids.album, "entries": [{ "bib": "4242" }] }),
    ),
    operation("/albums/startlist/get", Some(MANAGE), Names::Album, on_album),
    operation("/albums/startlist/entries", Some(MANAGE), Names::Album, on_album),
    operation("/albums/startlist/delete", Some(MANAGE), Names::Album, on_album),
    operation(
        "/photos/photo/signed",
        Some(UPLOAD),
        Names::Album,
        |ids| json!({ "albumId": ids.album, "filename": "a.jpg", "contentType": "image/jpeg" }),
    ),
    operation("/photos/photo/signed/batch", Some(UPLOAD), Names::Album, sign_batch),
    operation("/photos/photo/success", Some(UPLOAD), Names::Photo, on_photo),
    operation(
        "/photos/photo/success/batch",
        Some(UPLOAD),
        Names::Photos,
        |ids| json!({ "albumId": ids.album, "photoIds": [ids.photo] }),
    ),
    to_look("/photos/photo/list", Names::Album, on_album),
    to_look("/photos/photo/get", Names::Photo, on_photo),
    destructive(operation("/photos/photo/delete", Some(UPLOAD), Names::Photo, on_photo)),
    // The photo has not failed.
    Operation { success: &[409], ..operation("/photos/photo/retry", Some(UPLOAD), Names::Photo, on_photo) },
    operation("/albums/gallery/get", Some(MANAGE), Names::Album, on_album),
    operation("/albums/gallery/reports", Some(MANAGE), Names::Album, on_album),
    // What was said asks for no faces to go.
    Operation {
        success: &[404],
        ..by_owners(operation(
            "/albums/gallery/reports/erase",
            Some(MANAGE),
            Names::Album,
            |ids| json!({ "albumId": ids.album, "reportId": ids.report, "dryRun": true }),
        ))
    },
    // May be repeated, and so it does not say whether there was one.
    operation(
        "/albums/gallery/reports/dismiss",
        Some(MANAGE),
        Names::Album,
        |ids| json!({ "albumId": ids.album, "reportId": ids.report }),
    ),
    operation(
        "/albums/gallery/update",
        Some(MANAGE),
        Names::Album,
        |ids| json!({ "albumId": ids.album, "enabled": true, "browse": true }),
    ),
    operation("/albums/watermark/get", Some(MANAGE), Names::Album, on_album),
    operation("/albums/watermark/signed", Some(MANAGE), Names::Album, on_album),
    operation(
        "/albums/watermark/set",
        Some(MANAGE),
        Names::Album,
        |ids| json!({ "albumId": ids.album, "watermark": null }),
    ),
    to_look("/albums/cameras/list", Names::Album, on_album),
    operation(
        "/photos/download/create",
        Some(SEARCH),
        Names::Photo,
        |ids| json!({ "albumId": ids.album, "photoIds": [ids.photo] }),
    ),
    operation("/photos/search/face/signed", Some(SEARCH), Names::Album, on_album),
    operation(
        "/photos/search/face/list",
        Some(SEARCH),
        Names::Image,
        |ids| json!({ "albumId": ids.album, "imageId": ids.image }),
    ),
    operation(
        "/photos/search/text/list",
        Some(SEARCH),
        Names::Album,
        |ids| json!({ "albumId": ids.album, "text": "4242" }),
    ),
    // What others erase of an album is in its receipt; here the request alone counts, and nothing is erased.
    by_owners(operation(
        "/faces/erase",
        Some(MANAGE),
        Names::Image,
        |ids| json!({ "albumId": ids.album, "imageId": ids.image, "dryRun": true }),
    )),
    by_owners(operation(
        "/people/erase",
        Some(MANAGE),
        Names::Album,
        |ids| json!({ "albumId": ids.album, "bib": "4242", "dryRun": true }),
    )),
    operation("/erasures/list", Some(MANAGE), Names::Nothing, |_| json!({ "limit": 200 })),
    on_erasure("/erasures/get"),
    on_erasure("/erasures/verify"),
    operation("/events/list", None, Names::Nothing, |_| json!({ "limit": 500 })),
    // The name does not resolve; a tenant has twenty at most.
    Operation {
        success: &[200, 409],
        ..operation(
            "/webhooks/create",
            Some(MANAGE),
            Names::Nothing,
            |_| json!({ "url": "https://hook.invalid/", "label": "Created by the matrix" }),
        )
    },
    operation("/webhooks/list", Some(MANAGE), Names::Nothing, |_| json!({})),
    on_webhook("/webhooks/get", |ids| json!({ "webhookId": ids.webhook })),
    on_webhook("/webhooks/update", |ids| json!({ "webhookId": ids.webhook, "label": CHANGED })),
    // The first who may deletes it.
    Operation {
        success: &[200, 404],
        ..on_webhook("/webhooks/delete", |ids| json!({ "webhookId": ids.spare_webhook }))
    },
    on_webhook("/webhooks/rotate", |ids| json!({ "webhookId": ids.webhook })),
    on_webhook("/webhooks/test", |ids| json!({ "webhookId": ids.webhook })),
    on_webhook("/webhooks/deliveries/list", |ids| json!({ "webhookId": ids.webhook })),
    on_delivery("/webhooks/deliveries/get"),
    on_delivery("/webhooks/redeliver"),
    operation("/credits/get", None, Names::Nothing, |_| json!({})),
    // Live keys have no mock credits.
    Operation {
        success: &[200, 403],
        ..operation("/credits/mock/set", Some(MANAGE), Names::Nothing, |_| json!({ "balance": 10_000 }))
    },
    operation(
        "/usage/costs",
        Some(MANAGE),
        Names::Nothing,
        |_| json!({ "from": "2026-01-01", "to": "2026-12-31" }),
    ),
    operation(
        "/usage/get",
        Some(MANAGE),
        Names::Nothing,
        |_| json!({ "from": "2026-01-01", "to": "2026-12-31" }),
    ),
];

/// Compares [`OPERATIONS`] with the service's document.
///
/// # Errors
/// Which operations are missing on either side.
pub(super) fn check_complete(site: &Site) -> anyhow::Result<()> {
    let document = site.request("GET", "/openapi/openapi.json", &[], b"").answer();
    let document = document.map(|answer| answer.json()).unwrap_or_default();
    let paths = document["paths"].as_object().map(|paths| paths.keys().cloned().collect::<BTreeSet<_>>());
    let known: BTreeSet<String> = OPERATIONS.iter().map(|operation| operation.path.to_owned()).collect();
    let paths = paths.unwrap_or_default();
    anyhow::ensure!(paths == known, "the document has {paths:?}, the attack knows {known:?}");
    Ok(())
}
