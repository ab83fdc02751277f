//! Changes a request so that it complies with the rules of a service.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire. The issuer of a native item is the service that created the item. A provider-executed call
//! is a call of a tool that the provider runs itself.

mod calls;
mod options;
mod parts;
mod results;

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use tower_chat_core::{
    Change, ChangeKind, ChatRequest, Message, Messages, Native, Part, RefusalMark, RefusalMarks,
    Role,
};

use self::parts::{add_text_to_document, join_texts};
use super::{
    compaction, hosted,
    ids::CallIds,
    media::MediaCount,
    names::{self, NameMap},
    natives::{is_foreign, wire_name},
    refused::{Refused, Replaced},
    service_rules::{EmptyRule, ForeignRule, ServiceRules},
};
use crate::{body::BodyWire, fields::Fields, provider_calls::assistant_provider_call_ids};

/// A request that complies with the rules of a service, and the changes that were made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Fitted {
    /// The request that complies with the rules.
    pub request: ChatRequest,
    /// The tool names that are sent in another form. The reader of the answer restores the original
    /// names.
    pub names: NameMap,
    /// A description of each change, including omitted content.
    pub changes: Vec<Change>,
}

/// The extension of a request that [`fit`] has already changed. Contains the rule for calls that
/// another service has made, which the writer of the body needs.
#[derive(Debug, Clone, Copy)]
struct IsFitted(ForeignRule);

/// Changes a request so that it complies with the rules of a service.
///
/// Content that the rules allow is not changed. How a message is sent depends only on the message
/// itself and on earlier messages, so that the bytes of the message are the same in each request of
/// a conversation. Later messages change how a message is sent only in these cases:
///
/// - Media that are removed from results are sent in a user message after the results. If the next
///   request has more results at this position, the user message follows these results too.
/// - A provider-executed call that has no result is omitted as soon as a later message shows that
///   the service does not continue the call.
/// - Content that the service has refused is replaced with a sentence. The [`RefusalMarks`] in the
///   extensions of the request identify this content.
/// - Messages are omitted if the service has summarized them in an item `compaction` of the
///   Responses API, or in a block `compaction` of Anthropic. The issuer of the summary must be the
///   issuer of the rules.
///
/// A request that `fit` has already changed is returned unchanged, regardless of the rules.
pub fn fit(request: &ChatRequest, rules: &ServiceRules) -> Fitted {
    if request.extensions.get::<IsFitted>().is_some() {
        return Fitted { request: request.clone(), names: NameMap::default(), changes: Vec::new() };
    }
    let mut fitter = Fitter::new(rules);
    let mut messages = Cow::Borrowed(request.messages());
    let mut history_len = request.history_len();
    if let Some(compacted) = compaction::compact(request.messages(), rules) {
        fitter.has_changed = !compacted.changes.is_empty();
        fitter.begins_with_summary = compacted.begins_with_summary;
        fitter.changes = compacted.changes;
        let omitted = messages.len() - compacted.messages.len();
        history_len = history_len.saturating_sub(omitted);
        messages = Cow::Owned(compacted.messages);
    }
    fitter.unanswered_calls = hosted::unanswered_call_ids(&messages, rules.wire);
    let refused = Refused::of_request(request, rules);
    for message in &*messages {
        match refused.replace(message) {
            Some(replaced) => fitter.push_replaced(replaced),
            None => fitter.push(message),
        }
    }
    fitter.push_moved_media();
    let options = fitter.fit_options(&request.options);
    let Fitter { messages, has_changed, names, changes, .. } = fitter;
    let mut request = request.clone();
    if has_changed {
        request.set_messages(messages, history_len);
    }
    if let Some(options) = options {
        request.options = Arc::new(options);
    }
    request.extensions.insert(IsFitted(rules.foreign_calls));
    Fitted { request, names, changes }
}

