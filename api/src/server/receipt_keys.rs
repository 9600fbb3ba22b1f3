//! The public keys of receipts, as a JSON Web Key Set (RFC 7517). Needs no key: whoever has a receipt may check it.

use photofinish_store::erasure::signing::to_json_web_key;
use serde_json::{Value, json};
use warp::reply::Response;

use crate::context::Context;
use crate::errors::ApiError;
use crate::reply;

/// The path of the keys.
pub(crate) const RECEIPT_KEYS_PATH: &str = "/.well-known/photofinish-keys.json";

/// Answers a request for the keys.
pub(crate) async fn handle(ctx: &Context) -> Response {
    match ctx.store.erasures.keys().await {
        Ok(keys) => {
            let keys: Vec<Value> = keys.iter().map(to_json_web_key).collect();
            reply::json_text_response(200, json!({ "keys": keys }).to_string())
        }
        Err(error) => ApiError::from(error).into_response(),
    }
}
