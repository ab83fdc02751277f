//! Tests of structured output: the schemas in requests, and reading answers.

use std::{collections::BTreeMap, sync::Arc};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tower_chat_core::{
    Answer, ChatOptions, ChatRequest, Finish, FinishReason, Message, Part, Role, ToolCall,
    ToolChoice,
};
use tower_chat_providers::structured::{StructuredError, StructuredFormat, StructuredOutput};
use tower_chat_wire::body::BodyWire;

/// A table that a guest books.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Booking {
    /// The number of guests.
    #[schemars(range(min = 1, max = 12))]
    guests: u8,
    note: Option<String>,
    #[serde(default)]
    dishes: Vec<Dish>,
    payment: Payment,
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Dish {
    #[schemars(length(max = 30))]
    name: String,
    #[serde(default)]
    spicy: bool,
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "by", rename_all = "snake_case")]
enum Payment {
    Cash,
    Card { number: String },
}

fn booking(format: StructuredFormat) -> StructuredOutput<Booking> {
    StructuredOutput::for_provider(format)
}

fn answer(text: &str, reason: FinishReason) -> Answer {
    let mut finish = Finish::default();
    finish.reason = Some(reason);
    Answer::new(vec![Arc::new(Message::assistant(text))], finish)
}

/// Returns the schema that every provider receives.
fn portable_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "guests": {
                "type": "integer",
                "description": "The number of guests. (maximum: 12, minimum: 1)",
            },
            "note": {"type": ["string", "null"]},
            "dishes": {"type": ["array", "null"], "items": {"$ref": "#/$defs/Dish"}},
            "payment": {"$ref": "#/$defs/Payment"},
        },
        "required": ["guests", "note", "dishes", "payment"],
        "additionalProperties": false,
        "$defs": {
            "Dish": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "(maxLength: 30)"},
                    "spicy": {"type": ["boolean", "null"]},
                },
                "required": ["name", "spicy"],
                "additionalProperties": false,
            },
            "Payment": {
                "anyOf": [
                    {
                        "type": "object",
                        "properties": {"by": {"type": "string", "enum": ["cash"]}},
                        "required": ["by"],
                        "additionalProperties": false,
                    },
                    {
                        "type": "object",
                        "properties": {
                            "by": {"type": "string", "enum": ["card"]},
                            "number": {"type": "string"},
                        },
                        "required": ["by", "number"],
                        "additionalProperties": false,
                    },
                ],
            },
        },
    })
}

/// Sorts the lists `required` in a schema, because their order depends on the order of the fields
/// in a map.
fn sorted(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                *field = sorted(field.take());
                if name == "required" {
                    field.as_array_mut().unwrap().sort_by_key(Value::to_string);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = sorted(item.take())),
        _ => {}
    }
    schema
}

#[test]
fn the_schema_is_sent_in_the_field_of_each_provider() {
    let description = "A table that a guest books.";
    let schema = portable_schema();
    let named =
        json!({"name": "Booking", "description": description, "schema": schema, "strict": true});
    let mut flat = named.clone();
    flat["type"] = json!("json_schema");
    let plain = json!({"type": "json_schema", "schema": portable_schema()});
    let cases = [
        (
            StructuredFormat::OpenAiChat,
            json!({"response_format": {"type": "json_schema", "json_schema": named}}),
        ),
        (
            StructuredFormat::Mistral,
            json!({"response_format": {"type": "json_schema", "json_schema": named}}),
        ),
        (StructuredFormat::OpenAiResponses, json!({"text": {"format": flat}})),
        (StructuredFormat::Anthropic, json!({"output_config": {"format": plain}})),
        (
            StructuredFormat::Gemini,
            json!({"generationConfig": {
            "responseMimeType": "application/json", "responseJsonSchema": portable_schema()}}),
        ),
        (
            StructuredFormat::Cohere,
            json!({"response_format": {"type": "json_object", "schema": portable_schema()}}),
        ),
        (StructuredFormat::Ollama, json!({"format": portable_schema()})),
    ];
    for (format, expected) in cases {
        let request = booking(format).apply(ChatRequest::user("a table"));
        let extra = Value::Object(request.options.extra.clone());
        assert_eq!(sorted(extra), sorted(expected), "{format:?}");
    }
}

#[test]
fn converse_is_sent_the_schema_as_a_text() {
    let request = booking(StructuredFormat::BedrockConverse).apply(ChatRequest::user("two seats"));
    let format = &request.options.extra["outputConfig"]["textFormat"];
    assert_eq!(format["type"], "json_schema");
    let named = format["structure"]["jsonSchema"].as_object().unwrap();
    let fields: Vec<&String> = named.keys().collect();
    assert_eq!(fields, ["description", "name", "schema"]);
    let schema: Value = serde_json::from_str(named["schema"].as_str().unwrap()).unwrap();
    assert_eq!(sorted(schema), sorted(portable_schema()));
}

