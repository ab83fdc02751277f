use serde_json::{Value, json};
use tower_chat_testkit::{
    recordings::RecordedConversation,
    validate::{Rule, Wire, validate},
};

use crate::validate::data;

/// Returns the number of calls without a result after `message`, if there were `open` before. Ids
/// are not compared, because some recordings have none.
fn open_calls_after(open: usize, message: &Value) -> usize {
    match message["role"].as_str().unwrap() {
        "tool" => open - 1,
        "assistant" => message["tool_calls"].as_array().map_or(0, Vec::len),
        _ => 0,
    }
}

#[test]
fn a_recorded_conversation_is_valid_after_each_round_and_invalid_inside_a_round() {
    let transcripts = data::transcripts();
    let (mut whole, mut inside, mut cut_off) = (0, 0, 0);
    for RecordedConversation { source, messages, .. } in &transcripts {
        let mut open = 0;
        for (index, message) in messages.iter().enumerate() {
            open = open_calls_after(open, message);
            let body = json!({"messages": messages[..=index]});
            let result = validate(Wire::OpenAiChat, &body);
            if open == 0 {
                whole += 1;
                result.unwrap_or_else(|invalid| panic!("{source}, cut after {index}: {invalid}"));
            } else {
                inside += 1;
                let invalid = result.expect_err(&format!("{source}, cut after {index}"));
                assert_eq!(invalid.violations().count(), open, "{source}, cut after {index}");
                assert!(invalid.violations().all(|found| found.rule == Rule::CallsAnswered));
            }
        }
        cut_off += usize::from(open > 0);
    }
    println!(
        "{} conversations: valid after {whole} messages, invalid at {inside} inside a round; \
         {cut_off} recorded without its last result",
        transcripts.len()
    );
    assert!(whole > 0);
    let all: usize = transcripts.iter().map(|transcript| transcript.messages.len()).sum();
    assert_eq!(whole + inside, all);
}

#[test]
fn a_recorded_conversation_that_repeats_a_call_id_in_a_later_round_is_valid() {
    let transcripts = data::transcripts();
    let repeats = transcripts.iter().filter(|transcript| {
        let ids = transcript.messages.iter().filter_map(|message| message["tool_call_id"].as_str());
        let ids: Vec<_> = ids.filter(|id| !id.is_empty()).collect();
        let distinct: std::collections::HashSet<_> = ids.iter().collect();
        distinct.len() < ids.len()
    });
    let repeats: Vec<_> = repeats.collect();
    println!("{} conversations with a repeated id", repeats.len());
    for RecordedConversation { source, messages, .. } in repeats {
        validate(Wire::OpenAiChat, &json!({"messages": messages})).expect(source);
    }
}
