//! Checks whether a service would accept a request body.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{
    Service,
    paths::{calls, texts, walk},
};

/// Returns a description of each reason for which the service would refuse a request body. The list
/// is empty if the service would accept the body.
///
/// ```
/// use serde_json::json;
/// use tower_chat_testkit::hostile::{Service, violations};
/// let body = json!({"messages": [
///     {"role": "user", "content": "Is it cold?"},
///     {"role": "assistant", "tool_calls": [
///         {"id": "1", "type": "function", "function": {"name": "get weather", "arguments": "{"}},
///     ]},
///     {"role": "tool", "tool_call_id": "1", "content": "no"},
/// ]});
/// let found = violations(Service::new("openai-chat", "openai"), &body);
/// assert_eq!(found.len(), 2, "{found:?}");
/// ```
pub fn violations(service: Service<'_>, body: &Value) -> Vec<String> {
    let mut found = Found { service, violations: Vec::new() };
    found.names(body);
    found.arguments(body);
    found.schemas(body);
    found.thinking(body);
    match service.wire {
        "openai-chat" => found.chat(list(&body["messages"])),
        "openai-responses" => found.responses(list(&body["input"])),
        "anthropic" => found.anthropic(list(&body["messages"])),
        "gemini" => found.gemini(list(&body["contents"])),
        "bedrock" => found.bedrock(body),
        "cohere" => found.cohere(list(&body["messages"])),
        _ => found.ollama(list(&body["messages"])),
    }
    found.violations
}

struct Found<'s> {
    service: Service<'s>,
    violations: Vec<String>,
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|it| it.is_ascii_alphanumeric() || "_-".contains(it))
}

/// Returns the number of the first token in a text. With the letter `c`, a token is `c1.`.
fn token(text: &str, letter: char) -> Option<usize> {
    let mut found = text.split(letter).skip(1).filter_map(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let is_token = rest.strip_prefix(&*digits).is_some_and(|rest| rest.starts_with('.'));
        is_token.then(|| digits.parse().ok()).flatten()
    });
    found.next()
}

