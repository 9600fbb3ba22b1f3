//! Every operation of the partner API, in the order of the document.

use crate::handlers::{albums, photos, progress, search, uploads};
use crate::operation::{Operation, OperationInfo};

/// The whole partner API.
pub(crate) fn all_operations() -> Vec<Operation> {
    album_operations()
        .into_iter()
        .chain(upload_operations())
        .chain(photo_operations())
        .chain(search_operations())
        .collect()
}

fn album_operations() -> Vec<Operation> {
    vec![
        Operation::new(
            info("albums.create", "Make an album", "One album per event. What `config` leaves out is as the operator chose."),
            albums::create,
        ),
        Operation::new(
            info("albums.list", "List albums", "Newest first. May be called without a body."),
            albums::list,
        ),
        Operation::new(
            info("albums.get", "Get an album", ""),
            albums::get,
        ),
        Operation::new(
            info("albums.update", "Change an album", "Fields that are left out stay as they are, within `config` too. Photos read before \
                    keep what was read; `reprocessingNeeded` says whether reading them again would change it."),
            albums::update,
        ),
        Operation::new(
            info("albums.delete", "Delete an album", "With its photos, what was read in them, its selfies, and all their bytes."),
            albums::delete,
        ),
        Operation::new(
            info("albums.reprocess", "Read an album's photos again", "Puts every ready or failed photo back in the queue."),
            albums::reprocess,
        ),
        Operation::new(
            info("albums.progress", "See how far an album is", "With `accept: text/event-stream` the object comes as `event: message` each second, \
                    a named error as `event: error`, and `event: done` when no photo is queued or processing."),
            progress::get,
        )
        .with_events(progress::stream),
    ]
}

fn upload_operations() -> Vec<Operation> {
    vec![
        Operation::new(
            info(
                "photos.photo.signed",
                "Get an upload URL for a photo",
                "Send the bytes there by HTTP PUT with the declared `Content-Type`, then call \
                    `photos/photo/success`.",
            ),
            uploads::sign_photo,
        ),
        Operation::new(
            info(
                "photos.photo.signed.batch",
                "Get upload URLs for many photos",
                "Each entry has its own result, in the order of the entries.",
            ),
            uploads::sign_photos,
        ),
        Operation::new(
            info(
                "photos.photo.success",
                "Confirm an upload",
                "Queues the photo; from the 200 on nothing loses it. May be repeated. 412 with \
                    `data.code` `UPLOAD_MISSING` while the bytes are not there; 413 with `PHOTO_TOO_LARGE` when they \
                    are too many: they are removed, and the upload URL may be used again.",
            ),
            uploads::confirm_photo,
        ),
        Operation::new(
            info(
                "photos.photo.success.batch",
                "Confirm many uploads",
                "Each photo has its own result, in the order asked.",
            ),
            uploads::confirm_photos,
        ),
    ]
}

fn photo_operations() -> Vec<Operation> {
    vec![
        Operation::new(
            info(
                "photos.photo.list",
                "List photos",
                "Oldest first. With `state` `failed` these are the failures and their reasons.",
            ),
            photos::list,
        ),
        Operation::new(
            info(
                "photos.photo.get",
                "Get a photo and what was seen in it",
                "Faces and texts, what of them can be searched, and why not.",
            ),
            photos::get,
        ),
        Operation::new(
            info("photos.photo.delete", "Delete a photo", "With what was read in it, and all its bytes."),
            photos::delete,
        ),
        Operation::new(
            info("photos.photo.retry", "Read a failed photo again", "409 when the photo has not failed."),
            photos::retry,
        ),
    ]
}

fn search_operations() -> Vec<Operation> {
    vec![
        Operation::new(
            info(
                "photos.search.face.signed",
                "Get an upload URL for a selfie",
                "Send the bytes there by HTTP PUT with the `Content-Type` of the image, then call \
                    `photos/search/face/list`.",
            ),
            search::sign_selfie,
        ),
        Operation::new(
            info(
                "photos.search.face.list",
                "Find a face",
                "Searches for the largest face of the selfie; its bytes are deleted as soon as that \
                    face is a vector. 412 with `data.code` `UPLOAD_MISSING` while the bytes are not there, 404 once \
                    the `imageId` has expired, 422 with `data.declineCode` `NO_FACE`, `UNREADABLE_IMAGE` or \
                    `FACE_SEARCH_DISABLED`.",
            ),
            search::search_faces,
        ),
        Operation::new(
            info(
                "photos.search.text.list",
                "Find a bib",
                "Exact readings first; then, with lower confidence, readings one edit or one look-alike \
                    away, and numbers cut by the frame or a fold, unless `exact` is true. 422 with \
                    `data.declineCode` `TEXT_SEARCH_DISABLED` where bibs are not searched.",
            ),
            search::search_texts,
        ),
    ]
}

/// The path of an operation is its id with slashes for dots.
const fn info(id: &'static str, summary: &'static str, description: &'static str) -> OperationInfo {
    OperationInfo { id, summary, description }
}
