//! Credits: what is held, spent and given back, what is declined, and what was used.

use futures_util::future::join_all;
use time::{Duration, OffsetDateTime};

use super::assert_error_kind;
use super::credit_days::mock_credits_are_refilled_on_each_day;
use super::credit_grants::a_grant_that_is_repeated_counts_once;
use super::fixture::{AlbumFixture, LONG, empty_results};
use crate::error::StoreErrorKind;
use crate::model::album::Tenant;
use crate::model::credit::{
    Balance, ChargedRequest, Credits, NewGrant, RequestOrigin, UsageOperation, UsageQuery, UsageRow,
};
use crate::model::event::{EventQuery, EventType};
use crate::model::ids::{KeyId, PhotoId, ProcessId};
use crate::model::key::KeyMode;
use crate::model::photo::{FailureReason, PhotoState};
use crate::model::process::Task;
use crate::model::rate::{RateClass, RateShare};
use crate::store::Store;
use crate::traits::{RateWindows, Reprocessed, Upload};

/// Checks the backends of [`crate::traits::CreditLedger`] and [`crate::traits::LedgerTask`], and what the queue does with
/// credits. `enforcing` is a store of the same database that declines what is not covered, with a price of 1 for photos,
/// 0.25 for face and 0.5 for bib searches, and mock credits of 100; `store` declines nothing.
pub async fn credits_suite(store: &Store, enforcing: &Store) {
    photos_are_held_charged_and_released(store).await;
    a_paid_photo_is_never_charged_again(store).await;
    deleted_photos_and_albums_release_what_is_held(store).await;
    what_the_balance_does_not_cover_is_declined_in_order(enforcing).await;
    photos_of_several_albums_are_declined_by_tenant(enforcing).await;
    an_ample_balance_that_is_taken_away_covers_nothing(enforcing).await;
    a_reprocessed_album_is_queued_as_far_as_the_balance_covers_it(enforcing).await;
    requests_are_charged_together_and_selfies_once(enforcing).await;
    a_grant_that_is_repeated_counts_once(store).await;
    mock_credits_are_refilled_and_can_be_set(enforcing).await;
    mock_credits_are_refilled_on_each_day(enforcing).await;
    usage_is_summed_up_by_day_album_and_operation(store).await;
    tenants_are_told_once_that_their_credits_are_low(enforcing).await;
}

/// Checks the backend of [`RateWindows`].
pub async fn rates_suite(windows: &dyn RateWindows) {
    let share = |key: KeyId, begins: i64, units: u32| RateShare {
        key,
        class: RateClass::Search,
        begins,
        units,
        limit: 10,
    };
    let (key, other) = (KeyId::generate(), KeyId::generate());
    let take = async |share: RateShare| windows.take(share).await.expect("takes a share");
    assert_eq!(take(share(key, 60, 11)).await, None);
    assert_eq!(take(share(key, 60, 4)).await, Some(4));
    assert_eq!(take(share(key, 60, 6)).await, Some(10));
    assert_eq!(take(share(key, 60, 1)).await, None);
    assert_eq!(take(share(key, 120, 1)).await, Some(1));
    assert_eq!(take(share(other, 60, 10)).await, Some(10));
    assert_eq!(take(RateShare { class: RateClass::Read, ..share(key, 60, 3) }).await, Some(3));
    let third = KeyId::generate();
    let taken = join_all((0..20).map(|_| take(share(third, 60, 1)))).await;
    assert_eq!(taken.iter().filter(|taken| taken.is_some()).count(), 10);
}

pub(super) async fn balance(fixture: &AlbumFixture) -> Balance {
    fixture.store.credits.balance(&fixture.tenant).await.expect("reads the balance")
}

/// What is held and spent, in whole credits.
async fn held_and_spent(fixture: &AlbumFixture) -> (i64, i64) {
    let Balance { held, spent, .. } = balance(fixture).await;
    assert_eq!((held.thousandths() % 1000, spent.thousandths() % 1000), (0, 0));
    (held.thousandths() / 1000, spent.thousandths() / 1000)
}

async fn grant(fixture: &AlbumFixture, credits: i64) -> Balance {
    let grant = NewGrant {
        tenant: fixture.tenant,
        amount: Credits::whole(credits),
        note: "suite".into(),
        granted_by: "suite".into(),
    };
    fixture.store.credits.grant(grant).await.expect("grants credits")
}

