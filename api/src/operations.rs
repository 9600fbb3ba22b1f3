//! Every operation of the partner API, in the order of the document.

use crate::handlers::{albums, photos, progress, search, uploads};
use crate::operation::{About, Operation};

/// The whole partner API.
pub(crate) fn all() -> Vec<Operation> {
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
            About {
                id: "albums.create",
                path: "/albums/create",
                summary: "Make an album",
                description: "One album per event. What `config` leaves out is as the operator chose.",
            },
            albums::create,
        ),
        Operation::new(
            About {
                id: "albums.list",
                path: "/albums/list",
                summary: "List albums",
                description: "Newest first. May be called without a body.",
            },
            albums::list,
        ),
        Operation::new(
            About { id: "albums.get", path: "/albums/get", summary: "Get an album", description: "" },
            albums::get,
        ),
        Operation::new(
            About {
                id: "albums.update",
                path: "/albums/update",
                summary: "Change an album",
                description: "Fields that are left out stay as they are, within `config` too. Photos read before \
                    keep what was read; `reprocessingNeeded` says whether reading them again would change it.",
            },
            albums::update,
        ),
        Operation::new(
            About {
                id: "albums.delete",
                path: "/albums/delete",
                summary: "Delete an album",
                description: "With its photos, what was read in them, its selfies, and all their bytes.",
            },
            albums::delete,
        ),
        Operation::new(
            About {
                id: "albums.reprocess",
                path: "/albums/reprocess",
                summary: "Read an album's photos again",
                description: "Puts every ready or failed photo back in the queue.",
            },
            albums::reprocess,
        ),
        Operation::new(
            About {
                id: "albums.progress",
                path: "/albums/progress",
                summary: "See how far an album is",
                description: "With `accept: text/event-stream` the object comes as `event: message` each second, \
                    a named error as `event: error`, and `event: done` when no photo is queued or processing.",
            },
            progress::once,
        )
        .or_events(progress::stream),
    ]
}

fn upload_operations() -> Vec<Operation> {
    vec![
        Operation::new(
            About {
                id: "photos.photo.signed",
                path: "/photos/photo/signed",
                summary: "Get an upload URL for a photo",
                description: "Send the bytes there by HTTP PUT with the declared `Content-Type`, then call \
                    `photos/photo/success`.",
            },
            uploads::signed,
        ),
        Operation::new(
            About {
                id: "photos.photo.signed.batch",
                path: "/photos/photo/signed/batch",
                summary: "Get upload URLs for many photos",
                description: "Each entry has its own result, in the order of the entries.",
            },
            uploads::signed_batch,
        ),
        Operation::new(
            About {
                id: "photos.photo.success",
                path: "/photos/photo/success",
                summary: "Confirm an upload",
                description: "Queues the photo; from the 200 on nothing loses it. May be repeated. 412 with \
                    `data.code` `UPLOAD_MISSING` while the bytes are not there.",
            },
            uploads::success,
        ),
        Operation::new(
            About {
                id: "photos.photo.success.batch",
                path: "/photos/photo/success/batch",
                summary: "Confirm many uploads",
                description: "Each photo has its own result, in the order asked.",
            },
            uploads::success_batch,
        ),
    ]
}

fn photo_operations() -> Vec<Operation> {
    vec![
        Operation::new(
            About {
                id: "photos.photo.list",
                path: "/photos/photo/list",
                summary: "List photos",
                description: "Oldest first. With `state` `failed` these are the failures and their reasons.",
            },
            photos::list,
        ),
        Operation::new(
            About {
                id: "photos.photo.get",
                path: "/photos/photo/get",
                summary: "Get a photo and what was seen in it",
                description: "Faces and texts, what of them can be searched, and why not.",
            },
            photos::get,
        ),
        Operation::new(
            About {
                id: "photos.photo.delete",
                path: "/photos/photo/delete",
                summary: "Delete a photo",
                description: "With what was read in it, and all its bytes.",
            },
            photos::delete,
        ),
        Operation::new(
            About {
                id: "photos.photo.retry",
                path: "/photos/photo/retry",
                summary: "Read a failed photo again",
                description: "409 when the photo has not failed.",
            },
            photos::retry,
        ),
    ]
}

fn search_operations() -> Vec<Operation> {
    vec![
        Operation::new(
            About {
                id: "photos.search.face.signed",
                path: "/photos/search/face/signed",
                summary: "Get an upload URL for a selfie",
                description: "Send the bytes there by HTTP PUT with the `Content-Type` of the image, then call \
                    `photos/search/face/list`.",
            },
            search::face_signed,
        ),
        Operation::new(
            About {
                id: "photos.search.face.list",
                path: "/photos/search/face/list",
                summary: "Find a face",
                description: "Searches for the largest face of the selfie; its bytes are deleted as soon as that \
                    face is a vector. 412 with `data.code` `UPLOAD_MISSING` while the bytes are not there, 404 once \
                    the `imageId` has expired, 422 with `data.declineCode` `NO_FACE`, `UNREADABLE_IMAGE` or \
                    `FACE_SEARCH_DISABLED`.",
            },
            search::face_list,
        ),
        Operation::new(
            About {
                id: "photos.search.text.list",
                path: "/photos/search/text/list",
                summary: "Find a bib",
                description: "Exact readings first; then, with lower confidence, readings one edit or one look-alike \
                    away, and numbers cut by the frame or a fold, unless `exact` is true. 422 with \
                    `data.declineCode` `TEXT_SEARCH_DISABLED` where bibs are not searched.",
            },
            search::text_list,
        ),
    ]
}