#[test]
fn a_forced_tool_call_replaces_the_schema_field_of_a_provider_without_one() {
    let output = booking(StructuredFormat::ForcedTool).with_name("book table!");
    let request = output.apply(output.apply(ChatRequest::user("a terrace")));
    let [tool] = request.options.tools.as_slice() else { panic!("{:?}", request.options.tools) };
    assert_eq!(tool.name, "book_table_");
    assert_eq!(sorted(tool.parameters.clone()), sorted(portable_schema()));
    assert_eq!(request.options.tool_choice, Some(ToolChoice::Tool("book_table_".to_owned())));
    let arguments = r#"{"guests":3,"note":null,"dishes":[],"payment":{"by":"cash"}}"#;
    let call = ToolCall::new("call_1", "book_table_", arguments);
    let message = Message::new(Role::Assistant, vec![Part::text("Booking."), call.into()]);
    let mut finish = Finish::default();
    finish.reason = Some(FinishReason::ToolCalls);
    let found = output.parse(&Answer::new(vec![Arc::new(message)], finish)).unwrap();
    assert_eq!((found.guests, found.payment), (3, Payment::Cash));
    let error = output.parse(&answer("What time?", FinishReason::Stop)).unwrap_err();
    let StructuredError::Invalid { text, problem, .. } = error else { panic!("{error}") };
    assert_eq!(
        (text.as_str(), problem.as_str()),
        ("What time?", "the model did not call book_table_")
    );
}

#[test]
fn the_schema_is_added_to_the_options_of_the_request() {
    let mut options = ChatOptions::default();
    options.extra = json!({
        "text": {"verbosity": "low"},
        "output_config": {"effort": "high"},
        "generationConfig": {"seed": 7},
    })
    .as_object()
    .unwrap()
    .clone();
    let request = ChatRequest::user("quietly").with_options(options);
    let apply = |format| booking(format).apply(request.clone()).options.extra.clone();
    let responses = &apply(StructuredFormat::OpenAiResponses)["text"];
    assert_eq!(
        (&responses["verbosity"], &responses["format"]["strict"]),
        (&json!("low"), &json!(true))
    );
    let anthropic = &apply(StructuredFormat::Anthropic)["output_config"];
    assert_eq!(
        (&anthropic["effort"], &anthropic["format"]["type"]),
        (&json!("high"), &json!("json_schema"))
    );
    let gemini = &apply(StructuredFormat::Gemini)["generationConfig"];
    assert_eq!(
        (&gemini["seed"], &gemini["responseMimeType"]),
        (&json!(7), &json!("application/json"))
    );
}

#[test]
fn each_wire_writes_the_schema_into_its_body() {
    let cases = [
        (StructuredFormat::OpenAiChat, BodyWire::OpenAiChat, "/response_format/json_schema/schema"),
        (StructuredFormat::OpenAiResponses, BodyWire::OpenAiResponses, "/text/format/schema"),
        (StructuredFormat::Anthropic, BodyWire::Anthropic, "/output_config/format/schema"),
        (StructuredFormat::Gemini, BodyWire::Gemini, "/generationConfig/responseJsonSchema"),
    ];
    for (format, wire, pointer) in cases {
        let mut options = ChatOptions::default();
        options.model = Some("model".to_owned());
        options.max_output_tokens = Some(50);
        let request =
            booking(format).apply(ChatRequest::user("by the window").with_options(options));
        let body = wire.render_request(&request).unwrap();
        let schema = body.pointer(pointer).unwrap_or_else(|| panic!("{format:?}: {body:#}"));
        assert_eq!(sorted(schema.clone()), sorted(portable_schema()), "{format:?}");
    }
}

#[test]
fn an_answer_that_conforms_to_the_schema_is_parsed_into_a_value() {
    let text = r#" {"guests": 12, "note": "late", "dishes": [{"name": "curry", "spicy": null}],
        "payment": {"by": "card", "number": "4000"}} "#;
    let expected = Booking {
        guests: 12,
        note: Some("late".to_owned()),
        dishes: vec![Dish { name: "curry".to_owned(), spicy: false }],
        payment: Payment::Card { number: "4000".to_owned() },
    };
    let output = booking(StructuredFormat::Gemini);
    assert_eq!(output.parse(&answer(text, FinishReason::Stop)).unwrap(), expected);
}

