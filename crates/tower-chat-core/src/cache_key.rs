//! The key of a response cache: a hash of everything in a request that a model receives.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::{
    ApprovalRequest, ApprovalResponse, ChatOptions, ChatRequest, ErrorPart, HistoryOwner, Media,
    MediaSource, Message, Native, Part, RawJson, Reasoning, Role, Text, ToolCall, ToolChoice,
    ToolDefinition, ToolResult,
};

/// The key under which a response cache stores the answer to a request, from
/// [`ChatRequest::cache_key`].
///
/// The key is a SHA-256 hash, displayed in hexadecimal digits. The key is the same in every process
/// and on every machine. The changelog names each release that changes the computation of the key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CacheKey([u8; 32]);

impl CacheKey {
    /// Returns the bytes of the hash.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CacheKey({self})")
    }
}

impl ChatRequest {
    /// Returns the key of a response cache. Two requests have the same key if a model receives the
    /// same content from both requests.
    ///
    /// | part of the key | not part of the key |
    /// |---|---|
    /// | of a message: role, author, all content of its parts that a provider receives, with the ids of tool calls and the providers' items | [`id`](Message::id), [`added_at`](Message::added_at), [`finish_reason`](Message::finish_reason), [`metadata`](Message::metadata); of a call: whether it was [cut off](crate::ToolCall::is_cut_off); of a result: the stored call that it answers, whether it ended the run, and its [queued messages](crate::ToolResult::queued) |
    /// | of the options: model, instructions, tool choice, temperature, `top_p`, the limit of tokens, `extra`, exact numbers, background and continuation | [`stream`](ChatOptions::stream): the answer is the same, streamed or not |
    /// | of a tool: name, description, parameters, the provider's item, `strict` | whether it needs approval, is safe to retry, or accepts stored arguments |
    /// | the id under which the service keeps the history | [how many messages are history](Self::history_len), and the [`extensions`](Self::extensions): the conversation, the run, and what layers add |
    ///
    /// The order of messages, parts and tools is part of the key. The order of the fields of a JSON
    /// object and the white space between them are not, regardless of the features of `serde_json`.
    /// The text of a call's arguments is part of the key byte for byte. The key does not depend on
    /// the settings of the model client, such as a default model or an account. A cache for several
    /// clients must therefore store answers under the name of the client and the key.
    ///
    /// Put the cache directly above the model client and below the persistence layers, so that
    /// these layers store a cached answer like any other answer. Computing the key takes time in
    /// proportion to the size of the request, including its history.
    ///
    /// ```
    /// # futures_util::FutureExt::now_or_never(async {
    /// use std::{collections::HashMap, sync::{Arc, Mutex}};
    /// use tower_chat_core::{Answer, BoxError, CacheKey, ChatRequest, ChatResponse};
    /// # use tower_chat_core::{Finish, Message};
    /// # let asked = Arc::new(std::sync::atomic::AtomicU32::new(0));
    /// # let ask_model = { let asked = asked.clone(); move |_: ChatRequest| {
    /// #     asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    /// #     std::future::ready(Ok::<_, BoxError>(ChatResponse::whole([Message::assistant("42")], Finish::stop())))
    /// # } };
    ///
    /// let cache = Arc::new(Mutex::new(HashMap::<CacheKey, Answer>::new()));
    /// let model = async |request: ChatRequest| {
    ///     let key = request.cache_key();
    ///     if let Some(answer) = cache.lock().unwrap().get(&key) {
    ///         return Ok(answer.clone());
    ///     }
    ///     let answer = ask_model(request).await?.collect().await?;
    ///     cache.lock().unwrap().insert(key, answer.clone());
    ///     Ok::<_, BoxError>(answer)
    /// };
    /// for _ in 0..2 {
    ///     assert_eq!(model(ChatRequest::user("6 times 7?")).await?.text(), "42");
    /// }
    /// # assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 1);
    /// # Ok::<(), BoxError>(())
    /// # }).unwrap().unwrap();
    /// ```
    pub fn cache_key(&self) -> CacheKey {
        let Self { messages, history_len: _, options, history_owner, extensions: _ } = self;
        let mut hash = Canonical(Sha256::new());
        hash.text("tower-chat cache key, version 1");
        hash.options(options);
        hash.optional(history_owner.as_ref(), |hash, id| match id {
            HistoryOwner::Local => hash.tag(0),
            HistoryOwner::Service(id) => {
                hash.tag(1);
                hash.text(id);
            }
        });
        hash.list(messages.iter(), |hash, message| hash.message(message));
        CacheKey(hash.0.finalize().into())
    }
}

