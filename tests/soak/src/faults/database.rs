//! Rows that are away: Postgres restarted, refused and cut off.

use std::time::Duration;

use photofinish_servers::ProxyFault as Way;

use super::{DEFAULT_FAULT, Fault, FaultContext};
use crate::cluster::ProxyFaultGuard;

/// The server ends as by a power cut, and comes back.
pub const POSTGRES_RESTARTED: Fault = Fault {
    name: "postgres-restarted",
    description: "Postgres restarted as after a power cut",
    unit: "restarts",
    inject: |scene| {
        let restarts = scene.short_or_long(2, 5);
        for _ in 0..restarts {
            scene.sleep_random(300..1500);
            scene.cluster.postgres().stop();
            scene.sleep_random(0..1000);
            scene.cluster.postgres().start_again();
        }
        Ok(restarts)
    },
    ..DEFAULT_FAULT
};

/// Nothing comes back, and no connection ends.
pub const POSTGRES_SILENT: Fault = Fault {
    name: "postgres-silent",
    description: "Postgres cut off for 30 s: no packet passes, no connection ends",
    unit: "cuts",
    inject: |scene| cut_postgres_off(scene, Way::Blackhole),
    ..DEFAULT_FAULT
};

/// Connections end, and new ones are refused.
pub const POSTGRES_REFUSING: Fault = Fault {
    name: "postgres-refusing",
    description: "Postgres cut off for 30 s: connections are refused",
    unit: "cuts",
    inject: |scene| cut_postgres_off(scene, Way::Refusal),
    ..DEFAULT_FAULT
};

/// For so long what was on its way when the network was cut may still be seen.
const IN_FLIGHT_TIME: Duration = Duration::from_secs(3);

fn cut_postgres_off(scene: &mut FaultContext<'_>, way: Way) -> anyhow::Result<usize> {
    scene.sleep_random(200..600);
    let length = scene.short_or_long(Duration::from_secs(7), Duration::from_secs(30));
    let _broken = ProxyFaultGuard::inject(&scene.cluster.proxies().postgres, way);
    std::thread::sleep(IN_FLIGHT_TIME);
    let before = scene.flow.settled();
    std::thread::sleep(length - IN_FLIGHT_TIME);
    anyhow::ensure!(scene.flow.settled() == before, "photos were settled without the rows");
    Ok(1)
}
