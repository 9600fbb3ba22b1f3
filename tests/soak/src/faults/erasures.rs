//! Faults of those who erase people.

use std::time::{Duration, Instant};

use photofinish_tests::harness::Partner;
use photofinish_tests::harness::test_photo::TestPhoto;
use serde_json::{Value, json};

use super::{DEFAULT_FAULT, Fault, FaultContext};

/// What the key of the one who asks may do.
const SCOPES: [&str; 3] = ["album:manage", "photo:upload", "search:read"];
/// The bib of who asks to be erased.
const BIB: &str = "1204";
/// How long another process may take: the task of the one that was killed lapses first.
const FINISH_LIMIT: Duration = Duration::from_secs(60);
/// Between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The latest moment of a kill, milliseconds after the request.
const LATEST_KILL: u64 = 150;
/// Kills beyond the intended ones while none has met an erasure. Each may come later than the one before: a busy machine
/// needs more time to begin one.
const SPARE_KILLS: usize = 8;

/// At a random moment after a person asked to be erased: before the first transaction, while objects are deleted, while
/// files are cleaned, before the receipt is signed. Another API finishes it, and its receipt is true; or nothing was erased.
pub const ERASER_KILLED: Fault = Fault {
    name: "eraser-killed",
    description: "`kill -9` of the API that erases a person",
    unit: "kills",
    inject: |context| {
        let intended = context.short_or_long(3, 12);
        // An organization of its own, so that the event has all its photos at the end.
        let key = context.cluster.apis()[1].create_key_for("Who asks to go", &SCOPES, "test");
        let (mut kills, mut strikes, mut latest) = (0, 0, LATEST_KILL);
        while kills < intended || strikes == 0 {
            anyhow::ensure!(kills < intended + SPARE_KILLS, "none of {kills} kills met an erasure under way");
            strikes += usize::from(kill_while_erasing(context, &key, latest)?);
            kills += 1;
            if kills >= intended {
                latest += LATEST_KILL;
            }
        }
        // Only those that left an erasure to others: where it had not begun, or was answered, nobody had to go on with it.
        Ok(strikes)
    },
    ..DEFAULT_FAULT
};

/// Kills an API within `latest` milliseconds after a request to erase. Returns whether an erasure was under way: it had begun,
/// and was not answered.
fn kill_while_erasing(context: &mut FaultContext<'_>, key: &str, latest: u64) -> anyhow::Result<bool> {
    let apis = context.cluster.apis();
    let number = context.random_below(apis.len());
    let (eraser, other) = (&apis[number], &apis[(number + 1) % apis.len()]);
    let (partner, beside) = (eraser.partner_with(key), other.partner_with(key));
    let album = partner.create_album("Erased");
    let photo = TestPhoto::new(1200, 800).with_bib(BIB, [750, 450]).to_jpeg();
    partner.upload_photo(&album, "a.jpg", &photo);
    partner.wait_until_idle(&album);
    let mut request = json!({ "albumId": album, "bib": BIB, "photos": "delete", "dryRun": true });
    let shown = partner.call_ok("/people/erase", &request);
    request["dryRun"] = json!(false);
    request["confirm"] = shown["confirm"].clone();
    let is_answered = std::thread::scope(|scope| {
        let asked = scope.spawn(|| partner.call("/people/erase", &request));
        context.sleep_random(0..latest);
        eraser.kill();
        // Panics if there was no response any more.
        asked.join().is_ok_and(|response| response.status == 200)
    });
    let checked = check_erasure(&beside, &album);
    context.sleep_random(0..500);
    eraser.restart();
    let has_begun = checked?;
    anyhow::ensure!(has_begun || !is_answered, "an erasure that was answered is not there");
    beside.call_ok("/albums/delete", &json!({ "albumId": album }));
    wait_for_receipts(&beside, &album)?;
    Ok(has_begun && !is_answered)
}

/// Checks through another API that all or nothing was erased. Returns whether an erasure had begun.
fn check_erasure(partner: &Partner, album: &str) -> anyhow::Result<bool> {
    let found = || partner.search_by_bib(album, BIB).len();
    if list_erasures(partner, album).is_empty() {
        anyhow::ensure!(found() == 1, "nothing was asked to be erased, and nothing is found");
        return Ok(false);
    }
    anyhow::ensure!(found() == 0, "what is erased is found");
    wait_for_receipts(partner, album)?;
    for erasure in list_erasures(partner, album) {
        let one = json!({ "receiptId": erasure["receiptId"] });
        let checked = partner.call_ok("/erasures/verify", &one);
        anyhow::ensure!(checked["left"] == 0, "a receipt is not true: {checked}");
    }
    Ok(true)
}

fn wait_for_receipts(partner: &Partner, album: &str) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !list_erasures(partner, album).iter().all(|erasure| erasure["state"] == "done") {
        anyhow::ensure!(begun.elapsed() < FINISH_LIMIT, "an erasure is not finished by another process");
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

fn list_erasures(partner: &Partner, album: &str) -> Vec<Value> {
    let listed = partner.call_ok("/erasures/list", &json!({ "albumId": album }));
    listed["erasures"].as_array().cloned().unwrap_or_default()
}
