//! What processing costs: written with the outcome of each attempt, once, and summed up.

use std::time::Duration;

use time::OffsetDateTime;

use super::fixture::{AlbumFixture, LONG, empty_results};
use crate::model::cost::{CostQuery, CostRow, CostWeights, PhotoCost, SELFIE_STAGE, Spent, StoredObjects};
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::FailureReason;
use crate::store::Store;
use crate::traits::{FinishOutcome, Lease, PhotoResults, PictureSizes, Upload};

/// Checks the backend of [`crate::traits::Costs`], and what the queue writes for it.
pub async fn costs_suite(store: &Store) {
    attempts_are_added_up_by_stage(store).await;
    a_superseded_attempt_costs_nothing(store).await;
    an_attempt_that_is_given_back_costs_what_it_spent_once(store).await;
    searches_are_charged_to_their_album_and_to_no_photo(store).await;
    what_is_stored_is_summed_up(store).await;
    the_dearest_of_the_newest_photos_are_found(store).await;
    an_album_has_one_owner(store).await;
}

/// The sizes of an upload and of what is made of it.
const ORIGINAL: u64 = 5000;
const MADE: PictureSizes = PictureSizes { picture_bytes: 700, marked_bytes: Some(90) };

async fn what_is_stored_is_summed_up(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let (costs, tenant, album) = (&store.costs, fixture.tenant, fixture.album);
    let stored = async |album| costs.stored(&tenant, album).await.expect("sums up");
    let of_album = async |objects, bytes, what: &str| {
        assert_eq!(stored(Some(album)).await, StoredObjects { objects, bytes }, "{what}");
    };
    let photos = fixture.create_photos(3).await;
    of_album(0, 0, "nothing is uploaded").await;
    let upload = |photo: &PhotoId| Upload { photo: *photo, size_bytes: Some(ORIGINAL) };
    let uploads: Vec<Upload> = photos.iter().map(upload).collect();
    store.queue.confirm_uploads(album, &uploads).await.expect("confirms");
    of_album(3, 3 * ORIGINAL, "originals").await;
    let leases = fixture.lease_fresh(3, LONG).await;
    let finished = |lease: &Lease, pictures| PhotoResults { pictures, ..empty_results(lease) };
    let plain = PictureSizes { marked_bytes: None, ..MADE };
    let results = vec![finished(&leases[0], MADE), finished(&leases[1], plain)];
    store.queue.finish(results).await.expect("finishes");
    store.queue.fail(&leases[2], FailureReason::CorruptImage, "for a test").await.expect("fails");
    of_album(3 + 5, 3 * ORIGINAL + 2 * 700 + 90, "and their pictures").await;
    // Pictures take the places of those before; the marked one stays where none is drawn any more.
    store.queue.reprocess(album).await.expect("queues again");
    let again = fixture.lease_fresh(3, LONG).await;
    let smaller = PictureSizes { picture_bytes: 600, marked_bytes: None };
    store.queue.finish(again.iter().map(|lease| finished(lease, smaller)).collect()).await.expect("finishes");
    let objects = 3 + 3 * 2 + 1;
    of_album(objects, 3 * ORIGINAL + 3 * 600 + 90, "after another attempt").await;
    let other = AlbumFixture::create(store).await;
    assert_eq!(costs.stored(&other.tenant, Some(album)).await.expect("sums up"), StoredObjects::default());
    assert_eq!(stored(None).await, stored(Some(album)).await, "the tenant has one album");
    let marked = leases[0].photo;
    store.photos.delete(album, marked).await.expect("deletes");
    of_album(objects - 4, 2 * ORIGINAL + 2 * 600, "without a deleted photo").await;
    fixture.delete().await;
    assert_eq!(costs.stored(&tenant, None).await.expect("sums up"), StoredObjects::default());
    other.delete().await;
}

