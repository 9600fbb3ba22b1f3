//! The OpenAPI document is well formed, complete, and matches what the service checks.

use photofinish_api::errors::table::ErrorKind;
use photofinish_store::model::key::{KeyMode, Scope};
use serde_json::{Map, Value, json};

use crate::support::client::document;
use crate::support::{Partner, TestService, schema};

fn operations() -> impl Iterator<Item = (&'static str, &'static Value)> {
    document()["paths"].as_object().unwrap().iter().map(|(path, item)| (path.as_str(), &item["post"]))
}

#[test]
fn the_document_is_served_with_the_versions_of_the_contract() {
    let service = TestService::start();
    let anonymous = Partner::new(&service, None);
    let response = anonymous.send("GET /openapi/openapi.json", &[], "");
    assert_eq!(response.header("content-type"), "application/json");
    let served = response.ok();
    assert_eq!(&served, document());
    assert_eq!(served["openapi"], json!("3.1.1"));
    assert_eq!(served["info"]["version"], json!("1.0.0"));
    assert_eq!(served["servers"], json!([{ "url": "../openapi" }]));
    let scheme = &served["components"]["securitySchemes"]["apiKey"];
    assert_eq!(
        (&scheme["type"], &scheme["in"], &scheme["name"]),
        (&json!("apiKey"), &json!("header"), &json!("x-api-key"))
    );
    assert_eq!(served["security"], json!([{ "apiKey": [] }]));
}

#[test]
fn the_document_describes_what_webhooks_send() {
    let sent = &document()["webhooks"]["event"]["post"];
    let names: Vec<&Value> =
        sent["parameters"].as_array().unwrap().iter().map(|header| &header["name"]).collect();
    assert_eq!(names, ["webhook-id", "webhook-timestamp", "webhook-signature"]);
    let body = &sent["requestBody"]["content"]["application/json"]["schema"];
    let event =
        json!({ "type": "album.idle", "timestamp": "2026-10-04T12:00:00Z", "data": { "sequence": 7 } });
    assert_eq!(schema::check(document(), body, &event), Ok(()));
    assert!(schema::check(document(), body, &json!({ "type": "album.idle", "data": {} })).is_err());
}

#[test]
fn operation_ids_are_the_paths_with_dots() {
    for (path, operation) in operations() {
        assert_eq!(operation["operationId"], json!(path[1..].replace('/', ".")));
    }
}

#[test]
fn every_operation_has_every_row_of_the_error_table() {
    for (path, operation) in operations() {
        let responses = operation["responses"].as_object().unwrap();
        assert_eq!(responses.len(), 1 + ErrorKind::ALL.len(), "{path}");
        for kind in ErrorKind::ALL {
            let response = schema::resolve(document(), &responses[&kind.status().to_string()]);
            let content = &response["content"]["application/json"];
            schema::check_response(document(), response, &content["example"]);
            let plain = json!({ "defined": true, "code": kind.code(), "status": kind.status(),
                "message": kind.message() });
            schema::check_response(document(), response, &plain);
            let mut wrong = plain.clone();
            wrong["code"] = json!("ANOTHER");
            assert!(schema::check(document(), &content["schema"], &wrong).is_err(), "{path}");
        }
    }
}

#[test]
fn every_reference_names_something_and_every_schema_is_used() {
    let text = document().to_string();
    let named: std::collections::HashSet<&str> =
        text.split("\"$ref\":\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    for reference in &named {
        assert!(document().pointer(&reference[1..]).is_some(), "{reference}");
    }
    for kind in ["schemas", "responses"] {
        for name in document()["components"][kind].as_object().unwrap().keys() {
            let reference = format!("#/components/{kind}/{name}");
            assert!(named.contains(reference.as_str()), "{reference} is used nowhere");
        }
    }
}

/// Every field of the partner contract: name, `!` if it is required, type and format.
const CONTRACT: [(&str, &[&str]); 18] = [
    (
        "Album",
        &[
            "id! string uuid",
            "organizationId! string uuid",
            "createdBy! string uuid",
            "title! string",
            "coverUrl! string|null uri",
            "tags! array",
            "config! AlbumConfig|null",
            "createdAt! string date-time",
            "updatedAt! string date-time",
        ],
    ),
    (
        "AlbumConfig",
        &[
            "face! RecognitionSettings",
            "text! RecognitionSettings",
            "preview! ImageSettings",
            "thumbnail! ImageSettings",
        ],
    ),
    (
        "RecognitionSettings",
        &["confidenceThreshold! number", "enabled! boolean", "grid! Grid|null", "mode! string"],
    ),
    ("Grid", &["rows! number", "columns! number", "cellWidth! number", "cellHeight! number"]),
    ("ImageSettings", &["maxDimension! number"]),
    ("CreateAlbum", &["title! string", "coverUrl string uri"]),
    ("SignPhoto", &["albumId! string uuid", "filename! string", "contentType! string"]),
    ("PhotoTicket", &["uploadUrl! string uri", "photoId! string"]),
    ("OnePhoto", &["albumId! string uuid", "photoId! string"]),
    ("Acknowledgement", &["success! boolean", "message! string"]),
    ("OneAlbum", &["albumId! string uuid"]),
    ("ProbeTicket", &["uploadUrl! string uri", "imageId! string"]),
    ("SearchFace", &["albumId! string uuid", "imageId! string"]),
    ("SearchText", &["albumId! string uuid", "text! string"]),
    ("FaceHits", &["photos! array", "total! number"]),
    (
        "FaceHit",
        &[
            "id! string",
            "url! string uri",
            "thumbnailUrl! string uri",
            "confidence! number",
            "boundingBox! BoundingBox",
        ],
    ),
    ("BoundingBox", &["top! number", "left! number", "width! number", "height! number"]),
    ("TextHit", &["id! string", "url! string uri", "matchedText! string", "confidence! number"]),
];

