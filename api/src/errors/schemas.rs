//! The error table in the OpenAPI document: for each row a response whose body is the defined error of that row or an
//! undefined error.

use serde_json::json;
use utoipa::openapi::schema::{Object, ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};

use crate::errors::table::{DeclineCode, ErrorKind};
use crate::validate::validators::{Schemas, typed_schema};

const UNDEFINED_ERROR: &str = "UndefinedError";

/// Returns the schemas of all error bodies.
pub(crate) fn schemas() -> Schemas {
    let rows = ErrorKind::ALL.map(|kind| {
        let either =
            OneOfBuilder::new().item(defined_error(kind)).item(Ref::from_schema_name(UNDEFINED_ERROR));
        (schema_name(kind), RefOr::from(Schema::OneOf(either.build())))
    });
    let mut schemas = Schemas::from(rows);
    schemas.insert(UNDEFINED_ERROR.to_owned(), undefined_error().into());
    schemas
}

/// Returns the response of a row, with an example.
pub(crate) fn response(kind: ErrorKind) -> Response {
    let schema = Ref::from_schema_name(schema_name(kind));
    let content = ContentBuilder::new().schema(Some(schema)).example(Some(example(kind)));
    ResponseBuilder::new().description(kind.message()).content("application/json", content.build()).build()
}

/// Returns the name of a row's schema: `NotFoundError` for `NOT_FOUND`.
fn schema_name(kind: ErrorKind) -> String {
    let word = |word: &str| format!("{}{}", &word[..1], word[1..].to_ascii_lowercase());
    kind.code().split('_').map(word).chain(["Error".to_owned()]).collect()
}

fn defined_error(kind: ErrorKind) -> Object {
    let message = typed_schema(Type::String).default(Some(json!(kind.message())));
    typed_schema(Type::Object)
        .property("defined", typed_schema(Type::Boolean).enum_values(Some([true])))
        .property("code", typed_schema(Type::String).enum_values(Some([kind.code()])))
        .property("status", typed_schema(Type::Number).enum_values(Some([kind.status()])))
        .property("message", message)
        .property("data", data_schema(kind))
        .required("defined")
        .required("code")
        .required("status")
        .required("message")
        .build()
}

fn data_schema(kind: ErrorKind) -> Object {
    let code = typed_schema(Type::String).description(Some("What the status means here, for programs."));
    let data = typed_schema(Type::Object).property("code", code);
    match kind {
        ErrorKind::UnprocessableContent => {
            let codes = DeclineCode::ALL.map(DeclineCode::as_str);
            let reasons = format!("Why the request is declined: {}.", codes.join(", "));
            let number = |description: &str| typed_schema(Type::Number).description(Some(description));
            data.property("declineCode", typed_schema(Type::String).description(Some(reasons)))
                .property("balance", number("Of `INSUFFICIENT_CREDITS`: the credits that can still be used."))
                .property("price", number("Of `INSUFFICIENT_CREDITS`: the credits that were needed."))
                .build()
        }
        ErrorKind::TooManyRequests => {
            let seconds = typed_schema(Type::Number).minimum(Some(0.0));
            let description = "Seconds to wait before trying again.";
            data.property("tryAgainIn", seconds.description(Some(description))).build()
        }
        _ => data.required("code").build(),
    }
}

fn undefined_error() -> Object {
    let anything = ObjectBuilder::new().schema_type(SchemaType::AnyValue);
    let data = "For invalid input every issue is in `data.issues`, each with `path`, `code` and `message`.";
    typed_schema(Type::Object)
        .description(Some("Invalid input, malformed JSON, or an internal error."))
        .property("defined", typed_schema(Type::Boolean).enum_values(Some([false])))
        .property("code", typed_schema(Type::String))
        .property("status", typed_schema(Type::Number))
        .property("message", typed_schema(Type::String))
        .property("data", anything.description(Some(data)))
        .required("defined")
        .required("code")
        .required("status")
        .required("message")
        .build()
}

fn example(kind: ErrorKind) -> serde_json::Value {
    let mut body = json!({
        "defined": true, "code": kind.code(), "status": kind.status(), "message": kind.message(),
    });
    match kind {
        ErrorKind::BadRequest => {
            let issue = json!({ "path": ["title"], "code": "required", "message": "is required" });
            body["defined"] = json!(false);
            body["message"] = json!("Input validation failed");
            body["data"] = json!({ "issues": [issue] });
        }
        ErrorKind::Unauthorized => body["data"] = json!({ "code": "KEY_MISSING" }),
        ErrorKind::Forbidden => body["data"] = json!({ "code": "INSUFFICIENT_SCOPE" }),
        ErrorKind::PreconditionFailed => body["data"] = json!({ "code": "UPLOAD_MISSING" }),
        ErrorKind::UnprocessableContent => {
            body["data"] = json!({ "declineCode": DeclineCode::NoFace.as_str() });
        }
        ErrorKind::TooManyRequests => body["data"] = json!({ "tryAgainIn": 2 }),
        ErrorKind::InternalServerError => {
            body["defined"] = json!(false);
            body["message"] = json!("Internal server error");
        }
        _ => {}
    }
    body
}
