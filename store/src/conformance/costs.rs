//! What processing costs: written with the outcome of each attempt, once, and summed up.

use std::time::Duration;

use time::OffsetDateTime;

use super::fixture::{AlbumFixture, LONG, empty_results};
use crate::model::cost::{CostQuery, CostRow, Spent};
use crate::model::photo::FailureReason;
use crate::store::Store;
use crate::traits::{FinishOutcome, Lease};

/// Checks the backend of [`crate::traits::Costs`], and what the queue writes for it.
pub async fn costs_suite(store: &Store) {
    attempts_are_added_up_by_stage(store).await;
    a_superseded_attempt_costs_nothing(store).await;
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
