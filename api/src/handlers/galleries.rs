//! Galleries, for organizers.

use photofinish_store::StoreErrorKind;
use photofinish_store::model::album::Album;
use photofinish_store::model::gallery::{
    Gallery as StoredGallery, GalleryChange, GalleryLink, GallerySettings,
};
use sha2::{Digest, Sha256};
use time::{Duration, OffsetDateTime};
use url::Url;

use crate::auth::AlbumManager;
use crate::base62::base62;
use crate::context::Context;
use crate::errors::ApiError;
use crate::errors::table::{DeclineCode, ErrorKind};
use crate::wire::Acknowledgement;
use crate::wire::album::OneAlbum;
use crate::wire::gallery::{Gallery, GalleryReport, GalleryReports, GalleryUrls, OneReport, UpdateGallery};

/// How long a gallery is there that is enabled without an end.
const DEFAULT_TTL: Duration = Duration::days(90);
/// Reports that are listed.
const MAX_REPORTS: u32 = 1000;
/// How often a change is tried that others get ahead of.
const MAX_UPDATE_ATTEMPTS: u32 = 20;
/// Base-62 digits of 128 bits.
const LINK_LENGTH: usize = 22;

/// What comes after the address of a gallery in that of its QR code.
pub(crate) const QR_CODE_SUFFIX: &str = "/qr.svg";

/// Returns the digest by which the store finds a link.
pub(crate) fn link_digest(link: &str) -> [u8; 32] {
    Sha256::digest(link.as_bytes()).into()
}

fn make_link() -> GalleryLink {
    let text = base62(&rand::random::<[u8; 16]>(), LINK_LENGTH);
    GalleryLink { digest: link_digest(&text), text }
}

fn describe(ctx: &Context, stored: StoredGallery) -> Gallery {
    let settings = &ctx.settings.console;
    let base = settings.gallery_base();
    let page_below = |base: &Url| format!("{}/g/{}", base.as_str().trim_end_matches('/'), stored.link);
    // Under the console's own host, whose pages show it.
    let qr_code = format!("{}{QR_CODE_SUFFIX}", page_below(&settings.public_url));
    let urls = GalleryUrls { page: page_below(base), qr_code };
    Gallery::new(stored, urls)
}

pub(crate) async fn get(ctx: Context, caller: AlbumManager, input: OneAlbum) -> Result<Gallery, ApiError> {
    let album = ctx.store.albums.get(&caller.tenant, input.album).await?;
    Ok(match ctx.store.galleries.get(album.id).await? {
        Some(stored) => describe(&ctx, stored),
        None => Gallery::of_settings(album.id, GallerySettings::default()),
    })
}

pub(crate) async fn update(
    ctx: Context,
    caller: AlbumManager,
    input: UpdateGallery,
) -> Result<Gallery, ApiError> {
    let album = ctx.store.albums.get(&caller.tenant, input.album).await?;
    if !ctx.store.galleries.can_seal() {
        return Err(ApiError::new(ErrorKind::NotImplemented).with_code("NO_SECRET_KEY"));
    }
    // A change leaves out what stays. Where another one came in between it begins again, so that both persist: else a link that
    // was just replaced would open again.
    for _ in 0..MAX_UPDATE_ATTEMPTS {
        let stored = ctx.store.galleries.get(album.id).await?;
        let change = apply(&album, stored, &input)?;
        let enabled = change.enabled;
        match ctx.store.galleries.save(change).await {
            Err(error) if error.kind == StoreErrorKind::Conflict => {}
            saved => {
                let saved = saved?;
                tracing::info!(album.id = %album.id, key.id = %caller.key, enabled, "gallery changed");
                return Ok(describe(&ctx, saved));
            }
        }
    }
    Err(ApiError::new(ErrorKind::Conflict))
}

/// What a request makes of a gallery.
fn apply(
    album: &Album,
    stored: Option<StoredGallery>,
    input: &UpdateGallery,
) -> Result<GalleryChange, ApiError> {
    let settings = changed_settings(stored.as_ref(), input);
    let was_searchable = stored.as_ref().is_some_and(|stored| stored.settings.selfie_search);
    // Only what switches it on: faces may have been switched off since, and the gallery must close all the same.
    if settings.selfie_search && !was_searchable && !album.config.face.enabled {
        return Err(ApiError::declined(DeclineCode::FaceSearchDisabled));
    }
    if settings.selfie_search && (settings.contact.is_none() || settings.privacy_url.is_none()) {
        return Err(ApiError::declined(DeclineCode::GalleryContactMissing));
    }
    let was_enabled = stored.as_ref().is_some_and(|stored| stored.enabled);
    let enabled = input.enabled.unwrap_or(was_enabled);
    let expires_at = input.expires_at.unwrap_or_else(|| kept_end(stored.as_ref(), input.enabled));
    let replaces = stored.as_ref().map(|stored| stored.version);
    let kept_link = stored.filter(|_| !input.new_link).map(|stored| stored.link);
    let link = match kept_link {
        Some(text) => GalleryLink { digest: link_digest(&text), text },
        None => make_link(),
    };
    Ok(GalleryChange { album: album.id, enabled, link, settings, expires_at, replaces })
}

pub(crate) async fn list_reports(
    ctx: Context,
    caller: AlbumManager,
    input: OneAlbum,
) -> Result<GalleryReports, ApiError> {
    let album = ctx.store.albums.get(&caller.tenant, input.album).await?;
    let reports = ctx.store.galleries.list_reports(album.id, MAX_REPORTS).await?;
    Ok(GalleryReports { reports: reports.into_iter().map(GalleryReport::from).collect() })
}

pub(crate) async fn dismiss_report(
    ctx: Context,
    caller: AlbumManager,
    input: OneReport,
) -> Result<Acknowledgement, ApiError> {
    let album = ctx.store.albums.get(&caller.tenant, input.album).await?;
    ctx.store.galleries.dismiss_reports(album.id, input.report).await?;
    Ok(Acknowledgement::new("Report dismissed"))
}

/// The end of a gallery of which a request gives none: one that is opened has an end, and not one that is over.
fn kept_end(stored: Option<&StoredGallery>, enabled: Option<bool>) -> Option<OffsetDateTime> {
    let now = OffsetDateTime::now_utc();
    let before = stored.and_then(|stored| stored.expires_at);
    let is_open = stored.is_some_and(|stored| stored.enabled && before.is_none_or(|end| end > now));
    let is_opened = enabled == Some(true) && !is_open;
    before.filter(|end| !is_opened || *end > now).or_else(|| is_opened.then(|| now + DEFAULT_TTL))
}

fn changed_settings(stored: Option<&StoredGallery>, input: &UpdateGallery) -> GallerySettings {
    let before = stored.map(|stored| stored.settings.clone()).unwrap_or_default();
    GallerySettings {
        bib_search: input.bib_search.unwrap_or(before.bib_search),
        selfie_search: input.selfie_search.unwrap_or(before.selfie_search),
        browse: input.browse.unwrap_or(before.browse),
        downloads: input.downloads.unwrap_or(before.downloads),
        watermark: input.watermark.unwrap_or(before.watermark),
        removal: input.removal.unwrap_or(before.removal),
        searches_per_visitor: input.searches_per_visitor.unwrap_or(before.searches_per_visitor),
        contact: input.contact.clone().unwrap_or(before.contact),
        privacy_url: input.privacy_url.clone().unwrap_or(before.privacy_url),
        intro: input.intro.clone().unwrap_or(before.intro),
    }
}
