use serde_json::Value;
use tower_chat_testkit::{
    recordings::Recordings,
    validate::{Rule, Wire, validate},
};

/// The reason why a provider refused a recorded request.
#[derive(Debug)]
enum Cause {
    /// A rule that the validator checks.
    Conversation(Rule),
    /// Any other cause, such as a kind of media, a file, an option or a quota.
    Other,
}

/// Parts of the error messages of providers, each with the cause of the error.
const CAUSES: [(&str, Cause); 12] = [
    // In the recorded request, a message is between the call and its output.
    ("No tool output found for", Cause::Conversation(Rule::ResultsDirectlyAfterCalls)),
    ("Please use a valid role", Cause::Conversation(Rule::KnownRole)),
    ("Content blocks are expected to be either text or image_url", Cause::Other),
    // The request contains a document of a kind that the model does not accept.
    ("extraneous key [toolResult] is not permitted", Cause::Other),
    ("doesn't support the", Cause::Other),
    ("does not support", Cause::Other),
    ("not supported", Cause::Other),
    ("Cannot fetch content from the provided URL", Cause::Other),
    ("rate", Cause::Other),
    ("quota", Cause::Other),
    ("maximum context length", Cause::Other),
    ("prompt is too long", Cause::Other),
];

#[test]
fn a_recorded_refusal_is_predicted_exactly_if_its_cause_is_the_conversation() {
    let recordings = Recordings::all();
    let (mut foreseen, mut other, mut unknown) = (0, 0, 0);
    for request in recordings.rejected().unwrap() {
        let id = &request.id;
        let wire: Wire = request.line["flavor"].as_str().unwrap().parse().unwrap();
        let error = request.line["error"].to_string();
        let cause = CAUSES.iter().find(|(words, _)| error.contains(words));
        // Some request bodies were too large to be recorded.
        let body = Some(&request.body).filter(|body| !matches!(body, Value::String(_)));
        let result = body.map(|body| validate(wire, body));
        match (cause, result) {
            (Some((_, Cause::Conversation(rule))), Some(result)) => {
                let invalid = result.expect_err(id);
                println!("{id}: {}\n     the provider: {error}", invalid.first());
                assert_eq!(invalid.first().rule, *rule, "{id}");
                foreseen += 1;
            }
            (Some((_, Cause::Other)), Some(result)) => {
                result.unwrap_or_else(|invalid| panic!("{id}: {invalid}"));
                other += 1;
            }
            (Some(_), None) => other += 1,
            (None, result) => {
                println!("{id}: the cause of {error} is unknown, the validator returns {result:?}");
                unknown += 1;
            }
        }
    }
    println!("{foreseen} predicted, {other} refused for another cause, {unknown} of unknown cause");
}
