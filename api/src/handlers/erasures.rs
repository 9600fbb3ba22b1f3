//! Erases faces and bibs, and shows and checks the receipts.

use std::time::Duration;

use photofinish_store::Store;
use photofinish_store::model::album::Album;
use photofinish_store::model::erasure::{
    ComparedSelfie, Erasure as StoredErasure, ErasureState, ErasureSubject, FacePlace, NewErasure, PhotoFate,
};
use photofinish_store::model::ids::{ErasureId, ReportId};
use photofinish_store::model::photo::BoundingBox;
use serde_json::json;
use time::OffsetDateTime;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::Instrument;

use super::parse_id;
use crate::auth::{AlbumManager, Caller, PeopleEraser};
use crate::context::Context;
use crate::errors::ApiError;
use crate::errors::table::{DeclineCode, ErrorKind};
use crate::search;
use crate::wire::erasure::{Erasure, ErasureAnswer, ErasurePage, Preview, Verification};
use crate::wire::erasure_requests::{
    EraseFaces, ErasePerson, EraseReported, ErasureOptions, ListErasures, OneErasure,
};

/// For how long what a dry run showed can be confirmed.
const CONFIRM_TTL: Duration = Duration::from_mins(15);
/// How long a request waits for its receipt: longer than the other processes take to bring their face indexes up to date.
const RECEIPT_WAIT: Duration = Duration::from_secs(10);
/// How often it looks meanwhile.
const RECEIPT_POLL: Duration = Duration::from_millis(500);

pub(crate) async fn erase_faces(
    ctx: Context,
    caller: PeopleEraser,
    input: EraseFaces,
) -> Result<ErasureAnswer, ApiError> {
    let album = ctx.store.albums.get(&caller.tenant, input.album).await?;
    require_faces(&ctx, &album).await?;
    let shown = json!(["faces", album.id, input.image, input.min_confidence, is_delete(&input.options)]);
    let request = Request { ctx: &ctx, caller: &caller, album: &album, options: &input.options, shown };
    request.check().await?;
    let searched_at = ctx.store.erasures.read_clock().await?;
    let selfie = search::load_or_create_free_embedding(&ctx, &album, parse_id(&input.image)?).await?;
    let threshold = input.min_confidence.unwrap_or(album.config.face.confidence_threshold);
    let found = search::find_faces(&ctx, album.id, &selfie, threshold).await?;
    let places = found.iter().map(search::RankedFace::place);
    let places = places.map(|(photo, bounding_box)| FacePlace { photo, bounding_box }).collect();
    let min_cosine = search::sure_cosine(&ctx, &selfie)? as f32;
    let selfie = Some(ComparedSelfie { embedding: selfie, min_cosine });
    request.answer(ErasureSubject::Faces { places, selfie, searched_at }).await
}

/// Refuses selfies where they find nothing that could be erased: in an album whose faces are switched off, and that has no vector
/// of before.
pub(super) async fn require_faces(ctx: &Context, album: &Album) -> Result<(), ApiError> {
    if album.config.face.enabled || ctx.store.erasures.has_vectors(album.id).await? {
        return Ok(());
    }
    Err(ApiError::declined(DeclineCode::FaceSearchDisabled))
}

/// Erases the faces of a visitor who asked to be removed; then the request is done.
pub(crate) async fn erase_reported(
    ctx: Context,
    caller: PeopleEraser,
    input: EraseReported,
) -> Result<ErasureAnswer, ApiError> {
    let album = ctx.store.albums.get(&caller.tenant, input.album).await?;
    let reports = ctx.store.galleries.find_reports(album.id, input.report).await?;
    let shown = json!(["report", album.id, input.report, is_delete(&input.options)]);
    let request = Request { ctx: &ctx, caller: &caller, album: &album, options: &input.options, shown };
    request.check().await?;
    let place = |photo, bounding_box: &BoundingBox| FacePlace { photo, bounding_box: *bounding_box };
    let places = reports.iter().flat_map(|report| report.faces.iter().map(|face| place(report.photo, face)));
    let places: Vec<FacePlace> = places.collect();
    if places.is_empty() {
        // Nobody asks for these faces to go: a receipt would be of nothing, and what was said would be lost.
        return Err(ApiError::not_found());
    }
    // Of a visitor's photos those that were read since are not among these.
    let asked_at = reports.iter().map(|report| report.created_at).min().unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let searched_at = i64::try_from(asked_at.unix_timestamp_nanos() / 1000).unwrap_or_default();
    let subject = ErasureSubject::Faces { places, selfie: None, searched_at };
    if input.options.dry_run {
        return request.answer(subject).await;
    }
    let id = request.begin_reported(subject, input.report).await?;
    request.answer_begun(id).await
}

