//! The list of all operations, in the order in which the readable page shows them.

use crate::handlers::{albums, events, photos, progress, search as searches, start_lists, uploads, webhooks};
use crate::operation::Operation;
use crate::operation::credits::credit_operations;
use crate::operation::erasures::erasure_operations;
use crate::operation::galleries::gallery_operations;
use crate::operation::info::{manage, read, search, upload};
use crate::operation::pictures::picture_operations;

/// Returns all operations of the partner API.
pub(crate) fn all_operations() -> Vec<Operation> {
    album_operations()
        .into_iter()
        .chain(start_list_operations())
        .chain(upload_operations())
        .chain(photo_operations())
        .chain(search_operations())
        .chain(erasure_operations())
        .chain(gallery_operations())
        .chain(picture_operations())
        .chain(event_operations())
        .chain(webhook_operations())
        .chain(delivery_operations())
        .chain(credit_operations())
        .collect()
}

fn album_operations() -> Vec<Operation> {
    vec![
        Operation::new(
            manage("albums.create", "Create an album", "Use one album per event. Settings missing in `config` get the defaults of the service."),
            albums::create,
        ),
        Operation::new(
            read("albums.list", "List albums", "Newest first. The body may be omitted."),
            albums::list,
        ),
        Operation::new(
            read("albums.get", "Get an album", ""),
            albums::get,
        ),
        Operation::new(
            manage("albums.update", "Update an album", "Missing fields are not changed, within `config` too. Photos that are already processed \
                    keep their results; `reprocessingNeeded` says whether processing them again would change these. 400 with the issue `acknowledge_required` when \
                    faces are switched on while the gallery of the album is open, without `acknowledge`."),
            albums::update,
        ),
        Operation::new(
            manage("albums.delete", "Delete an album", "Deletes the album with its photos, their results, its selfies, and all their bytes. The `receipt` is signed some seconds \
                    later, or once the storage can be reached again: see `erasures/get`."),
            albums::delete,
        ),
        Operation::new(
            manage(
                "albums.reprocess",
                "Reprocess an album",
                "Queues every ready or failed photo again. One that was ready before costs nothing; of the others those \
                    that the balance covers are queued, and `declined` counts the rest. 422 with `data.declineCode` \
                    `INSUFFICIENT_CREDITS` if it covers none and there are no others, being processed or not. A photo \
                    that is being processed is queued again once that ends, if the configuration of the album was \
                    changed since it began; `queued` does not count it.",
            ),
            albums::reprocess,
        ),
        Operation::new(
            read("albums.progress", "Get the progress of an album", "With `accept: text/event-stream` the response is a stream that sends the object as \
                    `event: message` every second, an error body as `event: error`, and `event: done` when no photo is \
                    queued or processing. A key that is revoked or expires ends the stream with the error. 429 with \
                    `data.code` `TOO_MANY_STREAMS` if the key has 100 streams, or its organization 250, or fewer \
                    where the service may open few files."),
            progress::get,
        )
        .with_events(progress::stream),
    ]
}

fn start_list_operations() -> Vec<Operation> {
    vec![
        Operation::new(
            manage(
                "albums.startlist.import",
                "Import a start list",
                "Tells the service which bibs there are, as a CSV file, as entries or as ranges. Texts of photos are then \
                    judged by the list: an unclear one becomes the bib of the list that it most likely is, and one that is \
                    on no list is found by fuzzy searches for just that bib only (`NOT_ON_START_LIST`). Photos that are \
                    ready are judged again within seconds to minutes where the list has another bib or excludes another number \
                    than before, and are not read or charged again. Names of people are never stored: \
                    columns that are not mapped are dropped. Rows without a bib are `refused` and the others imported; \
                    where none is left of a file or of entries that would replace a list, that is a 400 and the list stays. \
                    422 with `data.declineCode` `START_LIST_TOO_LARGE` beyond 100,000 different bibs, as many excluded \
                    numbers, or 500,000 numbers in the ranges of a request. A larger file than 4 MiB can be sent in parts, \
                    with the mode `merge`. The lists of an organization are imported one after the other: a request waits for \
                    up to ten seconds, and is answered with 429 or 503 where too many do.",
            ),
            start_lists::import,
        ),
        Operation::new(
            manage(
                "albums.startlist.check",
                "Check a start list",
                "Says what an import of the same body would change, by up to 5,000 photos. Nothing is kept.",
            ),
            start_lists::check,
        ),
        Operation::new(
            manage(
                "albums.startlist.get",
                "Get a start list",
                "Without its entries. `version` is 0 if there is none.",
            ),
            start_lists::get,
        ),
        Operation::new(
            manage(
                "albums.startlist.entries",
                "List the entries of a start list",
                "By bib, without excluded numbers.",
            ),
            start_lists::entries,
        ),
        Operation::new(
            manage(
                "albums.startlist.delete",
                "Delete a start list",
                "Every text becomes again what was read, within seconds to minutes. May be repeated.",
            ),
            start_lists::delete,
        ),
    ]
}

