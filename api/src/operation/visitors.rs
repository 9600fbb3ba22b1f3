//! The operations of visitors of galleries. They are in no partner document.

use crate::handlers::{removals, visitor_downloads, visitor_reports, visitors};
use crate::operation::Operation;
use crate::operation::info::{manage, read, search};

/// Returns the operations of visitors.
pub(crate) fn visitor_operations() -> Vec<Operation> {
    vec![
        Operation::new_public(read("gallery.get", "Get the gallery", ""), visitors::get),
        Operation::new_public(search("gallery.search.text", "Search by bib", ""), visitors::search_texts),
        Operation::new_public(
            search("gallery.search.face.signed", "Get an upload URL for a selfie", ""),
            visitors::sign_selfie,
        ),
        Operation::new_public(
            search("gallery.search.face.list", "Search by selfie", ""),
            visitors::search_faces,
        ),
        Operation::new_public(
            manage("gallery.search.face.forget", "Forget a selfie", ""),
            visitors::forget_selfie,
        ),
        Operation::new_public(read("gallery.photos.list", "Browse photos", ""), visitors::browse),
        Operation::new_public(read("gallery.download", "Download a photo", ""), visitor_downloads::download),
        Operation::new_public(
            search("gallery.download.create", "Get a download URL for many photos", ""),
            visitor_downloads::create_download,
        ),
        Operation::new_public(manage("gallery.report", "Report a photo", ""), visitor_reports::report),
        Operation::new_public(manage("gallery.erase.faces", "Erase the own face", ""), removals::erase_faces),
        Operation::new_public(
            manage("gallery.erase.request", "Ask to be removed by bib", ""),
            removals::request_by_bib,
        ),
    ]
}
