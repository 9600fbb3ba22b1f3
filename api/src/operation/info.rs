//! Descriptions of operations, by the class of their rate limit.

use photofinish_store::model::rate::RateClass;

use crate::operation::OperationInfo;

pub(super) const fn read(
    id: &'static str,
    summary: &'static str,
    description: &'static str,
) -> OperationInfo {
    OperationInfo { id, summary, description, class: RateClass::Read }
}

pub(super) const fn manage(
    id: &'static str,
    summary: &'static str,
    description: &'static str,
) -> OperationInfo {
    OperationInfo { class: RateClass::Manage, ..read(id, summary, description) }
}

pub(super) const fn upload(
    id: &'static str,
    summary: &'static str,
    description: &'static str,
) -> OperationInfo {
    OperationInfo { class: RateClass::Upload, ..read(id, summary, description) }
}

pub(super) const fn search(
    id: &'static str,
    summary: &'static str,
    description: &'static str,
) -> OperationInfo {
    OperationInfo { class: RateClass::Search, ..read(id, summary, description) }
}
