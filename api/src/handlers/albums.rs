//! Creates, lists, updates, deletes and reprocesses albums.

use photofinish_store::error::StoreErrorKind;
use photofinish_store::model::album::{self as stored, AlbumChange, AlbumQuery, NewAlbum, RetentionConfig};
use photofinish_store::model::ids::AlbumId;
use photofinish_store::traits::Reprocessed;

use super::erasures;
use crate::auth::{AlbumManager, AnyScope};
use crate::context::Context;
use crate::credits;
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::metrics::Declined;
use crate::validate::issues::{Issue, PathSegment, code};
use crate::wire::album::{
    Album, AlbumDetail, AlbumPage, CreateAlbum, ExpiringPart, ListAlbums, OneAlbum, Reprocessing,
    UpdateAlbum, UpdatedAlbum,
};
use crate::wire::config::{self, FaceThresholds};
use crate::wire::cursor::AlbumPosition;
use crate::wire::erasure::Deletion;

/// Attempts to update a configuration. Of concurrent updates of one album, one succeeds per attempt.
const MAX_UPDATE_ATTEMPTS: u32 = 20;

fn face_thresholds(ctx: &Context) -> FaceThresholds {
    FaceThresholds {
        with_bibs: ctx.settings.album_defaults.face.confidence_threshold,
        without_bibs: ctx.settings.face_threshold_without_bibs,
    }
}

pub(crate) async fn create(
    ctx: Context,
    caller: AlbumManager,
    input: CreateAlbum,
) -> Result<Album, ApiError> {
    let config = input.config.apply_to(&ctx.settings.album_defaults, face_thresholds(&ctx));
    let album = NewAlbum {
        tenant: caller.tenant,
        created_by: caller.key,
        title: input.title,
        cover_url: input.cover_url,
        tags: input.tags,
        config: config.map_err(|issues| ApiError::invalid(&issues))?,
    };
    Ok(ctx.store.albums.create(album).await?.into())
}

pub(crate) async fn list(ctx: Context, caller: AnyScope, input: ListAlbums) -> Result<AlbumPage, ApiError> {
    let after = input.after.map(|position| position.album);
    let query = AlbumQuery { after, limit: input.limit, title: input.title };
    let page = ctx.store.albums.list(&caller.tenant, query).await?;
    let counted = input.after.map(|position| u64::from(position.total));
    let total = page.total.or(counted).unwrap_or_default();
    let to_position = |album| AlbumPosition { album, total: u32::try_from(total).unwrap_or(u32::MAX) };
    Ok(AlbumPage {
        albums: page.albums.into_iter().map(Album::from).collect(),
        next_cursor: page.next.map(|album| to_position(album).to_cursor()),
        total,
    })
}

pub(crate) async fn get(ctx: Context, caller: AnyScope, input: OneAlbum) -> Result<AlbumDetail, ApiError> {
    let album = ctx.store.albums.get(&caller.tenant, input.album).await?;
    let format = ctx.store.start_lists.get_format(input.album).await?;
    let expiring = find_expiring(&ctx, &album).await?;
    Ok(AlbumDetail { album: album.into(), bib_format: format.into(), expiring })
}

/// Returns what the retention of an album is going to erase, soonest first.
async fn find_expiring(ctx: &Context, album: &stored::Album) -> Result<Vec<ExpiringPart>, ApiError> {
    let limit = ctx.settings.retention_max;
    // Most albums keep everything: they cost no query.
    if album.config.retention.at_most(limit) == RetentionConfig::default() {
        return Ok(Vec::new());
    }
    let mut expiring = ctx.store.erasures.get_ageing(&album.tenant, album.id).await?.find_expiring(limit);
    expiring.sort_by_key(|(_, at)| *at);
    Ok(expiring.into_iter().map(|(part, at)| ExpiringPart::new(part, at)).collect())
}

pub(crate) async fn update(
    ctx: Context,
    caller: AlbumManager,
    input: UpdateAlbum,
) -> Result<UpdatedAlbum, ApiError> {
    let UpdateAlbum { album: id, title, cover_url, tags, config, acknowledges_biometrics } = input;
    let change = AlbumChange { title, cover_url, tags, ..AlbumChange::default() };
    let Some(config) = config else {
        let album = ctx.store.albums.update(&caller.tenant, id, change).await?;
        return Ok(UpdatedAlbum { album: album.into(), reprocessing_needed: false });
    };
    // A partial configuration is merged into the current one. If the album was changed in between, the merge is repeated,
    // so that concurrent updates of different fields both persist.
    for _ in 0..MAX_UPDATE_ATTEMPTS {
        let before = ctx.store.albums.get(&caller.tenant, id).await?;
        let after = config.apply_to(&before.config, face_thresholds(&ctx));
        let mut after = after.map_err(|issues| ApiError::invalid(&issues))?;
        after.remember_thumbnails(&before.config);
        if after.face.enabled && !before.config.face.enabled && !acknowledges_biometrics {
            require_closed_gallery(&ctx, id).await?;
        }
        let reprocessing_needed = config::needs_reprocessing(&before.config, &after);
        let unchanged_since = Some(before.updated_at);
        let judge_again = !before.config.judges_as(&after);
        let change = AlbumChange { config: Some(after), judge_again, unchanged_since, ..change.clone() };
        match ctx.store.albums.update(&caller.tenant, id, change).await {
            Err(error) if error.kind == StoreErrorKind::Conflict => {}
            album => return Ok(UpdatedAlbum { album: album?.into(), reprocessing_needed }),
        }
    }
    Err(ApiError::new(ErrorKind::Conflict))
}

/// Refuses to compute vectors of faces for an album with an open gallery without a word on what that means.
async fn require_closed_gallery(ctx: &Context, album: AlbumId) -> Result<(), ApiError> {
    let gallery = ctx.store.galleries.get(album).await?;
    if !gallery.is_some_and(|gallery| gallery.enabled) {
        return Ok(());
    }
    let message =
        "must be `biometric`: faces in an album with an open gallery are going to be described by vectors";
    let path = vec![PathSegment::Field("acknowledge")];
    Err(ApiError::invalid(&[Issue { path, code: code::ACKNOWLEDGE_REQUIRED, message: message.to_owned() }]))
}

pub(crate) async fn delete(
    ctx: Context,
    caller: AlbumManager,
    input: OneAlbum,
) -> Result<Deletion, ApiError> {
    // The album is closed and invisible from here on: a deletion that a crash interrupts is finished by the service.
    let erasure = ctx.store.erasures.begin_album(&caller.tenant, input.album, caller.key).await?;
    tracing::info!(album.id = %input.album, key.id = %caller.key, "album deleted");
    let deleted = erasures::remove_objects(&ctx, &caller, erasure).await?;
    Ok(Deletion::new("Album deleted", deleted))
}

pub(crate) async fn reprocess(
    ctx: Context,
    caller: AlbumManager,
    input: OneAlbum,
) -> Result<Reprocessing, ApiError> {
    ctx.store.albums.get(&caller.tenant, input.album).await?;
    match ctx.store.queue.reprocess(input.album).await {
        Ok(Reprocessed { queued, declined }) => {
            (ctx.on_queued)();
            Ok(Reprocessing { success: true, message: "Photos queued for processing", queued, declined })
        }
        Err(error) => {
            let price = ctx.store.credits.settings().prices.photo;
            Err(credits::explain(&ctx, &caller.tenant, price, Declined::Retry, error).await)
        }
    }
}