fn upload_operations() -> Vec<Operation> {
    vec![
        Operation::new(
            upload(
                "photos.photo.signed",
                "Get an upload URL for a photo",
                "Upload the bytes to the URL by HTTP PUT with the declared `Content-Type`, then call \
                    `photos/photo/success`. 422 with `data.declineCode` `INSUFFICIENT_CREDITS` if the balance covers \
                    no photo.",
            ),
            uploads::sign_photo,
        ),
        Operation::new(
            upload(
                "photos.photo.signed.batch",
                "Get upload URLs for many photos",
                "Each entry has its own result, in the order of the entries. Those that the balance does not cover are \
                    declined, the last ones first.",
            ),
            uploads::sign_photos,
        ),
        Operation::new(
            upload(
                "photos.photo.success",
                "Confirm an upload",
                "Queues the photo for processing. After the 200 the photo cannot get lost. May be repeated. A photo \
                    that failed is queued again, with the bytes that were uploaded last. \
                    412 with `data.code` `UPLOAD_MISSING` if the bytes were not uploaded; 413 with `PHOTO_TOO_LARGE` \
                    if there are too many: they are deleted, and the upload URL can be used again. Holds the price of the \
                    photo; 422 with `data.declineCode` `INSUFFICIENT_CREDITS` if the balance does not cover it.",
            ),
            uploads::confirm_photo,
        ),
        Operation::new(
            upload(
                "photos.photo.success.batch",
                "Confirm many uploads",
                "Each photo has its own result, in the order of the request. Those that the balance does not cover are \
                    declined, the last ones first.",
            ),
            uploads::confirm_photos,
        ),
    ]
}

fn photo_operations() -> Vec<Operation> {
    vec![
        Operation::new(
            read(
                "photos.photo.list",
                "List photos",
                "Oldest first. Use `state` `failed` to list failures and their reasons.",
            ),
            photos::list,
        ),
        Operation::new(
            read(
                "photos.photo.get",
                "Get a photo and its results",
                "Returns the detected faces and texts, whether searches find them, and if not, why.",
            ),
            photos::get,
        ),
        Operation::new(
            upload(
                "photos.photo.delete",
                "Delete a photo",
                "Deletes the photo with its results and all its bytes. The `receipt` is signed some seconds later, or once the \
                    storage can be reached again: see `erasures/get`.",
            ),
            photos::delete,
        ),
        Operation::new(
            upload(
                "photos.photo.retry",
                "Retry a failed photo",
                "409 if the photo has not failed; 422 with `data.declineCode` `INSUFFICIENT_CREDITS` if the balance does \
                    not cover it.",
            ),
            photos::retry,
        ),
    ]
}

fn search_operations() -> Vec<Operation> {
    vec![
        Operation::new(
            search(
                "photos.search.face.signed",
                "Get an upload URL for a selfie",
                "Upload the bytes to the URL by HTTP PUT with the `Content-Type` of the image, then call \
                    `photos/search/face/list`. 422 with `data.declineCode` `FACE_SEARCH_DISABLED` if the album's face search is \
                    disabled; with `forErasure` only if no vector of a face is left either.",
            ),
            searches::sign_selfie,
        ),
        Operation::new(
            search(
                "photos.search.face.list",
                "Search a face",
                "Searches for the largest face of the selfie. Its bytes are deleted as soon as the face \
                    embedding is computed. 412 with `data.code` `UPLOAD_MISSING` if the bytes were not uploaded, 404 \
                    after the `imageId` has expired, 422 with `data.declineCode` `NO_FACE`, `UNREADABLE_IMAGE` or \
                    `FACE_SEARCH_DISABLED`.",
            ),
            searches::search_faces,
        ),
        Operation::new(
            search(
                "photos.search.text.list",
                "Search a bib",
                "Returns exact matches first; then, with lower confidence and unless `exact` is true, texts \
                    that differ by one edit or by look-alike characters, and numbers cut by the frame or a fold. 400 \
                    with the issue `too_small` for a text without a letter or a digit, 422 \
                    with `data.declineCode` `TEXT_SEARCH_DISABLED` if the album's bib search is disabled.",
            ),
            searches::search_texts,
        ),
    ]
}

