//! What running processes report.

use std::collections::BTreeMap;

use time::{Duration, OffsetDateTime};

use crate::model::ids::ProcessId;
use crate::model::process::{BudgetReport, PipelineReport, Process, ProcessReport, StageReport};
use crate::store::Store;

/// Checks the backend of [`crate::traits::Processes`].
pub async fn processes_suite(store: &Store) {
    a_process_has_one_report_the_last(store).await;
}

async fn a_process_has_one_report_the_last(store: &Store) {
    let now = OffsetDateTime::now_utc();
    // Microseconds are stored.
    let started_at = now - Duration::nanoseconds(i64::from(now.nanosecond() % 1000));
    let worker = Process {
        id: ProcessId::generate(),
        role: "work".into(),
        host: "läufer-7".into(),
        version: "0.1.0".into(),
        started_at,
        report: ProcessReport::default(),
    };
    let api = Process { id: ProcessId::generate(), role: "serve".into(), ..worker.clone() };
    store.processes.report(&worker).await.expect("reports");
    store.processes.report(&api).await.expect("reports");
    let stage =
        StageReport { name: "read".into(), depth: 9, photos_per_second: 12.5, busy: 0.875, blocked: 0.0 };
    let pipeline = PipelineReport {
        photos_in_flight: 12,
        bottleneck: Some("read".into()),
        stages: vec![stage],
        budgets: vec![BudgetReport { name: "pixels".into(), used_bytes: 7 << 20, limit_bytes: 1 << 30 }],
        models: BTreeMap::from([("faceEmbedder".to_owned(), "läufer@1".to_owned())]),
        device: Some("CUDA 0".into()),
    };
    let worker =
        Process { report: ProcessReport { pipeline: Some(pipeline), ..ProcessReport::default() }, ..worker };
    store.processes.report(&worker).await.expect("reports again");
    assert_eq!(store.processes.list().await.expect("lists"), [worker.clone(), api.clone()]);
    store.processes.remove(worker.id).await.expect("removes");
    let left = store.processes.list().await.expect("lists");
    assert_eq!(left.iter().map(|process| process.id).collect::<Vec<_>>(), [api.id]);
    store.processes.remove(api.id).await.expect("removes");
    store.processes.remove(api.id).await.expect("it is removed already");
    assert_eq!(store.processes.list().await.expect("lists"), []);
}
