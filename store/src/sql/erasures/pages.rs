//! The photos of an album in pages: what reads or changes all rows of an album does it in short statements, so that none is ended
//! for its length and none keeps others waiting.

use uuid::Uuid;

use crate::model::ids::{AlbumId, PhotoId};
use crate::sql::database::Transaction;
use crate::sql::statement::query;
use crate::traits::Result;

/// Photos of a page.
const PAGE: i64 = 500;

/// The first page is of the photos after this one.
pub(super) const FIRST: PhotoId = PhotoId(Uuid::nil());
/// Where the last page ends.
pub(super) const LAST: PhotoId = PhotoId(Uuid::max());

const PAGE_END: &str = "select id from photo where album = $1 and id > $2 order by id limit 1 offset $3";

/// Returns the last photo of the page of an album that begins after this one; [`LAST`] if no page is after it.
pub(super) async fn find_page_end(
    transaction: &mut Transaction,
    operation: &'static str,
    album: AlbumId,
    after: PhotoId,
) -> Result<PhotoId> {
    let end: Option<(PhotoId,)> =
        query(operation, PAGE_END).bind(album).bind(after).bind(PAGE - 1).fetch_optional(transaction).await?;
    Ok(end.map_or(LAST, |(end,)| end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::tests::{explain_plan, open_store};

    #[tokio::test]
    async fn the_end_of_a_page_is_found_without_reading_other_pages() {
        let (_folder, _store, database) = open_store().await;
        let plan = explain_plan(&database, PAGE_END).await;
        assert!(plan.contains("(album=? AND id>?)") && !plan.contains("TEMP B-TREE"), "{plan}");
    }
}
