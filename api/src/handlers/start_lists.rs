//! Imports, checks, shows and deletes start lists.

use std::time::Instant;

use photofinish_store::error::{StoreError, StoreErrorKind};
use photofinish_store::model::start_list::StartListImport;

use crate::auth::AlbumManager;
use crate::context::Context;
use crate::errors::ApiError;
use crate::errors::table::DeclineCode;
use crate::list_places::ListPlace;
use crate::start_list::{AcceptedStartList, MAX_ENTRIES, RefusedEntry};
use crate::wire::Acknowledgement;
use crate::wire::album::OneAlbum;
use crate::wire::start_list::{CheckedList, ImportStartList, ImportedList, ListWarning};
use crate::wire::start_list_entries::{ListEntries, StartListEntries};
use crate::wire::start_list_summary::StartList;

/// Photos by which a check finds out what a list would change.
const CHECKED_PHOTOS: u32 = 5000;

/// What a request asks to import.
struct Accepted {
    import: StartListImport,
    /// The rows that are not taken.
    refused: Vec<RefusedEntry>,
    warnings: Vec<ListWarning>,
    /// Taken until the list is imported or checked.
    place: ListPlace,
}

async fn accept(ctx: &Context, caller: &AlbumManager, input: ImportStartList) -> Result<Accepted, ApiError> {
    let album = ctx.store.albums.get(&caller.tenant, input.album).await?;
    let ImportStartList { mode, list, .. } = input;
    let place = ctx.list_places.take_place(caller.tenant.organization).await?;
    // A file of four megabytes takes a tenth of a second, in which this thread would serve nobody else. The place is taken until
    // that is over, also where the client has left meanwhile.
    let accept = move || {
        let accepted = list.accept(mode)?;
        let mut bibs =
            accepted.entries.iter().filter(|entry| !entry.excluded).map(|entry| entry.bib.as_str());
        let warnings = ListWarning::find(&mut bibs, &album.config.bib_pattern);
        Ok::<_, ApiError>((accepted, warnings, place))
    };
    let accepted = tokio::task::spawn_blocking(accept).await.map_err(ApiError::internal)?;
    let (AcceptedStartList { entries, refused }, warnings, place) = accepted?;
    let import = StartListImport { mode, entries, imported_by: caller.key, max_entries: MAX_ENTRIES };
    Ok(Accepted { import, refused, warnings, place })
}

fn import_error(error: StoreError) -> ApiError {
    match error.kind {
        StoreErrorKind::TooLarge => ApiError::declined(DeclineCode::StartListTooLarge),
        _ => error.into(),
    }
}

pub(crate) async fn import(
    ctx: Context,
    caller: AlbumManager,
    input: ImportStartList,
) -> Result<ImportedList, ApiError> {
    let album = input.album;
    let Accepted { import, refused, warnings, place: _place } = accept(&ctx, &caller, input).await?;
    let imported = ctx.store.start_lists.import(album, import).await.map_err(import_error)?;
    tracing::info!(album.id = %album, key.id = %caller.key, entries = imported.entries, "start list imported");
    Ok(ImportedList::new(imported, refused, warnings))
}

pub(crate) async fn check(
    ctx: Context,
    caller: AlbumManager,
    input: ImportStartList,
) -> Result<CheckedList, ApiError> {
    let album = input.album;
    let Accepted { import, refused, warnings, place: _place } = accept(&ctx, &caller, input).await?;
    let checked = ctx.store.start_lists.check(album, import, CHECKED_PHOTOS).await.map_err(import_error)?;
    Ok(CheckedList::new(checked, refused.len(), warnings))
}

pub(crate) async fn get(ctx: Context, caller: AlbumManager, input: OneAlbum) -> Result<StartList, ApiError> {
    ctx.store.albums.get(&caller.tenant, input.album).await?;
    // A call that begins while another looks shares the next look.
    let shared = ctx.album_cache.start_lists.entry(input.album);
    let look = async move { Ok(ctx.store.start_lists.get(input.album).await?) };
    Ok(shared.get_or_measure(Instant::now(), look).await?.into())
}

pub(crate) async fn entries(
    ctx: Context,
    caller: AlbumManager,
    input: ListEntries,
) -> Result<StartListEntries, ApiError> {
    ctx.store.albums.get(&caller.tenant, input.album).await?;
    Ok(ctx.store.start_lists.list_entries(input.album, input.query).await?.into())
}

pub(crate) async fn delete(
    ctx: Context,
    caller: AlbumManager,
    input: OneAlbum,
) -> Result<Acknowledgement, ApiError> {
    ctx.store.albums.get(&caller.tenant, input.album).await?;
    ctx.store.start_lists.delete(input.album).await?;
    tracing::info!(album.id = %input.album, key.id = %caller.key, "start list deleted");
    Ok(Acknowledgement::new("Start list deleted"))
}