async fn the_dearest_of_the_newest_photos_are_found(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    fixture.queue_photos(4).await;
    let mut leases = fixture.lease_fresh(4, LONG).await;
    leases.sort_by_key(|lease| lease.photo);
    let spent = [cpu(90), Spent { device: Duration::from_millis(5), ..cpu(10) }, cpu(20), Spent::default()];
    for (lease, spent) in leases.iter().zip(spent) {
        lease.spent.add("read", spent);
    }
    store.queue.finish(leases.iter().map(empty_results).collect()).await.expect("finishes");
    let dearest = async |newest, device| {
        let weights = CostWeights { cpu: 1.0, device };
        store.costs.dearest(fixture.album, newest, weights, 2).await.expect("finds them")
    };
    let cost = |place: usize| PhotoCost { photo: leases[place].photo, spent: spent[place] };
    assert_eq!(dearest(4, 1.0).await, [cost(0), cost(2)]);
    assert_eq!(dearest(4, 100.0).await, [cost(1), cost(0)], "time of a device is dear");
    assert_eq!(dearest(3, 1.0).await, [cost(2), cost(1)], "the first photo is too old");
    assert_eq!(dearest(1, 1.0).await, [], "the last one cost nothing");
    fixture.delete().await;
}

async fn an_album_has_one_owner(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let owner = async || store.costs.owner_of(fixture.album).await.expect("looks");
    assert_eq!(owner().await.map(|owner| owner.organization), Some(fixture.tenant.organization));
    assert_eq!(owner().await.map(|owner| owner.mode), Some(fixture.tenant.mode));
    fixture.delete().await;
    assert_eq!(store.costs.owner_of(AlbumId::generate()).await.expect("looks"), None);
}

fn cpu(milliseconds: u64) -> Spent {
    Spent { cpu: Duration::from_millis(milliseconds), ..Spent::default() }
}

/// What decoding and reading a photo costs.
fn spend(lease: &Lease) {
    lease.spent.add("decode", Spent { bytes_read: 1000, ..cpu(20) });
    lease.spent.add("read", Spent { bytes_written: 10, device: Duration::from_millis(3), ..cpu(5) });
    lease.spent.add("read", cpu(1));
}

async fn sums(fixture: &AlbumFixture, by_stage: bool) -> Vec<CostRow> {
    let today = OffsetDateTime::now_utc().date();
    let query = CostQuery {
        // Midnight may pass while this runs.
        from: today.previous_day().expect("a day before"),
        to: today.next_day().expect("a day after"),
        album: Some(fixture.album),
        by_day: false,
        by_album: true,
        by_stage,
        photos_only: false,
        limit: 10,
    };
    fixture.store.costs.costs(&fixture.tenant, query).await.expect("sums up")
}

fn row(fixture: &AlbumFixture, stage: Option<&str>, photos: u64, spent: Spent) -> CostRow {
    CostRow { day: None, album: Some(fixture.album), stage: stage.map(str::to_owned), photos, spent }
}

async fn attempts_are_added_up_by_stage(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    assert_eq!(sums(&fixture, true).await, []);
    let photos = fixture.queue_photos(3).await;
    let leases = fixture.lease_fresh(3, LONG).await;
    leases.iter().for_each(spend);
    let finished = leases[..2].iter().map(empty_results).collect();
    store.queue.finish(finished).await.expect("finishes");
    let failed = store.queue.fail(&leases[2], FailureReason::CorruptImage, "for a test").await;
    assert_eq!(failed.expect("fails"), FinishOutcome::Done);
    // Another attempt is added to what the first one cost.
    store.queue.retry(fixture.album, photos[2]).await.expect("queues again");
    let again = fixture.lease_fresh(1, LONG).await.pop().expect("a photo waits");
    assert_eq!(again.spent.total(), Spent::default(), "each attempt begins at zero");
    spend(&again);
    store.queue.finish(vec![empty_results(&again)]).await.expect("finishes");

    let decoded = Spent { bytes_read: 4000, ..cpu(80) };
    let read = Spent { bytes_written: 40, device: Duration::from_millis(12), ..cpu(24) };
    let expected = [row(&fixture, Some("decode"), 4, decoded), row(&fixture, Some("read"), 4, read)];
    assert_eq!(sums(&fixture, true).await, expected);
    let mut all = decoded;
    all += read;
    assert_eq!(sums(&fixture, false).await, [row(&fixture, None, 4, all)]);
    fixture.store.albums.delete(&fixture.tenant, fixture.album).await.expect("deletes the album");
    assert_eq!(sums(&fixture, false).await, [row(&fixture, None, 4, all)], "costs outlive their album");
}

