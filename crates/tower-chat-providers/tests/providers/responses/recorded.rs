//! Tests that replay every recorded exchange of Responses to the model client.

use std::collections::BTreeMap;

use serde_json::Value;
use tower_chat_core::{Answer, ChatRequest, ChatUpdate, format};
use tower_chat_providers::{
    HistoryStorage, OpenAiResponses, ProviderError, Refusal, ReqwestTransport,
};
use tower_chat_wire::openai_responses::render_input;
use tower_service::Service;

use super::{
    expected::{ExpectedAnswer, response},
    written::{ReadAnswer, history, input, messages, options, options_of, reasoning},
};
use crate::{
    cassettes::{self, Cassette, Exchange},
    client::ask,
    server::{Reply, Server},
};

#[tokio::test]
async fn every_recorded_exchange_is_requested_and_read_as_it_was_recorded() {
    let cassettes = cassettes::all_cassettes();
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    let mut sum = Played::default();
    for cassette in cassettes
        .iter()
        .filter(|cassette| cassettes::responses_exchanges(cassette).next().is_some())
    {
        let played = play(cassette).await;
        sum.exchanges += played.exchanges;
        sum.continued += played.continued;
        sum.reasoning += played.reasoning;
        sum.refused += played.refused;
        *folders.entry(&cassette.folder).or_default() += 1;
    }
    println!("{folders:?}: {sum:?}");
    let recorded: Vec<&Exchange> =
        cassettes.iter().flat_map(cassettes::responses_exchanges).collect();
    assert_eq!(sum.exchanges, recorded.len());
    let refused =
        recorded.iter().filter(|it| !it.is_success() || it.reported_error().unwrap().is_some());
    assert_eq!(sum.refused, refused.count());
}

#[derive(Debug, Default)]
struct Played {
    exchanges: usize,
    /// The number of exchanges whose request continues an earlier exchange: the request contains an
    /// answer that the model client has read, or a `previous_response_id`.
    continued: usize,
    /// The number of reasoning items that the recorded client also sent back.
    reasoning: usize,
    refused: usize,
}

/// Replays the exchanges of a cassette.
async fn play(cassette: &Cassette) -> Played {
    let mut sum = Played::default();
    let mut answers: Vec<ReadAnswer> = Vec::new();
    let mut ids: Vec<String> = Vec::new();
    for exchange in cassettes::responses_exchanges(cassette) {
        let source = exchange.source.clone();
        let reply = if exchange.is_streamed() {
            Reply::stream(exchange.body.clone())
        } else {
            Reply::json(exchange.status, exchange.body.clone())
        };
        let server = Server::start([reply]).await;
        let body = &exchange.request;
        let recorded_input = input(body);
        let (messages, reused) = messages(&recorded_input, &answers);
        let mut request = ChatRequest::new(messages).with_options(options(body));
        if let Some(id) = body["previous_response_id"].as_str() {
            assert!(ids.iter().any(|known| known == id), "{source}: no answer was {id}");
            request = request.with_service_id(id);
        }
        let is_stored = body["store"] != false;
        let storage = if is_stored { HistoryStorage::Response } else { HistoryStorage::Caller };
        let mut model = server.responses().with_history_storage(storage);
        let outcome = if exchange.is_streamed() {
            collect_checked(&mut model, request).await
        } else {
            ask(&mut model, request).await
        };
        let sent = &server.received()[0].body;
        assert_eq!(options_of(sent), options_of(body), "{source}");
        let sent = input(sent);
        if reused.is_empty() {
            assert_eq!(sent, recorded_input, "{source}");
        } else {
            assert_eq!(history(&sent), history(&recorded_input), "{source}");
            let found = reasoning(&sent);
            for item in reasoning(&recorded_input) {
                let is_there = found.iter().any(|own| is_same_reasoning(own, &item));
                assert!(is_there, "{source}: {item:?} is not in {found:#?}");
                sum.reasoning += 1;
            }
            let sent = without_repeated_ids(&sent, &answers);
            for answer in &reused {
                let output = without_repeated_ids(items_to_send_back(&answer.output), &answers);
                let is_there = sent.windows(output.len()).any(|items| items == output);
                assert!(is_there, "{source}: {output:#?} is not in {sent:#?}");
            }
        }
        sum.continued +=
            usize::from(!reused.is_empty() || body["previous_response_id"].is_string());
        sum.exchanges += 1;
        match outcome {
            Err(error) => {
                match exchange.reported_error().unwrap() {
                    Some(message) => {
                        assert!(error.to_string().contains(&message), "{source}: {error}");
                    }
                    None => assert_refused(exchange, &error.downcast().unwrap(), &source),
                }
                sum.refused += 1;
            }
            Ok(answer) => {
                let output = assert_answer(exchange, &answer, is_stored, &source);
                let id = answer.finish.history_owner.as_ref();
                ids.extend(id.and_then(|id| id.service_id()).map(ToString::to_string));
                // The answer is encoded and decoded, as if a new process had loaded it from a
                // store.
                let stored = format::encode(&answer.messages[0]);
                answers.push(ReadAnswer {
                    input: recorded_input,
                    output,
                    message: format::decode(&stored).unwrap(),
                });
            }
        }
    }
    sum
}

