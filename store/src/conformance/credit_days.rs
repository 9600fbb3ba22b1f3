//! Days of credits: what test keys can use is brought to the same amount on each.

use super::credits::{balance, confirm};
use super::fixture::{AlbumFixture, LONG, album_config, empty_results};
use crate::model::credit::Credits;
use crate::model::key::KeyMode;
use crate::store::Store;

/// An album of the test keys of an organization of its own.
async fn create_of_test_keys(store: &Store) -> AlbumFixture {
    let mut live = AlbumFixture::create(store).await;
    live.key.tenant.mode = KeyMode::Test;
    let fixture = live.create_album(album_config()).await;
    live.delete().await;
    fixture
}

/// For a store that declines what is not covered, with a price of 1 for photos and mock credits of 100.
pub(super) async fn mock_credits_are_refilled_on_each_day(store: &Store) {
    let fixture = create_of_test_keys(store).await;
    let organization = fixture.tenant.organization;
    let available = async || balance(&fixture).await.available();
    let set = async |credits| {
        let set = store.credits.set_mock_balance(organization, Credits::whole(credits)).await;
        assert_eq!(set.expect("sets the balance").available(), Credits::whole(credits));
    };
    let end_day = async || store.age_credits(organization, 1).await.expect("lets a day pass");
    let photos = fixture.create_photos(5).await;
    assert_eq!(available().await, Credits::whole(100), "the first day");
    assert_eq!(confirm(&fixture, &photos[..2]).await, (2, Vec::new()));
    let lease = fixture.lease_fresh(1, LONG).await.remove(0);
    store.queue.finish(vec![empty_results(&lease)]).await.expect("finishes a photo");
    assert_eq!(available().await, Credits::whole(98));
    end_day().await;
    let refilled = balance(&fixture).await;
    assert_eq!((refilled.available(), refilled.granted), (Credits::whole(100), Credits::whole(102)));
    assert_eq!((refilled.held, refilled.spent), (Credits::whole(1), Credits::whole(1)), "as they were");
    set(1).await;
    assert_eq!(available().await, Credits::whole(1), "once on a day");
    end_day().await;
    assert_eq!(available().await, Credits::whole(100));
    set(500).await;
    end_day().await;
    assert_eq!(available().await, Credits::whole(100), "what was set beyond it is taken away");
    // Photos may be the first that a day sees of a tenant, and what it had may be known to be ample.
    set(0).await;
    assert_eq!(confirm(&fixture, &photos[2..3]).await, (0, photos[2..3].to_vec()));
    end_day().await;
    assert_eq!(confirm(&fixture, &photos[2..3]).await, (1, Vec::new()));
    assert_eq!(available().await, Credits::whole(99));
    set(200_000).await;
    assert_eq!(confirm(&fixture, &photos[3..4]).await, (1, Vec::new()));
    end_day().await;
    assert_eq!(confirm(&fixture, &photos[4..]).await, (1, Vec::new()));
    assert_eq!(available().await, Credits::whole(99));
    fixture.delete().await;
}
