//! Checks JSON values against schemas of the document. Supports exactly the keywords that the document uses.

use serde_json::Value;

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
    let schema = resolve(document, schema);
    if let Some(choices) = schema.get("oneOf").and_then(Value::as_array) {
        let fitting = choices.iter().filter(|choice| check(document, choice, value).is_ok()).count();
        let reasons: Vec<_> =
            choices.iter().filter_map(|choice| check(document, choice, value).err()).collect();
        return if fitting == 1 {
            Ok(())
        } else {
            Err(format!("{fitting} of oneOf fit {value}: {reasons:?}"))
        };
    }
    for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        check(document, part, value)?;
    }
    let kinds = match schema.get("type") {
        None => return Ok(()),
        Some(Value::String(kind)) => vec![kind.as_str()],
        Some(kinds) => kinds.as_array().unwrap().iter().map(|kind| kind.as_str().unwrap()).collect(),
    };
    if !kinds.iter().any(|kind| has_type(kind, value)) {
        return Err(format!("{value} is not of {kinds:?}"));
    }
    let values = schema.get("enum").and_then(Value::as_array);
    if values.is_some_and(|values| !values.iter().any(|allowed| json_equal(allowed, value))) {
        return Err(format!("{value} is not one of {values:?}"));
    }
    check_number(schema, value)?;
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
    for item in value.as_array().into_iter().flatten() {
        check(document, &schema["items"], item)?;
    }
    Ok(())
}

fn check_number(schema: &Value, value: &Value) -> Result<(), String> {
    let Some(number) = value.as_f64() else { return Ok(()) };
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
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

fn json_equal(a: &Value, b: &Value) -> bool {
    a == b || a.as_f64().is_some_and(|number| Some(number) == b.as_f64())
}
