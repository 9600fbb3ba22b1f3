//! Bytes that do not come: S3 failing, slow, and cutting bodies in the middle. Partners' uploads suffer too.

use std::time::Duration;

use photofinish_servers::ProxyFault as Way;

use super::{DEFAULT_FAULT, Fault, FaultContext};
use crate::cluster::ProxyFaultGuard;

/// Less than a photo has.
const CUT_AFTER_BYTES: u64 = 30_000;
/// A photo takes seconds.
const SLOW_BYTES_PER_SECOND: u64 = 60_000;

/// Every request is answered with 500.
pub const S3_FAILING: Fault = Fault {
    name: "s3-failing",
    description: "S3 answers 500 for 20 s",
    unit: "times",
    inject: |scene| {
        inject_s3_fault(scene, Way::Error500, (6, 20));
        Ok(1)
    },
    ..DEFAULT_FAULT
};

/// Bytes trickle.
pub const S3_SLOW: Fault = Fault {
    name: "s3-slow",
    description: "S3 passes 60 kB a second and connection, for 30 s",
    unit: "times",
    inject: |scene| {
        inject_s3_fault(scene, Way::Slow { bytes_per_second: SLOW_BYTES_PER_SECOND }, (7, 30));
        Ok(1)
    },
    ..DEFAULT_FAULT
};

/// Answers end in the middle, then requests do.
pub const S3_CUTTING: Fault = Fault {
    name: "s3-cutting",
    description: "S3 connections cut in the middle of a body: of answers, then of requests, 10 s each",
    unit: "cuts",
    inject: |scene| {
        let answers = inject_s3_fault(
            scene,
            Way::CutResponse { after: CUT_AFTER_BYTES, connections: usize::MAX },
            (4, 10),
        );
        let requests = inject_s3_fault(scene, Way::CutRequest { after: CUT_AFTER_BYTES }, (4, 10));
        anyhow::ensure!(answers > 0 && requests > 0, "{answers} answers and {requests} requests were cut");
        Ok(answers + requests)
    },
    ..DEFAULT_FAULT
};

/// Breaks the way for so many seconds, in a test and in a soak; answers how many connections were cut.
fn inject_s3_fault(scene: &mut FaultContext<'_>, way: Way, (short, long): (u64, u64)) -> usize {
    scene.sleep_random(100..500);
    let proxy = &scene.cluster.proxies().s3;
    let _broken = ProxyFaultGuard::inject(proxy, way);
    std::thread::sleep(Duration::from_secs(scene.short_or_long(short, long)));
    proxy.cut_connections()
}
