//! Collects the issues of an input, each with the path to the invalid value.

use serde::Serialize;

/// One invalid value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Issue {
    /// From the root of the body to the value.
    pub(crate) path: Vec<PathSegment>,
    /// One of [`code`].
    pub(crate) code: &'static str,
    /// What is wrong, for people.
    pub(crate) message: String,
}

/// One segment of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum PathSegment {
    /// A field of an object.
    Field(&'static str),
    /// An item of an array.
    Index(usize),
}

/// The codes of issues.
pub(crate) mod code {
    /// A required field is missing.
    pub(crate) const REQUIRED: &str = "required";
    /// The value has another JSON type.
    pub(crate) const INVALID_TYPE: &str = "invalid_type";
    /// The value, its length or its number of items is below the minimum.
    pub(crate) const TOO_SMALL: &str = "too_small";
    /// The value, its length or its number of items is above the maximum.
    pub(crate) const TOO_BIG: &str = "too_big";
    /// The number has a fraction but must be an integer.
    pub(crate) const NOT_MULTIPLE_OF: &str = "not_multiple_of";
    /// The string does not have the required format.
    pub(crate) const INVALID_FORMAT: &str = "invalid_format";
    /// The URL names an address that is not public.
    pub(crate) const ADDRESS_REFUSED: &str = "address_refused";
    /// What the change means must be acknowledged.
    pub(crate) const ACKNOWLEDGE_REQUIRED: &str = "acknowledge_required";
    /// The password is among those that are guessed first.
    pub(crate) const TOO_COMMON: &str = "too_common";
    /// The password is the address of the account.
    pub(crate) const IS_ADDRESS: &str = "is_address";
    /// The file is no image that can be used.
    pub(crate) const INVALID_IMAGE: &str = "invalid_image";
    /// The value is not one of those allowed.
    pub(crate) const INVALID_VALUE: &str = "invalid_value";
}

/// The issues found so far, and the path of the value that is being checked.
#[derive(Debug, Default)]
pub(crate) struct IssueReport {
    path: Vec<PathSegment>,
    issues: Vec<Issue>,
}

impl IssueReport {
    /// Adds an issue of the current value.
    pub(crate) fn add(&mut self, code: &'static str, message: impl Into<String>) {
        self.issues.push(Issue { path: self.path.clone(), code, message: message.into() });
    }

    /// Runs `check` with `segment` appended to the path.
    pub(crate) fn within<T>(&mut self, step: PathSegment, check: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(step);
        let result = check(self);
        self.path.pop();
        result
    }

    /// Returns the issues in the order in which they were found.
    pub(crate) fn into_issues(self) -> Vec<Issue> {
        self.issues
    }
}
