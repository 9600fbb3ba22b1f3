//! Collects everything that is wrong with an input, each with the path to it. Knows no rules of its own.

use serde::Serialize;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Issue {
    /// From the body's root to the value, names and positions.
    pub(crate) path: Vec<PathSegment>,
    /// What kind of rule is broken.
    pub(crate) code: &'static str,
    /// A sentence for a person.
    pub(crate) message: String,
}

/// One step of a path.
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
    /// A value of another JSON type.
    pub(crate) const INVALID_TYPE: &str = "invalid_type";
    /// Shorter, fewer or less than allowed.
    pub(crate) const TOO_SMALL: &str = "too_small";
    /// Longer, more or greater than allowed.
    pub(crate) const TOO_BIG: &str = "too_big";
    /// A number with a fraction where none is allowed.
    pub(crate) const NOT_MULTIPLE_OF: &str = "not_multiple_of";
    /// A string that is not what it should spell.
    pub(crate) const INVALID_FORMAT: &str = "invalid_format";
    /// Not one of the values allowed.
    pub(crate) const INVALID_VALUE: &str = "invalid_value";
}

/// The issues found so far, and where the reader is.
#[derive(Debug, Default)]
pub(crate) struct IssueReport {
    path: Vec<PathSegment>,
    issues: Vec<Issue>,
}

impl IssueReport {
    /// Notes that the value at the present place breaks a rule.
    pub(crate) fn add(&mut self, code: &'static str, message: impl Into<String>) {
        self.issues.push(Issue { path: self.path.clone(), code, message: message.into() });
    }

    /// Reads one step deeper.
    pub(crate) fn within<T>(&mut self, step: PathSegment, read: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(step);
        let result = read(self);
        self.path.pop();
        result
    }

    /// What was found.
    pub(crate) fn into_issues(self) -> Vec<Issue> {
        self.issues
    }
}
