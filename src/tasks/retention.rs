//! Erases what has been kept for as long as albums and the operator say, in one process at a time, and tells owners a week
//! before.

use std::time::Duration;

use photofinish_store::model::album::RetentionConfig;
use photofinish_store::model::erasure::{AgeingAlbum, ExpiringPart};
use photofinish_store::model::ids::{AlbumId, ProcessId};
use photofinish_store::model::process::{Task, TaskLease};
use photofinish_store::{Store, StoreError, StoreErrorKind};
use time::OffsetDateTime;
use tokio::time::MissedTickBehavior;

/// How often it looks at all albums.
const INTERVAL: Duration = Duration::from_hours(1);
/// How long a process has the task after each page of albums.
const LEASE_TTL: Duration = Duration::from_secs(30);
/// How long before something is erased its owner is told.
const NOTICE: time::Duration = time::Duration::WEEK;

/// Looks at the ages of albums every hour, until it is dropped. `limit` is for how long anything is kept at most.
pub async fn retain_forever(store: &Store, holder: ProcessId, limit: RetentionConfig) {
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        match run_round(store, holder, limit, OffsetDateTime::now_utc()).await {
            // Another process has the task.
            Err(error) if error.kind == StoreErrorKind::Conflict => {}
            Err(error) => tracing::warn!(%error, "failed to look at the ages of albums, retrying in an hour"),
            Ok(()) => {}
        }
    }
}

/// Looks at all albums once.
async fn run_round(
    store: &Store,
    holder: ProcessId,
    limit: RetentionConfig,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    let (mut after, mut first_error): (Option<AlbumId>, _) = (None, None);
    loop {
        if store.tasks.take(Task::Retention, holder, LEASE_TTL).await?.is_none() {
            return Ok(());
        }
        let albums = store.erasures.list_ageing(after).await?;
        let Some(last) = albums.last() else { break };
        after = Some(last.id);
        for album in albums {
            // One album that fails does not keep the others.
            if let Err(error) = judge_album(store, &album, limit, now).await {
                tracing::warn!(album.id = %album.id, %error, "failed to erase what has been kept long enough");
                first_error = first_error.or(Some(error));
            }
        }
    }
    store.tasks.release(TaskLease { task: Task::Retention, holder }).await?;
    first_error.map_or(Ok(()), Err)
}

