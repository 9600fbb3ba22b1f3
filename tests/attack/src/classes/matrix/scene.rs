//! What a tenant of the matrix has: one of everything that an operation names.

use anyhow::Context as _;
use photofinish_tests::harness::Partner;
use serde_json::{Value, json};

use crate::classes::galleries::Gallery;
use crate::classes::hooks::{create_hook, test_hook};
use crate::classes::operations::Ids;
use crate::classes::sessions::{NewAccount, Session, client, sign_in};
use crate::site::Site;

/// The second byte of the addresses of those who report photos.
const REPORTERS: u8 = 8;

/// A tenant.
pub(super) struct Scene {
    pub(super) partner: Partner,
    /// An owner of the organization.
    pub(super) owner: Session,
    /// The session of an account that nobody else uses.
    bystander: Session,
    pub(super) ids: Ids,
}

impl Scene {
    /// An album with a ready photo, a selfie, a report and an erasure, webhooks, accounts and a key.
    pub(super) fn prepare(site: &Site, organization: &str, title: &str) -> anyhow::Result<Self> {
        let partner = site.tenant(organization);
        let album = partner.create_album(title);
        let photo = partner.upload_photo(&album, "1.jpg", site.material.photo(0));
        let image = partner.upload_selfie(&album, &site.material.selfie);
        let gone = partner.sign_photo(&album, "gone.jpg", "image/jpeg").photo_id;
        let deleted = json!({ "albumId": album, "photoId": gone });
        let erasure = partner.call_ok("/photos/photo/delete", &deleted)["receipt"]["receiptId"].take();
        let webhook = create_hook(&partner, title);
        let account = |name, role| NewAccount { organization, name, role, is_operator: false };
        let owner = sign_in(site, &account("owner", "owner"))?;
        let bystander = sign_in(site, &account("bystander", "viewer"))?;
        let key = json!({ "label": title, "mode": "test", "scopes": ["search:read"] });
        let key = owner.call_ok(site, "/keys/create", &key)?["id"].take();
        let progress = partner.wait_until_idle(&album);
        anyhow::ensure!(progress["ready"] == 1, "the photo of {title} is not ready: {progress}");
        let ids = Ids {
            report: report(site, &partner, &json!(album), &photo)?,
            album: json!(album),
            photo: json!(photo),
            image: json!(image),
            delivery: test_hook(&partner, &webhook),
            webhook,
            spare_webhook: create_hook(&partner, "To be deleted"),
            erasure,
            account: bystander.account.clone(),
            session: bystander.id.clone(),
            key,
        };
        Ok(Self { partner, owner, bystander, ids })
    }

    /// Whether the session that nobody used goes on.
    pub(super) fn is_bystander_signed_in(&self, site: &Site) -> bool {
        self.bystander.call_ok(site, "/session/get", &json!({})).is_ok()
    }

    /// What of it must stay the same whatever others do. Not what the service learns of the numbers of an album a while after they
    /// were read, nor the URLs, which each response signs again.
    pub(super) fn describe(&self, site: &Site) -> anyhow::Result<Value> {
        let Self { partner, owner, bystander, ids } = self;
        let mut album = partner.call_ok("/albums/get", &json!({ "albumId": ids.album }));
        album["bibFormat"].take();
        let photo = json!({ "albumId": ids.album, "photoId": ids.photo });
        let photo = partner.call_ok("/photos/photo/get", &photo);
        let photo = json!([photo["state"], photo["updatedAt"], photo["faces"], photo["texts"]]);
        let webhooks = [&ids.webhook, &ids.spare_webhook]
            .map(|id| partner.call_ok("/webhooks/get", &json!({ "webhookId": id })));
        let webhooks = webhooks.map(|webhook| json!([webhook["label"], webhook["updatedAt"]]));
        let deliveries = partner.call_ok("/webhooks/deliveries/list", &json!({ "webhookId": ids.webhook }));
        let reports = partner.call_ok("/albums/gallery/reports", &json!({ "albumId": ids.album }));
        let reports = reports["reports"].as_array().map_or(0, Vec::len);
        let find = |list: &Value, id: &Value| list.as_array()?.iter().find(|item| item["id"] == *id).cloned();
        let keys = owner.call_ok(site, "/keys/list", &json!({}))?;
        let key = find(&keys["keys"], &ids.key).context("the key")?;
        let accounts = owner.call_ok(site, "/accounts/list", &json!({}))?;
        let account = find(&accounts["accounts"], &ids.account).context("the account")?;
        let account = json!([account["role"], account["disabled"], account["name"], account["email"]]);
        let session = bystander.call_ok(site, "/session/get", &json!({}))?["session"].take();
        let rest = json!([deliveries["total"], reports, key["revokedAt"], account, session]);
        Ok(json!([album, photo, webhooks, rest]))
    }
}

/// Reports a photo as a visitor of its gallery; returns the id of the report.
fn report(site: &Site, partner: &Partner, album: &Value, photo: &str) -> anyhow::Result<Value> {
    let said = json!({ "photoId": photo, "kind": "report", "note": "This is me" });
    Gallery::open(partner, album)?.call_ok(client(site, REPORTERS), "/gallery/report", &said)?;
    let mut reports = partner.call_ok("/albums/gallery/reports", &json!({ "albumId": album }));
    Ok(reports["reports"][0]["id"].take())
}
