//! The operations on a queue.

use proptest::prelude::*;

/// An operation. Numbers choose among the photos or leases that exist at that moment.
#[derive(Clone, Debug)]
pub enum QueueOperation {
    CreatePhoto,
    Confirm(usize),
    Lease(usize),
    LeaseSuspect,
    /// A message names the photo, whatever its state.
    LeaseNamed(usize),
    /// Every waiting photo is published.
    Publish,
    /// All messages are lost.
    Republish,
    /// The worker dies: its lease expires.
    ExpireLease(usize),
    Release(usize),
    Finish(Vec<usize>),
    Fail(usize),
    /// A worker that has lost its lease writes late.
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
