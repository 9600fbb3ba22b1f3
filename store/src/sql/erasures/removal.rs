//! Removes in one transaction what searches find, and notes what is left to be removed.

use std::collections::HashMap;

use serde_json::json;
use uuid::Uuid;

use super::ErasurePlan;
use super::guard::{digest_bib, empty_texts, load_secret};
use super::rows::{NewErasureRow, insert};
use super::subject::{
    FoundSubject, KnownFace, count_other_probes, count_unread, find_candidates, find_shared, find_subject,
};
use crate::error::{StoreError, StoreErrorKind};
use crate::model::bib_format::LearnedFormat;
use crate::model::erasure::{
    ErasureKind, ErasurePreview, ErasureSubject, NewErasure, PhotoFate, RemovedCounts,
};
use crate::model::event::EventType;
use crate::model::ids::{AlbumId, ErasureId, PhotoId};
use crate::model::photo::PhotoState;
use crate::sealing::{MasterSecret, Purpose};
use crate::sql::changes::{ChangeKind, record_changes};
use crate::sql::database::{Database, Transaction};
use crate::sql::dialect::PhotoRowState;
use crate::sql::events::outbox::{PendingEvent, insert_pending_event};
use crate::sql::galleries::dismiss;
use crate::sql::row_types::{from_json, to_json};
use crate::sql::start_lists::versions::judge_again;
use crate::sql::statement::{Statement, query};
use crate::traits::{PhotoRef, Result};

const OPERATION: &str = "erase";

const FORGET_FACES: Statement = Statement::PerDialect {
    sqlite: "update face set unindexed = 'ERASED', model = null, embedding = null \
             where id in (select value from json_each($1))",
    postgres: "update face set unindexed = 'ERASED', model = null, embedding = null where id = any($1)",
};

/// `$4` has the places as a JSON list of lists: photo, top, left, width, height.
const INSERT_PLACES: Statement = Statement::PerDialect {
    sqlite: "insert into erased_place (album, erasure, photo, box_top, box_left, box_width, box_height) \
             select $1, $2, unhex(value ->> 0), value ->> 1, value ->> 2, value ->> 3, value ->> 4 from json_each($3)",
    postgres: "insert into erased_place (album, erasure, photo, box_top, box_left, box_width, box_height) \
               select $1, $2, (value ->> 0)::uuid, (value ->> 1)::float8, (value ->> 2)::float8, (value ->> 3)::float8, \
               (value ->> 4)::float8 from json_array_elements($3::json)",
};

pub(super) const DELETE_PROBES: Statement = Statement::PerDialect {
    sqlite: "delete from probe where id in (select unhex(value) from json_each($1))",
    postgres: "with gone as materialized (select id from probe where id = any($1) order by id for update) \
               delete from probe using gone where probe.id = gone.id",
};

const DELETE_PHOTOS: Statement = Statement::PerDialect {
    sqlite: "delete from photo where album = $1 and id in (select unhex(value) from json_each($2))",
    postgres: "delete from photo where album = $1 and id = any($2)",
};

const FORGET_ENTRIES: Statement = Statement::PerDialect {
    sqlite: "delete from start_list_entry where album = $1 and bib in (select value from json_each($2))",
    postgres: "delete from start_list_entry where album = $1 and bib = any($2)",
};

/// What visitors asked by a bib, which is done with it.
const FORGET_REQUESTS: Statement = Statement::PerDialect {
    sqlite: "delete from gallery_report where album = $1 and kind = 'removal' and faces is null \
             and note in (select value from json_each($2))",
    postgres: "delete from gallery_report where album = $1 and kind = 'removal' and faces is null and note = any($2)",
};

/// Removes rows.
#[derive(Clone)]
pub(crate) struct Removal {
    pub(crate) database: Database,
    pub(crate) master: Option<MasterSecret>,
}