/// Returns the changes that [`fit`] makes when these messages are sent, including the replacement
/// of content that the [`RefusalMark`]s in the messages identify as refused.
///
/// ```
/// use tower_chat_core::{ChangeKind, Message, Messages, ToolCall};
/// use tower_chat_wire::{body::BodyWire, rules::{ServiceRules, explain}};
/// let rules = ServiceRules::named(BodyWire::OpenAiChat, "mistral").expect("a known service");
/// let messages = Messages::from(Message::tool_calls([ToolCall::new("call_1", "look", "{cut off")]));
/// let changes = explain(&messages, &rules);
/// assert_eq!(changes[0].kind, ChangeKind::Arguments);
/// assert_eq!(changes[0].to_string(), "the arguments of a call of \"look\" are made a JSON object");
/// ```
pub fn explain(messages: &Messages, rules: &ServiceRules) -> Vec<Change> {
    let marks = messages.iter().flat_map(|message| RefusalMark::stored_in(message));
    let marks = RefusalMarks::new(marks);
    fit(&ChatRequest::new(messages.clone()).with_extension(marks), rules).changes
}

/// Calls [`fit`] with the rules, unless it has already changed the request.
pub(crate) fn fitted(
    request: &ChatRequest,
    rules: impl FnOnce() -> ServiceRules,
) -> Cow<'_, ChatRequest> {
    if request.extensions.get::<IsFitted>().is_some() {
        Cow::Borrowed(request)
    } else {
        Cow::Owned(fit(request, &rules()).request)
    }
}

/// Returns the rule that [`fit`] has used for calls that another service has made. Returns `None`
/// if `fit` has not changed the request.
pub(crate) fn foreign_rule(request: &ChatRequest) -> Option<ForeignRule> {
    request.extensions.get::<IsFitted>().map(|fitted| fitted.0)
}

/// The text of the assistant message that is added between the results of tools and a user message.
const ANSWER_BEFORE_USER: &str = "Ok.";

/// The text of a user message that is added if a conversation begins with an assistant message.
const USER_FIRST: &str = "[The conversation begins with the assistant.]";

/// The text at the beginning of the user message that contains the media of results.
const ATTACHMENTS_NOTE: &str = "The attachments of the results above:";

/// The state of [`fit`] during its pass over the messages of a request.
#[derive(Debug)]
struct Fitter<'r> {
    rules: &'r ServiceRules,
    messages: Vec<Arc<Message>>,
    /// Whether a message of the request was changed or omitted, or a message was added.
    has_changed: bool,
    names: NameMap,
    ids: CallIds,
    changes: Vec<Change>,
    /// The media that were removed from the results at the end of `messages`, for a user message
    /// after these results.
    moved_media: Vec<Part>,
    /// The numbers of images and documents since the last assistant message that is certainly
    /// written to the body.
    media_count: MediaCount,
    /// The names, as they are sent, of the tools that the history calls. Collected only if the
    /// service requires definitions of these tools.
    called_tools: Vec<String>,
    /// Whether the history contains results of the client's tools.
    has_results: bool,
    /// The ids of the provider-executed calls that have no result and are omitted.
    unanswered_calls: HashSet<String>,
    /// Whether the first message after the instructions contains a summary. The service accepts
    /// such a message as the first message of a conversation.
    begins_with_summary: bool,
}

/// The parts of one message, after the changes that make the parts comply with the rules.
#[derive(Debug, Default)]
struct FittedParts {
    parts: Vec<Part>,
    /// Whether a part was changed, added or omitted.
    has_changed: bool,
    /// The media that were removed from the results of the message.
    moved_media: Vec<Part>,
    /// The ids of the provider-executed calls that were removed.
    omitted_calls: HashSet<Option<String>>,
    /// Whether the message has a call of a client's tool.
    has_call: bool,
}

impl<'r> Fitter<'r> {
    fn new(rules: &'r ServiceRules) -> Self {
        Self {
            rules,
            messages: Vec::new(),
            has_changed: false,
            names: NameMap::default(),
            ids: CallIds::new(rules.call_ids),
            changes: Vec::new(),
            moved_media: Vec::new(),
            media_count: MediaCount::default(),
            called_tools: Vec::new(),
            has_results: false,
            unanswered_calls: HashSet::new(),
            begins_with_summary: false,
        }
    }

    fn push_replaced(&mut self, replaced: Replaced) {
        let Replaced { message, descriptions } = replaced;
        self.has_changed = true;
        for description in descriptions {
            self.record_change(&message, ChangeKind::Refused, description);
        }
        self.push(&message);
    }

