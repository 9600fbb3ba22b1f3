//! The operations of galleries, for organizers.

use crate::handlers::galleries;
use crate::operation::Operation;
use crate::operation::info::manage;

/// Returns the operations of galleries.
pub(crate) fn gallery_operations() -> Vec<Operation> {
    vec![
        Operation::new(
            manage(
                "albums.gallery.get",
                "Get the gallery of an album",
                "The public page on which runners find their photos. `url` is null before it was first enabled.",
            ),
            galleries::get,
        ),
        Operation::new(
            manage(
                "albums.gallery.update",
                "Update the gallery of an album",
                "Missing fields are not changed. Whoever has the address may look: it is secret, and `newLink` makes \
                 another one. 501 with `data.code` `NO_SECRET_KEY` where the service has no secret to keep it with.",
            ),
            galleries::update,
        ),
        Operation::new(
            manage(
                "albums.gallery.reports",
                "List what visitors said of photos",
                "Newest first, at most 1,000. A visitor's words on one photo count once.",
            ),
            galleries::list_reports,
        ),
    ]
}
