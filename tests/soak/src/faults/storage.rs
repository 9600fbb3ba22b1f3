//! Bytes that do not come: S3 failing, slow, and cutting bodies in the middle. Partners' uploads suffer too.

use std::time::Duration;

use photofinish_servers::Fault as Way;

use super::{Fault, Scene, USUAL};
use crate::cluster::Broken;

/// Less than a photo has.
const MIDDLE: u64 = 30_000;
/// A photo takes seconds.
const SLOW: u64 = 60_000;

/// Every request is answered with 500.
pub const S3_FAILING: Fault = Fault {
    name: "s3-failing",
    what: "S3 answers 500 for 20 s",
    unit: "times",
    disturb: |scene| {
        broken(scene, Way::Error500, (6, 20));
        Ok(1)
    },
    ..USUAL
};

/// Bytes trickle.
pub const S3_SLOW: Fault = Fault {
    name: "s3-slow",
    what: "S3 passes 60 kB a second and connection, for 30 s",
    unit: "times",
    disturb: |scene| {
        broken(scene, Way::Slow { a_second: SLOW }, (7, 30));
        Ok(1)
    },
    ..USUAL
};

/// Answers end in the middle, then requests do.
pub const S3_CUTTING: Fault = Fault {
    name: "s3-cutting",
    what: "S3 connections cut in the middle of a body: of answers, then of requests, 10 s each",
    unit: "cuts",
    disturb: |scene| {
        let answers = broken(scene, Way::CutAnswer { after: MIDDLE, times: usize::MAX }, (4, 10));
        let requests = broken(scene, Way::CutRequest { after: MIDDLE }, (4, 10));
        anyhow::ensure!(answers > 0 && requests > 0, "{answers} answers and {requests} requests were cut");
        Ok(answers + requests)
    },
    ..USUAL
};

/// Breaks the way for so many seconds, in a test and in a soak; answers how many connections were cut.
fn broken(scene: &mut Scene<'_>, way: Way, (short, long): (u64, u64)) -> usize {
    scene.pause(100..500);
    let proxy = &scene.cluster.ways().s3;
    let _broken = Broken::way(proxy, way);
    std::thread::sleep(Duration::from_secs(scene.choose(short, long)));
    proxy.cuts()
}
