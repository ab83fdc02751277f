//! Generates exchanges with errors and unusual endings: refusals by the service and by the model,
//! errors within a stream, and truncated answers.

use serde_json::{Value, json};

use super::{
    anthropic::Claude,
    bedrock::{self, Converse},
    chat::{self, Chat},
    cohere::Cohere,
    dialogue::{Answer, Dialogue, TOOLS},
    exchange::{Exchange, Provider, sse},
    gemini::Gemini,
    ollama::{self, Ollama},
    responses::{self, Responses},
    text::Texts,
};

/// Returns an exchange with a refused request for each status and body.
fn refused(
    provider: &impl Provider,
    texts: &mut Texts,
    answers: impl IntoIterator<Item = (u16, Value)>,
) -> Vec<Exchange> {
    let answers = answers.into_iter();
    answers.map(|(status, body)| provider.answered(&texts.only_question(), status, &body)).collect()
}

fn openai_error(message: &str, kind: &str, code: Value) -> Value {
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

pub(crate) fn of_chat(service: Chat, texts: &mut Texts) -> Vec<Exchange> {
    let ship = texts.ship();
    let mut found = refused(
        &service,
        texts,
        [
            (
                401,
                openai_error(
                    &format!("Incorrect API key provided: {ship}."),
                    "invalid_request_error",
                    json!("invalid_api_key"),
                ),
            ),
            (
                400,
                openai_error(
                    "This model's maximum context length is 128000 tokens.",
                    "invalid_request_error",
                    json!("context_length_exceeded"),
                ),
            ),
            (
                429,
                openai_error(
                    "You exceeded your current quota.",
                    "insufficient_quota",
                    json!("insufficient_quota"),
                ),
            ),
            (
                429,
                openai_error(
                    "Rate limit reached for requests.",
                    "requests",
                    json!("rate_limit_exceeded"),
                ),
            ),
            (503, openai_error("The engine is overloaded.", "server_error", Value::Null)),
        ],
    );
    for (index, exchange) in found.iter_mut().enumerate().skip(3) {
        exchange.headers = vec![
            ("x-ratelimit-limit-requests", "500".to_owned()),
            ("x-ratelimit-remaining-requests", (499 - index).to_string()),
            ("x-ratelimit-reset-requests", "1m12.5s".to_owned()),
            ("x-ratelimit-limit-tokens", "200000".to_owned()),
            ("x-ratelimit-remaining-tokens", "0".to_owned()),
            ("x-ratelimit-reset-tokens", format!("{index}50ms")),
        ];
    }
    let final_answer = texts.final_answer();
    let no = json!({"role": "assistant", "content": null, "refusal": final_answer.text});
    found.push(service.answered(
        &texts.only_question(),
        200,
        &service.whole_with(&final_answer, &no, "stop"),
    ));
    let filtered = texts.final_answer();
    let part = json!({"role": "assistant", "content": filtered.text, "refusal": null});
    let body = service.whole_with(&filtered, &part, "content_filter");
    found.push(service.answered(&texts.only_question(), 200, &body));
    let cut = json!({"id": "call_cut", "type": "function",
        "function": {"name": "tide", "arguments": "{\"port\": \"Gd"}});
    let message =
        json!({"role": "assistant", "content": null, "refusal": null, "tool_calls": [cut]});
    let body = service.whole_with(&texts.final_answer(), &message, "length");
    let dialogue = Dialogue { tools: vec![TOOLS[1]], ..texts.only_question() };
    found.push(service.answered(&dialogue, 200, &body));
    found
}

/// Returns exchanges whose stream contains an error after a part of the answer.
pub(crate) fn of_chat_streams(service: Chat, texts: &mut Texts) -> Vec<Exchange> {
    let mut events = service.chunks(&texts.final_answer(), "stop");
    events.truncate(4);
    events.push(openai_error("The server had an error.", "server_error", Value::Null));
    let failed = service.streamed(&texts.only_question(), sse(&events));
    let mut cut = sse(&service.chunks(&texts.final_answer(), "length"));
    cut.extend(b"data: [DONE]\n\n");
    vec![failed, service.streamed(&texts.only_question(), cut)]
}

/// Returns exchanges of 2023, with `functions` instead of `tools`.
pub(crate) fn of_functions(texts: &mut Texts) -> Vec<Exchange> {
    let service = chat::OPENAI;
    let dialogue = texts.only_question();
    let mut called = texts.called(&[1]);
    let call = called.calls.remove(0);
    let function_call =
        json!({"name": call.tool.name, "arguments": crate::data::text::text(&call.arguments)});
    let message = json!({"role": "assistant", "content": null, "function_call": function_call});
    let body = service.whole_with(&called, &message, "function_call");
    let mut first = service.answered(&dialogue, 200, &body);
    let function = json!([{"name": call.tool.name, "description": call.tool.description,
        "parameters": call.tool.schema()}]);
    let fields = first.request.as_object_mut().unwrap();
    fields.remove("tools");
    fields.insert("functions".to_owned(), function);
    vec![first]
}

pub(crate) fn of_responses(service: Responses, texts: &mut Texts) -> Vec<Exchange> {
    let missing = format!("No tool output found for function call call_{}.", texts.rng.token(8));
    let mut found = refused(
        &service,
        texts,
        [
            (400, openai_error(&missing, "invalid_request_error", Value::Null)),
            (429, openai_error("Rate limit reached.", "tokens", json!("rate_limit_exceeded"))),
            (500, openai_error("An error occurred.", "server_error", json!("server_error"))),
        ],
    );
    let refusal = service.refusal(&texts.final_answer());
    found.push(service.answered(&texts.only_question(), 200, &refusal));
    let mut cut = service.whole(&texts.final_answer());
    cut["status"] = json!("incomplete");
    cut["incomplete_details"] = json!({"reason": "max_output_tokens"});
    found.push(service.answered(&texts.only_question(), 200, &cut));
    let mut failed = service.response(&texts.final_answer(), "failed", &[]);
    failed["error"] = json!({"code": "server_error", "message": "The model failed."});
    found.push(service.answered(&texts.only_question(), 200, &failed));
    found
}

pub(crate) fn of_responses_streams(service: Responses, texts: &mut Texts) -> Vec<Exchange> {
    let begun = |answer: &Answer| service.events(answer, &[]);
    let final_answer = texts.final_answer();
    let mut failed = service.response(&final_answer, "failed", &[]);
    failed["error"] = json!({"code": "rate_limit_exceeded", "message": "Too many tokens."});
    let failed = json!({"type": "response.failed", "response": failed});
    let broken = json!({"type": "error", "code": "server_error", "param": null,
        "message": "The connection to the model was lost."});
    let cut = texts.final_answer();
    let whole = service.whole(&cut);
    let output = whole["output"].as_array().unwrap().clone();
    let mut incomplete = whole;
    incomplete["status"] = json!("incomplete");
    incomplete["incomplete_details"] = json!({"reason": "content_filter"});
    let incomplete = json!({"type": "response.incomplete", "response": incomplete});
    let no = texts.final_answer();
    let refusal = service.refusal(&no);
    let refused = refusal["output"].as_array().unwrap().clone();
    let refusal = json!({"type": "response.completed", "response": refusal});
    let bodies = [
        Responses::ended(begun(&final_answer), failed),
        Responses::ended(begun(&texts.final_answer()), broken),
        Responses::ended(service.events(&cut, &output), incomplete),
        Responses::ended(service.events(&no, &refused), refusal),
    ];
    bodies.map(|body| service.streamed(&texts.only_question(), body)).into()
}

pub(crate) fn of_anthropic(texts: &mut Texts) -> Vec<Exchange> {
    let service = Claude::Anthropic;
    let error = |kind: &str, message: &str| {
        json!({"type": "error", "error": {"type": kind, "message": message},
            "request_id": format!("req_{kind}")})
    };
    let mut found = refused(
        &service,
        texts,
        [
            (
                400,
                error(
                    "invalid_request_error",
                    "prompt is too long: 204801 tokens > 200000 maximum",
                ),
            ),
            (401, error("authentication_error", "invalid x-api-key")),
            (429, error("rate_limit_error", "This request would exceed your rate limit.")),
            (529, error("overloaded_error", "Overloaded")),
        ],
    );
    found[2].headers = vec![
        ("retry-after", "12".to_owned()),
        ("anthropic-ratelimit-requests-limit", "50".to_owned()),
        ("anthropic-ratelimit-requests-remaining", "0".to_owned()),
        ("anthropic-ratelimit-requests-reset", "2026-03-01T06:41:00Z".to_owned()),
    ];
    for reason in ["max_tokens", "refusal", "stop_sequence"] {
        let body = service.whole_with(&texts.final_answer(), reason);
        found.push(service.answered(&texts.only_question(), 200, &body));
    }
    let final_answer = texts.final_answer();
    let mut events = service.events(&final_answer);
    events.truncate(4);
    events.push(error("overloaded_error", "Overloaded in the middle"));
    found.push(service.streamed(&texts.only_question(), sse(&events)));
    let cut = texts.final_answer();
    let body = service.ended(service.events(&cut), &cut, "max_tokens");
    found.push(service.streamed(&texts.only_question(), body));
    found
}

pub(crate) fn of_gemini(service: Gemini, texts: &mut Texts) -> Vec<Exchange> {
    let error = |code: u16, status: &str, message: &str| json!({"error": {"code": code, "message": message, "status": status}});
    let mut found = refused(
        &service,
        texts,
        [
            (400, error(400, "INVALID_ARGUMENT", "API key not valid.")),
            (404, error(404, "NOT_FOUND", "models/gemini-0 is not found.")),
            (429, error(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota.")),
            (503, error(503, "UNAVAILABLE", "The model is overloaded.")),
        ],
    );
    let blocked = service.event(&texts.final_answer(), &[], Some("SAFETY"));
    found.push(service.answered(&texts.only_question(), 200, &blocked));
    let cut = texts.final_answer();
    let body = service.event(&cut, &[json!({"text": cut.text})], Some("MAX_TOKENS"));
    found.push(service.answered(&texts.only_question(), 200, &body));
    let mut events = service.events(&texts.final_answer(), None);
    events.push(error(500, "INTERNAL", "An internal error has occurred."));
    found.push(service.streamed(&texts.only_question(), sse(&events)));
    let events = service.events(&texts.final_answer(), Some("MAX_TOKENS"));
    found.push(service.streamed(&texts.only_question(), sse(&events)));
    found
}

pub(crate) fn of_bedrock(texts: &mut Texts) -> Vec<Exchange> {
    let service = Converse;
    let mut found = refused(
        &service,
        texts,
        [
            (400, json!({"message": "The provided model identifier is invalid."})),
            (403, json!({"message": "You don't have access to the model."})),
            (429, json!({"message": "Too many requests, please wait."})),
        ],
    );
    for (exchange, name) in found.iter_mut().zip([
        "ValidationException",
        "AccessDeniedException",
        "ThrottlingException",
    ]) {
        exchange.headers = vec![("x-amzn-errortype", name.to_owned())];
    }
    let mut cut = service.whole(&texts.final_answer());
    cut["stopReason"] = json!("max_tokens");
    found.push(service.answered(&texts.only_question(), 200, &cut));
    let mut stopped = service.whole(&texts.final_answer());
    stopped["stopReason"] = json!("guardrail_intervened");
    found.push(service.answered(&texts.only_question(), 200, &stopped));
    let mut body = bedrock::events(&texts.final_answer());
    body.extend(bedrock::exception("throttlingException", "Too many tokens in the middle."));
    found.push(service.streamed(&texts.only_question(), body));
    let body = bedrock::stream_with(&texts.final_answer(), "max_tokens");
    found.push(service.streamed(&texts.only_question(), body));
    found
}

pub(crate) fn of_cohere(texts: &mut Texts) -> Vec<Exchange> {
    let service = Cohere;
    let mut found = refused(
        &service,
        texts,
        [
            (400, json!({"id": "e-1", "message": "invalid request: tools must have a name"})),
            (401, json!({"id": "e-2", "message": "invalid api token"})),
            (429, json!({"id": "e-3", "message": "trial keys are limited to 20 calls a minute"})),
        ],
    );
    let body = service.whole_with(&texts.final_answer(), "MAX_TOKENS");
    found.push(service.answered(&texts.only_question(), 200, &body));
    let cut = texts.final_answer();
    let body = service.ended(service.events(&cut), &cut, "MAX_TOKENS");
    found.push(service.streamed(&texts.only_question(), body));
    found
}

pub(crate) fn of_ollama(texts: &mut Texts) -> Vec<Exchange> {
    let service = Ollama;
    let mut found = refused(
        &service,
        texts,
        [
            (404, json!({"error": "model 'qwen0' not found"})),
            (400, json!({"error": "qwen3:8b does not support tools"})),
            (503, json!({"error": "server busy, please try again."})),
        ],
    );
    let body = service.whole_with(&texts.final_answer(), "length");
    found.push(service.answered(&texts.only_question(), 200, &body));
    let mut lines = service.lines(&texts.final_answer());
    lines.push(json!({"error": "an error was encountered while running the model"}));
    found.push(service.streamed(&texts.only_question(), ollama::lines(&lines)));
    found
}

/// Returns the folder, the name and the exchanges of each file.
pub(crate) fn cassettes(texts: &mut Texts) -> Vec<(&'static str, &'static str, Vec<Exchange>)> {
    let openai = chat::OPENAI;
    vec![
        ("openai_chat", "endings", of_chat(openai, texts)),
        ("openai_chat", "stream_endings", of_chat_streams(openai, texts)),
        ("openai_chat", "functions", of_functions(texts)),
        ("openai_responses", "endings", of_responses(responses::OPENAI, texts)),
        ("openai_responses", "stream_endings", of_responses_streams(responses::OPENAI, texts)),
        ("anthropic", "endings", of_anthropic(texts)),
        ("gemini", "endings", of_gemini(Gemini::GoogleAi, texts)),
        ("bedrock", "endings", of_bedrock(texts)),
        ("cohere", "endings", of_cohere(texts)),
        ("ollama", "endings", of_ollama(texts)),
    ]
}
