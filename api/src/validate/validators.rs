//! Validators of JSON values. Each one checks a value and describes the same constraints as a JSON schema, so that the
//! OpenAPI document and the checks cannot differ.

use std::collections::BTreeMap;
use std::str::FromStr;

use photofinish_store::model::bib_format::BibFormatConfig;
use serde_json::Value;
use url::Url;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, SchemaFormat, SchemaType, Type};
use uuid::Uuid;

use crate::validate::issues::{IssueReport, PathSegment, code};
use crate::validate::shape::Shape;

/// The named schemas of the OpenAPI document.
pub(crate) type Schemas = BTreeMap<String, RefOr<Schema>>;

/// Checks and describes a JSON value.
pub(crate) trait Validator {
    /// The type of a valid value.
    type Out;
    /// Returns the value as a type, or `None` after adding at least one issue.
    fn check(&self, value: &Value, report: &mut IssueReport) -> Option<Self::Out>;
    /// Returns what it takes of a value.
    fn shape(&self) -> Shape {
        Shape::Scalar
    }
    /// Returns the schema; schemas that it refers to are added to `schemas`.
    fn schema(&self, schemas: &mut Schemas) -> RefOr<Schema>;
}

/// A string of `min` to `max` characters without U+0000, which PostgreSQL cannot store.
pub(crate) fn text(min: usize, max: usize) -> Text {
    Text { min, max, format: None, pattern: NO_NUL_PATTERN, check: check_no_nul }
}

/// An absolute `http` or `https` URI with a host, for pages to link to: `javascript:` and `data:` would run there.
pub(crate) fn web_uri() -> Text {
    Text { min: 1, max: 2048, format: Some("uri"), pattern: WEB_URI_PATTERN, check: check_web_uri }
}

/// A string of at most `max` characters that passes `check`; `pattern` says the same in the document.
pub(crate) fn formatted(max: usize, pattern: &'static str, check: CheckFn) -> Text {
    Text { min: 1, max, format: None, pattern, check }
}

/// A regular expression for bibs. It has no `format` in the document: `regex` there means ECMA 262, and this is the
/// dialect of the Rust crate `regex` (a lone `]` is valid, look-around is not).
pub(crate) fn bib_pattern() -> Text {
    Text { min: 1, max: 200, format: None, pattern: NO_NUL_PATTERN, check: check_regex }
}

/// A format of bibs as [`BibFormatConfig`] writes it.
pub(crate) fn bib_format() -> Text {
    Text { min: 1, max: 110, format: None, pattern: BIB_FORMAT_PATTERN, check: check_bib_format }
}

const BIB_FORMAT_PATTERN: &str = "^(auto|off|[A9]{1,12}([|][A9]{1,12}){0,7})$";

fn check_bib_format(text: &str) -> Result<(), String> {
    text.parse::<BibFormatConfig>().map(drop).map_err(|error| error.to_string())
}

type CheckFn = fn(&str) -> Result<(), String>;

const NO_NUL_PATTERN: &str = "^[^\\u0000]*$";

const WEB_URI_PATTERN: &str = "^[Hh][Tt][Tt][Pp][Ss]?://[^/?#\\u0000][^\\u0000]*$";

fn check_no_nul(text: &str) -> Result<(), String> {
    if text.contains('\0') { Err("must not contain U+0000".to_owned()) } else { Ok(()) }
}

/// `Url` accepts `http:a` and `http:///a` and finds a host in them; the part after the scheme is checked as it was sent.
fn check_web_uri(text: &str) -> Result<(), String> {
    check_absolute_uri(text)?;
    let (scheme, rest) = text.split_once(':').unwrap_or_default();
    let is_web = ["http", "https"].iter().any(|web| scheme.eq_ignore_ascii_case(web));
    let authority = rest.strip_prefix("//").and_then(|rest| rest.split(['/', '?', '#']).next());
    if is_web && authority.is_some_and(|authority| !authority.is_empty()) {
        Ok(())
    } else {
        Err("must begin with http:// or https:// and a host".to_owned())
    }
}

/// `Url` follows the WHATWG standard and repairs invalid URLs, so the characters are checked by RFC 3986, section 2.
fn check_absolute_uri(text: &str) -> Result<(), String> {
    let has_valid_characters =
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || URI_PUNCTUATION.contains(&byte));
    let has_valid_escapes = text
        .split('%')
        .skip(1)
        .all(|after| after.len() >= 2 && after.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()));
    match Url::parse(text) {
        Ok(_) if has_valid_characters && has_valid_escapes => Ok(()),
        Ok(_) => Err("must be an absolute URI, other characters percent-encoded".to_owned()),
        Err(_) => Err("must be an absolute URI".to_owned()),
    }
}

/// The characters of a URI besides letters and digits.
const URI_PUNCTUATION: &[u8] = b"-._~:/?#[]@!$&'()*+,;=%";