/// Returns the items of an output that are sent back: all except reasoning at the end of the
/// output.
fn items_to_send_back(output: &[Value]) -> &[Value] {
    let end = output.iter().rposition(|item| item["type"] != "reasoning").unwrap();
    &output[..=end]
}

/// Returns whether a sent reasoning item is at the position of the recorded item, and has the same
/// fields. Fields that the recorded client has omitted are not compared.
fn is_same_reasoning(
    (position, own): &(usize, Value),
    (recorded_position, recorded): &(usize, Value),
) -> bool {
    let mut fields = own.as_array().unwrap().iter().zip(recorded.as_array().unwrap());
    position == recorded_position && fields.all(|(own, text)| text.is_null() || own == text)
}

/// Removes all call ids from the items if two calls of the answers have the same id. The model
/// client then sends each of these calls back with a different id, so the ids differ from the
/// recording.
fn without_repeated_ids(items: &[Value], answers: &[ReadAnswer]) -> Vec<Value> {
    let calls = answers.iter().flat_map(|answer| answer.message.calls());
    let ids: Vec<_> = calls.map(|call| &call.id).collect();
    let is_repeated = ids.iter().enumerate().any(|(at, id)| ids[..at].contains(id));
    let mut items = items.to_vec();
    if is_repeated {
        items.iter_mut().filter_map(Value::as_object_mut).for_each(|item| {
            item.remove("call_id");
        });
    }
    items
}

/// Returns the answer to a streamed request. Asserts that its deltas together are equal to the
/// answer.
async fn collect_checked(
    model: &mut OpenAiResponses<ReqwestTransport>,
    request: ChatRequest,
) -> Result<Answer, tower_chat_core::BoxError> {
    let mut response = model.call(request).await?;
    let (mut text, mut thought) = (String::new(), String::new());
    let mut calls = BTreeMap::<usize, (Option<String>, Option<String>, String)>::new();
    let (mut messages, mut finish) = (Vec::new(), None);
    while let Some(update) = response.next().await {
        match update? {
            ChatUpdate::TextDelta(more) => text += &more,
            ChatUpdate::ReasoningDelta(more) => thought += &more,
            ChatUpdate::ToolCallDelta(more) => {
                let call = calls.entry(more.index).or_default();
                call.0 = call.0.take().or(more.id);
                call.1 = call.1.take().or(more.name);
                call.2 += &more.arguments;
            }
            ChatUpdate::Message(message) => {
                assert_eq!(text, message.text());
                let expected = message.calls().cloned();
                let expected = expected.map(|call| (call.id, Some(call.name), call.arguments));
                let seen: Vec<_> = std::mem::take(&mut calls).into_values().collect();
                assert_eq!(seen, expected.collect::<Vec<_>>());
                messages.push(message);
            }
            ChatUpdate::Finish(end) => finish = Some(end),
            _ => {}
        }
    }
    let answer = Answer::new(messages, finish.expect("a finish"));
    if !thought.is_empty() {
        let parts = answer.messages.iter().flat_map(|message| &message.parts);
        let whole = parts.filter_map(|part| match part {
            tower_chat_core::Part::Reasoning(reasoning) => Some(reasoning.text.clone()),
            _ => None,
        });
        assert_eq!(thought, whole.collect::<String>());
    }
    Ok(answer)
}

/// Asserts that the answer is equal to the recorded answer, and returns the recorded output.
fn assert_answer(
    exchange: &Exchange,
    answer: &Answer,
    is_stored: bool,
    source: &str,
) -> Vec<Value> {
    assert!(exchange.is_success(), "{source}");
    assert_eq!(exchange.reported_error().unwrap(), None, "{source}: the error was not reported");
    let (output, json) = response(exchange);
    assert_eq!(
        ExpectedAnswer::of_answer(answer),
        ExpectedAnswer::of_response(&output, &json, is_stored),
        "{source}"
    );
    let rendered = render_input(answer.messages.iter().map(|message| &**message));
    let rendered: Vec<Value> = rendered.iter().map(|item| item.parse().unwrap()).collect();
    assert_eq!(rendered, items_to_send_back(&output), "{source}: something was lost");
    for (name, value) in json.as_object().unwrap() {
        if !value.is_null() && !["output", "object", "model"].contains(&name.as_str()) {
            assert_eq!(answer.finish.metadata.get(name), Some(value), "{source}: {name}");
        }
    }
    output
}

fn assert_refused(exchange: &Exchange, error: &ProviderError, source: &str) {
    assert_ne!(exchange.status, 200, "{source}: {error}");
    assert_eq!(error.status(), Some(exchange.status), "{source}");
    let json = exchange.json().unwrap();
    let Some(Refusal { message, body, .. }) = error.refusal() else { panic!("{source}: {error}") };
    assert_eq!(Some(message.as_str()), cassettes::error_message(&json), "{source}");
    assert_eq!(body, exchange.text().unwrap(), "{source}");
    let code = json["error"]["code"].as_str().or(json["error"]["type"].as_str());
    assert_eq!(error.code(), code, "{source}");
    // An exhausted quota also has the status 429, but waiting does not restore it.
    let is_temporary = matches!(exchange.status, 408 | 409 | 429 | 500..=599);
    let is_quota = error.code() == Some("insufficient_quota");
    assert_eq!(error.is_retryable(), is_temporary && !is_quota, "{source}");
}
