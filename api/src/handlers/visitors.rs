//! What visitors of a gallery do: they search, look, and have their selfie forgotten. Everything is checked against what the
//! organizer has permitted, on each request.

use std::time::Duration;

use photofinish_store::continue_on_behalf_of;
use photofinish_store::model::credit::{ChargedRequest, RequestOrigin};
use photofinish_store::model::gallery::{NewConsent, OpenGallery, Visitor as VisitorDigests, VisitorSearch};
use photofinish_store::model::ids::{AlbumId, ProbeId};
use photofinish_store::model::object_key::ObjectKey;
use serde_json::json;
use time::OffsetDateTime;
use tracing::Instrument;
use warp::http::header::HeaderValue;

use super::galleries::link_digest;
use super::visitor_pages::{self, Page};
use super::{parse_id, search};
use crate::auth::{Caller, ScopedCaller, Searcher};
use crate::client_address::network_digest;
use crate::context::Context;
use crate::credits;
use crate::errors::ApiError;
use crate::errors::table::{DeclineCode, ErrorKind};
use crate::paid_cursor::{first_page, is_paid};
use crate::session::find_cookie;
use crate::visitor::{Answer, Visitor};
use crate::wire::Acknowledgement;
use crate::wire::console::Nothing;
use crate::wire::cursor::{HitCursor, PhotoPosition};
use crate::wire::search::{FACE_MATCH, Paging, ProbeTicket, SearchFace, SearchText, SignSelfie};
use crate::wire::visitor::{
    AgreeToSelfie, BrowseGallery, CONSENT_VERSION, OneSelfie, PublicGallery, PublicPhotos, Reason,
    SearchGallery,
};

/// The cookie by which the searches of a visitor are counted.
const VISITOR_COOKIE: &str = "__Host-visitor";
/// The same where the service is reached by plain http.
const PLAIN_VISITOR_COOKIE: &str = "visitor";
/// How long it is kept, seconds: 30 days.
const VISITOR_SECONDS: u32 = 30 * 86_400;
/// A network may make so many times the searches of a visitor.
const NETWORK_FACTOR: u32 = 10;
/// Photos of a page.
const PAGE: u32 = 60;
/// How old the number of photos may be that visitors are told while photos are processed.
const COUNT_AGE: Duration = Duration::from_secs(5);

/// Returns the gallery of a request.
///
/// # Errors
/// 404 if there is none, and the same if it is off or over.
pub(super) async fn open(ctx: &Context, visitor: &Visitor) -> Result<OpenGallery, ApiError> {
    let found = find(ctx, visitor).await?;
    if is_open(&found) { Ok(found) } else { Err(ApiError::not_found()) }
}

/// Returns the gallery of a request, also one that is off or over.
async fn find(ctx: &Context, visitor: &Visitor) -> Result<OpenGallery, ApiError> {
    let link = visitor.link.as_deref().ok_or_else(ApiError::not_found)?;
    let found = ctx.store.galleries.find(&link_digest(link)).await?.ok_or_else(ApiError::not_found)?;
    // What its visitors do is the organizer's work: it waits in the organizer's turns.
    continue_on_behalf_of(found.album.tenant.organization);
    Ok(found)
}

fn is_open(found: &OpenGallery) -> bool {
    let now = OffsetDateTime::now_utc();
    found.gallery.enabled && found.gallery.expires_at.is_none_or(|end| end > now)
}

pub(super) fn caller<C: ScopedCaller>(open: &OpenGallery) -> Result<C, ApiError> {
    C::admit(Caller::of_gallery(open.album.tenant))
}

/// Who a visitor is, for counting, and the cookie that is set for a new one.
pub(super) struct Counted {
    digests: VisitorDigests,
    cookie: Option<HeaderValue>,
}

pub(super) fn identify(ctx: &Context, visitor: &Visitor) -> Counted {
    let is_https = ctx.settings.console.is_gallery_https();
    let name = if is_https { VISITOR_COOKIE } else { PLAIN_VISITOR_COOKIE };
    let is_ours = |value: &&str| value.len() == 32 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    let known = find_cookie(&visitor.headers, name).filter(is_ours).map(str::to_owned);
    let is_new = known.is_none();
    let value = known.unwrap_or_else(|| hex::encode(rand::random::<[u8; 16]>()));
    let secure = if is_https { "; Secure" } else { "" };
    let cookie = format!("{name}={value}; Max-Age={VISITOR_SECONDS}; Path=/; HttpOnly; SameSite=Lax{secure}");
    Counted {
        digests: VisitorDigests {
            cookie: ctx.visitor_secret.digest(value.as_bytes()),
            network: network_digest(&ctx.visitor_secret, visitor.address, OffsetDateTime::now_utc()),
        },
        cookie: HeaderValue::from_str(&cookie).ok().filter(|_| is_new),
    }
}