pub(crate) async fn erase_person(
    ctx: Context,
    caller: PeopleEraser,
    input: ErasePerson,
) -> Result<ErasureAnswer, ApiError> {
    let album = ctx.store.albums.get(&caller.tenant, input.album).await?;
    let shown = json!(["person", album.id, input.bib, input.with_faces, is_delete(&input.options)]);
    let request = Request { ctx: &ctx, caller: &caller, album: &album, options: &input.options, shown };
    request.check().await?;
    request.answer(ErasureSubject::Bib { bib: input.bib, with_faces: input.with_faces }).await
}

fn is_delete(options: &ErasureOptions) -> bool {
    options.photos == PhotoFate::Delete
}

/// A request to erase.
struct Request<'a> {
    ctx: &'a Context,
    caller: &'a Caller,
    album: &'a Album,
    options: &'a ErasureOptions,
    /// What a dry run shows and its confirmation repeats.
    shown: serde_json::Value,
}

impl Request<'_> {
    /// Refuses what cannot be erased now, and what was not confirmed.
    async fn check(&self) -> Result<(), ApiError> {
        let erasures = &self.ctx.store.erasures;
        if !erasures.can_sign() {
            return Err(ApiError::new(ErrorKind::NotImplemented).with_code("NO_SECRET_KEY"));
        }
        if !self.options.dry_run && !self.is_confirmed() {
            return Err(ApiError::new(ErrorKind::PreconditionFailed).with_code("CONFIRM_REQUIRED"));
        }
        if erasures.has_old_processes().await? {
            return Err(ApiError::new(ErrorKind::Conflict).with_code("OLD_PROCESSES"));
        }
        Ok(())
    }

    fn is_confirmed(&self) -> bool {
        let Some((until, signature)) = self.options.confirm.as_deref().and_then(|text| text.split_once('.'))
        else {
            return false;
        };
        let Ok(seconds) = until.parse::<i64>() else { return false };
        OffsetDateTime::now_utc().unix_timestamp() < seconds
            && self.ctx.store.erasures.check_confirmation(&self.signed_bytes(seconds), signature)
    }

    /// What is signed: whose request it is, what it says, and until when.
    fn signed_bytes(&self, until: i64) -> Vec<u8> {
        let tenant = &self.caller.tenant;
        let signed = json!([tenant.organization, tenant.mode.as_str(), self.shown, until]);
        signed.to_string().into_bytes()
    }

    fn erasure_of(&self, subject: ErasureSubject) -> NewErasure {
        NewErasure {
            tenant: self.caller.tenant,
            album: self.album.id,
            asked_by: self.caller.key,
            subject,
            photos: self.options.photos,
            report: None,
        }
    }

    async fn answer(&self, subject: ErasureSubject) -> Result<ErasureAnswer, ApiError> {
        let erasure = self.erasure_of(subject);
        let erasures = &self.ctx.store.erasures;
        if self.options.dry_run {
            let preview = erasures.preview(&erasure).await?;
            let until = OffsetDateTime::now_utc() + CONFIRM_TTL;
            let until = until.replace_nanosecond(0).unwrap_or(until);
            let signature = erasures.sign_confirmation(&self.signed_bytes(until.unix_timestamp()));
            let missing = || ApiError::new(ErrorKind::NotImplemented).with_code("NO_SECRET_KEY");
            let confirm = format!("{}.{}", until.unix_timestamp(), signature.ok_or_else(missing)?);
            return Ok(ErasureAnswer::Preview(Preview::new(preview, confirm, until)));
        }
        let id = erasures.begin(erasure).await?;
        self.answer_begun(id).await
    }

    /// Begins to erase what visitors asked for, and with it what they said, which has the places of the faces: in a task of its
    /// own, which goes on when the organizer leaves.
    async fn begin_reported(&self, subject: ErasureSubject, report: ReportId) -> Result<ErasureId, ApiError> {
        let store = self.ctx.store.clone();
        let erasure = NewErasure { report: Some(report), ..self.erasure_of(subject) };
        let begin = async move { store.erasures.begin(erasure).await };
        let begin = photofinish_store::on_behalf_of(self.caller.tenant.organization, begin);
        Ok(tokio::spawn(begin.in_current_span()).await.map_err(ApiError::internal)??)
    }

    /// Waits for the receipt of an erasure that has begun.
    async fn answer_begun(&self, id: ErasureId) -> Result<ErasureAnswer, ApiError> {
        tracing::info!(erasure.id = %id, album.id = %self.album.id, key.id = %self.caller.key, "erasure begun");
        Ok(wait_for_receipt(self.ctx, self.caller, id).await?.into())
    }
}

