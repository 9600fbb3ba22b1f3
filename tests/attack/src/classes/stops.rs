//! Stops: SIGTERM while slow photos are read, again and again. Every stop ends with exit code 0 within its grace, no photo
//! fails for it, and no attempt is counted: the attempt limit is 1, so that one too many would be the end of a photo.

use std::time::Duration;

use photofinish_tests::harness::{Partner, wait_until};
use serde_json::{Value, json};

use super::class::{Class, Setting};
use crate::findings::Findings;
use crate::site::{Extent, Site};

pub(super) const STOPS: Class = Class {
    name: "stops",
    description: "SIGTERM three times while photos of 12 megapixels in a 16x16 grid album are read, with an attempt limit \
                  of 1 and a grace of 4 s",
    settings,
    stops_service: true,
    run,
};

/// The grace below, 4 s for threads and 6 s for giving photos back, and a second for the rest.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// After this a stop counts as hanging, and the process is killed.
const HANG_LIMIT: Duration = Duration::from_secs(90);
const STOP_COUNT: usize = 3;
/// Photos that are sent before a stop at most, until it meets one that is being read.
const PHOTOS_PER_STOP: usize = 3;

fn settings(extent: Extent) -> Vec<Setting> {
    let attempts = Setting { name: "PHOTOFINISH_ATTEMPT_LIMIT", value: "1" };
    match extent {
        // Each read takes longer than the grace.
        Extent::Quick => vec![
            attempts,
            Setting { name: "PHOTOFINISH_FAKE_DELAY_MS", value: "2500" },
            Setting { name: "PHOTOFINISH_DRAIN_SECONDS", value: "1" },
        ],
        Extent::Long => vec![attempts, Setting { name: "PHOTOFINISH_DRAIN_SECONDS", value: "4" }],
    }
}

fn run(site: &Site, findings: &Findings) -> anyhow::Result<()> {
    let partner = site.tenant("Stop Timing");
    let album = match site.extent {
        Extent::Quick => partner.create_album("Stops"),
        Extent::Long => partner.create_album_with(&json!({ "title": "Stops", "config": grid_config() })),
    };
    let upload =
        |number: usize| partner.upload_photo(&album, &format!("{number}.jpg"), site.material.largest_photo());
    let mut photos: Vec<String> = (0..3).map(upload).collect();
    for stop in 0..STOP_COUNT {
        // All may have been read while the service started.
        let most = photos.len() + PHOTOS_PER_STOP;
        let mut is_processing = wait_until_processing(&partner, &album);
        while !is_processing && photos.len() < most {
            photos.push(upload(photos.len()));
            is_processing = wait_until_processing(&partner, &album);
        }
        findings.check(is_processing, || format!("no photo was being read at stop {stop}"));
        let exit = site.service.terminate(HANG_LIMIT);
        findings.tried(1);
        findings.check(exit.code == Some(0), || format!("stop {stop} ended with {exit:?}"));
        if site.extent == Extent::Long {
            findings.note(format!("stop {stop}: {:.1} s", exit.took.as_secs_f64()));
            findings.check(exit.took <= STOP_LIMIT, || format!("stop {stop} took {:?}", exit.took));
        }
        site.service.restart();
    }
    let progress = partner.wait_until_idle(&album);
    for photo in &photos {
        let found = partner.get_photo(&album, photo);
        findings.check(found["state"] == "ready", || {
            format!("a photo is {} with {} after stops: {progress}", found["state"], found["failure"])
        });
    }
    Ok(())
}

/// Face and bib settings of the smallest cells that the contract permits.
pub(crate) fn grid_config() -> Value {
    let grid = json!({ "rows": 16, "columns": 16, "cellWidth": 1024, "cellHeight": 1024 });
    let recognition = json!({ "mode": "grid", "grid": grid });
    json!({ "face": recognition, "text": recognition })
}

/// Waits until a photo is read; false when all are done.
fn wait_until_processing(partner: &Partner, album: &str) -> bool {
    let mut is_processing = false;
    wait_until("a photo is read", || {
        let progress = partner.album_progress(album);
        is_processing = progress["processing"].as_u64() > Some(0);
        is_processing || progress["queued"] == 0
    });
    is_processing
}
