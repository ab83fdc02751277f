//! Tests of tools that are made from functions and types: their definitions, and the results of
//! their calls.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower_chat::{
    BoxError, MemoryStore, Part, ToolCall,
    message::RawJson,
    prelude::*,
    store::InvocationQuery,
    tool::{Json, Retention, StoredCall, ToolStatus},
};
use tower_chat_testkit::{ScriptedModel, Step};
use tower_chat_wire::{bedrock_converse, body::BodyWire, cohere, ollama, openai_responses};

/// How a dish is paid.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Payment {
    /// At the table.
    Cash,
    Card,
}

/// A dish, and what comes with it.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[allow(dead_code, reason = "only its shape matters")]
struct Dish {
    name: String,
    sides: Vec<Dish>,
    size: Option<u8>,
}

#[derive(Serialize)]
struct Receipt {
    dishes: usize,
    note: Option<String>,
}

/// Orders dishes.
///
/// The kitchen closes
/// at ten.
#[tool(strict)]
async fn order(
    /// What to cook.
    dishes: Vec<Dish>,
    /// How to pay.
    payment: Option<Payment>,
    #[serde(default, rename = "remark")] note: Option<String>,
    #[schemars(range(min = 1, max = 12))] guests: u8,
) -> Result<Receipt, std::io::Error> {
    match payment {
        Some(Payment::Card) => Err(std::io::Error::other("no card reader")),
        _ => Ok(Receipt { dishes: dishes.len() + usize::from(guests), note }),
    }
}

/// Adds up.
#[tool(name = "sum-up", description = "Sums up.")]
async fn add(numbers: HashMap<String, i64>) -> i64 {
    numbers.values().sum()
}

/// Argument names that the macro might use itself.
#[derive(Deserialize, schemars::JsonSchema)]
struct Arguments {
    tool: String,
}

/// Repeats.
#[tool]
async fn repeat(call: &ToolContext, context: String, arguments: Arguments, output: u8) -> String {
    format!("{} {context} {} {output}", call.call_id(), arguments.tool)
}

struct Counters {
    calls: AtomicU32,
    failures: u32,
}

/// Fails a few times.
#[tool(retries = 3, retry_delay_ms = 5)]
async fn unsteady(context: &ToolContext, counters: &Counters) -> Result<ToolOutput, BoxError> {
    let call = counters.calls.fetch_add(1, Ordering::Relaxed);
    if call < counters.failures {
        return Err("not yet".into());
    }
    Ok(ToolOutput::from(format!("{} at attempt {call}", context.call_id())))
}

/// Charges a card, with errors of `anyhow`.
#[tool(retries = 2)]
async fn charge(attempts: &AtomicU32, cents: i64) -> anyhow::Result<String> {
    attempts.fetch_add(1, Ordering::Relaxed);
    charged(cents)
}

fn charged(cents: i64) -> anyhow::Result<String> {
    match cents {
        0 => Err(ToolError::for_model("an amount of 0 cannot be charged").into()),
        1 => {
            Err(anyhow::Error::new(ToolError::for_model("one cent is too little")).context("till"))
        }
        2 => Err(ToolError::fail_run("the till is broken"))?,
        3 => anyhow::bail!("an error that says nothing of the model"),
        _ => Ok(format!("{cents} cents")),
    }
}

/// What a closure charges.
#[derive(Deserialize, schemars::JsonSchema)]
struct Charge {
    cents: i64,
}

async fn charge_fn(charge: Charge, _context: ToolContext) -> anyhow::Result<String> {
    charged(charge.cents)
}

/// Says nothing.
#[tool(needs_approval, safe_to_retry, accepts_stored_arguments, persist = without_arguments)]
async fn silent(_secret: String) {}

fn without_arguments(call: &mut StoredCall<'_>) -> Result<Retention, BoxError> {
    call.redact_arguments("{}");
    Ok(Retention::Keep)
}