/// Counts a search.
///
/// # Errors
/// 429 `TOO_MANY_SEARCHES` until the next day.
pub(super) async fn count_search(
    ctx: &Context,
    open: &OpenGallery,
    counted: &Counted,
) -> Result<(), ApiError> {
    let seconds = OffsetDateTime::now_utc().unix_timestamp();
    let limit = open.gallery.settings.searches_per_visitor;
    let search = VisitorSearch {
        album: open.album.id,
        visitor: counted.digests,
        day: seconds.div_euclid(86_400),
        cookie_limit: limit,
        network_limit: limit.saturating_mul(NETWORK_FACTOR),
    };
    if ctx.store.galleries.count_search(search).await? {
        return Ok(());
    }
    Err(refused_until_tomorrow("TOO_MANY_SEARCHES"))
}

/// Refuses what the organizer's balance does not cover, before a search of the visitor's day is spent on it.
pub(super) async fn require_covered(
    ctx: &Context,
    open: &OpenGallery,
    requests: &[ChargedRequest],
) -> Result<(), ApiError> {
    credits::require(ctx, &open.album.tenant, requests, RequestOrigin::Gallery).await
}

/// A 429 until the next day, when visitors and networks start again from zero.
pub(super) fn refused_until_tomorrow(code: &'static str) -> ApiError {
    let seconds = OffsetDateTime::now_utc().unix_timestamp();
    let rest = Duration::from_secs((86_400 - seconds.rem_euclid(86_400)).unsigned_abs());
    let data = json!({ "code": code, "tryAgainIn": rest.as_secs() });
    ApiError::rate_limited(rest).with_data(data)
}

pub(super) fn answer<O>(body: O, counted: Counted) -> Answer<O> {
    match counted.cookie {
        Some(cookie) => Answer::with_cookie(body, cookie),
        None => body.into(),
    }
}

pub(super) fn search_disabled() -> ApiError {
    ApiError::declined(DeclineCode::GallerySearchDisabled)
}

/// Reads a cursor into hits.
fn paging(cursor: Option<&str>) -> Result<Paging, ApiError> {
    let refused = || ApiError::malformed("cursor must be the nextCursor of a page");
    let after = cursor.map(|cursor| HitCursor::parse(cursor).ok_or_else(refused)).transpose()?;
    Ok(Paging { limit: PAGE as usize, after, min_confidence: None })
}

/// What a visitor looks for by a bib.
pub(super) fn asked_bib(
    open: &OpenGallery,
    text: String,
    cursor: Option<&str>,
) -> Result<SearchText, ApiError> {
    Ok(SearchText { album: open.album.id, text, exact: false, paging: paging(cursor)? })
}

pub(crate) async fn get(
    ctx: Context,
    visitor: Visitor,
    _: Nothing,
) -> Result<Answer<PublicGallery>, ApiError> {
    let open = open(&ctx, &visitor).await?;
    ctx.store.galleries.count_opened(open.album.id);
    let photos = count_shown(&ctx, open.album.id).await?;
    let selfie_seconds = ctx.settings.probe_ttl.as_secs_f64();
    Ok(PublicGallery::new(open, selfie_seconds, photos).into())
}

/// Counts the photos that visitors see: while none waits or is processed, those that are ready, whose count is kept.
async fn count_shown(ctx: &Context, album: AlbumId) -> Result<u64, ApiError> {
    let counts = ctx.store.photos.count_by_state(album).await?;
    if counts.queued + counts.processing == 0 {
        return Ok(counts.ready);
    }
    let counting = ctx.clone();
    let count = async move { Ok(counting.store.photos.count_shown(album).await?) };
    ctx.album_cache.shown.get_recent(album, COUNT_AGE, count).await
}

pub(crate) async fn search_texts(
    ctx: Context,
    visitor: Visitor,
    input: SearchGallery,
) -> Result<Answer<PublicPhotos>, ApiError> {
    let open = open(&ctx, &visitor).await?;
    if !open.gallery.settings.bib_search {
        return Err(search_disabled());
    }
    let asked = asked_bib(&open, input.text, input.cursor.as_deref())?;
    let counted = identify(&ctx, &visitor);
    let cursor = if is_paid(&ctx, open.album.id, &asked.query(), &asked.paging) {
        input.cursor
    } else {
        require_covered(&ctx, &open, &[ChargedRequest::TextSearch(RequestOrigin::Gallery)]).await?;
        count_search(&ctx, &open, &counted).await?;
        let is_first = asked.paging.after.is_none_or(|after| after.position.is_before_all());
        is_first.then(|| first_page(&ctx, open.album.id, &asked.query()))
    };
    let hits = search::search_texts(ctx.clone(), caller::<Searcher>(&open)?, asked).await?;
    let reasons = hits.photos.into_iter().map(|hit| {
        let reason = Reason { why: Some("bib"), confidence: Some(hit.confidence), wave: hit.wave };
        (hit.id, reason)
    });
    let photos = visitor_pages::load(&ctx, &open, reasons.collect()).await?;
    let body = PublicPhotos { photos, cursor, next_cursor: hits.next_cursor, total: hits.total as u64 };
    Ok(answer(body, counted))
}

