//! The OpenAPI 3.1.1 document, generated from the operations and the error table, and a readable page of it.
//!
//! Constraints of request fields come from the validators that check them, so the document cannot promise anything else.

mod typescript;
mod webhooks;

use std::sync::{Arc, LazyLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use photofinish_store::model::key::Scope;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, PathItem, PathsBuilder};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::{Tag, TagBuilder};
use utoipa::openapi::{
    ComponentsBuilder, Content, ContentBuilder, InfoBuilder, LicenseBuilder, OpenApiBuilder, Ref, RefOr,
    Required, Response as ResponseObject, ResponseBuilder, ResponsesBuilder, ServerBuilder,
};
use warp::http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_SECURITY_POLICY, HeaderValue};
use warp::reply::Response;

use crate::auth::KEY_HEADER;
use crate::errors::schemas as error_schemas;
use crate::errors::table::ErrorKind;
use crate::operation::{BASE_PATH, Operation, OperationInfo, catalog};
use crate::reply::{self, REQUEST_ID_HEADER};
use crate::validate::validators::Schemas;

pub use self::typescript::typescript_types;

/// The version of the partner API.
const API_VERSION: &str = "1.0.0";
/// The version of OpenAPI; utoipa writes 3.1.0, whose documents are valid 3.1.1 documents too.
const OPENAPI_VERSION: &str = "3.1.1";
/// The name of the security scheme.
const SECURITY_SCHEME: &str = "apiKey";
const JSON_MEDIA_TYPE: &str = "application/json";

/// Returns the document that is served at `/openapi/openapi.json`.
///
/// # Panics
/// Never: a test builds it.
pub fn openapi_document() -> Value {
    let mut schemas = Schemas::new();
    let mut paths = PathsBuilder::new();
    for operation in catalog::all_operations() {
        paths = paths.path(operation.info.path(), build_path_item(&operation, &mut schemas));
    }
    schemas.extend(error_schemas::schemas());
    let mut components = ComponentsBuilder::new().schemas_from_iter(schemas);
    for kind in ErrorKind::ALL {
        components = components.response(kind.code(), error_schemas::response(kind));
    }
    let key_description =
        "The API key of an organization. Keep it on your backend: never in a web page or an app.";
    let key =
        SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::with_description(KEY_HEADER, key_description)));
    let document = OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("Photo Ingestion and Search Partner API")
                .version(API_VERSION)
                .description(Some(include_str!("docs/introduction.md")))
                .license(Some(
                    LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build(),
                ))
                .build(),
        )
        // Relative to the document, so that it is right behind a proxy that adds a path prefix.
        .servers(Some([ServerBuilder::new().url(format!("..{}", BASE_PATH)).build()]))
        .security(Some([SecurityRequirement::new::<_, [&str; 0], &str>(SECURITY_SCHEME, [])]))
        .tags(Some(TAGS.map(|(name, description)| build_tag(name, description))))
        .paths(paths)
        .components(Some(components.security_scheme(SECURITY_SCHEME, key).build()))
        .build();
    let mut document = serde_json::to_value(document).expect("the document is valid JSON");
    document["openapi"] = json!(OPENAPI_VERSION);
    document["webhooks"] = webhooks::webhooks();
    remove_number_formats(&mut document);
    document
}

const TAGS: [(&str, &str); 5] = [
    ("albums", "One album per event."),
    ("photos", "Upload photos and see what was detected in them."),
    ("search", "Find photos by selfie or by bib number."),
    ("events", "Be told what happens, by a list, a stream or webhooks."),
    ("credits", "What you have and what you used."),
];

/// The headers of a response to a key with a limit.
const RATE_HEADERS: [(&str, &str); 5] = [
    ("ratelimit-policy", "The limit: units (`q`) in a window of seconds (`w`)."),
    ("ratelimit", "What is left of it: units (`r`), and seconds until the next window (`t`)."),
    ("ratelimit-limit", "The limit, units a minute."),
    ("ratelimit-remaining", "The units that are left."),
    ("ratelimit-reset", "Seconds until the next window."),
];

fn build_tag(name: &str, description: &str) -> Tag {
    TagBuilder::new().name(name).description(Some(description)).build()
}

fn operation_tag(id: &str) -> &'static str {
    if id.starts_with("albums.") {
        "albums"
    } else if id.starts_with("photos.search.") {
        "search"
    } else if id.starts_with("events.") || id.starts_with("webhooks.") {
        "events"
    } else if id.starts_with("credits.") || id.starts_with("usage.") {
        "credits"
    } else {
        "photos"
    }
}

fn build_path_item(operation: &Operation, schemas: &mut Schemas) -> PathItem {
    let info = operation.info;
    let (input, required) = (operation.schema_fns.input)(schemas);
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(input)));
    let content = content.example(Some((operation.schema_fns.input_example)())).build();
    let required = if required { Required::True } else { Required::False };
    let body = RequestBodyBuilder::new().content(JSON_MEDIA_TYPE, content).required(Some(required)).build();
    let mut responses = ResponsesBuilder::new().response("200", build_success_response(operation, schemas));
    for kind in ErrorKind::ALL {
        let reference = Ref::from_response_name(kind.code());
        responses = responses.response(kind.status().to_string(), RefOr::Ref(reference));
    }
    let operation = OperationBuilder::new()
        .operation_id(Some(info.id))
        .tag(operation_tag(info.id))
        .summary(Some(info.summary))
        .description(Some(describe_operation(&info, operation.scope)))
        .request_body(Some(body))
        .responses(responses.build())
        .build();
    PathItem::new(HttpMethod::Post, operation)
}