impl Removal {
    /// Returns what an erasure would remove now.
    pub(crate) async fn preview(&self, erasure: &NewErasure) -> Result<ErasurePreview> {
        let mut snapshot = self.database.begin_snapshot(OPERATION).await?;
        let candidates = find_candidates(&mut snapshot, OPERATION, erasure).await?;
        let found = find_subject(&mut snapshot, OPERATION, erasure, candidates).await?;
        let photos = found.photos();
        let deleted_photos = find_deleted(&mut snapshot, erasure, &found, &photos).await?;
        let (unread_photos, _) = count_unseen(&mut snapshot, erasure).await?;
        Ok(ErasurePreview {
            unread_photos,
            faces: found.faces.len() as u64,
            texts: found.texts.len() as u64,
            probes: found.probes.len() as u64,
            photos,
            deleted_photos,
        })
    }

    /// Erases faces or a bib.
    pub(crate) async fn begin(&self, erasure: &NewErasure) -> Result<ErasureId> {
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let now = transaction.read_clock(OPERATION).await?;
        let album = erasure.album;
        let candidates = find_candidates(&mut transaction, OPERATION, erasure).await?;
        let to_key = |photo: &PhotoId| PhotoRef { album, photo: *photo };
        let keys: Vec<PhotoRef> = candidates.photos.iter().map(to_key).collect();
        let locked = transaction.queue_writes().lock_photos(&keys).await?;
        let id = ErasureId::generate();
        let found = match &erasure.subject {
            ErasureSubject::Faces { .. } => {
                let found = find_subject(&mut transaction, OPERATION, erasure, candidates).await?;
                lock_album(&mut transaction, album).await?;
                found
            }
            ErasureSubject::Bib { .. } => self.forget_bib(&mut transaction, erasure, id).await?,
        };
        if let Some(report) = erasure.report {
            // Before the photos go, and with them reports that say which others are of the same request.
            dismiss(&mut transaction, OPERATION, album, report).await?;
        }
        let photos = found.photos();
        let deleted = find_deleted(&mut transaction, erasure, &found, &photos).await?;
        remove_found(&mut transaction, album, id, &found).await?;
        delete_photos(&mut transaction, album, &deleted).await?;
        let marked_until = find_marking_end(&mut transaction, album).await?;
        let (mut plan, removed) = summarise(erasure.photos, &found, photos.len(), deleted);
        plan.leased_until = find_last_lease(album, &plan.deleted_photos, &locked).max(marked_until);
        plan.none_queued = is_none_queued(album, &plan.deleted_photos, &locked);
        (plan.unread_photos, plan.other_probes) = count_unseen(&mut transaction, erasure).await?;
        let kind = match erasure.subject {
            ErasureSubject::Faces { .. } => ErasureKind::Face,
            ErasureSubject::Bib { .. } => ErasureKind::Bib,
        };
        let (tenant, asked_by) = (&erasure.tenant, erasure.asked_by);
        let row = NewErasureRow { id, tenant, album, kind, asked_by, plan: &plan, removed, now };
        insert(&mut transaction, OPERATION, &row).await?;
        let data = json!({ "albumId": album, "receiptId": id, "photos": photos.len() });
        let event = PendingEvent {
            tenant: *tenant,
            event_type: EventType::PersonErased,
            album: Some(album),
            data,
            created_at: now,
        };
        insert_pending_event(&mut transaction, OPERATION, &event).await?;
        // Also without photos: the publisher and face indexes look at albums that have changed.
        record_changes(&mut transaction, album, &photos, ChangeKind::Content).await?;
        transaction.commit(OPERATION).await?;
        Ok(id)
    }

    /// Locks the album of a bib, and makes the bib unknown to all but its photos. Returns where it is in these.
    async fn forget_bib(
        &self,
        transaction: &mut Transaction,
        erasure: &NewErasure,
        id: ErasureId,
    ) -> Result<FoundSubject> {
        let album = erasure.album;
        lock_album(transaction, album).await?;
        // Now that the album is locked nobody adds one, and photos that were added since are not locked, but done. Before the entry
        // of the start list goes, which says what else is this bib.
        let candidates = find_candidates(transaction, OPERATION, erasure).await?;
        self.forbid_bib(transaction, album, id, &candidates.spellings).await?;
        forget_in_rules(transaction, album, &candidates.spellings).await?;
        query(OPERATION, FORGET_REQUESTS)
            .bind(album)
            .bind(candidates.spellings.clone())
            .execute(&mut *transaction)
            .await?;
        find_subject(transaction, OPERATION, erasure, candidates).await
    }

