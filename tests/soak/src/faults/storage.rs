//! Storage that fails, is slow, or cuts bodies in the middle. Partners' uploads go through it too.

use std::time::Duration;

use photofinish_servers::ProxyFault;

use super::{DEFAULT_FAULT, Fault, FaultContext};
use crate::cluster::ProxyFaultGuard;

/// Fewer bytes than a photo has.
const CUT_AFTER_BYTES: u64 = 30_000;
/// A photo takes seconds at this rate.
const SLOW_BYTES_PER_SECOND: u64 = 60_000;

/// Every response is a 500.
pub const S3_FAILING: Fault = Fault {
    name: "s3-failing",
    description: "S3 responds with 500 for 20 s",
    unit: "times",
    inject: |context| {
        inject_s3_fault(context, ProxyFault::Error500, [6, 20]);
        Ok(1)
    },
    ..DEFAULT_FAULT
};

/// Bytes pass slowly.
pub const S3_SLOW: Fault = Fault {
    name: "s3-slow",
    description: "S3 passes 60 kB a second and connection, for 30 s",
    unit: "times",
    inject: |context| {
        inject_s3_fault(context, ProxyFault::Slow { bytes_per_second: SLOW_BYTES_PER_SECOND }, [7, 30]);
        Ok(1)
    },
    ..DEFAULT_FAULT
};

/// Responses are cut in the middle, then requests.
pub const S3_CUTTING: Fault = Fault {
    name: "s3-cutting",
    description: "S3 connections cut in the middle of a body: of responses, then of requests, 10 s each",
    unit: "cuts",
    inject: |context| {
        let responses = inject_s3_fault(
            context,
            ProxyFault::CutResponse { after: CUT_AFTER_BYTES, connections: usize::MAX },
            [4, 10],
        );
        let requests = inject_s3_fault(context, ProxyFault::CutRequest { after: CUT_AFTER_BYTES }, [4, 10]);
        anyhow::ensure!(
            responses > 0 && requests > 0,
            "{responses} responses and {requests} requests were cut"
        );
        Ok(responses + requests)
    },
    ..DEFAULT_FAULT
};

/// Injects a fault of the proxy for so many seconds, in a test and in a soak. Returns how many connections were cut.
fn inject_s3_fault(context: &mut FaultContext<'_>, fault: ProxyFault, seconds: [u64; 2]) -> usize {
    context.sleep_random(100..500);
    let proxy = &context.cluster.proxies().s3;
    let _fault = ProxyFaultGuard::inject(proxy, fault);
    std::thread::sleep(Duration::from_secs(context.short_or_long(seconds[0], seconds[1])));
    proxy.cut_connections()
}
