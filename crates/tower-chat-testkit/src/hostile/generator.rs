//! Generates conversations with unusual content.

use serde_json::{Value, json};
use tower_chat_core::{
    ErrorPart, Media, MediaSource, Message, Native, Part, Reasoning, Role, ToolCall,
    ToolDefinition, ToolResult,
};

use crate::Rng;

/// The names of tools.
const NAMES: [&str; 12] = [
    "weather",
    "get_weather-2",
    "",
    "get weather",
    "functions.look:0",
    "wetter.köln",
    "日本の天気",
    "1st_tool",
    "-dash",
    "a/b\"c\\d",
    " ",
    "_",
];

/// The ids of calls.
const IDS: [Option<&str>; 8] = [
    None,
    Some(""),
    Some("call_1"),
    Some("call_2"),
    Some("toolu_01A09q90qw90lq917835lq9"),
    Some("functions.look:0"),
    Some("D681PevKs"),
    Some("fc_0f0e50a1476a6c35006912c58dc9f8819192c25864eb16f07f-0f0e50a1476a6c35"),
];

/// The arguments of calls. `TOKEN` is replaced by the token of the call.
const ARGUMENTS: [&str; 11] = [
    r#"{"of": "TOKEN"}"#,
    r#" {"of": "TOKEN", "n": [1.50, null]} "#,
    r#"{"of": "TOKEN", "city": "Pa"#,
    "{'of': 'TOKEN'}",
    r#"["TOKEN"]"#,
    r#""TOKEN""#,
    "TOKEN",
    r#"{"of": "TOKEN", "half": "\ud800"}"#,
    r#"{"of": "TOKEN", "n": 1e999}"#,
    r#"{"of": "TOKEN"}{"a": 1}"#,
    "None TOKEN",
];

const AUTHORS: [&str; 4] = ["alice", "Jane Doe", "Jörg", "日本"];

const MEDIA: [&str; 16] = [
    "image/png",
    "image/jpeg",
    "image/jpg",
    "image/tiff",
    "audio/wav",
    "audio/ogg",
    "video/mp4",
    "application/pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "text/csv",
    "text/markdown",
    "application/zip",
    "image/gif",
    "image/bmp",
    "IMAGE/PNG",
    "text/plain; charset=utf-8",
];

/// For each wire (JSON format of a provider), the services whose native items (items in their own
/// format) occur in histories.
const ISSUERS: [(&str, &[Option<&str>]); 7] = [
    (
        "openai-chat",
        &[Some("deepseek"), Some("moonshot"), Some("mistral"), Some("openrouter"), Some("openai")],
    ),
    ("anthropic", &[Some("anthropic"), Some("deepseek"), Some("minimax"), Some("zai"), None]),
    ("openai-responses", &[Some("openai"), Some("azure"), Some("xai")]),
    ("gemini", &[Some("gemini"), Some("vertex")]),
    ("bedrock", &[Some("anthropic"), Some("bedrock/amazon")]),
    ("cohere", &[Some("cohere"), None]),
    ("ollama", &[Some("ollama"), Some("localhost:11434")]),
];

/// Generates a conversation of a few turns that ends with a user message.
///
/// The texts, the calls and the results contain tokens, by which a test can find them in a request
/// body. Each text of the user or the model that is not blank contains a token `t1`, `t2` and so
/// on. The arguments of each call contain a token `c1.`, `c2.` and so on, and the result of the
/// call contains the token `r1.`, `r2.` and so on with the same number. Calls that the provider
/// executed have no token.
pub fn history(rng: &mut Rng) -> Vec<Message> {
    let mut generator = HistoryGenerator { rng, texts: 0, calls: 0 };
    let mut messages = Vec::new();
    if generator.rng.one_in(4) {
        let parts = generator.texts();
        messages.push(Message::new(Role::System, parts));
    }
    if generator.rng.one_in(8) {
        messages.push(Message::assistant(generator.text()));
    }
    for _ in 0..=generator.rng.below(4) {
        messages.push(generator.user());
        for _ in 0..generator.rng.below(3) {
            generator.round(&mut messages);
        }
        if generator.rng.one_in(2) {
            messages.push(generator.answer());
        }
    }
    // The last message of a request must be one that the model can answer.
    messages.push(Message::user(generator.text()));
    messages
}