#[test]
fn the_document_has_the_fields_of_the_contract_with_their_types() {
    for (name, expected) in CONTRACT {
        let schema = &document()["components"]["schemas"][name];
        let required = schema["required"].as_array().unwrap();
        let fields = schema["properties"].as_object().unwrap().iter();
        let there: Vec<String> = fields
            .map(|(field, property)| {
                let mark = if required.contains(&json!(field)) { "!" } else { "" };
                let format = property["format"].as_str().unwrap_or_default();
                format!("{field}{mark} {} {format}", property_type(property)).trim().to_owned()
            })
            .collect();
        for field in expected {
            assert!(there.iter().any(|found| found == field), "{name}: {field} is not in {there:?}");
        }
    }
    let schemas = &document()["components"]["schemas"];
    assert_eq!(schemas["CreateAlbum"]["properties"]["title"]["minLength"], json!(1));
    assert_eq!(schemas["RecognitionSettings"]["properties"]["mode"]["enum"], json!(["photo", "grid"]));
}

/// Requests with a limit: how many a page has where none is given, and at most.
const PAGES: [(&str, [u32; 2]); 9] = [
    ("ListAlbums", [50, 200]),
    ("ListDeliveries", [50, 200]),
    ("ListErasures", [50, 200]),
    ("ListEvents", [100, 500]),
    ("ListPhotos", [100, 1000]),
    ("ListStartListEntries", [100, 1000]),
    ("ListWebhooks", [50, 200]),
    ("SearchFace", [100, 1000]),
    ("SearchText", [100, 1000]),
];

#[test]
fn pages_have_the_sizes_of_the_contract() {
    let schemas = document()["components"]["schemas"].as_object().unwrap();
    let limits = schemas.iter().filter_map(|(name, schema)| {
        let limit = schema["properties"].get("limit")?;
        let sizes = ["default", "maximum"].map(|keyword| limit[keyword].as_f64().unwrap());
        assert_eq!(limit["minimum"].as_f64(), Some(1.0), "{name}");
        Some((name.as_str(), sizes))
    });
    let limits: Vec<(&str, [f64; 2])> = limits.collect();
    assert_eq!(limits, PAGES.map(|(name, sizes)| (name, sizes.map(f64::from))));
}

/// The type of a property, or the name of its schema.
fn property_type(property: &Value) -> String {
    let name = |value: &Value| value.as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    if let Some(reference) = property.get("$ref") {
        return name(reference);
    }
    let several = property.get("oneOf").or_else(|| property.get("type").filter(|kind| kind.is_array()));
    match several {
        Some(kinds) => {
            let mut kinds: Vec<String> = kinds
                .as_array()
                .unwrap()
                .iter()
                .map(|k| if k.is_string() { name(k) } else { property_type(k) })
                .collect();
            // `null` last, whatever the order.
            kinds.sort_by_key(|kind| kind == "null");
            kinds.join("|")
        }
        None => name(&property["type"]),
    }
}

#[test]
fn every_example_follows_its_schema_and_every_request_example_is_accepted() {
    let service = TestService::start();
    let partner = service.partner();
    let test = service.partner_with("Lake Timing", KeyMode::Test, &Scope::ALL);
    for (path, operation) in operations() {
        let request = &operation["requestBody"]["content"]["application/json"];
        schema::check(document(), &request["schema"], &request["example"]).unwrap();
        let response = &operation["responses"]["200"]["content"]["application/json"];
        schema::check(document(), &response["schema"], &response["example"]).unwrap();
        // Only test keys have mock credits.
        let caller = if path == "/credits/mock/set" { &test } else { &partner };
        let response = caller.call(path, &request["example"]);
        assert!([200, 404].contains(&response.status), "{path}: {}", response.json());
    }
}

