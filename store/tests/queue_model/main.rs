//! Random histories of the queue against a model of it: whatever happens in whatever order, every confirmed photo
//! ends exactly once, and only the holder of its running lease says how.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

mod leasing;
mod model;
mod operation;
#[path = "../support/mod.rs"]
mod support;
mod transitions;

use std::time::Duration;

use photofinish_servers::Postgres;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use support::Home;
use tokio::runtime::Runtime;

use model::QueueModel;
use operation::any_operation;

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn every_confirmed_photo_ends_exactly_once_whatever_happens_on_sqlite() {
    run_histories(&runtime(), &Home::new());
}

#[test]
fn every_confirmed_photo_ends_exactly_once_whatever_happens_on_postgres() {
    let Some(server) = Postgres::shared() else { return };
    let runtime = runtime();
    let home = Home::with_rows(server.create_database());
    run_histories(&runtime, &home);
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn run_histories(runtime: &Runtime, home: &Home) {
    let store = runtime.block_on(home.open());
    let config = Config { cases: 100, failure_persistence: None, ..Config::default() };
    let histories = prop::collection::vec(any_operation(), 1..80);
    TestRunner::new(config)
        .run(&histories, |history| {
            runtime.block_on(async {
                let mut world = QueueModel::new(&store).await;
                for step in history {
                    world.apply(step).await;
                }
                world.end().await;
            });
            Ok(())
        })
        .unwrap();
}
