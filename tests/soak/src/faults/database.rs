//! Rows that are away: Postgres restarted, refused and cut off.

use std::time::Duration;

use photofinish_servers::Fault as Way;

use super::{Fault, Scene, USUAL};
use crate::cluster::Broken;

/// The server ends as by a power cut, and comes back.
pub const POSTGRES_RESTARTED: Fault = Fault {
    name: "postgres-restarted",
    what: "Postgres restarted as after a power cut",
    unit: "restarts",
    disturb: |scene| {
        let restarts = scene.choose(2, 5);
        for _ in 0..restarts {
            scene.pause(300..1500);
            scene.cluster.postgres().stop();
            scene.pause(0..1000);
            scene.cluster.postgres().start_again();
        }
        Ok(restarts)
    },
    ..USUAL
};

/// Nothing comes back, and no connection ends.
pub const POSTGRES_SILENT: Fault = Fault {
    name: "postgres-silent",
    what: "Postgres cut off for 30 s: no packet passes, no connection ends",
    unit: "cuts",
    disturb: |scene| cut_off(scene, Way::Blackhole),
    ..USUAL
};

/// Connections end, and new ones are refused.
pub const POSTGRES_REFUSING: Fault = Fault {
    name: "postgres-refusing",
    what: "Postgres cut off for 30 s: connections are refused",
    unit: "cuts",
    disturb: |scene| cut_off(scene, Way::Refusal),
    ..USUAL
};

/// For so long what was on its way when the network was cut may still be seen.
const STILL_SEEN: Duration = Duration::from_secs(3);

fn cut_off(scene: &mut Scene<'_>, way: Way) -> anyhow::Result<usize> {
    scene.pause(200..600);
    let length = scene.choose(Duration::from_secs(7), Duration::from_secs(30));
    let _broken = Broken::way(&scene.cluster.ways().postgres, way);
    std::thread::sleep(STILL_SEEN);
    let before = scene.flow.settled();
    std::thread::sleep(length - STILL_SEEN);
    anyhow::ensure!(scene.flow.settled() == before, "photos were settled without the rows");
    Ok(1)
}
