//! The operations on watermarks, downloads and cameras.

use crate::handlers::{downloads, photos, watermarks};
use crate::operation::Operation;
use crate::operation::info::{manage, read, search};

/// Returns the operations on pictures.
pub(super) fn picture_operations() -> Vec<Operation> {
    vec![
        Operation::new(
            manage(
                "albums.watermark.get",
                "Get the watermark of an album",
                "And how many photos show it. Galleries show marked pictures alone; thumbnails up to 512 pixels stay clean, \
                 in an album that never asked for larger ones.",
            ),
            watermarks::get,
        ),
        Operation::new(
            manage(
                "albums.watermark.signed",
                "Get an upload URL for a watermark",
                "For a PNG of at most 1 MiB and 2,000 pixels a side. It is used by `albums/watermark/set`, and only then \
                 does anything change.",
            ),
            watermarks::sign,
        ),
        Operation::new(
            manage(
                "albums.watermark.set",
                "Set or remove the watermark of an album",
                "Photos that are processed from now on are marked; those that are ready are marked in the background, and \
                 show what they showed until then. 412 with `data.code` `UPLOAD_MISSING` if there is no picture, 400 with \
                 the issue `invalid_image` if it is no PNG that can be used.",
            ),
            watermarks::set,
        ),
        Operation::new(
            read("albums.cameras.list", "List the cameras of an album", "The one with most photos first."),
            photos::list_cameras,
        ),
        Operation::new(
            search(
                "photos.download.create",
                "Get a download URL for many photos",
                "A ZIP file of at most 2,000 photos, best hits first. `bib` and `imageId` cost what the searches cost, \
                 and the URL costs what `credits.get` shows as `download`: 422 with `data.declineCode` \
                 `INSUFFICIENT_CREDITS` if the balance does not cover both. Photos \
                 that failed or were never ready are left out; 404 if none is left. Only a 200 costs credits. Of the limit of the key the \
                 request costs a unit for each 20 photos that are asked for or found. The URL answers 503 with `retry-after` \
                 while too many files are being sent, and 429 to a network that asks for more than 600 units of reading a \
                 minute: a unit for each 20 photos.",
            ),
            downloads::create,
        ),
    ]
}