async fn usage(fixture: &AlbumFixture, change: impl FnOnce(&mut UsageQuery)) -> Vec<UsageRow> {
    let today = OffsetDateTime::now_utc().date();
    let mut query = UsageQuery {
        // The day may end during the suite, and the clock of a server may differ.
        from: today - Duration::DAY,
        to: today + Duration::DAY,
        by_day: false,
        by_album: false,
        by_operation: true,
        limit: 100,
    };
    change(&mut query);
    fixture.store.credits.usage(&fixture.tenant, query).await.expect("sums up usage")
}

async fn photos_are_held_charged_and_released(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photos = fixture.queue_photos(3).await;
    assert_eq!(held_and_spent(&fixture).await, (3, 0));
    store.queue.confirm(fixture.album, &photos).await.expect("confirms again");
    assert_eq!(held_and_spent(&fixture).await, (3, 0));
    let leases = fixture.lease_fresh(3, LONG).await;
    store.queue.release(&leases[2..3]).await.expect("releases a photo");
    assert_eq!(held_and_spent(&fixture).await, (3, 0));
    let results = vec![empty_results(&leases[0])];
    store.queue.finish(results.clone()).await.expect("finishes a photo");
    store.queue.finish(results).await.expect("is superseded");
    assert_eq!(held_and_spent(&fixture).await, (2, 1));
    for _ in 0..2 {
        store.queue.fail(&leases[1], FailureReason::CorruptImage, "").await.expect("fails a photo");
    }
    assert_eq!(held_and_spent(&fixture).await, (1, 1));
    assert_eq!(balance(&fixture).await.available(), Credits::whole(-2));
    fixture.delete().await;
}

async fn a_paid_photo_is_never_charged_again(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let ready = fixture.add_ready_photo(Vec::new(), Vec::new()).await;
    let failed = fixture.queue_photos(1).await[0];
    let lease = fixture.lease_fresh(1, LONG).await.remove(0);
    store.queue.fail(&lease, FailureReason::CorruptImage, "").await.expect("fails a photo");
    assert_eq!(held_and_spent(&fixture).await, (0, 1));
    // The failed one is held for again, the paid one is not.
    let reprocessed = store.queue.reprocess(fixture.album).await.expect("reprocesses");
    assert_eq!(reprocessed, Reprocessed { queued: 2, declined: 0 });
    assert_eq!(held_and_spent(&fixture).await, (1, 1));
    for lease in fixture.lease_fresh(2, LONG).await {
        if lease.photo == ready {
            store.queue.fail(&lease, FailureReason::CorruptImage, "").await.expect("fails a photo");
        } else {
            assert_eq!(lease.photo, failed);
            store.queue.finish(vec![empty_results(&lease)]).await.expect("finishes a photo");
        }
    }
    assert_eq!(held_and_spent(&fixture).await, (0, 2));
    store.queue.retry(fixture.album, ready).await.expect("retries the photo");
    assert_eq!(held_and_spent(&fixture).await, (0, 2));
    fixture.process_next_photo(Vec::new(), Vec::new()).await;
    assert_eq!(held_and_spent(&fixture).await, (0, 2));
    let rows = usage(&fixture, |_| {}).await;
    let counts: Vec<_> = rows.iter().map(|row| (row.operation.as_deref(), row.count, row.credits)).collect();
    let expected = [(Some("photo"), 2, Credits::whole(2)), (Some("photo_failed"), 2, Credits::ZERO)];
    assert_eq!(counts, expected);
    fixture.delete().await;
}

async fn deleted_photos_and_albums_release_what_is_held(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let other = fixture.create_album(super::fixture::album_config()).await;
    other.add_ready_photo(Vec::new(), Vec::new()).await;
    let photos = fixture.queue_photos(1200).await;
    let leases = fixture.lease_fresh(2, LONG).await;
    assert_eq!(held_and_spent(&fixture).await, (1200, 1));
    store.photos.delete(fixture.album, photos[7]).await.expect("deletes a photo");
    let leased = leases.iter().find(|lease| lease.photo != photos[7]).expect("another photo");
    store.photos.delete(fixture.album, leased.photo).await.expect("deletes a photo");
    store.queue.finish(vec![empty_results(leased)]).await.expect("is gone");
    assert_eq!(held_and_spent(&fixture).await, (1198, 1));
    store.albums.delete(&fixture.tenant, fixture.album).await.expect("deletes the album");
    assert_eq!(held_and_spent(&other).await, (0, 1));
    store.albums.delete(&other.tenant, other.album).await.expect("deletes the album");
    // What was spent stays spent, and told.
    let rows = usage(&other, |query| query.by_album = true).await;
    assert_eq!((rows.len(), rows[0].album, rows[0].count), (1, Some(other.album), 1));
}