fn event_operations() -> Vec<Operation> {
    vec![
        Operation::new(
            read(
                "events.list",
                "List events",
                "What happened in your albums, oldest first, for as long as events are kept. `photo.ready` and \
                    `photo.failed` name up to 250 photos each (`photos`: `photoId`, and `reason` of a failure or `again`; `count`). `again` is true for a photo that \
                    was ready before and was processed once more, by `albums/reprocess` or a retry; what start lists, \
                    formats or erasures change in a photo is not told; \
                    `album.idle` says that nothing of an album has been queued or processing for ten seconds (`total`, \
                    `ready`, `failed`, `awaitingUpload`), at most once a minute; `album.deleted` says how many `photos` \
                    it had; `album.expiring` says a week before its retention erases `what`, `faces` or `photos`, when \
                    that will be (`at`); `person.erased`, for keys with the scope `album:manage`, names the receipt of an \
                    erasure of a face or a bib (`receiptId`, `photos`); `webhook.disabled` names a webhook that the service disabled; `credits.low`, for keys with the \
                    scope `album:manage`, says that the `balance` is below the `threshold` of the `mode`, once each time. An event may be told twice; its `id` \
                    stays the same. With `accept: text/event-stream` the \
                    response is a stream that sends each event as `event: message`, with its cursor as `id:`. It begins \
                    after the header `last-event-id`, else after `cursor`, else now. An event `events.lost` says that \
                    older events are no longer kept. The stream ends with an error body as `event: error`. 429 with \
                    `data.code` `TOO_MANY_STREAMS` if the key has 20 streams, or its organization 500, \
                    or fewer where the service may open few files.",
            ),
            events::list,
        )
        .with_resumable_events(events::stream),
    ]
}

fn webhook_operations() -> Vec<Operation> {
    vec![
        Operation::new(
            manage(
                "webhooks.create",
                "Create a webhook",
                "Events are sent to the URL by HTTP POST, signed by the scheme of Standard Webhooks with the `secret`, \
                    which only this response shows. Any status of 200 to 299 within 15 seconds accepts an event; else it is \
                    sent again, nine times within a day. 410 disables the webhook. An event may arrive twice, with the same \
                    `webhook-id`, and not in order: `data.sequence` gives the order. 400 with the issue `address_refused` \
                    for a URL that is not public, 409 with `data.code` `TOO_MANY_WEBHOOKS` if there are 20, 501 with \
                    `NO_SECRET_KEY` if the service has no key to keep secrets with.",
            ),
            webhooks::create,
        ),
        Operation::new(
            read("webhooks.list", "List webhooks", "Oldest first. The body may be omitted."),
            webhooks::list,
        ),
        Operation::new(read("webhooks.get", "Get a webhook", ""), webhooks::get),
        Operation::new(
            manage(
                "webhooks.update",
                "Update a webhook",
                "Missing fields are not changed. What was cancelled while it was disabled is not sent again by enabling \
                    it: use `webhooks/redeliver`.",
            ),
            webhooks::update,
        ),
        Operation::new(
            manage("webhooks.delete", "Delete a webhook", "Deletes the webhook with its deliveries."),
            webhooks::delete,
        ),
        Operation::new(
            manage(
                "webhooks.rotate",
                "Replace the secret of a webhook",
                "Returns the new secret, which only this response shows. For `overlapHours` both secrets sign. Called again \
                    meanwhile, it replaces the new secret at once, and the one from before the first call signs on, for \
                    `overlapHours` from then: a receiver that has taken over the secret of an earlier call, and has no \
                    other, refuses everything until it takes over that of the last call, so it must do that at once.",
            ),
            webhooks::rotate,
        ),
        Operation::new(
            manage(
                "webhooks.test",
                "Test a webhook",
                "Sends an event of the type `webhook.test` at once and returns its delivery, within 15 seconds. It is not \
                    sent again.",
            ),
            webhooks::test,
        ),
    ]
}

fn delivery_operations() -> Vec<Operation> {
    vec![
        Operation::new(
            read("webhooks.deliveries.list", "List deliveries of a webhook", "Newest first."),
            webhooks::list_deliveries,
        ),
        Operation::new(
            read(
                "webhooks.deliveries.get",
                "Get a delivery",
                "With its body and every attempt. Kept as long as its event.",
            ),
            webhooks::get_delivery,
        ),
        Operation::new(
            manage(
                "webhooks.redeliver",
                "Send deliveries again",
                "One of any state, or all since a time that failed or were cancelled. The `webhook-id` stays the same. 409 if \
                    the webhook is disabled.",
            ),
            webhooks::redeliver,
        ),
    ]
}
