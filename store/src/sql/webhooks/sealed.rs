//! The sealed secrets of webhooks, of erased bibs and of galleries: whether they can be opened, and sealing them again with
//! another master secret.

use crate::error::StoreErrorKind;
use crate::model::ids::{AlbumId, WebhookId};
use crate::sealing::{MasterSecret, Purpose};
use crate::sql::database::Database;
use crate::sql::statement::query;
use crate::traits::Result;

/// How many rows one transaction reseals.
const BATCH: i64 = 200;

/// Whether what is sealed in the database can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealedSecrets {
    /// Yes, or nothing is sealed.
    Readable,
    /// There is no master secret, and something is sealed or receipts were signed.
    NoMasterSecret,
    /// It was sealed with another master secret.
    OtherMasterSecret,
}

/// Checks the secret that was sealed first and the one that was sealed last: after an interrupted change of the master
/// secret the two may differ.
///
/// Accounts need no master secret, as nothing of theirs is sealed: the database has Argon2 hashes of passwords, and digests
/// of the random tokens of links and sessions. Wrong passwords are counted by digests of networks; without a master secret
/// each process has a key of its own for these, so that it counts for itself, and nothing fails.
pub(crate) async fn check(database: &Database, master: Option<&MasterSecret>) -> Result<SealedSecrets> {
    const OPERATION: &str = "check sealed secrets";
    let ends = "select id, secret from webhook where id = (select id from webhook order by updated_at limit 1) \
                or id = (select id from webhook order by updated_at desc limit 1)";
    let rows: Vec<(WebhookId, Vec<u8>)> =
        query(OPERATION, ends).fetch_all(&mut database.acquire_reader(OPERATION).await?).await?;
    let of_webhooks = rows.into_iter().map(|(id, sealed)| (Purpose::Webhook, id.0, sealed));
    let ends = "select album, secret from erased_bib_secret \
                where album = (select album from erased_bib_secret order by album limit 1) \
                or album = (select album from erased_bib_secret order by album desc limit 1)";
    let rows: Vec<(AlbumId, Vec<u8>)> =
        query(OPERATION, ends).fetch_all(&mut database.acquire_reader(OPERATION).await?).await?;
    let of_bibs = rows.into_iter().map(|(album, sealed)| (Purpose::ErasedBib, album.0, sealed));
    let ends = "select album, link from gallery where album = (select album from gallery order by updated_at limit 1) \
                or album = (select album from gallery order by updated_at desc limit 1)";
    let rows: Vec<(AlbumId, Vec<u8>)> =
        query(OPERATION, ends).fetch_all(&mut database.acquire_reader(OPERATION).await?).await?;
    let of_links = rows.into_iter().map(|(album, sealed)| (Purpose::GalleryLink, album.0, sealed));
    for (purpose, row, sealed) in of_webhooks.chain(of_bibs).chain(of_links) {
        let Some(master) = master else { return Ok(SealedSecrets::NoMasterSecret) };
        match master.open(purpose, row, &sealed) {
            Err(error) if error.kind == StoreErrorKind::Corrupt => {
                return Ok(SealedSecrets::OtherMasterSecret);
            }
            opened => drop(opened?),
        }
    }
    if master.is_none() && has_receipts(database).await? {
        // Without it nothing could be erased, and what is being erased would never be done.
        return Ok(SealedSecrets::NoMasterSecret);
    }
    Ok(SealedSecrets::Readable)
}

/// Returns whether a receipt of an erasure was ever signed.
async fn has_receipts(database: &Database) -> Result<bool> {
    const OPERATION: &str = "check sealed secrets";
    let key: Option<(String,)> = query(OPERATION, "select id from receipt_key limit 1")
        .fetch_optional(&mut database.acquire_reader(OPERATION).await?)
        .await?;
    Ok(key.is_some())
}