/// Confirms photos; returns how many were taken, and which were declined.
pub(super) async fn confirm(fixture: &AlbumFixture, photos: &[PhotoId]) -> (usize, Vec<PhotoId>) {
    let uploads: Vec<Upload> =
        photos.iter().map(|photo| Upload { photo: *photo, size_bytes: Some(1) }).collect();
    let confirmed =
        fixture.store.queue.confirm_uploads(fixture.album, &uploads).await.expect("confirms photos");
    assert_eq!(confirmed.decline.is_some(), !confirmed.declined.is_empty());
    if let Some(decline) = confirmed.decline {
        assert!(decline.balance < decline.price, "{decline:?}");
    }
    (confirmed.photos.len(), confirmed.declined)
}

async fn what_the_balance_does_not_cover_is_declined_in_order(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photos = fixture.create_photos(6).await;
    assert_eq!(confirm(&fixture, &photos[..1]).await, (0, vec![photos[0]]));
    assert_eq!(grant(&fixture, 3).await.available(), Credits::whole(3));
    assert_eq!(confirm(&fixture, &photos).await, (3, photos[3..].to_vec()));
    // Those that are queued are no longer declined, whatever is left.
    assert_eq!(confirm(&fixture, &photos[..3]).await, (3, Vec::new()));
    let counts = store.photos.count_by_state(fixture.album).await.expect("counts");
    assert_eq!((counts.queued, counts.awaiting_upload), (3, 3));
    let lease = fixture.lease_fresh(1, LONG).await.remove(0);
    store.queue.fail(&lease, FailureReason::CorruptImage, "").await.expect("fails a photo");
    // What the failed photo gave back is taken by another, and then a retry is declined.
    assert_eq!(confirm(&fixture, &photos[3..4]).await, (1, Vec::new()));
    assert_error_kind(
        store.queue.retry(fixture.album, lease.photo).await,
        StoreErrorKind::InsufficientCredits,
    );
    let state = store.photos.get(fixture.album, lease.photo).await.expect("gets the photo").state;
    assert_eq!(state, PhotoState::Failed);
    grant(&fixture, 1).await;
    store.queue.retry(fixture.album, lease.photo).await.expect("retries the photo");
    assert_eq!(balance(&fixture).await.available(), Credits::ZERO);
    // A correction may take away what is held: nothing that was accepted is declined later.
    assert_eq!(grant(&fixture, -4).await.available(), Credits::whole(-4));
    for lease in fixture.lease_fresh(10, LONG).await {
        store.queue.finish(vec![empty_results(&lease)]).await.expect("finishes a photo");
    }
    assert_eq!(held_and_spent(&fixture).await, (0, 4));
    fixture.delete().await;
}

async fn a_reprocessed_album_is_queued_as_far_as_the_balance_covers_it(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    grant(&fixture, 4).await;
    let paid = fixture.add_ready_photo(Vec::new(), Vec::new()).await;
    let mut failed = fixture.create_photos(3).await;
    failed.sort();
    assert_eq!(confirm(&fixture, &failed).await, (3, Vec::new()));
    for lease in fixture.lease_fresh(3, LONG).await {
        store.queue.fail(&lease, FailureReason::CorruptImage, "").await.expect("fails a photo");
    }
    grant(&fixture, -1).await;
    assert_eq!(balance(&fixture).await.available(), Credits::whole(2));
    let reprocessed = store.queue.reprocess(fixture.album).await.expect("reprocesses");
    assert_eq!(reprocessed, Reprocessed { queued: 3, declined: 1 });
    let state = async |photo| store.photos.get(fixture.album, photo).await.expect("gets the photo").state;
    assert_eq!(state(paid).await, PhotoState::Queued, "a paid photo costs nothing");
    assert_eq!(state(failed[1]).await, PhotoState::Queued);
    assert_eq!(state(failed[2]).await, PhotoState::Failed, "the last one is not covered");
    assert_eq!(balance(&fixture).await.available(), Credits::ZERO);
    assert_error_kind(store.queue.reprocess(fixture.album).await, StoreErrorKind::InsufficientCredits);
    grant(&fixture, 1).await;
    let reprocessed = store.queue.reprocess(fixture.album).await.expect("reprocesses");
    assert_eq!(reprocessed, Reprocessed { queued: 1, declined: 0 });
    assert_eq!(held_and_spent(&fixture).await, (3, 1));
    fixture.delete().await;
}

