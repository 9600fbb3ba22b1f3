//! Tasks that one process at a time does.

use std::time::Duration;

use futures_util::future::join_all;

use super::fixture::LONG;
use crate::model::ids::ProcessId;
use crate::model::process::{Task, TaskLease};
use crate::store::Store;

/// Checks the backend of [`crate::traits::TaskLeases`].
pub async fn tasks_suite(store: &Store) {
    one_of_many_processes_takes_a_task(store).await;
    a_released_task_is_taken_by_another_at_once(store).await;
    an_expired_task_is_taken_and_its_former_holder_learns_it(store).await;
}

async fn take(store: &Store, holder: ProcessId, ttl: Duration) -> Option<TaskLease> {
    store.tasks.take(Task::EventPublisher, holder, ttl).await.expect("asks for a task")
}

async fn one_of_many_processes_takes_a_task(store: &Store) {
    let holders: Vec<ProcessId> = (0..8).map(|_| ProcessId::generate()).collect();
    let taken = join_all(holders.iter().map(|holder| take(store, *holder, LONG))).await;
    let leases: Vec<TaskLease> = taken.into_iter().flatten().collect();
    assert_eq!(leases.len(), 1, "{leases:?}");
    let lease = leases[0];
    assert_eq!(take(store, lease.holder, LONG).await, Some(lease), "it has it already");
    assert!(store.tasks.renew(lease, LONG).await.expect("renews"));
    store.tasks.release(lease).await.expect("releases");
}

async fn a_released_task_is_taken_by_another_at_once(store: &Store) {
    let (first, second) = (ProcessId::generate(), ProcessId::generate());
    let lease = take(store, first, LONG).await.expect("the task is free");
    let held = async || {
        let tasks = store.tasks.list().await.expect("lists");
        tasks.into_iter().find(|task| task.name == lease.task.as_str()).map(|task| task.holder)
    };
    assert_eq!(held().await, Some(first));
    assert_eq!(take(store, second, LONG).await, None);
    // What another process has is not released.
    store.tasks.release(TaskLease { holder: second, ..lease }).await.expect("is ignored");
    assert_eq!(take(store, second, LONG).await, None);
    store.tasks.release(lease).await.expect("releases");
    assert_eq!(held().await, None);
    let lease = take(store, second, LONG).await.expect("the task is free");
    store.tasks.release(lease).await.expect("releases");
}

async fn an_expired_task_is_taken_and_its_former_holder_learns_it(store: &Store) {
    let (first, second) = (ProcessId::generate(), ProcessId::generate());
    let expired = take(store, first, Duration::ZERO).await.expect("the task is free");
    // As long as nobody else has taken it, nobody else has done anything of it.
    assert!(store.tasks.renew(expired, Duration::ZERO).await.expect("renews"));
    let lease = take(store, second, LONG).await.expect("the lease has expired");
    assert!(!store.tasks.renew(expired, LONG).await.expect("renews"));
    assert_eq!(take(store, first, LONG).await, None);
    store.tasks.release(lease).await.expect("releases");
}