/// Calls a tool once, and returns the text and the error flag of the result.
async fn tool_result(tool: impl Tool, name: &str, arguments: &str) -> (String, bool) {
    let call = Message::tool_calls([ToolCall::new("call_9", name, arguments)]);
    let model = ScriptedModel::new([Step::message(call), Step::text("thanks")]);
    let mut agent = ChatPipeline::builder(model.clone())
        .tools(Tools::new().with(tool))
        .history(MemoryStore::new())
        .build()
        .unwrap();
    let request = ChatRequest::user("go").in_conversation(ConversationKey::new("ann", name));
    agent.ready().await.unwrap().call(request).await.unwrap().collect().await.unwrap();
    let messages = model.requests()[1].messages().clone();
    let results = messages.iter().flat_map(|message| message.results());
    results.map(|result| (result.text(), result.is_error)).last().unwrap()
}

#[test]
fn a_function_tells_its_name_its_documentation_and_its_parameters() {
    let tool = order();
    let definition = tool.definition();
    assert_eq!(definition.name, "order");
    assert_eq!(definition.description, "Orders dishes.\n\nThe kitchen closes at ten.");
    assert!(definition.strict && !definition.needs_approval && !definition.safe_to_retry);
    let properties = &definition.parameters["properties"];
    assert_eq!(properties["dishes"]["description"], "What to cook.");
    assert_eq!(properties["dishes"]["items"], json!({"$ref": "#/$defs/Dish"}));
    assert_eq!(properties["guests"]["description"], "(maximum: 12, minimum: 1)");
    assert_eq!(properties["remark"]["type"], json!(["string", "null"]));
    assert!(properties.get("note").is_none());
}

#[test]
fn settings_are_those_of_the_definition() {
    let tool = silent();
    let definition = tool.definition();
    assert!(definition.needs_approval && definition.safe_to_retry);
    assert!(definition.accepts_stored_arguments && !definition.strict);
    let tool = add();
    assert_eq!((&*tool.definition().name, &*tool.definition().description), ("sum-up", "Sums up."));
    // A map accepts keys that its schema does not list.
    let open = TypedTool::new("open", "", async |_: HashMap<String, u8>, _| Ok("")).strict();
    assert!(!open.definition().strict);
}

