//! The operations that erase people and show receipts.

use crate::handlers::erasures;
use crate::operation::Operation;
use crate::operation::info::manage;

pub(super) fn erasure_operations() -> Vec<Operation> {
    vec![
        Operation::new(
            manage(
                "faces.erase",
                "Erase the faces of a person",
                "Finds the faces that a search with the selfie finds, and removes their vectors and the selfie for good. Begin \
                    with `dryRun`, which says what would go and returns `confirm`; 412 with `data.code` \
                    `CONFIRM_REQUIRED` without it. The faces stay in their photos as boxes, unindexed as `ERASED`, and \
                    get no vector when the photos are processed again; photos that are uploaded later are not covered. \
                    An album whose faces were switched off keeps its vectors: get the URL of the selfie with `forErasure` there; \
                    422 with `data.declineCode` `FACE_SEARCH_DISABLED` if there are none. \
                    The answer is the receipt, which is signed when nothing is found any more, within ten seconds if possible, else it is \
                    `running` and `erasures/get` has it later. 409 with `OLD_PROCESSES` during an update of the service, \
                    501 with `NO_SECRET_KEY` if the service has no secret to sign with.",
            ),
            erasures::erase_faces,
        ),
        Operation::new(
            manage(
                "people.erase",
                "Erase a bib",
                "Empties every text that says the bib, and with `faces` removes the vectors of the faces that wear it. The \
                    bib is not read again in this album. The rest is as with `faces/erase`.",
            ),
            erasures::erase_person,
        ),
        Operation::new(
            manage(
                "erasures.list",
                "List erasures",
                "Newest first, with their receipts; also of deleted photos and albums. Receipts are kept for ever: they \
                    contain no bib, no name and no vector.",
            ),
            erasures::list,
        ),
        Operation::new(
            manage("erasures.get", "Get an erasure", "With its receipt once it is done."),
            erasures::get,
        ),
        Operation::new(
            manage(
                "erasures.verify",
                "Check an erasure again",
                "Looks again for what was erased, in all tables, objects and face indexes.",
            ),
            erasures::verify,
        ),
    ]
}
