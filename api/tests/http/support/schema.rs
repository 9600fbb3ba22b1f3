//! Checks JSON values against schemas of the document. Knows exactly the keywords and formats that the document uses: another one
//! fails the test, so that nothing is documented and not checked.

use regex::Regex;
use serde_json::Value;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{Date, OffsetDateTime};
use url::Url;
use uuid::Uuid;

/// Keywords that forbid no value.
const ANNOTATIONS: [&str; 4] = ["default", "description", "example", "examples"];

/// Keywords in place of a schema's own: nothing but annotations stands beside them.
const REFERENCES: [&str; 2] = ["$ref", "oneOf"];

/// All other keywords.
const KEYWORDS: [&str; 15] = [
    "allOf",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "multipleOf",
    "pattern",
    "properties",
    "required",
    "type",
];

/// Checks a body against a response of the document.
pub fn check_response(document: &Value, response: &Value, body: &Value) {
    assert!(!response.is_null(), "this status is not in the document");
    let response = resolve(document, response);
    let schema = &response["content"]["application/json"]["schema"];
    if let Err(problem) = check(document, schema, body) {
        panic!("not as documented: {problem}\nin {body}");
    }
}

/// Follows a reference, if the value is one.
pub fn resolve<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let Some(reference) = value.get("$ref").and_then(Value::as_str) else { return value };
    let target = document.pointer(reference.strip_prefix('#').unwrap());
    resolve(document, target.unwrap_or_else(|| panic!("{reference} names nothing")))
}

/// Checks a value against a schema.
pub fn check(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    assert_is_known(schema);
    let schema = resolve(document, schema);
    assert_is_known(schema);
    if let Some(choices) = schema.get("oneOf") {
        return check_one_of(document, choices.as_array().unwrap(), value);
    }
    for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        check(document, part, value)?;
    }
    check_type(schema, value)?;
    let values = schema.get("enum").and_then(Value::as_array);
    if values.is_some_and(|values| !values.iter().any(|allowed| json_equal(allowed, value))) {
        return Err(format!("{value} is not one of {values:?}"));
    }
    check_number(schema, value)?;
    check_text(schema, value)?;
    check_fields(document, schema, value)?;
    check_items(document, schema, value)
}

/// Asserts that this is a schema, all of whose keywords are looked at here.
fn assert_is_known(schema: &Value) {
    let keywords = schema.as_object().unwrap_or_else(|| panic!("{schema} is no schema"));
    let reference = REFERENCES.into_iter().find(|name| keywords.contains_key(*name));
    for keyword in keywords.keys().map(String::as_str) {
        let is_checked = match reference {
            Some(reference) => keyword == reference,
            None => KEYWORDS.contains(&keyword),
        };
        assert!(is_checked || ANNOTATIONS.contains(&keyword), "{keyword} of {schema} is not checked here");
    }
}

fn check_one_of(document: &Value, choices: &[Value], value: &Value) -> Result<(), String> {
    let checked: Vec<_> = choices.iter().map(|choice| check(document, choice, value)).collect();
    match checked.iter().filter(|result| result.is_ok()).count() {
        1 => Ok(()),
        fitting => Err(format!("{fitting} of oneOf fit {value}: {checked:?}")),
    }
}

fn check_type(schema: &Value, value: &Value) -> Result<(), String> {
    let kinds = match schema.get("type") {
        None => return Ok(()),
        Some(Value::String(kind)) => vec![kind.as_str()],
        Some(kinds) => kinds.as_array().unwrap().iter().map(|kind| kind.as_str().unwrap()).collect(),
    };
    if kinds.iter().any(|kind| has_type(kind, value)) {
        Ok(())
    } else {
        Err(format!("{value} is not of {kinds:?}"))
    }
}

fn check_number(schema: &Value, value: &Value) -> Result<(), String> {
    let Some(number) = value.as_f64() else { return Ok(()) };
    let bound = |name: &str| schema.get(name).map(|bound| bound.as_f64().unwrap());
    if bound("minimum").is_some_and(|least| number < least)
        || bound("maximum").is_some_and(|most| number > most)
    {
        return Err(format!("{value} is out of range"));
    }
    if bound("multipleOf").is_some_and(|step| (number / step).fract() != 0.0) {
        return Err(format!("{value} is no multiple"));
    }
    Ok(())
}

fn check_text(schema: &Value, value: &Value) -> Result<(), String> {
    let Some(text) = value.as_str() else { return Ok(()) };
    check_count(schema, ["minLength", "maxLength"], text.chars().count())?;
    let keyword = |name: &str| schema.get(name).map(|keyword| keyword.as_str().unwrap());
    if let Some(pattern) = keyword("pattern")
        && !Regex::new(pattern).unwrap().is_match(text)
    {
        return Err(format!("{value} does not match {pattern}"));
    }
    match keyword("format") {
        Some(format) if !has_format(format, text) => Err(format!("{value} is no {format}")),
        _ => Ok(()),
    }
}

fn check_fields(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
        if value.is_object() && value.get(name.as_str().unwrap()).is_none() {
            return Err(format!("{name} is missing"));
        }
    }
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if let Some(field) = value.get(name) {
            check(document, property, field).map_err(|problem| format!("{name}: {problem}"))?;
        }
    }
    Ok(())
}

fn check_items(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let Some(items) = value.as_array() else { return Ok(()) };
    check_count(schema, ["minItems", "maxItems"], items.len())?;
    items.iter().try_for_each(|item| check(document, &schema["items"], item))
}

/// Checks how many characters or items there are against the keywords for the fewest and the most.
fn check_count(schema: &Value, [fewest, most]: [&str; 2], count: usize) -> Result<(), String> {
    let limit = |name: &str| schema.get(name).map(|limit| limit.as_u64().unwrap());
    let count = count as u64;
    if limit(fewest).is_some_and(|limit| count < limit) || limit(most).is_some_and(|limit| count > limit) {
        return Err(format!("{count} is out of {fewest} and {most}"));
    }
    Ok(())
}

fn has_type(kind: &str, value: &Value) -> bool {
    match kind {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "null" => value.is_null(),
        other => panic!("the document uses the type {other}"),
    }
}

fn has_format(format: &str, text: &str) -> bool {
    match format {
        "date" => Date::parse(text, format_description!("[year]-[month]-[day]")).is_ok(),
        "date-time" => OffsetDateTime::parse(text, &Rfc3339).is_ok(),
        "uri" => Url::parse(text).is_ok(),
        // The parser takes braces, URNs and plain digits too.
        "uuid" => Uuid::try_parse(text).is_ok_and(|id| id.to_string() == text.to_ascii_lowercase()),
        other => panic!("the document uses the format {other}"),
    }
}

fn json_equal(a: &Value, b: &Value) -> bool {
    a == b || a.as_f64().is_some_and(|number| Some(number) == b.as_f64())
}