/// Uses the size limit with which the pipeline compiles the pattern.
fn check_regex(text: &str) -> Result<(), String> {
    let compile = |text: &str| regex::RegexBuilder::new(text).size_limit(1 << 18).build();
    // The pattern must be valid without the group too: `a)|(?:b` is valid only between parentheses.
    match compile(text).and_then(|_| compile(&format!("^(?:{text})$"))) {
        Ok(_) => check_no_nul(text),
        Err(regex::Error::CompiledTooBig(_)) => Err("is too large a regular expression".to_owned()),
        Err(_) => Err("must be a regular expression".to_owned()),
    }
}

/// See [`text`].
pub(crate) struct Text {
    min: usize,
    max: usize,
    format: Option<&'static str>,
    pattern: &'static str,
    check: CheckFn,
}

impl Validator for Text {
    type Out = String;

    fn check(&self, value: &Value, report: &mut IssueReport) -> Option<String> {
        let Value::String(text) = value else {
            return report_wrong_type("a string", value, report);
        };
        let length = text.chars().count();
        if length < self.min {
            report.add(code::TOO_SMALL, format!("must have at least {} characters", self.min));
            return None;
        }
        if length > self.max {
            report.add(code::TOO_BIG, format!("must have at most {} characters", self.max));
            return None;
        }
        if let Err(message) = (self.check)(text) {
            report.add(code::INVALID_FORMAT, message);
            return None;
        }
        Some(text.clone())
    }

    fn schema(&self, _: &mut Schemas) -> RefOr<Schema> {
        let minimum = (self.min > 0).then_some(self.min);
        let format = self.format.map(|name| SchemaFormat::Custom(name.to_owned()));
        typed_schema(Type::String)
            .min_length(minimum)
            .max_length(Some(self.max))
            .pattern(Some(self.pattern))
            .format(format)
            .into()
    }
}

/// Any string, for what is parsed afterwards: ids that can be unknown but not malformed, cursors, files. It may contain U+0000,
/// so it must not reach the database as it is.
pub(crate) struct AnyText;

impl Validator for AnyText {
    type Out = String;

    fn check(&self, value: &Value, report: &mut IssueReport) -> Option<String> {
        match value {
            Value::String(text) => Some(text.clone()),
            _ => report_wrong_type("a string", value, report),
        }
    }

    fn schema(&self, _: &mut Schemas) -> RefOr<Schema> {
        typed_schema(Type::String).into()
    }
}

/// A UUID in the hyphenated form.
pub(crate) struct UuidOf<T>(std::marker::PhantomData<T>);

/// See [`UuidOf`].
pub(crate) fn uuid<T>() -> UuidOf<T> {
    UuidOf(std::marker::PhantomData)
}

impl<T: FromStr> Validator for UuidOf<T> {
    type Out = T;

    fn check(&self, value: &Value, report: &mut IssueReport) -> Option<T> {
        let Value::String(text) = value else {
            return report_wrong_type("a string", value, report);
        };
        // The parser also accepts braces, URNs and plain digits; the contract has only the hyphenated form.
        let id = if text.len() == Uuid::nil().to_string().len() { text.parse().ok() } else { None };
        if id.is_none() {
            report.add(code::INVALID_FORMAT, "must be a UUID");
        }
        id
    }

    fn schema(&self, _: &mut Schemas) -> RefOr<Schema> {
        typed_schema(Type::String).format(Some(SchemaFormat::Custom("uuid".to_owned()))).into()
    }
}

/// A number from `min` to `max`.
pub(crate) struct Number {
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Validator for Number {
    type Out = f64;

    fn check(&self, value: &Value, report: &mut IssueReport) -> Option<f64> {
        let Some(number) = value.as_f64() else {
            return report_wrong_type("a number", value, report);
        };
        if number < self.min {
            report.add(code::TOO_SMALL, format!("must be at least {}", self.min));
            return None;
        }
        if number > self.max {
            report.add(code::TOO_BIG, format!("must be at most {}", self.max));
            return None;
        }
        Some(number)
    }

    fn schema(&self, _: &mut Schemas) -> RefOr<Schema> {
        typed_schema(Type::Number).minimum(Some(self.min)).maximum(Some(self.max)).into()
    }
}

/// An integer from `min` to `max`. As in JSON Schema, `16.0` is an integer too.
pub(crate) struct Integer {
    pub(crate) min: u32,
    pub(crate) max: u32,
}

impl Validator for Integer {
    type Out = u32;

