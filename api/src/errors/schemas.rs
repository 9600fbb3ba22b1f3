//! The error table as the document shows it: for each row a response whose body is the defined error of that row or
//! an undefined error.

use serde_json::json;
use utoipa::openapi::schema::{Object, ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};

use crate::errors::table::{DeclineCode, ErrorKind};
use crate::validate::input::Schemas;

const UNDEFINED_ERROR: &str = "UndefinedError";

/// The schemas of all error bodies.
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

/// The response of a row.
pub(crate) fn response(kind: ErrorKind) -> Response {
    let schema = Ref::from_schema_name(schema_name(kind));
    let content = ContentBuilder::new().schema(Some(schema)).example(Some(example(kind)));
    ResponseBuilder::new().description(kind.message()).content("application/json", content.build()).build()
}

/// `NOT_FOUND` becomes `NotFoundError`.
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
    let code = typed_schema(Type::String).description(Some("What the row means here, for programs."));
    let data = typed_schema(Type::Object).property("code", code);
    match kind {
        ErrorKind::UnprocessableContent => {
            let codes = DeclineCode::ALL.map(DeclineCode::as_str);
            let about = format!("Why it is declined: {}.", codes.join(", "));
            data.property("declineCode", typed_schema(Type::String).description(Some(about))).build()
        }
        ErrorKind::TooManyRequests => {
            let seconds = typed_schema(Type::Number).minimum(Some(0.0));
            let about = "Seconds to wait before trying again.";
            data.property("tryAgainIn", seconds.description(Some(about))).build()
        }
        _ => data.required("code").build(),
    }
}

fn undefined_error() -> Object {
    let anything = ObjectBuilder::new().schema_type(SchemaType::AnyValue);
    let about = "Input that breaks its rules has every issue in `data.issues`, each with `path`, `code` and `message`.";
    typed_schema(Type::Object)
        .description(Some("Input that breaks its rules, malformed JSON, or a fault of the service."))
        .property("defined", typed_schema(Type::Boolean).enum_values(Some([false])))
        .property("code", typed_schema(Type::String))
        .property("status", typed_schema(Type::Number))
        .property("message", typed_schema(Type::String))
        .property("data", anything.description(Some(about)))
        .required("defined")
        .required("code")
        .required("status")
        .required("message")
        .build()
}

fn typed_schema(kind: Type) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::Type(kind))
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
