//! The handlers of `GET /v1/models` and `GET /v1/models/{model}`.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::{StatusCode, header::CONTENT_TYPE};
use serde_json::{Value, json};

use crate::{ChatEndpoint, ErrorResponse};

pub(crate) async fn list(State(endpoint): State<ChatEndpoint>) -> Response {
    let models: Vec<Value> = endpoint.models.iter().map(|model| entry(model)).collect();
    as_json(StatusCode::OK, &json!({"object": "list", "data": models}))
}

pub(crate) async fn one(
    State(endpoint): State<ChatEndpoint>,
    Path(model): Path<String>,
) -> Result<Response, ErrorResponse> {
    if !endpoint.models.contains(&model) {
        return Err(unknown(&model));
    }
    Ok(as_json(StatusCode::OK, &entry(&model)))
}

/// Fails if the request names a model that is not in the list. An empty list allows every model.
pub(crate) fn check(models: &[String], model: Option<&str>) -> Result<(), ErrorResponse> {
    match model {
        Some(model) if !models.is_empty() && !models.iter().any(|known| known == model) => {
            Err(unknown(model))
        }
        _ => Ok(()),
    }
}

pub(crate) fn as_json(status: StatusCode, body: &Value) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

fn entry(model: &str) -> Value {
    json!({"id": model, "object": "model", "created": 0, "owned_by": "tower-chat"})
}

fn unknown(model: &str) -> ErrorResponse {
    let message =
        format!("this server has no model {model:?}: request a model that /v1/models lists");
    ErrorResponse::new(StatusCode::NOT_FOUND, message)
        .with_code("model_not_found")
        .with_param("model")
}