    fn check(&self, value: &Value, report: &mut IssueReport) -> Option<u32> {
        let number = Number { min: f64::from(self.min), max: f64::from(self.max) }.check(value, report)?;
        if number.fract() != 0.0 {
            report.add(code::NOT_MULTIPLE_OF, "must be a whole number");
            return None;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and in range")]
        Some(number as u32)
    }

    fn schema(&self, _: &mut Schemas) -> RefOr<Schema> {
        let (min, max) = (f64::from(self.min), f64::from(self.max));
        typed_schema(Type::Number).minimum(Some(min)).maximum(Some(max)).multiple_of(Some(1.0)).into()
    }
}

/// `true` or `false`.
pub(crate) struct Boolean;

impl Validator for Boolean {
    type Out = bool;

    fn check(&self, value: &Value, report: &mut IssueReport) -> Option<bool> {
        match value {
            Value::Bool(flag) => Some(*flag),
            _ => report_wrong_type("a boolean", value, report),
        }
    }

    fn schema(&self, _: &mut Schemas) -> RefOr<Schema> {
        typed_schema(Type::Boolean).into()
    }
}

/// One of `choices`, each written as `to_name` returns it.
pub(crate) struct OneOf<T: 'static> {
    pub(crate) choices: &'static [T],
    pub(crate) to_name: fn(T) -> &'static str,
}

impl<T: Copy> Validator for OneOf<T> {
    type Out = T;

    fn check(&self, value: &Value, report: &mut IssueReport) -> Option<T> {
        let Value::String(text) = value else {
            return report_wrong_type("a string", value, report);
        };
        let found = self.choices.iter().copied().find(|choice| (self.to_name)(*choice) == text);
        if found.is_none() {
            let names: Vec<&str> = self.choices.iter().map(|choice| (self.to_name)(*choice)).collect();
            report.add(code::INVALID_VALUE, format!("must be one of {}", names.join(", ")));
        }
        found
    }

    fn schema(&self, _: &mut Schemas) -> RefOr<Schema> {
        let names = self.choices.iter().map(|choice| (self.to_name)(*choice));
        typed_schema(Type::String).enum_values(Some(names)).into()
    }
}

/// An array of `min` to `max` items, each checked by `item`.
pub(crate) struct ListOf<R> {
    pub(crate) item: R,
    pub(crate) min: usize,
    pub(crate) max: usize,
}

impl<R: Validator> Validator for ListOf<R> {
    type Out = Vec<R::Out>;

    fn check(&self, value: &Value, report: &mut IssueReport) -> Option<Self::Out> {
        let Value::Array(items) = value else {
            return report_wrong_type("an array", value, report);
        };
        if items.len() < self.min {
            report.add(code::TOO_SMALL, format!("must have at least {} items", self.min));
            return None;
        }
        if items.len() > self.max {
            report.add(code::TOO_BIG, format!("must have at most {} items", self.max));
            return None;
        }
        let mut checked = Vec::with_capacity(items.len());
        for (position, item) in items.iter().enumerate() {
            checked.push(report.within(PathSegment::Index(position), |report| self.item.check(item, report)));
        }
        checked.into_iter().collect()
    }

    fn shape(&self) -> Shape {
        Shape::List { item: Box::new(self.item.shape()), max: self.max }
    }

    fn schema(&self, schemas: &mut Schemas) -> RefOr<Schema> {
        let minimum = (self.min > 0).then_some(self.min);
        let items = self.item.schema(schemas);
        let array = ArrayBuilder::new().items(items).min_items(minimum).max_items(Some(self.max)).build();
        RefOr::T(Schema::Array(array))
    }
}

/// `null`, or a value that the inner validator accepts.
pub(crate) struct Nullable<R>(pub(crate) R);

impl<R: Validator> Validator for Nullable<R> {
    type Out = Option<R::Out>;

    fn check(&self, value: &Value, report: &mut IssueReport) -> Option<Self::Out> {
        match value {
            Value::Null => Some(None),
            _ => self.0.check(value, report).map(Some),
        }
    }

    fn shape(&self) -> Shape {
        self.0.shape()
    }

    fn schema(&self, schemas: &mut Schemas) -> RefOr<Schema> {
        match self.0.schema(schemas) {
            RefOr::T(Schema::Object(mut object)) => {
                if let SchemaType::Type(plain) = object.schema_type {
                    object.schema_type = SchemaType::Array(vec![plain, Type::Null]);
                }
                RefOr::T(Schema::Object(object))
            }
            other => {
                let null = ObjectBuilder::new().schema_type(SchemaType::Type(Type::Null));
                utoipa::openapi::schema::OneOfBuilder::new().item(other).item(null).into()
            }
        }
    }
}

/// Returns a schema with only a type.
pub(crate) fn typed_schema(kind: Type) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::Type(kind))
}

/// Adds an issue with the expected and the actual type.
pub(crate) fn report_wrong_type<T>(expected: &str, value: &Value, report: &mut IssueReport) -> Option<T> {
    let received = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    report.add(code::INVALID_TYPE, format!("must be {expected}, not {received}"));
    None
}
