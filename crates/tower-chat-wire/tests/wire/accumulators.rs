//! Tests of accumulators, for every wire: the frames of a stream result in an answer or in an
//! error.

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tower_chat_core::{Answer, ChatUpdate, FinishReason, Message, Part};
use tower_chat_wire::{
    AnswerError,
    body::{AnswerContext, BodyWire},
    openai_responses::HistoryLocation,
    stream::{Frame, updates},
};

const BIG: &str = r#"{"n": 123456789012345678901234567890, "at": 1.0}"#;

fn frame(event: Option<&str>, data: &str) -> Frame {
    Frame { event: event.map(str::to_owned), data: data.to_owned() }
}

/// Returns an answer with a text and one call with the arguments [`BIG`], as a whole body and as
/// the frames of a stream.
fn recorded(wire: BodyWire) -> (String, Vec<Frame>) {
    let big = serde_json::to_string(BIG).unwrap();
    let plain = |data: &[String]| data.iter().map(|data| frame(None, data)).collect();
    match wire {
        BodyWire::OpenAiChat => (
            format!(r#"{{"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"It is.","tool_calls":[{{"id":"c1","type":"function","function":{{"name":"f","arguments":{big}}}}}]}},"finish_reason":"tool_calls"}}],"usage":{{"prompt_tokens":9,"completion_tokens":4,"prompt_cache_hit_tokens":3}}}}"#),
            plain(&[
                r#"{"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"It "}}]}"#.to_owned(),
                r#"{"model":"m","choices":[{"index":0,"delta":{"content":"is."}}]}"#.to_owned(),
                format!(r#"{{"model":"m","choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":0,"id":"c1","type":"function","function":{{"name":"f","arguments":{big}}}}}]}}}}]}}"#),
                r#"{"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":9,"completion_tokens":4,"prompt_cache_hit_tokens":3}}"#.to_owned(),
                "[DONE]".to_owned(),
            ]),
        ),
        BodyWire::OpenAiResponses => {
            let message = r#"{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"It is.","annotations":[]}]}"#;
            let call = format!(r#"{{"type":"function_call","id":"fc_1","status":"completed","call_id":"c1","name":"f","arguments":{big}}}"#);
            let rest = r#""id":"resp_1","model":"m","status":"completed","usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":3},"output_tokens":4,"total_tokens":13}"#;
            let whole = format!(r#"{{"output":[{message},{call}],{rest}}}"#);
            let frames = plain(&[
                r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"msg_1","role":"assistant","content":[]}}"#.to_owned(),
                r#"{"type":"response.output_text.delta","output_index":0,"delta":"It "}"#.to_owned(),
                r#"{"type":"response.output_text.delta","output_index":0,"delta":"is."}"#.to_owned(),
                format!(r#"{{"type":"response.output_item.done","output_index":0,"item":{message}}}"#),
                format!(r#"{{"type":"response.output_item.done","output_index":1,"item":{call}}}"#),
                format!(r#"{{"type":"response.completed","response":{{"output":[],{rest}}}}}"#),
            ]);
            (whole, frames)
        }
        BodyWire::Anthropic => (
            format!(r#"{{"type":"message","role":"assistant","model":"m","content":[{{"type":"text","text":"It is."}},{{"type":"tool_use","id":"c1","name":"f","input":{BIG}}}],"stop_reason":"tool_use","usage":{{"input_tokens":6,"cache_read_input_tokens":3,"output_tokens":4}}}}"#),
            plain(&[
                r#"{"type":"message_start","message":{"type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":6,"cache_read_input_tokens":3,"output_tokens":1}}}"#.to_owned(),
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#.to_owned(),
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"It "}}"#.to_owned(),
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"is."}}"#.to_owned(),
                r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c1","name":"f","input":{}}}"#.to_owned(),
                format!(r#"{{"type":"content_block_delta","index":1,"delta":{{"type":"input_json_delta","partial_json":{big}}}}}"#),
                r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":4}}"#.to_owned(),
                r#"{"type":"message_stop"}"#.to_owned(),
            ]),
        ),
        BodyWire::Gemini => {
            let call = format!(r#"{{"functionCall":{{"id":"c1","name":"f","args":{BIG}}}}}"#);
            let rest = r#""modelVersion":"m","usageMetadata":{"promptTokenCount":9,"cachedContentTokenCount":3,"candidatesTokenCount":4}"#;
            let whole = format!(r#"{{"candidates":[{{"index":0,"content":{{"role":"model","parts":[{{"text":"It is."}},{call}]}},"finishReason":"STOP"}}],{rest}}}"#);
            let frames = plain(&[
                r#"{"candidates":[{"index":0,"content":{"role":"model","parts":[{"text":"It "}]}}]}"#.to_owned(),
                r#"{"candidates":[{"index":0,"content":{"role":"model","parts":[{"text":"is."}]}}]}"#.to_owned(),
                format!(r#"{{"candidates":[{{"index":0,"content":{{"role":"model","parts":[{call}]}},"finishReason":"STOP"}}],{rest}}}"#),
            ]);
            (whole, frames)
        }
        BodyWire::BedrockConverse => (
            format!(r#"{{"output":{{"message":{{"role":"assistant","content":[{{"text":"It is."}},{{"toolUse":{{"toolUseId":"c1","name":"f","input":{BIG}}}}}]}}}},"stopReason":"tool_use","usage":{{"inputTokens":6,"cacheReadInputTokens":3,"outputTokens":4}}}}"#),
            vec![
                frame(Some("messageStart"), r#"{"role":"assistant"}"#),
                frame(Some("contentBlockDelta"), r#"{"contentBlockIndex":0,"delta":{"text":"It "}}"#),
                frame(Some("contentBlockDelta"), r#"{"contentBlockIndex":0,"delta":{"text":"is."},"p":"ab"}"#),
                frame(Some("contentBlockStart"), r#"{"contentBlockIndex":1,"start":{"toolUse":{"toolUseId":"c1","name":"f"}}}"#),
                frame(Some("contentBlockDelta"), &format!(r#"{{"contentBlockIndex":1,"delta":{{"toolUse":{{"input":{big}}}}}}}"#)),
                frame(Some("messageStop"), r#"{"stopReason":"tool_use"}"#),
                frame(Some("metadata"), r#"{"usage":{"inputTokens":6,"cacheReadInputTokens":3,"outputTokens":4}}"#),
            ],
        ),
        BodyWire::Cohere => (
            format!(r#"{{"message":{{"role":"assistant","content":[{{"type":"text","text":"It is."}}],"tool_calls":[{{"id":"c1","type":"function","function":{{"name":"f","arguments":{big}}}}}]}},"finish_reason":"TOOL_CALL","usage":{{"tokens":{{"input_tokens":9,"output_tokens":4}},"cached_tokens":3}}}}"#),
            plain(&[
                r#"{"type":"message-start","delta":{"message":{"role":"assistant","content":[],"tool_plan":"","tool_calls":[]}}}"#.to_owned(),
                r#"{"type":"content-start","index":0,"delta":{"message":{"content":{"type":"text","text":""}}}}"#.to_owned(),
                r#"{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"It "}}}}"#.to_owned(),
                r#"{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"is."}}}}"#.to_owned(),
                r#"{"type":"tool-call-start","index":0,"delta":{"message":{"tool_calls":{"id":"c1","type":"function","function":{"name":"f","arguments":""}}}}}"#.to_owned(),
                format!(r#"{{"type":"tool-call-delta","index":0,"delta":{{"message":{{"tool_calls":{{"function":{{"arguments":{big}}}}}}}}}}}"#),
                r#"{"type":"message-end","delta":{"finish_reason":"TOOL_CALL","usage":{"tokens":{"input_tokens":9,"output_tokens":4},"cached_tokens":3}}}"#.to_owned(),
            ]),
        ),
        BodyWire::Ollama => {
            let call = format!(r#"[{{"id":"c1","function":{{"name":"f","arguments":{BIG}}}}}]"#);
            let rest = r#""model":"m","done":true,"done_reason":"stop","prompt_eval_count":9,"prompt_eval_cached_count":3,"eval_count":4"#;
            let whole = format!(r#"{{"message":{{"role":"assistant","content":"It is.","tool_calls":{call}}},{rest}}}"#);
            let frames = plain(&[
                r#"{"message":{"role":"assistant","content":"It "},"done":false}"#.to_owned(),
                r#"{"message":{"role":"assistant","content":"is."},"done":false}"#.to_owned(),
                format!(r#"{{"message":{{"role":"assistant","content":"","tool_calls":{call}}},"done":false}}"#),
                format!(r#"{{"message":{{"role":"assistant","content":""}},{rest}}}"#),
            ]);
            (whole, frames)
        }
    }
}

const WIRES: [BodyWire; 7] = [
    BodyWire::OpenAiChat,
    BodyWire::OpenAiResponses,
    BodyWire::Anthropic,
    BodyWire::Gemini,
    BodyWire::BedrockConverse,
    BodyWire::Cohere,
    BodyWire::Ollama,
];

async fn collect_updates(
    wire: BodyWire,
    frames: Vec<Result<Frame, AnswerError>>,
) -> (Vec<ChatUpdate>, Option<AnswerError>) {
    let mut updates = updates(stream::iter(frames), wire.accumulator());
    let (mut read, mut error) = (Vec::new(), None);
    while let Some(update) = updates.next().await {
        assert!(error.is_none(), "{wire:?}: something follows an error");
        match update {
            Ok(update) => read.push(update),
            Err(found) => error = Some(found),
        }
    }
    (read, error)
}

fn text_of(updates: &[ChatUpdate]) -> String {
    let texts = updates.iter().filter_map(|update| match update {
        ChatUpdate::TextDelta(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

fn parts(message: &Message) -> Vec<Part> {
    message.parts.clone()
}

#[tokio::test]
async fn a_streamed_answer_equals_the_same_answer_received_whole() {
    for wire in WIRES {
        let (whole, frames) = recorded(wire);
        let answer = wire.parse_answer(&whole).unwrap();
        let (updates, error) = collect_updates(wire, frames.into_iter().map(Ok).collect()).await;
        assert!(error.is_none(), "{wire:?}: {error:?}");
        assert_eq!(text_of(&updates), "It is.", "{wire:?}");
        let [.., ChatUpdate::Message(message), ChatUpdate::Finish(finish)] = updates.as_slice()
        else {
            panic!("{wire:?}: {updates:?}")
        };
        assert_eq!(parts(message), parts(&answer.messages[0]), "{wire:?}");
        assert_eq!((&finish.reason, &finish.usage), (&answer.finish.reason, &answer.finish.usage));
        assert_eq!(finish.reason, Some(FinishReason::ToolCalls), "{wire:?}");
        let usage = finish.usage;
        let counts = (usage.input_tokens, usage.cached_input_tokens, usage.output_tokens);
        assert_eq!(counts, (9, 3, 4), "{wire:?}");
        let call = message.calls().next().unwrap();
        assert_eq!((call.id.as_deref(), &*call.arguments), (Some("c1"), BIG), "{wire:?}");
    }
}

/// The frames are from Anthropic's documentation: the block begins without content, and a single
/// delta contains the whole content.
#[tokio::test]
async fn a_streamed_summary_of_anthropic_is_the_same_item_as_in_a_whole_answer() {
    let usage = r#"{"input_tokens":600,"output_tokens":97,"iterations":[{"type":"compaction","input_tokens":48,"cache_read_input_tokens":2615,"output_tokens":496},{"type":"message","input_tokens":600,"output_tokens":97}]}"#;
    let whole = format!(
        r#"{{"type":"message","role":"assistant","model":"m","content":[{{"type":"compaction","content":"They talk of coats."}},{{"type":"text","text":"Yes."}}],"stop_reason":"end_turn","usage":{usage}}}"#
    );
    let frames = [
        r#"{"type":"message_start","message":{"type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":600,"output_tokens":1}}}"#.to_owned(),
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"compaction","content":null}}"#.to_owned(),
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"compaction_delta","content":"They talk of coats."}}"#.to_owned(),
        r#"{"type":"content_block_stop","index":0}"#.to_owned(),
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}"#.to_owned(),
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Yes."}}"#.to_owned(),
        format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{usage}}}"#),
        r#"{"type":"message_stop"}"#.to_owned(),
    ];
    let wire = BodyWire::Anthropic;
    let answer = wire.parse_answer(&whole).unwrap();
    let (updates, error) =
        collect_updates(wire, frames.iter().map(|data| Ok(frame(None, data))).collect()).await;
    assert!(error.is_none(), "{error:?}");
    let [.., ChatUpdate::Message(message), ChatUpdate::Finish(finish)] = updates.as_slice() else {
        panic!("{updates:?}")
    };
    for message in [message, &answer.messages[0]] {
        let [Part::Native(summary), Part::Text(text)] = &message.parts[..] else {
            panic!("{message:?}")
        };
        let item: Value = serde_json::from_str(summary.item.get()).unwrap();
        assert_eq!(item, json!({"type": "compaction", "content": "They talk of coats."}));
        assert_eq!(text.text, "Yes.");
    }
    for finish in [&**finish, &answer.finish] {
        let usage = finish.usage;
        let counts = (usage.input_tokens, usage.cached_input_tokens, usage.output_tokens);
        assert_eq!(counts, (3263, 2615, 593));
    }
}

#[tokio::test]
async fn the_error_of_a_stream_that_ends_early_contains_the_received_text() {
    for wire in WIRES {
        let (_, frames) = recorded(wire);
        // Each stream is cut before the first frame with a finish reason, because an answer with a
        // finish reason is complete.
        let reasons =
            ["finish_reason", "stop_reason", "stopReason", "finishReason", "\"done\":true"];
        let ends = |frame: &Frame| {
            let reason = reasons.iter().any(|reason| frame.data.contains(reason));
            reason && !frame.data.contains("\"finish_reason\":null")
        };
        let complete = frames.iter().position(ends).unwrap_or(frames.len() - 1);
        for end in 0..=complete {
            let begun = || frames[..end].iter().cloned().map(Ok);
            let (updates, error) = collect_updates(wire, begun().collect()).await;
            let Some(AnswerError::Truncated { text, .. }) = &error else {
                panic!("{wire:?} after {end}: {error:?}")
            };
            assert_eq!(*text, text_of(&updates), "{wire:?} after {end}");
            assert!(error.unwrap().is_retryable());

            let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
            let broken = begun().chain([Err(AnswerError::interrupted(reset))]);
            let (updates, error) = collect_updates(wire, broken.collect()).await;
            let Some(AnswerError::Truncated { text, source: Some(_), .. }) = &error else {
                panic!("{wire:?} after {end}: {error:?}")
            };
            assert_eq!(*text, text_of(&updates), "{wire:?} after {end}");
        }
    }
}

#[tokio::test]
async fn an_error_after_the_end_of_an_answer_is_ignored() {
    for wire in WIRES {
        let (_, frames) = recorded(wire);
        let late = AnswerError::malformed("late", "");
        let frames = frames.into_iter().map(Ok).chain([Err(late)]);
        let (updates, error) = collect_updates(wire, frames.collect()).await;
        assert!(error.is_none(), "{wire:?}: {error:?}");
        assert!(matches!(updates.last(), Some(ChatUpdate::Finish(_))), "{wire:?}");
    }
}

#[test]
fn every_wire_parses_the_error_bodies_of_its_services() {
    let refusal = |wire: BodyWire, status, body: &str| {
        let error = wire.parse_error(status, body);
        (error.status(), error.code().map(str::to_owned), error.is_retryable())
    };
    let quota = r#"{"error":{"message":"Buy more.","type":"x","code":"insufficient_quota"}}"#;
    let expected = (Some(429), Some("insufficient_quota".to_owned()), false);
    assert_eq!(refusal(BodyWire::OpenAiChat, 429, quota), expected);
    let busy = r#"{"type":"error","error":{"type":"overloaded_error","message":"Busy."}}"#;
    let expected = (Some(529), Some("overloaded_error".to_owned()), true);
    assert_eq!(refusal(BodyWire::Anthropic, 529, busy), expected);
    let delay = r#"[{"error":{"code":429,"message":"Slow.","status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"2.5s"}]}}]"#;
    let error = BodyWire::Gemini.parse_error(429, delay);
    assert_eq!(error.code(), Some("RESOURCE_EXHAUSTED"));
    assert_eq!(error.retry_after(), Some(std::time::Duration::from_millis(2500)));
    for wire in WIRES {
        for body in ["", "<html>", "null", "[]", "7", r#"{"message":"No."}"#, r#"{"error":"No."}"#]
        {
            let error = wire.parse_error(400, body);
            let AnswerError::Refused { message, body: whole, .. } = &error else { panic!() };
            assert_eq!(whole, body, "{wire:?}");
            assert!(!error.is_retryable());
            assert_eq!(message == "No.", body.contains("No."), "{wire:?}: {message}");
        }
    }
}

#[test]
fn an_error_inside_a_stream_is_a_refusal() {
    for (wire, event, data, is_retryable) in [
        (BodyWire::OpenAiChat, None, r#"{"error":{"message":"m1","code":502}}"#, true),
        (
            BodyWire::OpenAiResponses,
            None,
            r#"{"type":"error","code":"invalid_prompt","message":"m2"}"#,
            false,
        ),
        (
            BodyWire::Anthropic,
            Some("error"),
            r#"{"type":"error","error":{"type":"overloaded_error","message":"m3"}}"#,
            true,
        ),
        (BodyWire::Gemini, None, r#"{"promptFeedback":{"blockReason":"OTHER"}}"#, false),
        (
            BodyWire::BedrockConverse,
            Some("error"),
            r#"{"error":{"type":"validationException","message":"m4"}}"#,
            false,
        ),
        (BodyWire::Ollama, None, r#"{"error":"m5"}"#, true),
    ] {
        let error = wire.accumulator().push(&frame(event, data)).unwrap_err();
        let AnswerError::Refused { body, .. } = &error else { panic!("{wire:?}: {error}") };
        assert_eq!(body, data);
        assert_eq!(error.is_retryable(), is_retryable, "{wire:?}: {error}");
    }
}

#[test]
fn uncommon_finish_reasons_are_stored_in_the_metadata() {
    let anthropic = r#"{"role":"assistant","content":[{"type":"text","text":"a"}],"stop_reason":"stop_sequence","stop_sequence":"END"}"#;
    let answer = BodyWire::Anthropic.parse_answer(anthropic).unwrap();
    assert_eq!(answer.finish.reason, Some(FinishReason::Stop));
    assert_eq!(answer.finish.metadata["stop_sequence"], "END");
    assert_eq!(answer.finish.metadata["stop_reason"], "stop_sequence");
    let gemini =
        r#"{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"IMAGE_SAFETY"}]}"#;
    let answer = BodyWire::Gemini.parse_answer(gemini).unwrap();
    assert_eq!(answer.finish.reason, Some(FinishReason::ContentFilter));
    assert_eq!(answer.finish.metadata["candidate"]["finishReason"], "IMAGE_SAFETY");
}

#[test]
fn a_background_answer_is_accepted_only_if_the_request_asked_for_one() {
    let body = r#"{"id":"resp_7","status":"queued","output":[]}"#;
    let wire = BodyWire::OpenAiResponses;
    assert!(matches!(wire.parse_answer(body), Err(AnswerError::Malformed { .. })));
    let context = AnswerContext::of_history(HistoryLocation::NewResponse).with_background(true);
    let Answer { messages, finish, .. } = wire.parse_answer_to(body, &context).unwrap();
    assert!(messages.is_empty());
    assert_eq!(finish.continuation.as_deref(), Some("resp_7"));
}

#[test]
fn deeply_nested_frames_do_not_overflow_the_stack() {
    for wire in WIRES {
        for levels in [100, 10_000] {
            let nested = "{\"a\":".repeat(levels) + "1" + &"}".repeat(levels);
            let data = format!(
                r#"{{"odd":{nested},"message":{{"odd":{nested}}},"delta":{{"odd":{nested}}},"choices":[{{"delta":{{"odd":{nested}}},"odd":{nested}}}]}}"#
            );
            let mut accumulator = wire.accumulator();
            for _ in 0..3 {
                if accumulator.push(&frame(Some("contentBlockDelta"), &data)).is_err() {
                    break;
                }
            }
            let _ = accumulator.text();
            drop(accumulator.finish());
        }
    }
}