async fn an_ample_balance_that_is_taken_away_covers_nothing(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photos = fixture.create_photos(4).await;
    grant(&fixture, 1_000_000).await;
    assert_eq!(confirm(&fixture, &photos[..1]).await, (1, Vec::new()));
    // Covered without a look at the balance.
    assert_eq!(confirm(&fixture, &photos[1..3]).await, (2, Vec::new()));
    assert_eq!(held_and_spent(&fixture).await, (3, 0));
    assert_eq!(grant(&fixture, -999_997).await.available(), Credits::ZERO);
    assert_eq!(confirm(&fixture, &photos).await, (3, photos[3..].to_vec()));
    fixture.delete().await;
}

async fn photos_of_several_albums_are_declined_by_tenant(store: &Store) {
    let (rich, poor) = (AlbumFixture::create(store).await, AlbumFixture::create(store).await);
    grant(&rich, 100).await;
    grant(&poor, 2).await;
    let rich_photos = rich.create_photos(8).await;
    let poor_photos = poor.create_photos(8).await;
    // At once, so that they share transactions.
    let calls =
        rich_photos.iter().map(|photo| (&rich, photo)).chain(poor_photos.iter().map(|photo| (&poor, photo)));
    let confirmed = join_all(calls.map(async |(fixture, photo)| confirm(fixture, &[*photo]).await.0)).await;
    assert_eq!(confirmed[..8].iter().sum::<usize>(), 8);
    assert_eq!(confirmed[8..].iter().sum::<usize>(), 2);
    assert_eq!((held_and_spent(&rich).await, held_and_spent(&poor).await), ((8, 0), (2, 0)));
    rich.delete().await;
    poor.delete().await;
}

async fn requests_are_charged_together_and_selfies_once(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let probe = store.probes.create(fixture.album, LONG).await.expect("creates a selfie");
    let is_charged =
        async || store.probes.get(fixture.album, probe.id).await.expect("gets the selfie").is_charged;
    let charge = async |requests: &[ChargedRequest]| {
        store.credits.charge_requests(&fixture.tenant, fixture.album, requests).await
    };
    let face = ChargedRequest::FaceSearch(probe.id, RequestOrigin::Partner);
    let text = ChargedRequest::TextSearch(RequestOrigin::Partner);
    for search in [face, text] {
        assert_error_kind(charge(&[search]).await, StoreErrorKind::InsufficientCredits);
    }
    grant(&fixture, 1).await;
    // The balance covers each, and not all of them.
    assert_error_kind(charge(&[face, text, text]).await, StoreErrorKind::InsufficientCredits);
    assert_eq!((balance(&fixture).await.spent, is_charged().await), (Credits::ZERO, false));
    let once = [face];
    for charged in join_all((0..4).map(|_| charge(&once))).await {
        charged.expect("charges once");
    }
    assert_eq!((balance(&fixture).await.spent, is_charged().await), (Credits::from_thousandths(250), true));
    charge(&[face, text]).await.expect("charges the bib search");
    assert_error_kind(charge(&[text]).await, StoreErrorKind::InsufficientCredits);
    assert_eq!(balance(&fixture).await.available(), Credits::from_thousandths(250));
    fixture.delete().await;
}

