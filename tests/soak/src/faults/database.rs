//! The database unavailable: Postgres restarted, cut off, or refusing connections.

use std::time::Duration;

use photofinish_servers::ProxyFault;

use super::{DEFAULT_FAULT, Fault, FaultContext};
use crate::cluster::ProxyFaultGuard;

/// The server is killed as by a power cut, and restarted.
pub const POSTGRES_RESTARTED: Fault = Fault {
    name: "postgres-restarted",
    description: "Postgres restarted as after a power cut",
    unit: "restarts",
    inject: |context| {
        let restarts = context.short_or_long(2, 5);
        for _ in 0..restarts {
            context.sleep_random(300..1500);
            context.cluster.postgres().stop();
            context.sleep_random(0..1000);
            context.cluster.postgres().start_again();
        }
        Ok(restarts)
    },
    ..DEFAULT_FAULT
};

/// No response arrives, and no connection ends.
pub const POSTGRES_SILENT: Fault = Fault {
    name: "postgres-silent",
    description: "Postgres cut off for 30 s: no packet passes, no connection ends",
    unit: "cuts",
    inject: |context| cut_postgres_off(context, ProxyFault::Blackhole),
    ..DEFAULT_FAULT
};

/// Connections end, and new ones are refused.
pub const POSTGRES_REFUSING: Fault = Fault {
    name: "postgres-refusing",
    description: "Postgres cut off for 30 s: connections are refused",
    unit: "cuts",
    inject: |context| cut_postgres_off(context, ProxyFault::Refusal),
    ..DEFAULT_FAULT
};

/// For so long photos may still settle that were in flight when the connections were cut.
const IN_FLIGHT_TIME: Duration = Duration::from_secs(3);

fn cut_postgres_off(context: &mut FaultContext<'_>, fault: ProxyFault) -> anyhow::Result<usize> {
    context.sleep_random(200..600);
    let length = context.short_or_long(Duration::from_secs(7), Duration::from_secs(30));
    let _fault = ProxyFaultGuard::inject(&context.cluster.proxies().postgres, fault);
    std::thread::sleep(IN_FLIGHT_TIME);
    let before = context.flow.settled();
    std::thread::sleep(length - IN_FLIGHT_TIME);
    anyhow::ensure!(context.flow.settled() == before, "photos were settled without the database");
    Ok(1)
}
