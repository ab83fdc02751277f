//! Tests that replay every recorded exchange to the model client.

use std::{collections::BTreeMap, panic::AssertUnwindSafe};

use futures_util::FutureExt;
use serde_json::{Map, Value};
use tower_chat_core::{Answer, BoxError, ChatOptions, ChatRequest, ChatUpdate, Message, Part};
use tower_chat_providers::ProviderError;
use tower_service::Service;

use crate::{
    cassettes::{self, Api, Cassette, Exchange},
    native_texts,
    server::{Framing, Reply, Server},
    wires::compatible,
    wires::wire::{EXCLUDED, ModelRequest, Wire},
};

#[derive(Debug, Default)]
struct Count {
    files: usize,
    asserted: usize,
    covered_elsewhere: usize,
    excluded: usize,
}

#[tokio::test]
async fn every_recorded_exchange_is_requested_and_read_as_it_was_recorded() {
    let cassettes = cassettes::all_cassettes();
    let mut folders: BTreeMap<&str, (Count, Vec<String>)> = BTreeMap::new();
    let (mut exchanges, mut continued) = (0, 0);
    let mut failed = Vec::new();
    for cassette in &cassettes {
        let (count, notes) = folders.entry(&cassette.folder).or_default();
        count.files += 1;
        let outcome = AssertUnwindSafe(play(cassette)).catch_unwind().await;
        let Ok((played, went_on)) = outcome else {
            failed.push(format!("{}/{}", cassette.folder, cassette.name));
            continue;
        };
        exchanges += played;
        continued += went_on;
        let apis: Vec<Api> = cassette.exchanges.iter().map(|it| it.api().unwrap()).collect();
        let excluded = EXCLUDED.iter().find(|(api, _)| apis.contains(api));
        if played > 0 {
            count.asserted += 1;
        } else if let Some((_, reason)) = excluded {
            count.excluded += 1;
            notes.push(format!("{}: {reason}", cassette.name));
        } else {
            // The cassette contains exchanges of OpenAI's APIs, which `chat` and `responses`
            // replay, or no calls of a model.
            count.covered_elsewhere += 1;
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    for (folder, (count, notes)) in &folders {
        println!("{folder}: {count:?}");
        notes.iter().for_each(|note| println!("  {note}"));
    }
    println!("{exchanges} exchanges, {continued} next requests");
    let recorded = cassettes.iter().flat_map(|cassette| &cassette.exchanges);
    assert_eq!(
        exchanges,
        recorded.filter(|exchange| ModelRequest::of_exchange(exchange).is_some()).count()
    );
}

/// Replays the exchanges of a cassette. Returns the number of exchanges, and the number of
/// exchanges whose request contains an answer that the model client has read in an earlier
/// exchange.
async fn play(cassette: &Cassette) -> (usize, usize) {
    let (mut played, mut continued) = (0, 0);
    let mut answers: Vec<(Vec<Value>, Message)> = Vec::new();
    for exchange in &cassette.exchanges {
        let Some(model_request) = ModelRequest::of_exchange(exchange) else { continue };
        let source = exchange.source.clone();
        let server = Server::start([reply(exchange, &model_request)]).await;
        let (request, reused) = request(exchange, &model_request, &answers);
        let mut model = server.client(model_request.provider).build();
        let outcome = match model.call(request).await {
            Ok(response) if model_request.is_streamed => collect_checked(response).await,
            Ok(response) => response.collect().await,
            Err(error) => Err(error.into()),
        };
        let received = server.received();
        assert_eq!(received.len(), 1, "{source}: {outcome:?}");
        let sent = &received[0].body;
        if model_request.wire == Wire::Chat {
            compatible::assert_alike(exchange, &model_request, sent, outcome, &source).await;
            played += 1;
            continue;
        }
        continued += usize::from(reused > 0);
        assert_eq!(
            model_request.options(sent),
            model_request.options(&exchange.request),
            "{source}"
        );
        let (history, recorded) =
            (model_request.history(sent), model_request.history(&exchange.request));
        for (at, (sent, recorded)) in history.iter().zip(&recorded).enumerate() {
            assert_eq!(sent, recorded, "{source}, message {at}");
        }
        assert_eq!(history.len(), recorded.len(), "{source}");
        played += 1;
        match outcome {
            Err(error) => match exchange.reported_error().unwrap() {
                Some(message) => assert!(error.to_string().contains(&message), "{source}: {error}"),
                None => assert_refused(exchange, error, &source),
            },
            Ok(answer) => {
                assert!(exchange.is_success(), "{source}");
                assert_eq!(
                    exchange.reported_error().unwrap(),
                    None,
                    "{source}: the error was not reported"
                );
                model_request.assert_answer(exchange, &answer, &source);
                let is_read =
                    matches!(model_request.wire, Wire::Anthropic | Wire::Gemini | Wire::Cohere);
                if model_request.is_streamed && is_read {
                    native_texts::assert_texts_occur_in_events(
                        &exchange.json_events().unwrap(),
                        &answer.messages[0],
                        &source,
                    );
                }
                let list = model_request.list(&exchange.request).clone();
                // If the recorded client sent the same request twice, its next request contains the
                // second answer.
                answers.retain(|(messages, _)| *messages != list);
                answers.push((list, (*answer.messages[0]).clone()));
            }
        }
    }
    (played, continued)
}

pub(crate) fn reply(exchange: &Exchange, model_request: &ModelRequest) -> Reply {
    let body = exchange.body.clone();
    match (exchange.is_streamed(), model_request.wire) {
        (false, _) => Reply::json(exchange.status, body),
        (true, Wire::Bedrock) => Reply {
            headers: vec![(
                "content-type".to_owned(),
                "application/vnd.amazon.eventstream".to_owned(),
            )],
            ..Reply::stream(body)
        },
        (true, Wire::Ollama) => Reply {
            headers: vec![("content-type".to_owned(), "application/x-ndjson".to_owned())],
            ..Reply::stream(body)
        },
        (true, _) => Reply::stream(body).framed(Framing::Chunks(7)),
    }
}

/// Returns the answer to a streamed request. Asserts that its deltas together are equal to the
/// answer.
async fn collect_checked(mut response: tower_chat_core::ChatResponse) -> Result<Answer, BoxError> {
    let (mut text, mut reasoning) = (String::new(), String::new());
    let mut calls = BTreeMap::<usize, (Option<String>, String)>::new();
    let (mut messages, mut finish) = (Vec::new(), None);
    while let Some(update) = response.next().await {
        match update? {
            ChatUpdate::TextDelta(more) => text += &more,
            ChatUpdate::ReasoningDelta(more) => reasoning += &more,
            ChatUpdate::ToolCallDelta(more) => {
                let (name, arguments) = calls.entry(more.index).or_default();
                *name = name.take().or(more.name);
                *arguments += &more.arguments;
            }
            ChatUpdate::Message(message) => {
                assert_eq!(text, message.text());
                let seen: Vec<_> = std::mem::take(&mut calls).into_values().collect();
                assert_eq!(seen.len(), message.calls().count());
                for ((name, arguments), call) in seen.iter().zip(message.calls()) {
                    assert_eq!(name.as_deref(), Some(call.name.as_str()));
                    // Empty arguments are sent without a delta.
                    let is_empty = arguments.is_empty() && call.arguments == "{}";
                    assert!(is_empty || *arguments == call.arguments, "{arguments}");
                }
                messages.push(message);
            }
            ChatUpdate::Finish(end) => finish = Some(end),
            _ => {}
        }
    }
    let answer = Answer::new(messages, finish.expect("a finish"));
    assert_eq!(crate::wires::expected::ExpectedAnswer::of_answer(&answer).reasoning, reasoning);
    Ok(answer)
}

fn assert_refused(exchange: &Exchange, error: BoxError, source: &str) {
    let error = error.downcast::<ProviderError>().expect("a typed error");
    assert_ne!(exchange.status, 200, "{source}: {error}");
    assert_eq!(error.status(), Some(exchange.status), "{source}");
    let json = exchange.json().unwrap();
    let json = json.get(0).unwrap_or(&json);
    let words = [&json["error"]["message"], &json["message"], &json["detail"], &json["error"]];
    let words = words.into_iter().find_map(Value::as_str);
    assert!(error.to_string().ends_with(words.unwrap()), "{source}: {error}");
    // An exhausted quota also has the status 429, but waiting does not restore it.
    let is_temporary = matches!(exchange.status, 408 | 409 | 429 | 500..=599);
    let is_quota = error.code() == Some("insufficient_quota");
    assert_eq!(error.is_retryable(), is_temporary && !is_quota, "{source}");
}

/// Returns the `ChatRequest` for which the model client is expected to send the recorded body. In
/// this request, the answers that the model client has read replace the recorded answers. Also
/// returns the number of replaced answers.
pub(crate) fn request(
    exchange: &Exchange,
    model_request: &ModelRequest,
    answers: &[(Vec<Value>, Message)],
) -> (ChatRequest, usize) {
    let list = model_request.list(&exchange.request);
    let mut messages = model_request.system(&exchange.request);
    let (mut from, mut reused) = (0, 0);
    for (before, answer) in answers {
        if before.len() < from
            || !list.starts_with(before)
            || !model_request.is_answer(list, before.len())
        {
            continue;
        }
        messages.extend(model_request.parse(&list[from..before.len()]));
        let recorded = model_request.parse(&list[before.len()..=before.len()]);
        messages.push(with_recorded_ids(answer, &recorded));
        from = before.len() + 1;
        reused += 1;
    }
    messages.extend(model_request.parse(&list[from..]));
    let mut options = ChatOptions::default();
    options.stream = model_request.is_streamed;
    options.model = Some(model_request.model.clone());
    let mut extra: Map<String, Value> = exchange.request.as_object().unwrap().clone();
    extra.retain(|name, _| !model_request.is_written_by_client(name));
    options.extra = extra;
    (ChatRequest::new(messages).with_options(options), reused)
}

/// Adds the ids that the recorded client has generated for calls without an id. In a stack, the
/// tool loop generates such ids.
fn with_recorded_ids(answer: &Message, recorded: &[Message]) -> Message {
    let mut answer = answer.clone();
    let mut ids = recorded.iter().flat_map(Message::calls).map(|call| call.id.clone());
    for part in &mut answer.parts {
        if let Part::ToolCall(call) = part {
            let made_up = ids.next().flatten();
            call.id = call.id.take().or(made_up);
        }
    }
    answer
}