fn describe_operation(info: &OperationInfo, scope: Option<Scope>) -> String {
    let scope = scope.map_or("Any scope.".to_owned(), |scope| format!("Scope: `{}`.", scope.as_str()));
    let class = format!("Limit: `{}`.", info.class.as_str());
    let description = info.description;
    if description.is_empty() {
        format!("{class} {scope}")
    } else {
        format!("{description}\n\n{class} {scope}")
    }
}

fn build_success_response(operation: &Operation, schemas: &mut Schemas) -> ResponseObject {
    let example = (operation.schema_fns.output_example)().expect("examples are valid JSON");
    let schema = (operation.schema_fns.output)(schemas);
    let content: Content = ContentBuilder::new().schema(Some(schema)).example(Some(example)).build();
    let header =
        HeaderBuilder::new().description(Some("The id sent with the request, or a generated one.")).build();
    let mut response = ResponseBuilder::new()
        .description("Success")
        .content(JSON_MEDIA_TYPE, content)
        .header(REQUEST_ID_HEADER, header);
    for (name, description) in RATE_HEADERS {
        response = response.header(name, HeaderBuilder::new().description(Some(description)).build());
    }
    if operation.has_events {
        let text = utoipa::openapi::schema::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .description(Some("Server-sent events whose data is the JSON object"));
        response = response.content("text/event-stream", ContentBuilder::new().schema(Some(text)).build());
    }
    response.build()
}

/// Removes formats such as `int32`: the contract has numbers without a size.
fn remove_number_formats(value: &mut Value) {
    match value {
        Value::Object(object) => {
            let is_number_format =
                |format: &Value| matches!(format.as_str(), Some("double" | "float" | "int32" | "int64"));
            if object.get("format").is_some_and(is_number_format) {
                object.remove("format");
            }
            object.values_mut().for_each(remove_number_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_number_formats),
        _ => {}
    }
}

/// The documents that describe the API, built once per process.
pub(crate) struct Documents {
    json: Document,
    page: Document,
}

/// A document as it is served. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Document {
    media_type: HeaderValue,
    policy: HeaderValue,
    body: Bytes,
}

impl Documents {
    /// Returns the documents, building them on the first call.
    pub(crate) fn shared() -> Arc<Self> {
        static SHARED: LazyLock<Arc<Documents>> = LazyLock::new(|| Arc::new(Documents::build()));
        SHARED.clone()
    }

    fn build() -> Self {
        let text = openapi_document().to_string();
        let (page, policy) = render_page(&text);
        Self {
            json: Document {
                media_type: HeaderValue::from_static(JSON_MEDIA_TYPE),
                policy: HeaderValue::from_static("default-src 'none'"),
                body: text.into(),
            },
            page: Document {
                media_type: HeaderValue::from_static("text/html; charset=utf-8"),
                policy,
                body: page.into(),
            },
        }
    }

    /// Returns the document of a path below [`BASE_PATH`], with or without a trailing slash.
    pub(crate) fn get(&self, path: &str) -> Option<&Document> {
        match path.strip_suffix('/').unwrap_or(path) {
            "/openapi.json" => Some(&self.json),
            "/docs" => Some(&self.page),
            _ => None,
        }
    }
}

impl Document {
    /// Responds to a request that reads it.
    pub(crate) fn respond(&self) -> Response {
        let mut response = reply::body_response(self.media_type.clone(), self.body.clone());
        let headers = response.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, self.policy.clone());
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        response
    }
}

/// Renders the readable page and its content security policy. The page is one file with style, script and document in
/// it; the policy allows exactly this style and this script.
fn render_page(document: &str) -> (String, HeaderValue) {
    let (style, script) = (include_str!("docs/page.css"), include_str!("docs/page.js"));
    // `</script>` within the document must not end the script element that contains it.
    let document = document.replace('<', "\\u003c");
    // The document sorts paths alphabetically; readers want the order of use.
    let paths: Vec<String> =
        catalog::all_operations().iter().map(|operation| operation.info.path()).collect();
    let order = json!(paths).to_string();
    let page = include_str!("docs/page.html")
        .replace("/*STYLE*/", style)
        .replace("/*SCRIPT*/", script)
        .replace("/*ORDER*/", &order)
        .replace("/*DOCUMENT*/", &document);
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'",
        hash(style),
        hash(script)
    );
    (page, HeaderValue::from_str(&policy).expect("base64 fits a header"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_loads_nothing_from_other_hosts() {
        let (page, _) = render_page(&openapi_document().to_string());
        let code = page.split("<script type=\"application/json\"").next().unwrap();
        assert!(!code.contains("http://") && !code.contains("https://"), "the page names another host");
        assert!(!include_str!("docs/page.js").contains("fetch("));
    }

    #[test]
    fn number_formats_are_not_part_of_the_contract() {
        let text = openapi_document().to_string();
        for format in ["double", "float", "int32", "int64"] {
            assert!(!text.contains(&format!("\"format\":\"{format}\"")), "{format}");
        }
    }
}
