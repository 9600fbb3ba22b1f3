//! What may happen to a queue.

use proptest::prelude::*;

/// What may happen. Numbers choose among what there is at that moment.
#[derive(Clone, Debug)]
pub enum QueueOperation {
    CreatePhoto,
    Confirm(usize),
    Lease(usize),
    LeaseSuspect,
    /// A message names the photo, whatever became of it.
    LeaseNamed(usize),
    /// Everything that waits is published.
    Publish,
    /// All messages are lost.
    Republish,
    /// The worker dies: its lease lapses.
    ExpireLease(usize),
    Release(usize),
    Finish(Vec<usize>),
    Fail(usize),
    /// A worker that lost its lease comes back and writes.
    WriteWithPastLease(usize),
    Delete(usize),
    Retry(usize),
    Reprocess,
}

pub fn any_operation() -> impl Strategy<Value = QueueOperation> {
    let any = 0..64_usize;
    prop_oneof![
        4 => Just(QueueOperation::CreatePhoto),
        5 => any.clone().prop_map(QueueOperation::Confirm),
        5 => (1..4_usize).prop_map(QueueOperation::Lease),
        4 => Just(QueueOperation::LeaseSuspect),
        4 => any.clone().prop_map(QueueOperation::LeaseNamed),
        2 => Just(QueueOperation::Publish),
        1 => Just(QueueOperation::Republish),
        4 => any.clone().prop_map(QueueOperation::ExpireLease),
        2 => any.clone().prop_map(QueueOperation::Release),
        4 => prop::collection::vec(any.clone(), 1..4).prop_map(QueueOperation::Finish),
        2 => any.clone().prop_map(QueueOperation::Fail),
        3 => any.clone().prop_map(QueueOperation::WriteWithPastLease),
        1 => any.clone().prop_map(QueueOperation::Delete),
        2 => any.prop_map(QueueOperation::Retry),
        1 => Just(QueueOperation::Reprocess),
    ]
}
