use tower_chat_wire::validate::{Rule, Wire, validate};

use crate::data;

/// Why a provider refused a recorded request.
#[derive(Debug)]
enum Cause {
    /// What the validator looks at.
    Conversation(Rule),
    /// A kind or place of media that the model or its endpoint does not take.
    Media,
    /// The same, of a request that was too large to be recorded.
    MediaNotRecorded,
}

fn cause(id: &str) -> Cause {
    match id {
        // "No tool output found for tool call call-a": a message stands before the output.
        "rej-000" => Cause::Conversation(Rule::ResultsDirectlyAfterCalls),
        // "Please use a valid role: user, model."
        "rej-028" => Cause::Conversation(Rule::KnownRole),
        // "Content blocks are expected to be either text or image_url type."
        "rej-002" | "rej-008" | "rej-012" | "rej-020" | "rej-024" => Cause::Media,
        // "extraneous key [toolResult] is not permitted": a document of this kind, for this model.
        "rej-004" => Cause::Media,
        // "This model doesn't support the video content block", "... the s3Uri field".
        "rej-006" | "rej-018" => Cause::Media,
        "rej-014" | "rej-016" | "rej-026" => Cause::MediaNotRecorded,
        // "Cannot fetch content from the provided URL."
        "rej-010" | "rej-022" => Cause::Media,
        _ => panic!("{id} has no known cause: read its error and add it here"),
    }
}

#[test]
fn a_refusal_because_of_the_conversation_is_foreseen_and_one_for_another_cause_is_not_imitated() {
    let Some(folder) = data::folder() else { return };
    let (mut foreseen, mut other) = (0, Vec::new());
    for line in data::lines(&folder.join("oracle/rejected.jsonl")) {
        let id = line["id"].as_str().unwrap();
        let wire: Wire = line["flavor"].as_str().unwrap().parse().unwrap();
        let result = validate(wire, &line["request"]);
        match cause(id) {
            Cause::Conversation(rule) => {
                let invalid = result.expect_err(id);
                println!("{id}: {}\n     the provider: {}", invalid.first(), line["error"]);
                assert_eq!(invalid.first().rule, rule, "{id}");
                foreseen += 1;
            }
            Cause::Media => {
                result.unwrap_or_else(|invalid| panic!("{id}: {invalid}"));
                other.push(id.to_owned());
            }
            Cause::MediaNotRecorded => {
                assert!(line["request"].is_string(), "{id}");
                other.push(id.to_owned());
            }
        }
    }
    println!("{foreseen} foreseen; {} refused for media: {}", other.len(), other.join(", "));
    assert_eq!((foreseen, other.len()), (2, 13));
}
