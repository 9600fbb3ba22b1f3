//! The operations of galleries, for organizers.

use crate::handlers::{erasures, galleries};
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
                "Newest first, at most 1,000. A visitor's words on one photo count once. Beside requests to be removed an \
                 album has at most 10,000, 200 of them of one network and day: further ones are refused until some are \
                 dismissed.",
            ),
            galleries::list_reports,
        ),
        Operation::new(
            manage(
                "albums.gallery.reports.erase",
                "Erase the faces of a visitor who asked to be removed",
                "As `faces/erase` does, but of the faces that the selfie of the request was surely found in; the selfie itself \
                 is gone by then. With a dry run first, whose `confirm` has to be sent. The request is gone afterwards. 404 for a report that asks for no faces to go.",
            ),
            erasures::erase_reported,
        ),
        Operation::new(
            manage(
                "albums.gallery.reports.dismiss",
                "Dismiss what a visitor said",
                "Deletes a report, or a request to be removed with all its photos. Nothing else changes.",
            ),
            galleries::dismiss_report,
        ),
    ]
}