impl Found<'_> {
    fn refuse(&mut self, what: impl Into<String>) {
        self.violations.push(what.into());
    }

    fn check(&mut self, is_fine: bool, what: impl FnOnce() -> String) {
        if !is_fine {
            self.refuse(what());
        }
    }

    fn name(&mut self, name: &str) {
        let first = name.chars().next().unwrap_or('?');
        let begins_well = first.is_ascii_alphabetic() || first == '_';
        let is_fine = match self.service.wire {
            "gemini" => {
                begins_well
                    && name.len() <= 64
                    && name.chars().all(|it| it.is_ascii_alphanumeric() || "_-.:".contains(it))
            }
            "openai-responses" => is_word(name) && name.len() <= 128,
            "cohere" => begins_well && is_word(name) && name.len() <= 64,
            _ => is_word(name) && name.len() <= 64,
        };
        self.check(is_fine, || format!("the name {name:?}"));
    }

    fn names(&mut self, body: &Value) {
        let mut names: Vec<String> = calls(body).into_iter().map(|(name, _)| name).collect();
        for tool in list(&body["tools"]) {
            let declared = list(&tool["functionDeclarations"]).iter().map(|it| text(it, "name"));
            names.extend(declared.map(str::to_owned));
            for fields in [&tool["function"], tool] {
                names.extend(fields["name"].as_str().map(str::to_owned));
            }
        }
        for tool in list(&body["toolConfig"]["tools"]) {
            names.push(text(&tool["toolSpec"], "name").to_owned());
        }
        walk(body, &mut |fields| {
            let response = fields.get("functionResponse");
            names.extend(response.map(|response| text(response, "name").to_owned()));
        });
        names.iter().for_each(|name| self.name(name));
    }

    fn arguments(&mut self, body: &Value) {
        for (name, arguments) in calls(body) {
            self.check(arguments.is_object(), || format!("arguments of {name:?}: {arguments}"));
        }
    }

    fn schemas(&mut self, body: &Value) {
        let mut bad = 0;
        for tool in list(&body["tools"]) {
            for schema in
                [&tool["parameters"], &tool["function"]["parameters"], &tool["input_schema"]]
            {
                walk(schema, &mut |fields| {
                    let is_of = |name: &str| {
                        fields.get("type").is_some_and(|kind| match kind {
                            Value::Array(kinds) => kinds.iter().any(|kind| kind == name),
                            kind => kind == name,
                        })
                    };
                    bad += usize::from(is_of("object") && !fields.contains_key("properties"));
                    let requires_items = self.service.wire.starts_with("openai");
                    bad += usize::from(
                        requires_items && is_of("array") && !fields.contains_key("items"),
                    );
                });
                let refused = self.service.refused_in_schemas();
                bad += refused.iter().filter(|keyword| schema.get(**keyword).is_some()).count();
                let is_given = schema.as_object().is_some_and(|fields| !fields.is_empty());
                bad += usize::from(is_given && schema["type"] != "object");
            }
        }
        self.check(bad == 0, || {
            format!("{bad} schemas without properties, items or a type, or with unions")
        });
    }

    fn id(&mut self, id: &str) {
        let longest = self.service.longest_id();
        let is_fine = match self.service.name {
            "mistral" if self.service.wire == "openai-chat" => {
                id.len() == 9 && id.chars().all(|it| it.is_ascii_alphanumeric())
            }
            _ => is_word(id) && id.len() <= longest,
        };
        self.check(is_fine, || format!("the id {id:?}"));
    }

    /// Checks a result. Its id must be the id of a call without a result. Its token, such as `r1.`,
    /// must have the same number as the token in the arguments of the call. `open` contains the
    /// arguments of the calls without results, by call id.
    fn answer(&mut self, open: &mut HashMap<String, String>, id: &str, result: &Value) {
        let Some(arguments) = open.remove(id) else {
            return self.refuse(format!("a result without a call: {id:?}"));
        };
        let (call, result) = (token(&arguments, 'c'), token(&texts(result), 'r'));
        self.check(call == result, || format!("the call {call:?} has the result {result:?}"));
    }

    fn chat(&mut self, messages: &[Value]) {
        let mut open: HashMap<String, String> = HashMap::new();
        let mut taken = HashSet::new();
        let mut before = "";
        for message in messages {
            let role = text(message, "role");
            let is_list = message["content"].is_array();
            self.check(!is_list || self.service.accepts_list(role), || {
                format!("a list: {message}")
            });
            let author = message["name"].as_str();
            let is_fine = author.is_none_or(|author| {
                is_word(author) && author.len() <= 64 && self.service.accepts_authors()
            });
            self.check(is_fine || role == "tool", || format!("the author {author:?}"));
            if role != "tool" {
                self.check(open.is_empty(), || format!("calls without results: {open:?}"));
            }
            match role {
                "assistant" => self.chat_answer(message, &mut open, &mut taken),
                "tool" => {
                    let content = &message["content"];
                    let has_picture = content.is_array()
                        && list(content).iter().any(|part| text(part, "type") != "text");
                    let may_have = self.service.reads_pictures_in_results();
                    self.check(!has_picture || may_have, || format!("a picture in {content}"));
                    list(content).iter().for_each(|part| self.picture(&part["image_url"]));
                    self.answer(&mut open, text(message, "tool_call_id"), content);
                }
                _ => {
                    for part in list(&message["content"]) {
                        let kind = text(part, "type");
                        let is_fine = self.service.accepts_part(kind);
                        self.check(is_fine, || format!("a part of the type {kind}"));
                        self.picture(&part["image_url"]);
                    }
                    let follows = before == "tool" && role == "user";
                    let is_refused = follows && self.service.name == "mistral";
                    self.check(!is_refused, || "a user message after a tool message".to_owned());
                }
            }
            before = role;
        }
        self.check(open.is_empty(), || format!("calls without results: {open:?}"));
    }

    /// Checks an image in Chat Completions. Ollama accepts no image URLs.
    fn picture(&mut self, picture: &Value) {
        let url = text(picture, "url");
        let types: &[&str] = match self.service.name {
            "ollama" => &["png", "jpeg", "jpg", "webp"],
            "xai" => &["png", "jpeg"],
            "openai" | "azure" | "mistral" | "groq" => &["png", "jpeg", "gif", "webp"],
            _ => return,
        };
        let is_read =
            types.iter().any(|kind| url.starts_with(&format!("data:image/{kind};base64,")));
        let is_address = self.service.name != "ollama" && !url.starts_with("data:");
        let is_fine = picture.is_null() || is_read || is_address;
        self.check(is_fine, || format!("the picture {picture}"));
    }

    fn chat_answer(
        &mut self,
        message: &Value,
        open: &mut HashMap<String, String>,
        taken: &mut HashSet<String>,
    ) {
        for field in ["reasoning", "reasoning_content"] {
            let has = message.get(field).is_some();
            self.check(!has || self.service.accepts_field(field), || format!("the field {field}"));
        }
        let calls = list(&message["tool_calls"]);
        let content = &message["content"];
        let is_empty = match content {
            Value::String(text) => text.trim().is_empty(),
            Value::Array(parts) => parts.is_empty(),
            _ => true,
        };
        let is_refused = is_empty && calls.is_empty() && self.service.refuses_empty_answers();
        self.check(!is_refused, || format!("an empty answer: {message}"));
        let has_media = list(content).iter().any(|part| text(part, "type") == "image_url");
        self.check(!has_media, || "an image in an assistant message".to_owned());
        let reasoning = message["reasoning_content"].as_str();
        let has_reasoning = match self.service.name {
            "deepseek" => reasoning.is_some(),
            "moonshot" => reasoning.is_some_and(|reasoning| !reasoning.is_empty()),
            _ => true,
        };
        self.check(calls.is_empty() || has_reasoning, || "no reasoning_content".to_owned());
        if !self.service.requires_unique_ids() {
            taken.clear();
        }
        for (index, call) in calls.iter().enumerate() {
            let id = text(call, "id");
            self.id(id);
            self.check(taken.insert(id.to_owned()), || format!("the id {id:?} twice"));
            let arguments = &call["function"]["arguments"];
            self.check(arguments.is_string(), || format!("arguments {arguments}"));
            open.insert(id.to_owned(), texts(arguments));
            let signature = &call["extra_content"]["google"]["thought_signature"];
            let is_fine = index > 0 || !self.service.requires_signatures || signature.is_string();
            self.check(is_fine, || "a call without a signature".to_owned());
        }
    }

    fn responses(&mut self, items: &[Value]) {
        let mut open: HashMap<String, String> = HashMap::new();
        let mut taken = HashSet::new();
        for item in items {
            match text(item, "type") {
                "function_call" => {
                    let id = text(item, "call_id");
                    self.check(!id.is_empty() && id.len() <= 64, || format!("the id {id:?}"));
                    self.check(taken.insert(id.to_owned()), || format!("the id {id:?} twice"));
                    open.insert(id.to_owned(), texts(&item["arguments"]));
                }
                "function_call_output" => {
                    let output = &item["output"];
                    let has_other = list(output).iter().any(|part| {
                        !matches!(text(part, "type"), "input_text" | "input_image" | "input_file")
                    });
                    self.check(!has_other, || format!("the output {output}"));
                    let is_text = output.is_string()
                        || list(output).iter().all(|part| text(part, "type") == "input_text");
                    let is_strict = matches!(self.service.name, "xai" | "deepseek");
                    self.check(is_text || !is_strict, || format!("the output {output}"));
                    self.answer(&mut open, text(item, "call_id"), output);
                }
                "" | "message" => {
                    self.check(open.is_empty(), || format!("calls without results: {open:?}"));
                    for part in list(&item["content"]) {
                        self.responses_part(part);
                    }
                }
                _ => {}
            }
        }
        self.check(open.is_empty(), || format!("calls without results: {open:?}"));
    }

    /// Checks a part of a message in Responses. Only the rules of OpenAI and Azure are known.
    fn responses_part(&mut self, part: &Value) {
        if !matches!(self.service.name, "openai" | "azure") {
            return;
        }
        let url = text(part, "image_url");
        let types = ["png", "jpeg", "gif", "webp"];
        let is_read = !url.starts_with("data:")
            || types.iter().any(|kind| url.starts_with(&format!("data:image/{kind};")));
        let is_audio = text(part, "type") == "input_audio"
            || ["audio/", "video/"].iter().any(|kind| {
                text(part, "file_data").strip_prefix("data:").is_some_and(|it| it.starts_with(kind))
            });
        self.check(is_read && !is_audio, || format!("the part {part}"));
    }

    /// If a request enables thinking and ends with results, checks that the answer with the calls
    /// of these results begins with a thinking block. Claude refuses other requests: *When
    /// `thinking` is enabled, a final `assistant` message must start with a thinking block*.
    fn thinking(&mut self, body: &Value) {
        let fields = match self.service.wire {
            "anthropic" if self.service.name != "deepseek" => body,
            "bedrock" => &body["additionalModelRequestFields"],
            _ => return,
        };
        let is_manual = |name: &str| text(&fields[name], "type") == "enabled";
        if !is_manual("thinking") && !is_manual("reasoning_config") {
            return;
        }
        let is_result =
            |block: &Value| text(block, "type") == "tool_result" || block["toolResult"].is_object();
        let is_thinking = |block: &Value| {
            matches!(text(block, "type"), "thinking" | "redacted_thinking")
                || block["reasoningContent"].is_object()
        };
        // The blocks after the last user content that is not a result, each with the role of its
        // message.
        let mut answer: Vec<(&str, &Value)> = Vec::new();
        for message in list(&body["messages"]) {
            let role = text(message, "role");
            for block in list(&message["content"]) {
                if role == "user" && !is_result(block) {
                    answer.clear();
                } else {
                    answer.push((role, block));
                }
            }
            if message["content"].is_string() {
                answer.clear();
            }
        }
        let ends_with_result = answer.last().is_some_and(|(_, block)| is_result(block));
        let first = answer.iter().find(|(role, _)| *role == "assistant");
        if let (true, Some((_, first))) = (ends_with_result, first) {
            self.check(is_thinking(first), || format!("thinking is enabled after {first}"));
        }
    }

    /// Checks the role of the message at this index: user and assistant messages alternate. If the
    /// service requires it, the first message must be a user message. Returns whether this message
    /// is a user message.
    fn turn(&mut self, messages: &[Value], index: usize) -> bool {
        let is_user = |message: &Value| text(message, "role") == "user";
        let first = self.service.requires_user_first || messages.first().is_some_and(is_user);
        let expected = first == index.is_multiple_of(2);
        let found = messages.get(index).is_some_and(is_user);
        self.check(found == expected, || format!("message {index} has the wrong role"));
        found
    }

    fn anthropic(&mut self, messages: &[Value]) {
        let mut open: HashMap<String, String> = HashMap::new();
        let mut taken = HashSet::new();
        let ends_with_user = messages.last().is_some_and(|last| text(last, "role") == "user");
        self.check(ends_with_user, || "the last message is not of the user".to_owned());
        for (index, message) in messages.iter().enumerate() {
            let is_user = self.turn(messages, index);
            let has = |kind: &str| {
                list(&message["content"]).iter().any(|block| text(block, "type") == kind)
            };
            let requires_thinking = self.service.name == "deepseek" && has("tool_use");
            self.check(!requires_thinking || has("thinking"), || "no thinking".to_owned());
            let content = &message["content"];
            let is_blank = content.as_str().is_some_and(|text| text.trim().is_empty());
            let is_empty = content.as_array().is_some_and(Vec::is_empty) || content.is_null();
            let is_last_answer = !is_user && index + 1 == messages.len();
            self.check(!is_blank && (!is_empty || is_last_answer), || format!("{message}"));
            let mut results_may_follow = is_user;
            for block in list(content) {
                match text(block, "type") {
                    "tool_use" => {
                        let id = text(block, "id");
                        self.id(id);
                        let is_new =
                            taken.insert(id.to_owned()) || !self.service.requires_unique_ids();
                        self.check(is_new, || format!("the id {id:?} twice"));
                        open.insert(id.to_owned(), texts(&block["input"]));
                    }
                    "tool_result" => {
                        self.check(results_may_follow, || "a result after other blocks".to_owned());
                        self.answer(&mut open, text(block, "tool_use_id"), &block["content"]);
                        self.anthropic_result(block);
                    }
                    "server_tool_use" => {
                        let id = text(block, "id");
                        let is_own = id.starts_with("srvtoolu_")
                            || matches!(
                                self.service.name,
                                "deepseek" | "minimax" | "zai" | "unknown"
                            );
                        self.check(is_own, || {
                            format!("the id {id:?} of a call that another service ran")
                        });
                    }
                    kind => {
                        results_may_follow = false;
                        let text = text(block, "text");
                        let is_blank = kind == "text" && text.trim().is_empty();
                        self.check(!is_blank, || "a blank text".to_owned());
                        self.anthropic_media(block);
                    }
                }
            }
            if is_user {
                self.check(open.is_empty(), || format!("calls without results: {open:?}"));
            }
        }
    }

    fn anthropic_result(&mut self, block: &Value) {
        let content = &block["content"];
        for part in list(content) {
            self.anthropic_media(part);
            let is_fine = block["is_error"] != true || text(part, "type") == "text";
            self.check(is_fine, || format!("an error with {}", text(part, "type")));
        }
        let is_empty = texts(content).trim().is_empty();
        self.check(block["is_error"] != true || !is_empty, || "an empty error".to_owned());
        let has_blank = list(content)
            .iter()
            .any(|part| text(part, "type") == "text" && text(part, "text").trim().is_empty());
        self.check(!has_blank, || "a blank text in a result".to_owned());
    }

    fn anthropic_media(&mut self, block: &Value) {
        let is_media = matches!(text(block, "type"), "image" | "document");
        let reads_media = self.service.name != "deepseek";
        self.check(!is_media || reads_media, || format!("{block}"));
        let source = &block["source"];
        let media_type = text(source, "media_type");
        let is_fine = match (text(block, "type"), text(source, "type")) {
            ("image", "base64") => {
                matches!(media_type, "image/png" | "image/jpeg" | "image/gif" | "image/webp")
            }
            ("document", "base64") => media_type == "application/pdf",
            _ => true,
        };
        self.check(is_fine, || format!("media {media_type}"));
    }

    fn gemini(&mut self, contents: &[Value]) {
        let mut taken = HashSet::new();
        for content in contents {
            let parts = list(&content["parts"]);
            self.check(!parts.is_empty(), || "an empty content".to_owned());
            let mut is_first = true;
            for part in parts {
                if part["functionCall"].is_object() {
                    let id = text(&part["functionCall"], "id");
                    let is_new = id.is_empty()
                        || taken.insert(id.to_owned())
                        || !self.service.requires_unique_ids();
                    self.check(is_new, || format!("the id {id:?} twice"));
                    let is_signed = part["thoughtSignature"].is_string();
                    let is_fine = is_signed || !is_first || !self.service.requires_signatures;
                    self.check(is_fine, || "a call without a signature".to_owned());
                    is_first = false;
                }
                let kind = text(&part["inlineData"], "mimeType");
                let is_fine = kind.is_empty()
                    || kind == "application/pdf"
                    || ["audio/", "video/", "text/"].iter().any(|it| kind.starts_with(it))
                    || ["png", "jpeg", "webp", "heic", "heif"]
                        .iter()
                        .any(|it| kind.strip_prefix("image/") == Some(it));
                self.check(is_fine, || format!("media {kind}"));
            }
        }
        for pair in contents.windows(2) {
            let [asked, answered] = pair else { continue };
            let count = |content: &Value, field: &str| {
                list(&content["parts"]).iter().filter(|part| part[field].is_object()).count()
            };
            let (calls, results) =
                (count(asked, "functionCall"), count(answered, "functionResponse"));
            self.check(calls == results, || format!("{calls} calls have {results} results"));
        }
    }

    fn bedrock(&mut self, body: &Value) {
        let mut open: HashMap<String, String> = HashMap::new();
        let mut names = HashSet::new();
        let mut taken = HashSet::new();
        let mut has_tools = false;
        for (index, message) in list(&body["messages"]).iter().enumerate() {
            let is_user = self.turn(list(&body["messages"]), index);
            let blocks = list(&message["content"]);
            self.check(!blocks.is_empty(), || "an empty message".to_owned());
            let (mut images, mut documents, mut texts_beside) = (0, 0, 0);
            for block in blocks {
                has_tools |= block["toolUse"].is_object() || block["toolResult"].is_object();
                let call = &block["toolUse"];
                if call.is_object() {
                    let id = text(call, "toolUseId");
                    self.id(id);
                    let is_new = taken.insert(id.to_owned()) || !self.service.requires_unique_ids();
                    self.check(is_new, || format!("the id {id:?} twice"));
                    open.insert(text(call, "toolUseId").to_owned(), texts(&call["input"]));
                }
                let result = &block["toolResult"];
                if result.is_object() {
                    self.answer(&mut open, text(result, "toolUseId"), &result["content"]);
                    let is_error = text(result, "status") == "error";
                    let content = list(&result["content"]);
                    self.check(!content.is_empty(), || "an empty result".to_owned());
                    for part in content {
                        self.check(!is_error || part["text"].is_string(), || {
                            format!("an error {part}")
                        });
                        let is_blank = part["text"].as_str().is_some_and(|it| it.trim().is_empty());
                        self.check(!is_blank, || "a blank text in a result".to_owned());
                        self.bedrock_media(part, &mut names);
                    }
                }
                let is_blank = block["text"].as_str().is_some_and(|it| it.trim().is_empty());
                self.check(!is_blank, || "a blank text".to_owned());
                images += usize::from(block["image"].is_object());
                documents += usize::from(block["document"].is_object());
                texts_beside += usize::from(block["text"].is_string());
                self.bedrock_media(block, &mut names);
            }
            self.check(images <= 20 && documents <= 5, || {
                format!("{images} images, {documents} documents")
            });
            self.check(documents == 0 || texts_beside > 0, || {
                "a document without a text".to_owned()
            });
            if is_user {
                self.check(open.is_empty(), || format!("calls without results: {open:?}"));
            }
        }
        let tools = list(&body["toolConfig"]["tools"]);
        self.check(!has_tools || !tools.is_empty(), || "no toolConfig".to_owned());
        for tool in tools {
            let description = &tool["toolSpec"]["description"];
            self.check(description != "", || "an empty description".to_owned());
        }
    }

    fn bedrock_media(&mut self, block: &Value, names: &mut HashSet<String>) {
        let image = text(&block["image"], "format");
        let is_fine = matches!(image, "" | "png" | "jpeg" | "gif" | "webp");
        self.check(is_fine, || format!("an image {image}"));
        if block["document"].is_object() {
            let name = text(&block["document"], "name");
            let is_fine =
                name.chars().all(|it| it.is_ascii_alphanumeric() || " -()[]".contains(it));
            let is_fine = is_fine && !name.is_empty() && name.len() <= 200 && !name.contains("  ");
            self.check(is_fine, || format!("the document {name:?}"));
            self.check(names.insert(name.to_owned()), || format!("the document {name:?} twice"));
        }
    }

    fn cohere(&mut self, messages: &[Value]) {
        let mut open: HashMap<String, String> = HashMap::new();
        for message in messages {
            if text(message, "role") != "tool" {
                self.check(open.is_empty(), || format!("calls without results: {open:?}"));
            }
            for call in list(&message["tool_calls"]) {
                let id = text(call, "id");
                let twice = open.insert(id.to_owned(), texts(&call["function"]["arguments"]));
                self.check(!id.is_empty() && twice.is_none(), || format!("the id {id:?}"));
            }
            if text(message, "role") == "tool" {
                let content = &message["content"];
                self.check(!texts(content).trim().is_empty(), || "an empty result".to_owned());
                self.answer(&mut open, text(message, "tool_call_id"), content);
            }
        }
        self.check(open.is_empty(), || format!("calls without results: {open:?}"));
    }

    fn ollama(&mut self, messages: &[Value]) {
        for message in messages {
            let images = list(&message["images"]);
            self.check(images.iter().all(Value::is_string), || "an image".to_owned());
            self.check(message["content"].is_string(), || format!("{message}"));
        }
    }
}