#[tokio::test]
async fn results_are_texts_values_or_nothing() {
    let order_two = r#"{"dishes": [{"name": "soup", "sides": [], "size": null}], "payment": "cash",
        "remark": "hot", "guests": 2}"#;
    let receipt = tool_result(order(), "order", order_two).await;
    assert_eq!(receipt, (r#"{"dishes":3,"note":"hot"}"#.to_owned(), false));
    assert_eq!(
        tool_result(add(), "sum-up", r#"{"numbers": {"a": 4, "b": -9}}"#).await,
        ("-5".to_owned(), false)
    );
    let listed = TypedTool::new("list", "", |ids: Vec<u8>, _| async move { Ok(Json(ids)) });
    assert_eq!(
        tool_result(listed, "list", r#"{"value": [3, 1]}"#).await,
        ("[3,1]".to_owned(), false)
    );
    let empty = TypedTool::new("none", "", async |(): (), _| Ok(vec![Part::text("parts")]));
    assert_eq!(tool_result(empty, "none", r#"{"value": null}"#).await, ("parts".to_owned(), false));
}

type ApiResult<T> = Result<T, String>;
type Text = String;

/// A type that converts into an output, although it has the same name as a type that does not.
#[derive(Serialize)]
struct Page(&'static str);

impl From<Page> for ToolOutput {
    fn from(page: Page) -> Self {
        Self::error(page.0)
    }
}

mod named {
    /// A type that does not convert into an output, although it has the same name as a type that
    /// does.
    #[derive(serde::Serialize)]
    pub(crate) struct Value {
        pub(crate) of: u8,
    }
}

/// Doubles.
#[tool]
async fn double(n: u8) -> ApiResult<u8> {
    n.checked_mul(2).ok_or_else(|| "too large".to_owned())
}

/// Says.
#[tool]
async fn say(text: Text) -> ApiResult<Text> {
    Ok(text)
}

/// Shows a page.
#[tool]
async fn page() -> Page {
    Page("no such page")
}

/// A value.
#[tool]
async fn value_of(of: u8) -> Result<named::Value, ToolError> {
    Ok(named::Value { of })
}

/// Searches.
#[tool]
async fn query(query: String) -> String {
    format!("nothing about {query}")
}

/// Looks something up in a table of the same name.
#[tool]
async fn table(table: &HashMap<&'static str, u8>, value_of: String) -> Option<u8> {
    table.get(&*value_of).copied()
}

#[tokio::test]
async fn the_type_of_a_result_decides_whatever_its_name() {
    let ok = |text: &str| (text.to_owned(), false);
    assert_eq!(tool_result(double(), "double", r#"{"n": 1}"#).await, ok("2"));
    let failed = ("The tool failed.".to_owned(), true);
    assert_eq!(tool_result(double(), "double", r#"{"n": 200}"#).await, failed);
    assert_eq!(tool_result(say(), "say", r#"{"text": "a \"b\""}"#).await, ok("a \"b\""));
    assert_eq!(tool_result(page(), "page", "").await, ("no such page".to_owned(), true));
    assert_eq!(tool_result(value_of(), "value_of", r#"{"of": 3}"#).await, ok(r#"{"of":3}"#));
}

#[tokio::test]
async fn a_parameter_may_have_the_name_of_its_function_or_of_another_one() {
    let found = tool_result(query(), "query", r#"{"query": "rust"}"#).await;
    assert_eq!(found.0, "nothing about rust");
    let values = HashMap::from([("two", 2)]);
    let found = tool_result(table(values), "table", r#"{"value_of": "two"}"#).await;
    assert_eq!(found.0, "2");
}

#[tokio::test]
async fn a_tool_without_arguments_and_one_of_any_keys_take_an_object() {
    let nothing = || TypedTool::new("nothing", "", async |(): (), _| Ok("ran"));
    let schema = json!({
        "type": "object", "properties": {}, "required": [], "additionalProperties": false,
    });
    assert_eq!(nothing().definition().parameters, schema);
    for arguments in ["{}", "", "null", r#"{"value": null}"#] {
        let expected = ("ran".to_owned(), false);
        assert_eq!(tool_result(nothing(), "nothing", arguments).await, expected, "{arguments}");
    }
    assert!(tool_result(nothing(), "nothing", "[]").await.1);

    let sum = || {
        TypedTool::new("sum", "", async |numbers: HashMap<String, i64>, _| {
            Ok(Json(numbers.values().sum::<i64>()))
        })
    };
    let parameters = sum().definition().parameters.clone();
    assert_eq!(parameters["type"], "object");
    assert_eq!(parameters["properties"], json!({}));
    assert_eq!(parameters["additionalProperties"]["type"], "integer");
    let added = tool_result(sum(), "sum", r#"{"a": 4, "value": -9}"#).await;
    assert_eq!(added, ("-5".to_owned(), false));
    assert_eq!(tool_result(sum(), "sum", "{}").await, ("0".to_owned(), false));
}

/// A payment.
#[derive(Debug, Deserialize, Serialize, schemars::JsonSchema)]
struct Transfer {
    to: String,
    #[serde(default)]
    amount: f32,
    #[serde(default)]
    then: Vec<Transfer>,
}

/// Pays.
#[tool]
async fn pay(payment: Transfer) -> Json<Transfer> {
    Json(payment)
}

#[tokio::test]
async fn arguments_that_serde_would_read_in_its_own_way_are_refused() {
    let typed = || TypedTool::new("pay", "", async |payment: Transfer, _| Ok(Json(payment)));
    for (arguments, expected) in [
        (r#"{"to": "bob", "to": "mallory"}"#, r#"the object has the key "to" twice"#),
        (r#"{"to": "bob", "t\u006f": "mallory"}"#, r#"the object has the key "to" twice"#),
        (r#"{"to": "bob", "then": [{"to": "a", "x": {"y": 1, "y": 2}}]}"#, r#"the key "y" twice"#),
        (r#"["bob", 5]"#, "expected an object"),
        (r#"{"to": "bob", "then": [["mallory", 5]]}"#, "`then[0]`"),
        (r#"{"to": "bob", "amount": 1e300}"#, "`amount`"),
        (r#"{"to": "bob", "then": [{"to": "a", "amount": -1e39}]}"#, "`then[0].amount`"),
    ] {
        let (text, is_error) = tool_result(typed(), "pay", arguments).await;
        assert!(is_error && text.contains(expected), "{arguments}: {text}");
        let arguments = format!(r#"{{"payment": {arguments}}}"#);
        let (text, is_error) = tool_result(pay(), "pay", &arguments).await;
        let expected = expected.replace("`then", "`payment.then").replace("`amo", "`payment.amo");
        assert!(is_error && text.contains(&expected), "{arguments}: {text}");
    }
    let twice = r#"{"payment": {"to": "bob"}, "payment": {"to": "mallory"}}"#;
    assert!(
        tool_result(pay(), "pay", twice)
            .await
            .0
            .contains(r#"the object has the key "payment" twice"#)
    );
}

#[tokio::test]
async fn the_record_says_that_arguments_were_refused() {
    let arguments = r#"{"payment": {"to": "bob", "to": "mallory"}}"#;
    let call = Message::tool_calls([ToolCall::new("c1", "pay", arguments)]);
    let store = MemoryStore::new();
    let model = ScriptedModel::new([Step::message(call), Step::text("sorry")]);
    let agent = ChatPipeline::builder(model)
        .tools(Tools::new().with(pay()))
        .history(store.clone())
        .build()
        .unwrap();
    let request = ChatRequest::user("pay").in_conversation(ConversationKey::new("ann", "pay"));
    agent.oneshot(request).await.unwrap().collect().await.unwrap();
    let record = store.invocations(&InvocationQuery::in_scope("ann")).await.unwrap().found;
    let stored: Vec<_> = record.iter().map(|(_, call)| call.status).collect();
    assert_eq!(stored, [ToolStatus::RejectedArguments]);
}

#[tokio::test]
async fn wrong_arguments_go_back_with_the_field_that_is_wrong() {
    let cases = [
        ("{}", "missing field `dishes`"),
        ("", "missing field `dishes`"),
        (r#"{"dishes": 7, "guests": 1}"#, "`dishes`: invalid type"),
        (
            r#"{"dishes": [{"name": "a", "sides": [{"name": 5}]}], "guests": 1}"#,
            "`dishes[0].sides[0].name`",
        ),
        (
            r#"{"dishes": [], "payment": "shells", "guests": 1}"#,
            "`payment`: unknown variant `shells`",
        ),
        (r#"{"dishes": [], "guests": 300}"#, "`guests`: invalid value"),
        (r#"{"dishes": "#, "the text is not JSON"),
        ("7", "expected an object with the arguments"),
    ];
    for (arguments, expected) in cases {
        let (text, is_error) = tool_result(order(), "order", arguments).await;
        assert!(is_error && text.starts_with("The arguments do not fit the tool: "), "{text}");
        assert!(text.contains(expected), "{arguments}: {text}");
    }
}

#[tokio::test]
async fn arguments_that_may_be_missing_may_be_null() {
    let arguments = r#"{"dishes": [], "payment": null, "remark": null, "guests": 5}"#;
    let receipt = tool_result(order(), "order", arguments).await;
    assert_eq!(receipt, (r#"{"dishes":5,"note":null}"#.to_owned(), false));
}

#[tokio::test]
async fn parameters_may_have_any_name() {
    let arguments = r#"{"context": "rain", "arguments": {"tool": "drill"}, "output": 6}"#;
    assert_eq!(tool_result(repeat(), "repeat", arguments).await.0, "call_9 rain drill 6");
}

#[tokio::test]
async fn an_error_tells_the_model_no_more_than_that_the_tool_failed() {
    let arguments = r#"{"dishes": [], "payment": "card", "guests": 1}"#;
    assert_eq!(
        tool_result(order(), "order", arguments).await,
        ("The tool failed.".to_owned(), true)
    );
}

#[tokio::test]
async fn errors_of_anyhow_are_sent_to_the_model_or_fail_the_run_as_their_tool_error_says() {
    for (cents, text, is_error, attempts) in [
        (0, "an amount of 0 cannot be charged", true, 1),
        (1, "one cent is too little", true, 1),
        (3, "The tool failed.", true, 3),
        (40, "40 cents", false, 1),
    ] {
        let arguments = json!({"cents": cents}).to_string();
        let expected = (text.to_owned(), is_error);
        let counted = Arc::new(AtomicU32::new(0));
        assert_eq!(tool_result(charge(counted.clone()), "charge", &arguments).await, expected);
        assert_eq!(counted.load(Ordering::Relaxed), attempts, "a ToolError is final");
        let typed = TypedTool::of_fn("charge_fn", "Charges.", charge_fn);
        assert_eq!(tool_result(typed, "charge_fn", &arguments).await, expected);
        let closure = TypedTool::new("closure", "Charges.", |charge: Charge, context| async move {
            Ok(charge_fn(charge, context).await?)
        });
        assert_eq!(tool_result(closure, "closure", &arguments).await, expected);
    }
    for tool in [
        Box::new(charge(AtomicU32::new(0))) as Box<dyn Tool>,
        Box::new(TypedTool::of_fn("charge", "Charges.", charge_fn)),
    ] {
        let call = Message::tool_calls([ToolCall::new("call_2", "charge", r#"{"cents": 2}"#)]);
        let model = ScriptedModel::new([Step::message(call)]);
        let agent = ChatPipeline::builder(model).tools(Tools::new().with(tool)).build().unwrap();
        let error = agent.oneshot(ChatRequest::user("pay")).await.unwrap_err();
        let failed = error.downcast_ref::<tower_chat::error::ToolLoopError>();
        assert!(
            matches!(failed, Some(tower_chat::error::ToolLoopError::ToolFailedRun { .. })),
            "{error:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_is_run_again_as_often_as_was_set() {
    for (failures, calls, text) in
        [(0, 1, "call_9 at attempt 0"), (3, 4, "call_9 at attempt 3"), (4, 4, "The tool failed.")]
    {
        let counters = Arc::new(Counters { calls: AtomicU32::new(0), failures });
        let tool = unsteady(counters.clone());
        assert!(tool.definition().safe_to_retry);
        let before = tokio::time::Instant::now();
        assert_eq!(tool_result(tool, "unsteady", "{}").await.0, text);
        assert_eq!(counters.calls.load(Ordering::Relaxed), calls);
        let waited = (1..calls).map(|retry| 5 << (retry - 1)).sum();
        assert_eq!(before.elapsed(), Duration::from_millis(waited), "{failures} failures");
    }
}

#[tokio::test]
async fn a_persist_function_decides_what_is_stored() {
    let call = Message::tool_calls([ToolCall::new("c1", "silent", r#"{"_secret": "x-1"}"#)]);
    let store = MemoryStore::new();
    let mut agent = ChatPipeline::builder(ScriptedModel::new([Step::message(call)]))
        .tools(Tools::new().with(silent()))
        .history(store.clone())
        .build()
        .unwrap();
    let request = ChatRequest::user("hush").in_conversation(ConversationKey::new("ann", "secret"));
    agent.ready().await.unwrap().call(request).await.unwrap().collect().await.unwrap();
    let record = store.invocations(&InvocationQuery::in_scope("ann")).await.unwrap().found;
    let stored: Vec<_> = record.iter().map(|(_, call)| (&*call.arguments, call.status)).collect();
    assert_eq!(stored, [("{}", ToolStatus::PendingApproval)]);
}

/// Returns the schema of a tool in a request to each provider, and the flag that requests strict
/// conformance.
fn rendered(definition: &ToolDefinition) -> Vec<(&'static str, Value, Option<Value>)> {
    let body = |wire: BodyWire, pointer: &str, strict: &str| {
        let tool = wire.render_tool(definition).unwrap();
        (tool.pointer(pointer).unwrap().clone(), tool.pointer(strict).cloned())
    };
    let request = ChatRequest::user("hi").with_options({
        let mut options = ChatOptions::default();
        options.tools = vec![definition.clone()];
        options
    });
    let tools = |field: &RawJson| -> Value { serde_json::from_str(field.get()).unwrap() };
    let mut schemas = Vec::new();
    for (name, wire, pointer, strict) in [
        ("chat", BodyWire::OpenAiChat, "/function/parameters", "/function/strict"),
        ("anthropic", BodyWire::Anthropic, "/input_schema", "/strict"),
    ] {
        let (schema, strict) = body(wire, pointer, strict);
        schemas.push((name, schema, strict));
    }
    let form = openai_responses::RequestForm { model: Some("m"), ..Default::default() };
    let history = openai_responses::HistoryLocation::Request;
    let responses = tools(&openai_responses::render_request(&request, &history, &form)["tools"]);
    schemas.push((
        "responses",
        responses[0]["parameters"].clone(),
        responses[0].get("strict").cloned(),
    ));
    let ollama = tools(&ollama::render_request(&request, "m").unwrap()["tools"]);
    schemas.push(("ollama", ollama[0]["function"]["parameters"].clone(), None));
    let cohere = tools(&cohere::render_request(&request, "m")["tools"]);
    schemas.push(("cohere", cohere[0]["function"]["parameters"].clone(), None));
    let converse = tools(&bedrock_converse::render_request(&request).unwrap()["toolConfig"]);
    schemas.push((
        "converse",
        converse["tools"][0]["toolSpec"]["inputSchema"]["json"].clone(),
        None,
    ));
    schemas
}

/// Returns a description of the first part of a schema that strict mode refuses.
fn refused(schema: &Value, root: &Value) -> Option<String> {
    let fields = schema.as_object()?;
    for keyword in ["oneOf", "const", "default", "minimum", "maxLength", "pattern", "$schema"] {
        if fields.contains_key(keyword) {
            return Some(format!("{keyword} in {schema}"));
        }
    }
    if let Some(reference) = fields.get("$ref").and_then(Value::as_str)
        && root.pointer(reference.trim_start_matches('#')).is_none()
    {
        return Some(format!("{reference} leads nowhere"));
    }
    if let Some(properties) = fields.get("properties").and_then(Value::as_object) {
        let required =
            fields.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        if fields.get("additionalProperties") != Some(&json!(false)) {
            return Some(format!("an open object: {schema}"));
        }
        if let Some(name) = properties.keys().find(|name| !required.contains(&json!(name))) {
            return Some(format!("{name} is not required in {schema}"));
        }
    }
    let inside = fields.iter().filter(|(name, _)| *name != "enum" && *name != "required");
    inside.map(|(_, value)| value).find_map(|value| match value {
        Value::Array(list) => list.iter().find_map(|value| refused(value, root)),
        Value::Object(_) => refused(value, root)
            .or_else(|| value.as_object()?.values().find_map(|it| refused(it, root))),
        _ => None,
    })
}

#[test]
fn every_provider_takes_the_schema_of_nested_recursive_optional_and_enumerated_types() {
    let tool = order();
    let rendered = rendered(tool.definition());
    assert_eq!(rendered.len(), 6);
    for (provider, schema, strict) in rendered {
        assert_eq!(refused(&schema, &schema), None, "{provider}");
        assert_eq!(schema["type"], "object", "{provider}");
        assert_eq!(
            schema["$defs"]["Dish"]["required"],
            json!(["name", "sides", "size"]),
            "{provider}"
        );
        let can_be_strict = matches!(provider, "chat" | "responses" | "anthropic");
        assert_eq!(strict, can_be_strict.then_some(json!(true)), "{provider}");
    }
}

#[test]
fn strict_is_asked_for_only_where_it_was_set() {
    let tool = TypedTool::new("look", "Looks.", async |_: Dish, _| Ok(""));
    for (provider, schema, strict) in rendered(tool.definition()) {
        assert_eq!(refused(&schema, &schema), None, "{provider}");
        // Without this flag, OpenAI's Responses API would apply strict mode by default.
        let expected = (provider == "responses").then_some(json!(false));
        assert_eq!(strict, expected, "{provider}");
    }
}