/// Does what is left of an erasure and returns it with its receipt; without one if that takes longer than
/// [`RECEIPT_WAIT`]. From here on nothing fails: what searches find is gone, and the service goes on with the rest.
async fn wait_for_receipt(ctx: &Context, caller: &Caller, id: ErasureId) -> Result<StoredErasure, ApiError> {
    let deadline = Instant::now() + RECEIPT_WAIT;
    loop {
        // In a task of its own: cleaning the files of a large database takes longer than a request waits.
        let step = tokio::spawn(finish(ctx.store.clone(), id).in_current_span());
        let is_late = timeout_at(deadline, step).await.is_err();
        let erasure = ctx.store.erasures.get(&caller.tenant, id).await?;
        if erasure.state == ErasureState::Done || is_late {
            return Ok(erasure);
        }
        sleep(RECEIPT_POLL).await;
    }
}

/// Deletes the objects of a photo or an album that is deleted, and returns the erasure. While the storage is away it is returned
/// as it is, and the service goes on with it: who was told of a failure would ask again, and there is nothing left to ask for.
pub(super) async fn remove_objects(
    ctx: &Context,
    caller: &Caller,
    id: ErasureId,
) -> Result<StoredErasure, ApiError> {
    match ctx.store.erasures.remove_objects(id).await {
        Ok(erasure) => Ok(erasure),
        Err(error) => {
            tracing::warn!(erasure.id = %id, %error, "failed to delete objects, going on with it");
            Ok(ctx.store.erasures.get(&caller.tenant, id).await?)
        }
    }
}

/// Does what is left of an erasure, if nothing fails.
async fn finish(store: Store, id: ErasureId) {
    let done = async {
        store.erasures.remove_objects(id).await?;
        store.erasures.finish(&[id]).await
    };
    if let Err(error) = done.await {
        tracing::warn!(erasure.id = %id, %error, "failed to finish an erasure, going on with it");
    }
}

pub(crate) async fn list(
    ctx: Context,
    caller: AlbumManager,
    input: ListErasures,
) -> Result<ErasurePage, ApiError> {
    Ok(ctx.store.erasures.list(&caller.tenant, input.query).await?.into())
}

pub(crate) async fn get(ctx: Context, caller: AlbumManager, input: OneErasure) -> Result<Erasure, ApiError> {
    Ok(ctx.store.erasures.get(&caller.tenant, input.id).await?.into())
}

pub(crate) async fn verify(
    ctx: Context,
    caller: AlbumManager,
    input: OneErasure,
) -> Result<Verification, ApiError> {
    Ok(ctx.store.erasures.verify(&caller.tenant, input.id).await?.into())
}