    /// Keeps the digests of a bib's spellings, so that it is not read again.
    async fn forbid_bib(
        &self,
        transaction: &mut Transaction,
        album: AlbumId,
        id: ErasureId,
        spellings: &[String],
    ) -> Result<()> {
        let missing = || StoreError::new(StoreErrorKind::Invalid, "there is no master secret");
        let master = self.master.as_ref().ok_or_else(missing)?;
        let known = load_secret(transaction, OPERATION, album, Some(master)).await?;
        let secret = match known {
            Some(secret) => secret,
            None => {
                let secret = master.make_secret()?;
                let keep = "insert into erased_bib_secret (album, secret) values ($1, $2)";
                let sealed = master.seal(Purpose::ErasedBib, album.0, &secret)?;
                query(OPERATION, keep).bind(album).bind(sealed).execute(&mut *transaction).await?;
                secret.to_vec()
            }
        };
        let forbid = "insert into erased_bib (album, digest, erasure) values ($1, $2, $3) \
                      on conflict (album, digest) do update set erasure = excluded.erasure";
        for spelling in spellings {
            query(OPERATION, forbid)
                .bind(album)
                .bind(digest_bib(&secret, spelling))
                .bind(id)
                .execute(&mut *transaction)
                .await?;
        }
        Ok(())
    }
}

/// Returns what is left to be removed for an erasure of `photos` photos, and what was.
fn summarise(
    fate: PhotoFate,
    found: &FoundSubject,
    photos: usize,
    deleted: Vec<PhotoId>,
) -> (ErasurePlan, RemovedCounts) {
    let removed = RemovedCounts {
        faces: found.faces.len() as u64,
        vectors: found.faces.iter().filter(|face| face.has_vector).count() as u64,
        texts: found.texts.len() as u64,
        photos: deleted.len() as u64,
        probes: found.probes.len() as u64,
        ..RemovedCounts::default()
    };
    let left = (photos - deleted.len()) as u64;
    let (kept_photos, shared_photos) = match fate {
        PhotoFate::Keep => (left, 0),
        PhotoFate::Delete => (0, left),
    };
    let plan = ErasurePlan {
        deleted_photos: deleted,
        probes: found.probes.clone(),
        kept_photos,
        shared_photos,
        ..ErasurePlan::default()
    };
    (plan, removed)
}

/// Locks an album and counts one more erasure in it: whoever writes detections of it looks what was erased.
pub(super) async fn lock_album(transaction: &mut Transaction, album: AlbumId) -> Result<()> {
    let count = "update album set erasures = erasures + 1 where id = $1";
    match query(OPERATION, count).bind(album).execute(transaction).await? {
        0 => Err(StoreError::not_found(format!("album {album}"))),
        _ => Ok(()),
    }
}

async fn remove_found(
    transaction: &mut Transaction,
    album: AlbumId,
    id: ErasureId,
    found: &FoundSubject,
) -> Result<()> {
    if !found.faces.is_empty() {
        let faces: Vec<i64> = found.faces.iter().map(|face| face.id).collect();
        query(OPERATION, FORGET_FACES).bind(faces).execute(&mut *transaction).await?;
        let places: Vec<_> = found.faces.iter().map(to_json_place).collect();
        query(OPERATION, INSERT_PLACES)
            .bind(album)
            .bind(id)
            .bind(to_json(&places)?)
            .execute(&mut *transaction)
            .await?;
    }
    empty_texts(transaction, OPERATION, &found.texts).await?;
    if found.probes.is_empty() {
        return Ok(());
    }
    let probes: Vec<Uuid> = found.probes.iter().map(|probe| probe.0).collect();
    query(OPERATION, DELETE_PROBES).bind(probes).execute(transaction).await.map(drop)
}

fn to_json_place(face: &KnownFace) -> (String, f64, f64, f64, f64) {
    let place = &face.bounding_box;
    (face.photo.0.simple().to_string(), place.top, place.left, place.width, place.height)
}

