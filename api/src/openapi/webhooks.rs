//! What the service sends: the part of the document that describes requests to receivers.

use serde_json::{Value, json};

/// Returns the member `webhooks` of the document (OpenAPI 3.1): one request, whose body differs by its type.
pub(super) fn webhooks() -> Value {
    let header = |name: &str, description: &str| {
        json!({ "name": name, "in": "header", "required": true, "description": description,
            "schema": { "type": "string" } })
    };
    let body = json!({
        "type": "object",
        "required": ["type", "timestamp", "data"],
        "properties": {
            "type": { "type": "string", "description": "What happened; the list may grow." },
            "timestamp": { "type": "string", "format": "date-time", "description": "When it happened." },
            "data": {
                "type": "object",
                "description": "More about it, by its type: see `events/list`. That of `webhook.test`, which `webhooks/test` \
                    sends, is the `webhookId`.",
                "properties": {
                    "sequence": {
                        "type": "number",
                        "description": "Rises in the order of an organization's events of one mode. Of every event; a \
                            `webhook.test`, which is none, has no place in that order and no sequence.",
                    },
                },
            },
        },
    });
    json!({
        "event": {
            "post": {
                "operationId": "webhook.event",
                "tags": ["events"],
                "summary": "Something happened",
                "description": "Sent to the URL of a webhook. Answer with a 2xx within 15 seconds.",
                "security": [],
                "parameters": [
                    header("webhook-id", "The id of the event: the same on each attempt."),
                    header("webhook-timestamp", "When the attempt was made, seconds since 1970."),
                    header("webhook-signature", "`v1,` and the base64 of an HMAC-SHA256, one for each valid secret."),
                ],
                "requestBody": { "required": true, "content": { "application/json": { "schema": body } } },
                "responses": { "2XX": { "description": "It was received." } },
            },
        },
    })
}
