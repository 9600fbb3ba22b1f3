//! The calls of erasures: of a bib in a large album, and of all faces of a small one.

use std::error::Error;

use photofinish_store::conformance::AlbumFixture;
use photofinish_store::model::erasure::{ErasureSubject, ExpiringPart, NewErasure, PhotoFate};

use crate::plans::PlanReport;

/// Makes the calls and adds their plans. `small` has no vectors afterwards.
pub async fn run_calls(
    report: &mut PlanReport,
    large: &AlbumFixture,
    small: &AlbumFixture,
) -> Result<(), Box<dyn Error>> {
    report.plans.take();
    let erasure = NewErasure {
        tenant: large.tenant,
        album: large.album,
        asked_by: large.key.id,
        subject: ErasureSubject::Bib { bib: "1234".to_owned(), with_faces: false },
        photos: PhotoFate::Keep,
        report: None,
    };
    for _ in 0..6 {
        large.store.erasures.preview(&erasure).await?;
    }
    report.add_plan(
        &report.plans.take(),
        "erasure: the texts of a bib",
        "union select id, photo, text, read_as from seen_text",
    );
    let erasures = &small.store.erasures;
    let ageing = erasures.get_ageing(&small.tenant, small.album).await?;
    let id = erasures.begin_expired(&ageing, ExpiringPart::Faces).await?;
    erasures.remove_objects(id).await?;
    let plans = report.plans.take();
    report.add_plan(&plans, "erasure: count 500 photos of an album", ") as vectors");
    report.add_plan(
        &plans,
        "erasure: those of 500 photos whose faces have vectors",
        "select distinct photo from face",
    );
    Ok(())
}