/// Seals everything with the current master secret that is sealed with the old one; returns how many secrets. An interrupted
/// call is completed by calling again.
pub(crate) async fn reseal(database: &Database, master: &MasterSecret) -> Result<u64> {
    const OPERATION: &str = "reseal secrets";
    let (mut after, mut resealed) = (WebhookId(uuid::Uuid::nil()), 0);
    loop {
        let mut transaction = database.begin_write(OPERATION).await?;
        let select = "select id, secret, old_secret from webhook where id > $1 order by id limit $2";
        let rows: Vec<(WebhookId, Vec<u8>, Option<Vec<u8>>)> =
            query(OPERATION, select).bind(after).bind(BATCH).fetch_all(&mut transaction).await?;
        let Some((last, ..)) = rows.last() else { break };
        after = *last;
        for (id, sealed, old_sealed) in rows {
            // Only what is still as it was read: a rotation at this moment has sealed with the current one.
            let columns = [
                ("update webhook set secret = $3 where id = $1 and secret = $2", Some(sealed)),
                ("update webhook set old_secret = $3 where id = $1 and old_secret = $2", old_sealed),
            ];
            for (update, sealed) in columns {
                let Some(sealed) = sealed else { continue };
                let opened = master.open(Purpose::Webhook, id.0, &sealed)?;
                if !opened.is_old {
                    continue;
                }
                let new = master.seal(Purpose::Webhook, id.0, &opened.secret)?;
                resealed += query(OPERATION, update)
                    .bind(id)
                    .bind(sealed)
                    .bind(new)
                    .execute(&mut transaction)
                    .await?;
            }
        }
        transaction.commit(OPERATION).await?;
    }
    for table in &SEALED_BY_ALBUM {
        resealed += reseal_by_album(database, master, table).await?;
    }
    Ok(resealed)
}

/// A table with one sealed column and one row for each album.
struct SealedByAlbum {
    purpose: Purpose,
    select: &'static str,
    update: &'static str,
}

const SEALED_BY_ALBUM: [SealedByAlbum; 2] = [
    SealedByAlbum {
        purpose: Purpose::ErasedBib,
        select: "select album, secret from erased_bib_secret where album > $1 order by album limit $2",
        update: "update erased_bib_secret set secret = $2 where album = $1 and secret = $3",
    },
    SealedByAlbum {
        purpose: Purpose::GalleryLink,
        select: "select album, link from gallery where album > $1 order by album limit $2",
        // Only what is still as it was read: a new link at this moment has been sealed with the current secret.
        update: "update gallery set link = $2 where album = $1 and link = $3",
    },
];