async fn mock_credits_are_refilled_and_can_be_set(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let organization = fixture.tenant.organization;
    let test = Tenant { organization, mode: KeyMode::Test };
    // Of several that come first on a day, one refills.
    let first = join_all((0..4).map(|_| store.credits.balance(&test))).await;
    for balance in first {
        assert_eq!(balance.expect("reads the balance").available(), Credits::whole(100));
    }
    let set = async |available: Credits| {
        let balance =
            store.credits.set_mock_balance(organization, available).await.expect("sets the balance");
        assert_eq!(balance.available(), available);
        assert_eq!(store.credits.recent_balance(&test).await.expect("knows it"), balance);
    };
    set(Credits::from_thousandths(500)).await;
    set(Credits::whole(100_000)).await;
    assert_eq!(balance(&fixture).await, Balance::default(), "the credits of live keys");
    fixture.delete().await;
}

async fn usage_is_summed_up_by_day_album_and_operation(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let other = fixture.create_album(super::fixture::album_config()).await;
    for album in [&fixture, &other] {
        album.add_ready_photo(Vec::new(), Vec::new()).await;
    }
    for _ in 0..3 {
        store.credits.count(&fixture.tenant, other.album, UsageOperation::TextSearch);
    }
    store.credits.flush_usage().await.expect("writes counts");
    store.credits.flush_usage().await.expect("has nothing to write");
    let rows = usage(&fixture, |query| query.by_operation = false).await;
    assert_eq!((rows.len(), rows[0].count, rows[0].credits), (1, 5, Credits::whole(2)));
    assert_eq!((rows[0].day, rows[0].album, rows[0].operation.as_deref()), (None, None, None));
    let rows = usage(&fixture, |query| (query.by_day, query.by_album) = (true, true)).await;
    let rows: Vec<_> = rows.iter().map(|row| (row.album, row.operation.as_deref(), row.count)).collect();
    let photo = Some("photo");
    let searches = Some("text_search");
    assert_eq!(
        rows,
        [(Some(fixture.album), photo, 1), (Some(other.album), photo, 1), (Some(other.album), searches, 3)]
    );
    let before = usage(&fixture, |query| query.to = query.from - Duration::DAY).await;
    assert_eq!(before, []);
    assert_eq!(usage(&fixture, |query| query.limit = 1).await.len(), 1);
    fixture.delete().await;
    other.delete().await;
}

async fn tenants_are_told_once_that_their_credits_are_low(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let holder = ProcessId::generate();
    let lease =
        store.tasks.take(Task::Ledger, holder, LONG).await.expect("takes the task").expect("it is free");
    let publisher = store.tasks.take(Task::EventPublisher, holder, LONG).await.expect("takes the task");
    let publisher = publisher.expect("nobody publishes");
    let told = async || {
        if store.ledger_task.is_due().await.expect("looks") {
            store.ledger_task.run(lease).await.expect("runs");
        }
        store.event_publisher.publish(publisher).await.expect("publishes");
        let query = EventQuery { after: 0, types: vec![EventType::CreditsLow], album: None, limit: 10 };
        store.events.list(&fixture.tenant, query).await.expect("lists events").events
    };
    grant(&fixture, 20).await;
    let photos = fixture.create_photos(20).await;
    assert_eq!(confirm(&fixture, &photos[..18]).await.0, 18);
    assert_eq!(told().await, [], "a tenth of the grant is left");
    assert_eq!(confirm(&fixture, &photos[18..19]).await.0, 1);
    let events = told().await;
    assert_eq!(events.len(), 1);
    let expected = serde_json::json!({ "balance": 1, "threshold": 2, "mode": "live" });
    assert_eq!(serde_json::Value::from(events[0].data.clone()), expected);
    assert_eq!(told().await.len(), 1, "once");
    grant(&fixture, 5).await;
    assert_eq!(told().await.len(), 1);
    grant(&fixture, -6).await;
    assert_eq!(told().await.len(), 2, "again after it was enough");
    let stale = crate::model::process::TaskLease { task: Task::Ledger, holder: ProcessId::generate() };
    assert_error_kind(store.ledger_task.run(stale).await, StoreErrorKind::Conflict);
    store.tasks.release(lease).await.expect("releases the task");
    store.tasks.release(publisher).await.expect("releases the task");
    let balances = store.credits.list_balances().await.expect("lists balances");
    let own = balances.iter().find(|found| found.tenant == fixture.tenant).expect("it is listed");
    assert_eq!((own.balance, &own.organization), (balance(&fixture).await, &fixture.key.organization_name));
    fixture.delete().await;
}