    /// Changes one message so that it complies with the rules, and adds it to the messages that are
    /// sent. Divides a message with results and other content, if the service requires an answer
    /// between them.
    fn push(&mut self, message: &Arc<Message>) {
        if let Some(author) = self.changed_author(message) {
            let mut renamed = Message::clone(message);
            renamed.author = author;
            return self.push(&Arc::new(renamed));
        }
        let has_results = message.role != Role::Assistant && message.results().next().is_some();
        if !has_results && !matches!(message.role, Role::Tool) {
            self.push_moved_media();
        }
        let is_mixed = has_results && message.role != Role::Tool;
        if is_mixed && self.rules.answer_after_results {
            let (results, rest): (Vec<Part>, Vec<Part>) =
                message.parts.iter().cloned().partition(|part| part.as_tool_result().is_some());
            if !rest.is_empty() {
                self.has_changed = true;
                let mut results = message.with_parts(results);
                results.role = Role::Tool;
                self.push(&Arc::new(results));
                return self.push(&Arc::new(message.with_parts(rest)));
            }
        }
        if message.role == Role::Assistant
            && message.parts.iter().any(|part| is_written(part, self.rules))
        {
            self.media_count = MediaCount::default();
        }
        self.ids.begin_message(message.role, message.calls().next().is_some());
        let may_be_list = self.rules.content_lists.allows(message.role);
        if is_plain(message) && (may_be_list || message.parts.len() < 2) {
            return self.finish(message, None);
        }
        let mut fitted_parts = FittedParts::default();
        let provider_call_ids = assistant_provider_call_ids(message);
        for part in &message.parts {
            self.fit_part(message, part, &mut fitted_parts, &provider_call_ids);
        }
        if message.role == Role::Assistant {
            self.complete_calls(message, &mut fitted_parts);
        } else if self.rules.user_media.named_documents {
            add_text_to_document(&mut fitted_parts);
        }
        if !may_be_list && join_texts(&mut fitted_parts.parts, message.role, self.rules) {
            fitted_parts.has_changed = true;
            self.record_change(
                message,
                ChangeKind::Message,
                "the texts of a message are joined to one text",
            );
        }
        let moved_media = std::mem::take(&mut fitted_parts.moved_media);
        if is_mixed && !moved_media.is_empty() {
            fitted_parts.parts.extend(moved_media);
        } else {
            self.moved_media.extend(moved_media);
        }
        self.finish(message, Some(fitted_parts));
    }

    /// Adds a message with its fitted parts, or unchanged if these are `None`. Omits the message if
    /// none of its parts remain. Omits an answer without content if the service refuses such
    /// answers.
    fn finish(&mut self, message: &Arc<Message>, fitted_parts: Option<FittedParts>) {
        let parts = fitted_parts
            .as_ref()
            .map_or(message.parts.as_slice(), |fitted_parts| &fitted_parts.parts);
        let was_emptied = parts.is_empty() && !message.parts.is_empty();
        let is_refused = self.rules.empty_assistant == EmptyRule::LeaveOut
            && message.role == Role::Assistant
            && !parts.iter().any(|part| is_content(part, message, self.rules));
        if was_emptied || is_refused {
            self.has_changed = true;
            self.record_change(
                message,
                ChangeKind::Message,
                "a message without content is omitted",
            );
            return;
        }
        if parts.iter().any(|part| matches!(part, Part::Text(_) | Part::Media(_))) {
            self.add_answer_before_user(message.role);
        }
        self.add_user_first(message.role);
        let changed = fitted_parts.filter(|fitted_parts| fitted_parts.has_changed);
        self.has_changed |= changed.is_some();
        self.messages.push(match changed {
            Some(fitted_parts) => Arc::new(message.with_parts(fitted_parts.parts)),
            None => Arc::clone(message),
        });
    }

    /// Adds a user message at the beginning of the conversation, if the service requires one there,
    /// and the next message would begin the conversation with an answer or with results. `role` is
    /// the role of the next message.
    fn add_user_first(&mut self, role: Role) {
        if self.begins_with_summary {
            return;
        }
        let is_user = |role: Role| !matches!(role, Role::Assistant | Role::Tool);
        let is_instruction = |role: Role| matches!(role, Role::System | Role::Developer);
        // The writer of the body omits a message that has only blank texts.
        let is_sent = |part: &Part| match part {
            Part::Media(_) | Part::ToolResult(_) => true,
            other => is_written(other, self.rules),
        };
        let has_begun = self
            .messages
            .iter()
            .any(|message| !is_instruction(message.role) && message.parts.iter().any(is_sent));
        if self.rules.user_first && !is_user(role) && !has_begun {
            self.has_changed = true;
            let what = "a user message is added before the conversation";
            self.changes.push(Change::new(ChangeKind::Message, what));
            self.messages.push(Arc::new(Message::user(USER_FIRST)));
        }
    }

