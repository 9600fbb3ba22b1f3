//! Random sequences of queue operations, compared with a model: in whatever order they happen, every confirmed photo is
//! finished exactly once, and only by the holder of its running lease.

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
use support::TestStore;
use tokio::runtime::Runtime;

use model::QueueModel;
use operation::any_operation;

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn every_confirmed_photo_ends_exactly_once_whatever_happens_on_sqlite() {
    run_histories(&runtime(), &TestStore::new());
}

#[test]
fn every_confirmed_photo_ends_exactly_once_whatever_happens_on_postgres() {
    let Some(server) = Postgres::shared() else { return };
    let runtime = runtime();
    let test_store = TestStore::with_database(server.create_database());
    run_histories(&runtime, &test_store);
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn run_histories(runtime: &Runtime, test_store: &TestStore) {
    let store = runtime.block_on(test_store.open());
    let config = Config { cases: 100, failure_persistence: None, ..Config::default() };
    let histories = prop::collection::vec(any_operation(), 1..80);
    TestRunner::new(config)
        .run(&histories, |history| {
            runtime.block_on(async {
                let mut model = QueueModel::new(&store).await;
                for operation in history {
                    model.apply(operation).await;
                }
                model.finish_and_check().await;
            });
            Ok(())
        })
        .unwrap();
}
