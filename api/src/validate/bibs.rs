//! The validator of bibs that are searched for.

use photofinish_store::search::variants::normalise_bib;
use serde_json::Value;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;

use crate::validate::issues::{IssueReport, code};
use crate::validate::validators::{Schemas, Text, Validator, text};

/// A bib as somebody types it, with a letter or a digit. Anything else is no search: it finds nothing, and must not cost
/// anything.
pub(crate) struct TypedBib(Text);

/// See [`TypedBib`]: one of at most `max` characters.
pub(crate) fn typed_bib(max: usize) -> TypedBib {
    TypedBib(text(1, max))
}

impl Validator for TypedBib {
    type Out = String;

    fn check(&self, value: &Value, report: &mut IssueReport) -> Option<String> {
        let bib = self.0.check(value, report)?;
        if normalise_bib(&bib).is_empty() {
            report.add(code::TOO_SMALL, "must have a letter or a digit");
            return None;
        }
        Some(bib)
    }

    /// The letters and digits of all scripts have no pattern that every dialect of regular expressions knows.
    fn schema(&self, schemas: &mut Schemas) -> RefOr<Schema> {
        self.0.schema(schemas)
    }
}
