//! What may happen to a queue.

use proptest::prelude::*;

/// What may happen. Numbers choose among what there is at that moment.
#[derive(Clone, Debug)]
pub enum Step {
    Expect,
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
    Die(usize),
    GiveBack(usize),
    Finish(Vec<usize>),
    Fail(usize),
    /// A worker that lost its lease comes back and writes.
    Late(usize),
    Delete(usize),
    Retry(usize),
    Reprocess,
}

pub fn step() -> impl Strategy<Value = Step> {
    let any = 0..64_usize;
    prop_oneof![
        4 => Just(Step::Expect),
        5 => any.clone().prop_map(Step::Confirm),
        5 => (1..4_usize).prop_map(Step::Lease),
        4 => Just(Step::LeaseSuspect),
        4 => any.clone().prop_map(Step::LeaseNamed),
        2 => Just(Step::Publish),
        1 => Just(Step::Republish),
        4 => any.clone().prop_map(Step::Die),
        2 => any.clone().prop_map(Step::GiveBack),
        4 => prop::collection::vec(any.clone(), 1..4).prop_map(Step::Finish),
        2 => any.clone().prop_map(Step::Fail),
        3 => any.clone().prop_map(Step::Late),
        1 => any.clone().prop_map(Step::Delete),
        2 => any.prop_map(Step::Retry),
        1 => Just(Step::Reprocess),
    ]
}