/// Generates definitions of tools with unusual names and schemas.
pub fn definitions(rng: &mut Rng) -> Vec<ToolDefinition> {
    let schemas = [
        json!({"type": "object"}),
        json!({"type": "object", "properties": {"a": {"type": "object"}}}),
        json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object"}}}}),
        json!({"properties": {"a": {"type": ["array", "null"]}}}),
        json!({"oneOf": [{"required": ["a"]}, {"properties": {"b": {"type": "object"}}}], "not": {}}),
        json!({"type": "object", "allOf": [{"properties": {"a": {}}}], "enum": [{"a": 1}]}),
        json!({}),
    ];
    let mut names: Vec<&str> = NAMES.to_vec();
    let count = rng.below(4);
    let mut definitions = Vec::new();
    for _ in 0..count {
        let name = names.swap_remove(rng.below(names.len()));
        let schema = rng.one_of(&schemas).cloned().unwrap_or_default();
        definitions.push(ToolDefinition::new(name, "", schema));
    }
    definitions
}

struct HistoryGenerator<'r> {
    rng: &'r mut Rng,
    /// The number of texts with a token that were generated.
    texts: usize,
    /// The number of calls with a token that were generated.
    calls: usize,
}

impl HistoryGenerator<'_> {
    fn text(&mut self) -> String {
        self.texts += 1;
        format!("t{} of the conversation", self.texts)
    }

    fn texts(&mut self) -> Vec<Part> {
        let count = 1 + usize::from(self.rng.one_in(3));
        (0..count).map(|_| Part::text(self.text())).collect()
    }

    /// Adds an author to one in five messages.
    fn with_author(&mut self, mut message: Message) -> Message {
        if self.rng.one_in(5) {
            message.author = self.pick(&AUTHORS).map(str::to_owned);
        }
        message
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        self.rng.one_of(of).cloned()
    }

    fn name(&mut self) -> String {
        if self.rng.one_in(12) {
            "long_name.".repeat(24)
        } else {
            self.pick(&NAMES).unwrap_or_default().to_owned()
        }
    }

    fn media(&mut self) -> Part {
        let media_type = self.pick(&MEDIA).unwrap_or_default();
        let source = match self.rng.below(6) {
            0 => MediaSource::Url("https://example.com/a".to_owned()),
            1 => MediaSource::File("file-1".to_owned()),
            _ => MediaSource::Base64("AAAA".to_owned()),
        };
        Part::Media(Media::new(media_type, source))
    }

    fn user(&mut self) -> Message {
        if self.rng.one_in(20) {
            return Message::user(self.pick(&["", " "]).unwrap_or_default());
        }
        let mut parts = self.texts();
        for _ in 0..self.rng.below(3) {
            parts.push(self.media());
        }
        if self.rng.one_in(9) {
            for _ in 0..8 {
                parts.push(Part::Media(Media::new(
                    "application/pdf",
                    MediaSource::Base64("AAAA".to_owned()),
                )));
            }
        }
        if self.rng.one_in(6) {
            parts.retain(|part| part.as_text().is_none());
            if parts.is_empty() {
                parts.push(Part::text(self.text()));
            }
        }
        self.with_author(Message::new(Role::User, parts))
    }

    fn answer(&mut self) -> Message {
        let mut parts = Vec::new();
        if self.rng.one_in(2) {
            parts.extend(self.items());
        }
        match self.rng.below(8) {
            0 => {}
            1 => parts.push(Part::text("")),
            2 => parts.push(Part::Error(ErrorPart::new("it failed"))),
            3 => parts.push(self.media()),
            _ => parts.extend(self.texts()),
        }
        self.with_author(Message::new(Role::Assistant, parts))
    }

    /// Adds a round: an answer with calls, and the results of these calls.
    fn round(&mut self, messages: &mut Vec<Message>) {
        let mut parts = if self.rng.one_in(2) { self.items() } else { Vec::new() };
        if self.rng.one_in(3) {
            parts.extend(self.texts());
        }
        let mut results = Vec::new();
        for _ in 0..=self.rng.below(3) {
            let (call, result) = self.call();
            parts.push(Part::ToolCall(call));
            results.push(result);
        }
        messages.push(Message::new(Role::Assistant, parts));
        if self.rng.one_in(2) {
            messages.push(Message::tool_results(results));
        } else {
            messages.extend(results.into_iter().map(|result| Message::tool_results([result])));
        }
    }

    fn call(&mut self) -> (ToolCall, ToolResult) {
        self.calls += 1;
        let number = self.calls;
        let name = self.name();
        let arguments = self.pick(&ARGUMENTS).unwrap_or_default();
        let arguments = arguments.replace("TOKEN", &format!("c{number}."));
        let mut call = ToolCall::without_id(&*name, arguments);
        call.id = self.pick(&IDS).unwrap_or_default().map(str::to_owned);
        let mut result = ToolResult::new("", format!("r{number}. of the tool"));
        result.call_id.clone_from(&call.id);
        result.name = self.rng.one_in(2).then_some(name);
        result.is_error = self.rng.one_in(4);
        if self.rng.one_in(4) {
            result.content.push(Part::text(self.pick(&["and more", "", " "]).unwrap_or_default()));
        }
        for _ in 0..self.rng.below(3) {
            let media = self.media();
            result.content.push(media);
        }
        (call, result)
    }

    /// Generates native items of one service, which precede the content of the service's answer.
    fn items(&mut self) -> Vec<Part> {
        let Some((wire, issuers)) = self.pick(&ISSUERS) else { return Vec::new() };
        let issuer = self.pick(issuers).flatten();
        let native = |item: Value| {
            let item = item.to_string().parse().ok()?;
            let native = Native::new(wire, item);
            Some(match issuer {
                Some(issuer) => native.issued_by(issuer),
                None => native,
            })
        };
        let thought = |item: Value| {
            let mut reasoning = Reasoning::new("a thought");
            reasoning.native = native(item);
            Part::Reasoning(reasoning)
        };
        match wire {
            "openai-chat" => match issuer {
                Some("mistral") => native(json!({"type": "thinking", "thinking": []}))
                    .map(Part::Native)
                    .into_iter()
                    .collect(),
                Some("openrouter") => {
                    let details = json!([{"type": "reasoning.text", "text": "a thought"}]);
                    let item =
                        json!({"role": "assistant", "content": null, "reasoning_details": details});
                    native(item)
                        .map(Part::Native)
                        .into_iter()
                        .chain([thought(json!({"reasoning": null}))])
                        .collect()
                }
                _ => vec![thought(json!({"reasoning_content": null}))],
            },
            "anthropic" if self.rng.one_in(2) => {
                let id = match issuer {
                    Some("anthropic") => "srvtoolu_01",
                    _ => "call_0a1b",
                };
                let mut call = ToolCall::new(id, "web_search", r#"{"query":"rain"}"#);
                call.provider_executed = true;
                call.native = native(json!({"type": "server_tool_use"}));
                let mut result = ToolResult::of_parts(id, Vec::new());
                result.native = native(json!({"type": "web_search_tool_result", "content": []}));
                vec![Part::ToolCall(call), Part::ToolResult(result)]
            }
            "anthropic" => vec![thought(json!({"type": "thinking", "signature": "c2ln"}))],
            "openai-responses" => {
                let item = json!({
                    "type": "reasoning", "id": "rs_1", "encrypted_content": "AA",
                    "summary": [{"type": "summary_text", "text": "a thought"}],
                });
                vec![thought(item)]
            }
            "gemini" => vec![thought(json!({"thought": true}))],
            "bedrock" => vec![thought(json!({"reasoningText": {"signature": "c2ln"}}))],
            "cohere" => vec![thought(json!({"type": "thinking"}))],
            _ => vec![thought(json!({"field": "thinking"}))],
        }
    }
}