async fn judge_album(
    store: &Store,
    album: &AgeingAlbum,
    limit: RetentionConfig,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    for (part, at) in album.find_expiring(limit) {
        match decide(album, part, at, now) {
            Decision::Wait => {}
            Decision::Tell => store.erasures.tell_expiring(album, part, at).await?,
            Decision::Erase => {
                // The page may be old by now, and a photo confirmed since.
                let album = &store.erasures.get_ageing(&album.tenant, album.id).await?;
                let still = album.find_expiring(limit).into_iter().find(|(other, _)| *other == part);
                if !still.is_some_and(|(_, at)| decide(album, part, at, now) == Decision::Erase) {
                    continue;
                }
                let erasure = store.erasures.begin_expired(album, part).await?;
                let what = part.as_str();
                tracing::info!(album.id = %album.id, erasure.id = %erasure, what, "erasing what was kept long enough");
                // With the album its faces are gone.
                return Ok(());
            }
        }
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Wait,
    Tell,
    Erase,
}

/// Decides what is done with a part of an album now. Nothing is erased of which the owner was not told in an earlier round,
/// and nothing while photos wait or are being processed.
fn decide(album: &AgeingAlbum, part: ExpiringPart, at: OffsetDateTime, now: OffsetDateTime) -> Decision {
    let told = match part {
        ExpiringPart::Faces => album.told_faces_expire_at,
        ExpiringPart::Photos => album.told_photos_expire_at,
    };
    if now < at - NOTICE {
        Decision::Wait
    } else if told != at {
        Decision::Tell
    } else if now >= at && !album.is_busy {
        Decision::Erase
    } else {
        Decision::Wait
    }
}

#[cfg(test)]
mod tests {
    use photofinish_store::conformance::{AlbumFixture, album_config, test_settings};
    use photofinish_store::model::album::Tenant;
    use photofinish_store::model::ids::OrganizationId;
    use photofinish_store::model::key::KeyMode;
    use photofinish_store::model::process::{Process, ProcessReport};

    use super::*;

    fn days(days: i64) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + time::Duration::days(days)
    }

    fn album(photos_days: Option<u32>, faces_days: Option<u32>) -> AgeingAlbum {
        AgeingAlbum {
            id: AlbumId::generate(),
            tenant: Tenant { organization: OrganizationId::generate(), mode: KeyMode::Live },
            has_faces: true,
            retention: RetentionConfig { photos_days, faces_days },
            counted_from: days(1000),
            is_busy: false,
            told_faces_expire_at: days(0),
            told_photos_expire_at: days(0),
        }
    }

    #[test]
    fn the_operator_limits_what_albums_keep() {
        let limit = RetentionConfig { photos_days: Some(100), faces_days: None };
        let ends = |album: AgeingAlbum| album.find_expiring(limit);
        assert_eq!(ends(album(None, None)), [(ExpiringPart::Photos, days(1100))]);
        let both = [(ExpiringPart::Photos, days(1050)), (ExpiringPart::Faces, days(1030))];
        assert_eq!(ends(album(Some(50), Some(30))), both);
        let without_faces = AgeingAlbum { has_faces: false, ..album(Some(500), Some(30)) };
        assert_eq!(ends(without_faces), [(ExpiringPart::Photos, days(1100))]);
    }

    #[test]
    fn owners_are_told_a_week_before_and_always_before() {
        let at = days(1030);
        let decide_at = |album: &AgeingAlbum, now| decide(album, ExpiringPart::Faces, at, now);
        let untold = album(None, Some(30));
        assert_eq!(decide_at(&untold, days(1022)), Decision::Wait);
        assert_eq!(decide_at(&untold, days(1023)), Decision::Tell);
        assert_eq!(decide_at(&untold, days(2000)), Decision::Tell, "a new rule for an old album");
        let told = AgeingAlbum { told_faces_expire_at: at, ..album(None, Some(30)) };
        assert_eq!(decide_at(&told, days(1029)), Decision::Wait);
        assert_eq!(decide_at(&told, days(1030)), Decision::Erase);
        let busy = AgeingAlbum { is_busy: true, ..told };
        assert_eq!(decide_at(&busy, days(1030)), Decision::Wait);
    }

    /// A page has two hundred albums, and each of those before may take long.
    #[tokio::test]
    async fn an_album_that_has_got_a_photo_since_its_page_was_read_is_not_erased() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(test_settings(folder.path())).await.unwrap();
        let fixture = AlbumFixture::create(&store).await;
        fixture.add_ready_photo(Vec::new(), Vec::new()).await;
        let limit = RetentionConfig { photos_days: Some(30), faces_days: None };
        let now = OffsetDateTime::now_utc() + time::Duration::days(100);
        let read_page = async || store.erasures.list_ageing(None).await.unwrap().remove(0);
        judge_album(&store, &read_page().await, limit, now).await.unwrap();
        let told = read_page().await;
        assert_eq!(decide(&told, ExpiringPart::Photos, told.told_photos_expire_at, now), Decision::Erase);

        fixture.queue_photos(1).await;
        judge_album(&store, &told, limit, now).await.unwrap();
        assert_eq!(store.erasures.list_running(None).await.unwrap(), []);

        fixture.process_next_photo(Vec::new(), Vec::new()).await;
        judge_album(&store, &told, limit, now).await.unwrap();
        assert_eq!(store.erasures.list_running(None).await.unwrap().len(), 1);
    }

    /// One album more than a page has. The first was told before, and nothing is erased while an earlier version runs.
    #[tokio::test]
    async fn an_album_that_fails_keeps_no_other_from_its_turn() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(test_settings(folder.path())).await.unwrap();
        let fixture = AlbumFixture::create(&store).await;
        let limit = RetentionConfig { photos_days: Some(30), faces_days: None };
        let now = OffsetDateTime::now_utc() + time::Duration::days(100);
        let first = store.erasures.get_ageing(&fixture.tenant, fixture.album).await.unwrap();
        judge_album(&store, &first, limit, now).await.unwrap();
        for _ in 0..200 {
            fixture.create_album(album_config()).await;
        }
        let earlier = Process {
            id: ProcessId::generate(),
            role: "work".into(),
            host: "another".into(),
            version: "0.0.9".into(),
            started_at: OffsetDateTime::UNIX_EPOCH,
            report: ProcessReport::default(),
        };
        store.processes.report(&earlier).await.unwrap();
        let holder = ProcessId::generate();
        let refused = run_round(&store, holder, limit, now).await.unwrap_err();
        assert_eq!(refused.kind, StoreErrorKind::Conflict);
        let mut albums = store.erasures.list_ageing(None).await.unwrap();
        let last = albums.last().map(|album| album.id);
        albums.extend(store.erasures.list_ageing(last).await.unwrap());
        assert_eq!(albums.len(), 201, "none is erased");
        assert!(albums.iter().all(|album| album.told_photos_expire_at > days(0)), "each is told");

        store.processes.remove(earlier.id).await.unwrap();
        run_round(&store, holder, limit, now).await.unwrap();
        assert!(store.erasures.list_ageing(None).await.unwrap().is_empty(), "each is erased");
    }
}