#[test]
fn a_request_body_is_required_exactly_where_a_field_is() {
    let service = TestService::start();
    for (path, operation) in operations() {
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        let fields =
            schema::resolve(document(), schema)["required"].as_array().is_some_and(|r| !r.is_empty());
        assert_eq!(operation["requestBody"]["required"], json!(fields), "{path}");
        let response = service.partner().send(&format!("POST /openapi{path}"), &[], "");
        assert_eq!(response.status == 400, fields, "{path}");
    }
}

/// For every constraint of every request field, a value that violates it is reported as an issue of that field.
#[test]
fn every_constraint_of_the_document_is_checked() {
    let service = TestService::start();
    let partner = service.partner();
    let mut broken = 0;
    for (path, operation) in operations() {
        let request = &operation["requestBody"]["content"]["application/json"];
        let mut violations = Vec::new();
        collect_violations(&request["schema"], &mut Vec::new(), &mut violations);
        for (place, value) in violations {
            let mut body = request["example"].clone();
            set_value(&mut body, &place, &value);
            let issues = partner.call(path, &body).issues();
            let place = Value::from(place).to_string();
            assert!(
                issues.iter().any(|(path, _)| *path == place),
                "{path} took {value:?} at {place}: {issues:?}"
            );
            broken += 1;
        }
    }
    assert!(broken > 200, "{broken}");
}

/// Collects values that a schema forbids, each with its path in the body; `None` removes a required field.
fn collect_violations(schema: &Value, place: &mut Vec<Value>, found: &mut Vec<(Vec<Value>, Option<Value>)>) {
    let schema = schema::resolve(document(), schema);
    let schema = match schema.get("oneOf") {
        Some(choices) => schema::resolve(
            document(),
            choices.as_array().unwrap().iter().find(|c| c.get("$ref").is_some()).unwrap(),
        ),
        None => schema,
    };
    let mut wrong = |value: Value| found.push((place.clone(), Some(value)));
    let kinds = schema["type"].to_string();
    for (kind, value) in
        [("string", json!("x")), ("number", json!(1)), ("boolean", json!(true)), ("array", json!([]))]
    {
        if !kinds.contains(kind) && !place.is_empty() {
            wrong(value);
        }
    }
    let number = |name: &str| schema.get(name).and_then(Value::as_f64);
    let length = |name: &str| schema.get(name).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
    number("minimum").into_iter().for_each(|least| wrong(json!(least - 1.0)));
    number("maximum").into_iter().for_each(|most| wrong(json!(most + 1.0)));
    number("multipleOf").into_iter().for_each(|step| wrong(json!(64.0 + step / 2.0)));
    length("minLength").into_iter().for_each(|least| wrong(json!("x".repeat(least - 1))));
    length("maxLength").into_iter().for_each(|most| wrong(json!("1".repeat(most + 1))));
    if schema.get("pattern").is_some() {
        wrong(json!("\0"));
    }
    if schema.get("enum").is_some() {
        wrong(json!("none of them"));
    }
    if schema.get("format").is_some() {
        wrong(json!("("));
    }
    length("minItems").into_iter().for_each(|_| wrong(json!([])));
    if let Some(items) = schema.get("items") {
        place.push(json!(0));
        collect_violations(items, place, found);
        place.pop();
    }
    for (name, property) in schema.get("properties").and_then(Value::as_object).unwrap_or(&Map::new()) {
        place.push(json!(name));
        if schema["required"].as_array().is_some_and(|required| required.contains(&json!(name))) {
            found.push((place.clone(), None));
        }
        collect_violations(property, place, found);
        place.pop();
    }
}

/// Sets a value in a body, creating missing parents; `None` removes the field.
fn set_value(body: &mut Value, place: &[Value], value: &Option<Value>) {
    let Some((step, rest)) = place.split_first() else {
        *body = value.clone().unwrap();
        return;
    };
    match step {
        Value::String(name) => {
            if !body.is_object() {
                *body = json!({});
            }
            let fields = body.as_object_mut().unwrap();
            match (rest.is_empty(), value) {
                (true, None) => drop(fields.remove(name)),
                _ => set_value(fields.entry(name).or_insert(Value::Null), rest, value),
            }
        }
        _ => {
            if body.as_array().is_none_or(Vec::is_empty) {
                *body = json!([null]);
            }
            set_value(&mut body[0], rest, value);
        }
    }
}

#[test]
fn the_readable_page_is_one_file_under_a_strict_policy() {
    let service = TestService::start();
    let anonymous = Partner::new(&service, None);
    for path in ["/openapi/docs", "/openapi/docs/"] {
        let response = anonymous.send(&format!("GET {path}"), &[], "");
        assert_eq!(response.status, 200);
        assert_eq!(response.header("content-type"), "text/html; charset=utf-8");
        let policy = response.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; style-src 'sha256-") && !policy.contains("unsafe"),
            "{policy}"
        );
        let page = String::from_utf8(response.bytes).unwrap();
        assert!(page.contains("\"operationId\":\"albums.create\""));
        assert!(!page.contains("/*DOCUMENT*/") && !page.contains("src=") && !page.contains("@import"));
    }
}
