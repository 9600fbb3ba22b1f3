//! Balances, usage, and the mock credits of test keys.

use std::collections::HashMap;

use photofinish_store::model::album::Tenant;
use photofinish_store::model::cost::CostQuery;
use photofinish_store::model::credit::{Balance, CreditSettings, UsageQuery};
use photofinish_store::model::ids::PhotoId;
use photofinish_store::model::key::KeyMode;
use photofinish_store::model::photo::{Photo, PhotoState};

use crate::auth::{AlbumManager, AnyScope};
use crate::context::Context;
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::urls::presign_pictures;
use crate::validate::issues::{Issue, PathSegment, code};
use crate::wire::album::OneAlbum;
use crate::wire::cost::{CostReport, DearPhoto, DearestPhotos, GetCosts};
use crate::wire::credit::{CreditReport, GetCredits, GetUsage, MAX_USAGE_ROWS, SetMockCredits, UsageReport};

pub(crate) async fn get(ctx: Context, caller: AnyScope, _: GetCredits) -> Result<CreditReport, ApiError> {
    let balance = ctx.store.credits.balance(&caller.tenant).await?;
    Ok(report(caller.tenant.mode, &balance, ctx.store.credits.settings()))
}

pub(crate) async fn set_mock(
    ctx: Context,
    caller: AlbumManager,
    input: SetMockCredits,
) -> Result<CreditReport, ApiError> {
    if caller.tenant.mode != KeyMode::Test {
        return Err(ApiError::new(ErrorKind::Forbidden).with_code("TEST_KEYS_ONLY"));
    }
    let balance = ctx.store.credits.set_mock_balance(caller.tenant.organization, input.balance).await?;
    Ok(report(caller.tenant.mode, &balance, ctx.store.credits.settings()))
}

pub(crate) async fn get_usage(
    ctx: Context,
    caller: AlbumManager,
    input: GetUsage,
) -> Result<UsageReport, ApiError> {
    let query = UsageQuery { limit: MAX_USAGE_ROWS + 1, ..input.query };
    let mode = input.mode.unwrap_or(caller.tenant.mode);
    if mode != caller.tenant.mode && caller.signed_in().is_none() {
        return Err(ApiError::new(ErrorKind::Forbidden).with_code("OTHER_MODE"));
    }
    let rows = ctx.store.credits.usage(&Tenant { mode, ..caller.tenant }, query).await?;
    if rows.len() > MAX_USAGE_ROWS as usize {
        return Err(too_many_rows());
    }
    Ok(UsageReport::new(mode, rows))
}

pub(crate) async fn get_costs(
    ctx: Context,
    caller: AlbumManager,
    input: GetCosts,
) -> Result<CostReport, ApiError> {
    let query = CostQuery { limit: MAX_USAGE_ROWS + 1, ..input.query };
    let rows = ctx.store.costs.costs(&caller.tenant, query).await?;
    if rows.len() > MAX_USAGE_ROWS as usize {
        return Err(too_many_rows());
    }
    let all = CostQuery { by_day: false, by_album: false, by_stage: false, photos_only: true, ..query };
    let all = ctx.store.costs.costs(&caller.tenant, all).await?;
    let stored = ctx.store.costs.stored(&caller.tenant, query.album).await?;
    Ok(CostReport::new(caller.tenant.mode, rows, all.first(), stored, ctx.settings.cost_prices))
}

/// Reads a limited number of photos: see [`DearestPhotos::NEWEST`].
pub(crate) async fn get_dearest(
    ctx: Context,
    caller: AlbumManager,
    input: OneAlbum,
) -> Result<DearestPhotos, ApiError> {
    let album = ctx.store.albums.get(&caller.tenant, input.album).await?;
    let prices = ctx.settings.cost_prices;
    let weights = DearestPhotos::weights(prices);
    let costs =
        ctx.store.costs.dearest(album.id, DearestPhotos::NEWEST, weights, DearestPhotos::SHOWN).await?;
    let ids: Vec<PhotoId> = costs.iter().map(|cost| cost.photo).collect();
    let mut photos: HashMap<PhotoId, Photo> =
        ctx.store.photos.get_many(album.id, &ids).await?.into_iter().map(|photo| (photo.id, photo)).collect();
    let mut dearest = Vec::with_capacity(costs.len());
    for cost in &costs {
        // One that was deleted meanwhile is left out.
        let Some(photo) = photos.remove(&cost.photo) else { continue };
        let thumbnail = match photo.state {
            PhotoState::Ready => Some(presign_pictures(&ctx, &album, &photo).await?.thumbnail),
            _ => None,
        };
        dearest.push(DearPhoto::new(photo, thumbnail, cost, prices));
    }
    let total = ctx.store.photos.count_by_state(album.id).await?.total();
    Ok(DearestPhotos::new(dearest, total))
}

fn too_many_rows() -> ApiError {
    let what = format!("has more than {MAX_USAGE_ROWS} rows: ask for fewer days or without `album`");
    let issue = Issue { path: vec![PathSegment::Field("by")], code: code::TOO_BIG, message: what };
    ApiError::invalid(&[issue])
}

fn report(mode: KeyMode, balance: &Balance, settings: &CreditSettings) -> CreditReport {
    CreditReport {
        mode: mode.as_str(),
        balance: balance.available(),
        held: balance.held,
        granted: balance.granted,
        spent: balance.spent,
        unlimited: !settings.is_enforced,
        prices: settings.prices.into(),
    }
}
