//! The operations on credits, usage and costs.

use crate::handlers::credits;
use crate::operation::Operation;
use crate::operation::info::{manage, read};

pub(super) fn credit_operations() -> Vec<Operation> {
    vec![
        Operation::new(
            read(
                "credits.get",
                "Get the balance",
                "Of the key's organization and mode. The body may be omitted. Confirming a photo holds its price; it is \
                    spent when the photo is ready, and given back when it fails or is deleted. What a balance does not \
                    cover is declined with 422 and `data.declineCode` `INSUFFICIENT_CREDITS`, unless `unlimited`. Test \
                    keys have mock credits, which are refilled each day at 00:00 UTC.",
            ),
            credits::get,
        ),
        Operation::new(
            manage(
                "credits.mock.set",
                "Set the mock credits of test keys",
                "For trying what happens when credits run out. 403 with `data.code` `TEST_KEYS_ONLY` for a live key.",
            ),
            credits::set_mock,
        ),
        Operation::new(
            read(
                "usage.get",
                "Get what was used",
                "By day (UTC), album and operation, of the key's organization and mode. Searches that cost nothing are \
                    counted some seconds later. Kept for 25 months. 403 with `data.code` `OTHER_MODE` for a key that asks \
                    for the other `mode`. 400 with the issue `too_big` at `by` if there are \
                    more than 10,000 rows.",
            ),
            credits::get_usage,
        ),
        Operation::new(
            manage(
                "usage.costs",
                "Get what processing photos has cost",
                "CPU time, time of devices and bytes, by stage, day (UTC) and album. Written when a photo becomes ready, \
                    fails or is given back; what a worker spent that died is nobody's. `storage` is what is stored now. \
                    `money` by the prices of the operator. Kept for 25 months. 400 with the issue `too_big` at `by` if \
                    there are more than 10,000 rows.",
            ),
            credits::get_costs,
        ),
    ]
}