    /// Adds an assistant message between a tool message and a user message, if the service requires
    /// one. `role` is the role of the next message.
    fn add_answer_before_user(&mut self, role: Role) {
        let follows_results =
            self.messages.last().is_some_and(|last| last.role == Role::Tool) && role == Role::User;
        if follows_results && self.rules.answer_after_results {
            self.has_changed = true;
            let what = "an assistant message is added between results and a user message";
            self.changes.push(Change::new(ChangeKind::Message, what));
            self.messages.push(Arc::new(Message::assistant(ANSWER_BEFORE_USER)));
        }
    }

    /// Adds a user message with the media that were removed from the results at the end of
    /// `messages`, if any.
    fn push_moved_media(&mut self) {
        if self.moved_media.is_empty() {
            return;
        }
        self.has_changed = true;
        self.add_answer_before_user(Role::User);
        let media = std::mem::take(&mut self.moved_media);
        let parts = std::iter::once(Part::text(ATTACHMENTS_NOTE)).chain(media).collect();
        self.messages.push(Arc::new(Message::new(Role::User, parts)));
    }

    /// Returns the author to send with a message. Returns `None` if the message is sent with its
    /// own author, and `Some(None)` if the message is sent without an author.
    fn changed_author(&mut self, message: &Message) -> Option<Option<String>> {
        let author = message.author.as_deref()?;
        let sent = match self.rules.author_names {
            _ if self.rules.wire != BodyWire::OpenAiChat => return None,
            Some(rule) if rule.accepts(author) => return None,
            Some(rule) => names::author_name(author, &rule),
            None => None,
        };
        self.has_changed = true;
        let what = match &sent {
            Some(sent) => format!("the author {author:?} is sent as {sent:?}"),
            None => format!("the author {author:?} is not sent"),
        };
        self.record_change(message, ChangeKind::Name, what);
        Some(sent)
    }

    fn record_change(&mut self, message: &Message, kind: ChangeKind, what: impl Into<String>) {
        self.changes.push(Change::new(kind, what).of_message(message.id));
    }
}

/// Returns whether the message has only texts without native items, which every service accepts.
fn is_plain(message: &Message) -> bool {
    message.parts.iter().all(|part| matches!(part, Part::Text(text) if text.native.is_none()))
}

/// Returns whether a service that refuses answers without content accepts an answer with this part.
fn is_content(part: &Part, message: &Message, rules: &ServiceRules) -> bool {
    match part {
        Part::Text(text) => !text.text.trim().is_empty(),
        Part::ToolCall(call) => !call.provider_executed,
        Part::ToolResult(result) => {
            let provider_call_ids = assistant_provider_call_ids(message);
            !provider_call_ids.contains(&result.call_id.as_deref())
        }
        Part::Media(_) => true,
        Part::Native(native) => {
            let Some(fields) = Fields::of_native(Some(native), wire_name(rules.wire)) else {
                return false;
            };
            let has_value = |value: &str| !matches!(value, "null" | "\"\"" | "[]" | "{}");
            let names = ["audio", "function_call", "images", "refusal", "tool_calls"];
            !fields.contains("role")
                || fields
                    .iter()
                    .any(|(name, value)| names.contains(&name) && has_value(value.get()))
        }
        _ => false,
    }
}

/// Returns whether the writer of the body always writes an assistant message with this part. A
/// message that the writer may omit does not separate the user messages before and after it.
fn is_written(part: &Part, rules: &ServiceRules) -> bool {
    let is_own = |native: Option<&Native>| {
        native.is_some_and(|native| &*native.wire == wire_name(rules.wire))
            && !is_foreign(native, rules)
    };
    match part {
        Part::Text(text) => !text.text.trim().is_empty(),
        Part::ToolCall(call) => !call.provider_executed,
        Part::Reasoning(reasoning) => is_own(reasoning.native.as_ref()),
        _ => false,
    }
}