pub(crate) async fn sign_selfie(
    ctx: Context,
    visitor: Visitor,
    input: AgreeToSelfie,
) -> Result<Answer<ProbeTicket>, ApiError> {
    let open = open(&ctx, &visitor).await?;
    if !open.gallery.settings.selfie_search {
        return Err(search_disabled());
    }
    if !input.consent || input.version != CONSENT_VERSION {
        return Err(ApiError::new(ErrorKind::PreconditionFailed).with_code("CONSENT_REQUIRED"));
    }
    let counted = identify(&ctx, &visitor);
    count_search(&ctx, &open, &counted).await?;
    let asked = SignSelfie { album: open.album.id, for_erasure: false };
    let ticket = search::sign_selfie(ctx.clone(), caller::<Searcher>(&open)?, asked).await?;
    let consent = NewConsent {
        album: open.album.id,
        text_version: input.version,
        language: input.language,
        probe: parse_id(&ticket.image_id)?,
    };
    ctx.store.galleries.give_consent(consent).await?;
    Ok(answer(ticket, counted))
}

/// Returns the id of a selfie whose owner agreed.
///
/// # Errors
/// 404 without a consent.
pub(super) async fn find_selfie(ctx: &Context, open: &OpenGallery, image: &str) -> Result<ProbeId, ApiError> {
    let probe = parse_id(image)?;
    if !open.gallery.settings.selfie_search {
        return Err(search_disabled());
    }
    match ctx.store.galleries.has_consent(open.album.id, probe).await? {
        true => Ok(probe),
        false => Err(ApiError::not_found()),
    }
}

pub(crate) async fn search_faces(
    ctx: Context,
    visitor: Visitor,
    input: OneSelfie,
) -> Result<Answer<PublicPhotos>, ApiError> {
    let open = open(&ctx, &visitor).await?;
    find_selfie(&ctx, &open, &input.image).await?;
    let paging = paging(input.cursor.as_deref())?;
    let cursor = input.cursor;
    let asked = SearchFace { album: open.album.id, image: input.image, paging };
    let hits = search::search_faces(ctx.clone(), caller::<Searcher>(&open)?, asked).await?;
    let reasons = hits.photos.into_iter().map(|hit| {
        let why = if hit.why == FACE_MATCH { "face" } else { "face and bib" };
        (hit.id, Reason { why: Some(why), confidence: Some(hit.confidence), wave: None })
    });
    let photos = visitor_pages::load(&ctx, &open, reasons.collect()).await?;
    Ok(PublicPhotos { photos, cursor, next_cursor: hits.next_cursor, total: hits.total as u64 }.into())
}

/// Deletes a selfie and its description at once, whether or not the gallery is still open, and keeps that the consent was
/// withdrawn: last, so that what fails can be repeated, and in a task of its own, which goes on when the visitor leaves the page.
pub(crate) async fn forget_selfie(
    ctx: Context,
    visitor: Visitor,
    input: OneSelfie,
) -> Result<Answer<Acknowledgement>, ApiError> {
    let found = find(&ctx, &visitor).await?;
    let probe: ProbeId = parse_id(&input.image)?;
    let (album, organization) = (found.album.id, found.album.tenant.organization);
    if ctx.store.galleries.has_consent(album, probe).await? {
        let store = ctx.store.clone();
        let forget = async move {
            store.blobs.delete(&ObjectKey::probe(organization, album, probe)).await?;
            store.probes.remove(&[probe]).await?;
            store.galleries.withdraw_consent(album, probe).await
        };
        tokio::spawn(forget.in_current_span()).await.map_err(ApiError::internal)??;
    } else if !is_open(&found) {
        // Who agreed to nothing here is not told that there is a gallery.
        return Err(ApiError::not_found());
    }
    Ok(Acknowledgement::new("Selfie forgotten").into())
}

pub(crate) async fn browse(
    ctx: Context,
    visitor: Visitor,
    input: BrowseGallery,
) -> Result<Answer<PublicPhotos>, ApiError> {
    let open = open(&ctx, &visitor).await?;
    if !open.gallery.settings.browse {
        return Err(search_disabled());
    }
    let refused = || ApiError::malformed("cursor must be the nextCursor of a page");
    let parse = |cursor| PhotoPosition::from_cursor(cursor).ok_or_else(refused);
    let position = input.cursor.as_deref().map(parse).transpose()?;
    let after = position.map(|position| position.photo);
    let Page { photos, read, next } = visitor_pages::browse(&ctx, &open, after, PAGE).await?;
    let total = match position.and_then(|position| position.total) {
        Some(total) => u64::from(total),
        // All are on this page.
        None if after.is_none() && next.is_none() => read as u64,
        None => count_shown(&ctx, open.album.id).await?,
    };
    let next_cursor = next.map(|photo| PhotoPosition { photo, total: u32::try_from(total).ok() }.to_cursor());
    Ok(PublicPhotos { photos, cursor: input.cursor, next_cursor, total }.into())
}