/// Hashes values so that different values yield different inputs of the hash: the length of a text
/// or list, and the number of an enum variant, are hashed before the content.
struct Canonical(Sha256);

/// JSON values that are nested more deeply than this are hashed as text.
const MAX_DEPTH: usize = 128;

impl Canonical {
    fn tag(&mut self, tag: u8) {
        self.0.update([tag]);
    }

    fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text);
    }

    fn float(&mut self, number: f64) {
        // `0.0` and `-0.0` are equal, but have different bits. Adding `0.0` converts `-0.0` to
        // `0.0`.
        self.number((number + 0.0).to_bits());
    }

    fn optional<T>(&mut self, value: Option<T>, hash: impl FnOnce(&mut Self, T)) {
        self.tag(value.is_some().into());
        if let Some(value) = value {
            hash(self, value);
        }
    }

    fn optional_text(&mut self, text: Option<&String>) {
        self.optional(text, |hash, text| hash.text(text));
    }

    fn list<T>(
        &mut self,
        items: impl ExactSizeIterator<Item = T>,
        mut hash: impl FnMut(&mut Self, T),
    ) {
        self.number(items.len() as u64);
        items.for_each(|item| hash(self, item));
    }

    fn options(&mut self, options: &ChatOptions) {
        let ChatOptions {
            model,
            instructions,
            tools,
            tool_choice,
            temperature,
            top_p,
            max_output_tokens,
            stream: _,
            background,
            continuation,
            extra,
            exact_numbers,
        } = options;
        self.optional_text(model.as_ref());
        self.optional_text(instructions.as_ref());
        self.list(tools.iter(), Self::tool);
        self.optional(tool_choice.as_ref(), |hash, choice| match choice {
            ToolChoice::Auto => hash.tag(0),
            ToolChoice::None => hash.tag(1),
            ToolChoice::Required => hash.tag(2),
            ToolChoice::Tool(name) => {
                hash.tag(3);
                hash.text(name);
            }
        });
        self.optional(*temperature, Self::float);
        self.optional(*top_p, Self::float);
        self.optional(*max_output_tokens, Self::number);
        self.tag((*background).into());
        self.optional_text(continuation.as_ref());
        self.value(extra);
        self.list(exact_numbers.digits().into_iter(), |hash, (path, digits)| {
            hash.list(path.into_iter(), Self::text);
            hash.text(digits);
        });
    }

    fn tool(&mut self, tool: &ToolDefinition) {
        let ToolDefinition {
            name,
            description,
            parameters,
            needs_approval: _,
            native,
            safe_to_retry: _,
            accepts_stored_arguments: _,
            strict,
        } = tool;
        self.text(name);
        self.text(description);
        self.value(parameters);
        self.native(native.as_ref());
        self.tag((*strict).into());
    }

    fn message(&mut self, message: &Message) {
        let Message { role, parts, author, id: _, added_at: _, finish_reason: _, metadata: _ } =
            message;
        self.tag(match role {
            Role::System => 0,
            Role::Developer => 1,
            Role::User => 2,
            Role::Assistant => 3,
            Role::Tool => 4,
        });
        self.optional_text(author.as_ref());
        self.list(parts.iter(), Self::part);
    }

    fn part(&mut self, part: &Part) {
        match part {
            Part::Text(Text { text, native }) => {
                self.tag(0);
                self.text(text);
                self.native(native.as_ref());
            }
            Part::Reasoning(Reasoning { text, native }) => {
                self.tag(1);
                self.text(text);
                self.native(native.as_ref());
            }
            Part::ToolCall(call) => {
                self.tag(2);
                self.call(call);
            }
            Part::ToolResult(result) => {
                self.tag(3);
                self.result(result);
            }
            Part::ApprovalRequest(ApprovalRequest { id, call, required }) => {
                self.tag(4);
                self.text(id);
                self.call(call);
                self.tag((*required).into());
            }
            Part::ApprovalResponse(ApprovalResponse {
                request_id,
                approved,
                arguments,
                reason,
            }) => {
                match arguments {
                    // When this version of the key was defined, a decision had no arguments. The
                    // tag 5 preserves the keys of decisions without arguments.
                    None => self.tag(5),
                    Some(arguments) => {
                        self.tag(9);
                        self.text(arguments);
                    }
                }
                self.text(request_id);
                self.tag((*approved).into());
                self.optional_text(reason.as_ref());
            }
            Part::Media(media) => {
                self.tag(6);
                self.media(media);
            }
            Part::Error(ErrorPart { message, code }) => {
                self.tag(7);
                self.text(message);
                self.optional_text(code.as_ref());
            }
            Part::Native(native) => {
                self.tag(8);
                self.native(Some(native));
            }
        }
    }

    fn call(&mut self, call: &ToolCall) {
        let ToolCall { id, name, arguments, provider_executed, is_cut_off: _, native } = call;
        self.optional_text(id.as_ref());
        self.text(name);
        self.text(arguments);
        self.tag((*provider_executed).into());
        self.native(native.as_ref());
    }

    fn result(&mut self, result: &ToolResult) {
        let ToolResult {
            call_id,
            name,
            content,
            is_error,
            call: _,
            native,
            ends_run: _,
            queued: _,
        } = result;
        self.optional_text(call_id.as_ref());
        self.optional_text(name.as_ref());
        self.list(content.iter(), Self::part);
        self.tag((*is_error).into());
        self.native(native.as_ref());
    }

    fn media(&mut self, media: &Media) {
        let Media { media_type, source, native } = media;
        self.text(media_type);
        let (tag, source) = match source {
            MediaSource::Url(url) => (0, url),
            MediaSource::Base64(bytes) => (1, bytes),
            MediaSource::File(id) => (2, id),
        };
        self.tag(tag);
        self.text(source);
        self.native(native.as_ref());
    }

    fn native(&mut self, native: Option<&Native>) {
        self.optional(native, |hash, Native { wire, issuer, item }| {
            hash.text(wire);
            // If an item has no issuer (the service that made the item), the next tag is that of
            // its JSON, which is less than 4. The tag 4 therefore shows that the item has an
            // issuer.
            if let Some(issuer) = issuer {
                hash.tag(4);
                hash.text(issuer);
            }
            hash.raw(item.get(), 0);
        });
    }

    fn value(&mut self, value: &impl Serialize) {
        match RawJson::from_value(value) {
            Ok(json) => self.raw(json.get(), 0),
            // Serialization fails only for maps whose keys are not strings.
            Err(_) => self.tag(u8::MAX),
        }
    }

    /// Hashes JSON with all digits of its numbers and independently of the order of its fields. If
    /// an object has a key twice, the last value is hashed, because most parsers read the last one.
    fn raw(&mut self, json: &str, depth: usize) {
        let json = json.trim();
        if depth < MAX_DEPTH {
            if let Some(fields) = parse::<BTreeMap<String, &RawValue>>(json) {
                self.tag(0);
                return self.list(fields.into_iter(), |hash, (name, value)| {
                    hash.text(&name);
                    hash.raw(value.get(), depth + 1);
                });
            }
            if let Some(items) = parse::<Vec<&RawValue>>(json) {
                self.tag(1);
                return self.list(items.into_iter(), |hash, item| hash.raw(item.get(), depth + 1));
            }
            if let Some(text) = parse::<String>(json) {
                self.tag(2);
                return self.text(&text);
            }
        }
        // A number, `true`, `false`, `null`, or a value that is nested too deeply.
        self.tag(3);
        self.text(json);
    }
}

fn parse<'a, T: Deserialize<'a>>(json: &'a str) -> Option<T> {
    serde_json::from_str(json).ok()
}