async fn a_superseded_attempt_costs_nothing(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    fixture.queue_photos(1).await;
    let lost = fixture.lease_fresh(1, Duration::ZERO).await.pop().expect("a photo waits");
    let lease = fixture.lease_suspect(LONG).await.expect("the lease has lapsed");
    spend(&lost);
    spend(&lease);
    let outcomes = store.queue.finish(vec![empty_results(&lost)]).await.expect("answers");
    assert_eq!(outcomes, [FinishOutcome::Superseded]);
    assert_eq!(sums(&fixture, false).await, []);
    store.queue.finish(vec![empty_results(&lease)]).await.expect("finishes");
    let outcomes = store.queue.finish(vec![empty_results(&lease)]).await.expect("answers");
    assert_eq!(outcomes, [FinishOutcome::Superseded], "once");
    assert_eq!(sums(&fixture, false).await, [row(&fixture, None, 1, lease.spent.total())]);
    fixture.delete().await;
}

async fn an_attempt_that_is_given_back_costs_what_it_spent_once(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    fixture.queue_photos(1).await;
    let given_back = fixture.lease_fresh(1, LONG).await;
    given_back.iter().for_each(spend);
    for _ in 0..2 {
        store.queue.release(&given_back).await.expect("gives back");
    }
    let decoded = Spent { bytes_read: 1000, ..cpu(20) };
    let read = Spent { bytes_written: 10, device: Duration::from_millis(3), ..cpu(6) };
    let stages = [row(&fixture, Some("decode"), 1, decoded), row(&fixture, Some("read"), 1, read)];
    assert_eq!(sums(&fixture, true).await, stages);
    let mut all = decoded;
    all += read;
    assert_eq!(sums(&fixture, false).await, [row(&fixture, None, 0, all)], "no photo has ended");
    fixture.delete().await;
}

async fn searches_are_charged_to_their_album_and_to_no_photo(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    fixture.queue_photos(1).await;
    let leases = fixture.lease_fresh(1, LONG).await;
    leases.iter().for_each(spend);
    store.queue.finish(leases.iter().map(empty_results).collect()).await.expect("finishes");
    let searches = store.costs.searches();
    for _ in 0..2 {
        searches.count(fixture.album, SELFIE_STAGE);
        searches.add(fixture.album, SELFIE_STAGE, Spent { bytes_read: 7, ..cpu(30) });
    }
    // Another album, which is not there: what it cost is nobody's, and holds up nothing.
    searches.add(AlbumId::generate(), SELFIE_STAGE, cpu(1));
    store.costs.flush_searches().await.expect("writes");
    store.costs.flush_searches().await.expect("has nothing to write");
    let rows = sums(&fixture, true).await;
    let examined = row(&fixture, Some(SELFIE_STAGE), 2, Spent { bytes_read: 14, ..cpu(60) });
    assert!(rows.contains(&examined), "{rows:?}");
    let total = |photos_only| {
        let today = OffsetDateTime::now_utc().date();
        let (from, to) = (today.previous_day().expect("a day"), today.next_day().expect("a day"));
        let (by_day, by_album, by_stage) = (false, true, false);
        let query = CostQuery {
            from,
            to,
            album: Some(fixture.album),
            by_day,
            by_album,
            by_stage,
            photos_only,
            limit: 1,
        };
        store.costs.costs(&fixture.tenant, query)
    };
    let photo = leases[0].spent.total();
    assert_eq!(total(true).await.expect("sums up"), [row(&fixture, None, 1, photo)]);
    let mut all = photo;
    all += examined.spent;
    assert_eq!(total(false).await.expect("sums up"), [row(&fixture, None, 1, all)]);
    fixture.delete().await;
}
