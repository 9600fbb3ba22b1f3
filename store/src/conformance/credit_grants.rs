//! Grants of credits that a caller repeats because it has seen no answer.

use futures_util::future::join_all;

use super::assert_error_kind;
use super::fixture::AlbumFixture;
use crate::error::StoreErrorKind;
use crate::model::album::Tenant;
use crate::model::credit::{Credits, NewGrant};
use crate::model::ids::GrantId;
use crate::model::key::KeyMode;
use crate::store::Store;

pub(super) async fn a_grant_that_is_repeated_counts_once(store: &Store) {
    let (fixture, other) = (AlbumFixture::create(store).await, AlbumFixture::create(store).await);
    let id = GrantId::generate();
    let grant = NewGrant {
        tenant: fixture.tenant,
        amount: Credits::whole(10_000),
        note: "invoice 17".into(),
        granted_by: "suite".into(),
    };
    let at_once = join_all((0..4).map(|_| store.credits.grant_once(id, grant.clone()))).await;
    for granted in at_once {
        assert_eq!(granted.expect("grants once").granted, Credits::whole(10_000));
    }
    let of_test_keys = Tenant { mode: KeyMode::Test, ..fixture.tenant };
    for different in [
        NewGrant { amount: Credits::whole(1), ..grant.clone() },
        NewGrant { note: "invoice 18".into(), ..grant.clone() },
        NewGrant { tenant: other.tenant, ..grant.clone() },
        NewGrant { tenant: of_test_keys, ..grant.clone() },
    ] {
        assert_error_kind(store.credits.grant_once(id, different).await, StoreErrorKind::Conflict);
    }
    let granted = async |tenant: Tenant| store.credits.balance(&tenant).await.expect("reads it").granted;
    assert_eq!(granted(fixture.tenant).await, Credits::whole(10_000));
    assert_eq!(granted(other.tenant).await, Credits::ZERO);
    let again = store.credits.grant_once(GrantId::generate(), grant).await.expect("grants again");
    assert_eq!(again.granted, Credits::whole(20_000), "another grant of the same values");
    fixture.delete().await;
    other.delete().await;
}