async fn reseal_by_album(database: &Database, master: &MasterSecret, table: &SealedByAlbum) -> Result<u64> {
    const OPERATION: &str = "reseal secrets of albums";
    let (mut after, mut resealed) = (AlbumId(uuid::Uuid::nil()), 0);
    loop {
        let mut transaction = database.begin_write(OPERATION).await?;
        let rows: Vec<(AlbumId, Vec<u8>)> =
            query(OPERATION, table.select).bind(after).bind(BATCH).fetch_all(&mut transaction).await?;
        let Some((last, _)) = rows.last() else { return Ok(resealed) };
        after = *last;
        for (album, sealed) in rows {
            let opened = master.open(table.purpose, album.0, &sealed)?;
            if !opened.is_old {
                continue;
            }
            let new = master.seal(table.purpose, album.0, &opened.secret)?;
            let update = query(OPERATION, table.update).bind(album).bind(new);
            resealed += update.bind(sealed).execute(&mut transaction).await?;
        }
        transaction.commit(OPERATION).await?;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use time::{Duration, OffsetDateTime};

    use super::*;
    use crate::conformance::webhooks::{Room, create};
    use crate::conformance::{AlbumFixture, album_config, test_settings};
    use crate::model::account::{LinkPurpose, NewAccount, NewLink, Role};
    use crate::model::erasure::{ErasureSubject, NewErasure, PhotoFate};
    use crate::model::event::EventType;
    use crate::model::ids::ProcessId;
    use crate::model::process::Task;
    use crate::model::webhook::DeliveryQuery;
    use crate::store::{Store, StoreSettings};

    async fn open(folder: &Path, master_secret: Option<MasterSecret>) -> Store {
        Store::open(StoreSettings { master_secret, ..test_settings(folder) }).await.unwrap()
    }

    /// What a process with this master secret says of the secrets in the database.
    async fn check_with(folder: &Path, master_secret: Option<MasterSecret>) -> SealedSecrets {
        let store = open(folder, master_secret).await;
        let checked = store.check_sealed_secrets().await.unwrap();
        store.close().await;
        checked
    }

    /// Checks what processes with other master secrets, and with none, say of what was sealed with the first.
    async fn assert_is_sealed(folder: &Path, first: [u8; 32]) {
        assert_eq!(check_with(folder, None).await, SealedSecrets::NoMasterSecret);
        let second = [8; 32];
        for (current, old, expected) in [
            (first, None, SealedSecrets::Readable),
            (second, None, SealedSecrets::OtherMasterSecret),
            (second, Some(first), SealedSecrets::Readable),
        ] {
            assert_eq!(check_with(folder, Some(MasterSecret::new(current, old))).await, expected);
        }
    }

    #[tokio::test]
    async fn a_webhook_needs_the_master_secret() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(check_with(folder.path(), None).await, SealedSecrets::Readable, "nothing is sealed");
        let store = open(folder.path(), Some(MasterSecret::new([7; 32], None))).await;
        let fixture = AlbumFixture::create(&store).await;
        create(&fixture, &[EventType::AlbumDeleted], 1).await;
        store.close().await;
        assert_is_sealed(folder.path(), [7; 32]).await;
    }

    /// As after a rotation that was not finished before its old secret was gone.
    #[tokio::test]
    async fn a_webhook_whose_secret_cannot_be_read_keeps_no_other_from_being_called() {
        let folder = tempfile::tempdir().unwrap();
        let (mut webhooks, mut tenants) = (Vec::new(), Vec::new());
        let ttl = std::time::Duration::from_secs(60);
        for secret in [[7; 32], [8; 32]] {
            let store = open(folder.path(), Some(MasterSecret::new(secret, None))).await;
            let fixture = AlbumFixture::create(&store).await;
            let webhook = create(&fixture, &[EventType::AlbumDeleted], 1).await.id;
            // An event.
            fixture.create_album(album_config()).await.delete().await;
            let lease = store.tasks.take(Task::EventPublisher, ProcessId::generate(), ttl).await.unwrap();
            store.event_publisher.publish(lease.unwrap()).await.unwrap();
            store.tasks.release(lease.unwrap()).await.unwrap();
            webhooks.push(webhook);
            tenants.push(fixture.tenant);
            store.close().await;
        }
        let store = open(folder.path(), Some(MasterSecret::new([8; 32], None))).await;
        let room = Room { of_tenant: 10, webhook: None };
        let due = store.deliveries.lease(10, ttl, &room).await.unwrap();
        assert_eq!(due.iter().map(|due| due.webhook).collect::<Vec<_>>(), webhooks[1..]);
        assert!(store.deliveries.lease(10, ttl, &room).await.unwrap().is_empty(), "the other one waits");
        let query = DeliveryQuery { before: None, state: None, event_type: None, limit: 10 };
        let waiting = store.webhooks.list_deliveries(&tenants[0], webhooks[0], query).await.unwrap();
        assert_eq!(waiting.deliveries[0].attempts, 0, "nothing was attempted");
        store.close().await;
    }

    /// Workers need it too: they leave out what was erased.
    #[tokio::test]
    async fn an_erased_bib_needs_the_master_secret() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path(), Some(MasterSecret::new([7; 32], None))).await;
        let fixture = AlbumFixture::create(&store).await;
        let erasure = NewErasure {
            tenant: fixture.tenant,
            album: fixture.album,
            asked_by: fixture.key.id,
            subject: ErasureSubject::Bib { bib: "1207".into(), with_faces: false },
            photos: PhotoFate::Keep,
            report: None,
        };
        store.erasures.begin(erasure).await.unwrap();
        store.close().await;
        assert_is_sealed(folder.path(), [7; 32]).await;
    }

    #[tokio::test]
    async fn an_account_needs_no_master_secret() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path(), Some(MasterSecret::new([7; 32], None))).await;
        let account = NewAccount {
            organization: store.keys.get_or_create_organization("Lake Timing").await.unwrap(),
            email: "ada@timing.example".into(),
            role: Role::Owner,
            is_operator: false,
        };
        let expires_at = OffsetDateTime::now_utc() + Duration::HOUR;
        let link = NewLink { purpose: LinkPurpose::Welcome, digest: [2; 32], expires_at };
        store.accounts.invite(account, link).await.unwrap();
        store.close().await;
        assert_eq!(check_with(folder.path(), None).await, SealedSecrets::Readable);
    }
}
