//! The validator of times.

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{Schema, SchemaFormat, Type};

use crate::validate::issues::{IssueReport, code};
use crate::validate::validators::{Schemas, Validator, report_wrong_type, typed_schema};

/// A time by RFC 3339.
pub(crate) struct DateTime;

/// See [`DateTime`].
pub(crate) fn date_time() -> DateTime {
    DateTime
}

impl Validator for DateTime {
    type Out = OffsetDateTime;

    fn check(&self, value: &Value, report: &mut IssueReport) -> Option<OffsetDateTime> {
        let Value::String(text) = value else {
            return report_wrong_type("a string", value, report);
        };
        let time = OffsetDateTime::parse(text, &Rfc3339).ok();
        if time.is_none() {
            report.add(code::INVALID_FORMAT, "must be a time such as 2026-10-04T09:41:07Z");
        }
        time
    }

    fn schema(&self, _: &mut Schemas) -> RefOr<Schema> {
        typed_schema(Type::String).format(Some(SchemaFormat::Custom("date-time".to_owned()))).into()
    }
}