#[test]
fn an_answer_that_does_not_conform_is_an_error_with_its_text_and_the_position() {
    let cases = [
        ("Gladly!", "the text is not JSON"),
        (r#"{"guests":0,"note":null,"dishes":null,"payment":{"by":"cash"}}"#, "\"/guests\""),
        (r#"{"guests":13,"note":null,"dishes":[],"payment":{"by":"cash"}}"#, "maximum of 12"),
        (r#"{"guests":1,"note":5,"dishes":[],"payment":{"by":"cash"}}"#, "\"/note\""),
        (r#"{"guests":2,"note":"x","dishes":[],"payment":{"by":"cheque"}}"#, "\"/payment\""),
        (r#"{"guests":4,"note":"y","dishes":[]}"#, "payment"),
        ("[]", "object"),
    ];
    for (text, expected) in cases {
        let output = booking(StructuredFormat::Anthropic);
        let error = output.parse(&answer(text, FinishReason::Stop)).unwrap_err();
        let StructuredError::Invalid { name, text: found, problem, .. } = error else {
            panic!("{error}")
        };
        assert_eq!((name.as_str(), found.as_str()), ("Booking", text));
        assert!(problem.contains(expected), "{problem}, not {expected}");
    }
}

#[test]
fn an_answer_that_was_cut_off_is_an_error_even_if_it_is_valid_json() {
    let output = StructuredOutput::<BTreeMap<String, u32>>::for_provider(StructuredFormat::Ollama);
    let error = output.parse(&answer(r#"{"value":{}}"#, FinishReason::Length)).unwrap_err();
    let StructuredError::CutOff { text, .. } = error else { panic!("{error}") };
    assert_eq!(text, r#"{"value":{}}"#);
}

#[test]
fn refusals_are_distinguished_from_answers() {
    let chat = json!({"choices": [{"index": 0, "finish_reason": "stop", "message": {
        "role": "assistant", "content": null, "refusal": "I will not book that."}}]});
    let part = json!({"type": "refusal", "refusal": "I must not book that."});
    let item = json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
        "content": [part]});
    let responses = json!({"id": "resp_1", "object": "response", "status": "completed",
        "output": [item]});
    let cases = [
        (BodyWire::OpenAiChat, chat, "I will not book that."),
        (BodyWire::OpenAiResponses, responses, "I must not book that."),
    ];
    for (wire, json, expected) in cases {
        let answer = wire.parse_answer(&json.to_string()).unwrap();
        let error = booking(StructuredFormat::OpenAiChat).parse(&answer).unwrap_err();
        let StructuredError::Refused { text, .. } = error else { panic!("{error}") };
        assert_eq!(text, expected);
    }
    let filtered = answer("I can", FinishReason::ContentFilter);
    let error = booking(StructuredFormat::Mistral).parse(&filtered).unwrap_err();
    let StructuredError::Refused { text, .. } = error else { panic!("{error}") };
    assert_eq!(text, "I can");
}

#[test]
fn a_type_that_is_not_an_object_is_wrapped_in_an_object() {
    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Mood {
        Calm,
        Cross,
    }

    let output = StructuredOutput::<Vec<Mood>>::for_provider(StructuredFormat::OpenAiResponses);
    let request = output.apply(ChatRequest::user("how are they?"));
    let format = &request.options.extra["text"]["format"];
    assert_eq!(format["schema"]["required"], json!(["value"]));
    assert_eq!(format["schema"]["properties"]["value"]["type"], "array");
    assert_eq!(format["strict"], true);
    let found = output.parse(&answer(r#"{"value":["cross","calm"]}"#, FinishReason::Stop)).unwrap();
    assert_eq!(found, [Mood::Cross, Mood::Calm]);
    let error = output.parse(&answer(r#"["calm"]"#, FinishReason::Stop)).unwrap_err();
    assert!(error.to_string().contains("the object has no field `value`"), "{error}");
}

#[test]
fn the_schema_of_a_type_with_a_map_is_sent_as_not_strict() {
    #[derive(Debug, Deserialize, JsonSchema)]
    struct Prices {
        by_dish: BTreeMap<String, u32>,
    }

    let output = StructuredOutput::<Prices>::for_provider(StructuredFormat::OpenAiChat);
    let request = output.apply(ChatRequest::user("what does it cost?"));
    let schema = &request.options.extra["response_format"]["json_schema"];
    assert_eq!(schema["strict"], false);
    assert!(
        schema["schema"]["properties"]["by_dish"]["additionalProperties"].is_object(),
        "{schema}"
    );
    let found = output.parse(&answer(r#"{"by_dish":{"soup":7}}"#, FinishReason::Stop)).unwrap();
    assert_eq!(found.by_dish["soup"], 7);
}