/// Returns those of the photos that go: those in which nobody else can be found, if that was asked.
async fn find_deleted(
    transaction: &mut Transaction,
    erasure: &NewErasure,
    found: &FoundSubject,
    photos: &[PhotoId],
) -> Result<Vec<PhotoId>> {
    if erasure.photos == PhotoFate::Keep {
        return Ok(Vec::new());
    }
    let shared = find_shared(transaction, OPERATION, erasure.album, found, photos).await?;
    Ok(photos.iter().copied().filter(|photo| !shared.contains(photo)).collect())
}

/// Returns how many photos and selfies the search of an erasure of faces could not see.
async fn count_unseen(transaction: &mut Transaction, erasure: &NewErasure) -> Result<(u64, u64)> {
    let ErasureSubject::Faces { selfie, searched_at, .. } = &erasure.subject else { return Ok((0, 0)) };
    let photos = count_unread(transaction, OPERATION, erasure.album, *searched_at).await?;
    let selfie = selfie.as_ref().map(|selfie| &selfie.embedding);
    Ok((photos, count_other_probes(transaction, OPERATION, erasure.album, selfie).await?))
}

/// Returns when the last running lease of these photos ends, microseconds; 0 if none is running.
pub(super) fn find_last_lease(
    album: AlbumId,
    photos: &[PhotoId],
    locked: &HashMap<PhotoRef, PhotoRowState>,
) -> i64 {
    let leases = photos.iter().filter_map(|photo| locked.get(&PhotoRef { album, photo: *photo }));
    leases.map(|row| row.lease_until).max().unwrap_or(0)
}

/// Whether none of these photos waits or is being processed. One that is not locked may.
pub(super) fn is_none_queued(
    album: AlbumId,
    photos: &[PhotoId],
    locked: &HashMap<PhotoRef, PhotoRowState>,
) -> bool {
    photos.iter().all(|photo| {
        let row = locked.get(&PhotoRef { album, photo: *photo });
        row.is_some_and(|row| !matches!(row.state, PhotoState::Queued | PhotoState::Processing))
    })
}

/// Returns until when a process may write marked pictures of an album's photos; 0 where it has no watermark.
pub(super) async fn find_marking_end(transaction: &mut Transaction, album: AlbumId) -> Result<i64> {
    let last = "select coalesce(max(task_lease.held_until), 0) from task_lease, album \
                where task_lease.name = 'marking' and album.id = $1 and album.watermark_version > 0";
    let (until,): (i64,) = query(OPERATION, last).bind(album).fetch_one(transaction).await?;
    Ok(until)
}

pub(super) async fn delete_photos(
    transaction: &mut Transaction,
    album: AlbumId,
    photos: &[PhotoId],
) -> Result<()> {
    if photos.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = photos.iter().map(|photo| photo.0).collect();
    query(OPERATION, DELETE_PHOTOS).bind(album).bind(ids).execute(transaction).await.map(drop)
}

/// Takes a bib out of the start list of its album, and of what was learned of the album's bibs.
async fn forget_in_rules(transaction: &mut Transaction, album: AlbumId, spellings: &[String]) -> Result<()> {
    let forget = query(OPERATION, FORGET_ENTRIES).bind(album).bind(spellings.to_vec());
    if forget.execute(&mut *transaction).await? > 0 {
        judge_again(transaction, OPERATION, album).await?;
    }
    let learned: Option<(String,)> = query(OPERATION, "select learned from bib_format where album = $1")
        .bind(album)
        .fetch_optional(&mut *transaction)
        .await?;
    let Some((learned,)) = learned else { return Ok(()) };
    let mut learned: LearnedFormat = from_json(&learned)?;
    let before = learned.repeated.len();
    learned.repeated.retain(|repeated| !spellings.contains(repeated));
    if learned.repeated.len() == before {
        return Ok(());
    }
    query(OPERATION, "update bib_format set learned = $2 where album = $1")
        .bind(album)
        .bind(to_json(&learned)?)
        .execute(transaction)
        .await
        .map(drop)
}
