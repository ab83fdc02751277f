//! Requests as a service takes them.

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use serde_json::json;
use tower_chat_core::{
    Change, ChangeKind, ChatOptions, ChatRequest, Media, Message, Messages, Native, Part,
    Reasoning, RefusalMark, RefusalMarks, Role, Text, ToolCall, ToolChoice, ToolDefinition,
    ToolResult,
};

use super::{
    arguments, hosted,
    ids::CallIds,
    media::{self, Count},
    names::NameMap,
    natives::{
        has_id_of_other_service, is_foreign, is_in_refused_field, is_result_of_other_service,
        wire_name,
    },
    refused::{Refused, Replaced},
    schema::add_properties,
    service_rules::{
        ArgumentRule, EmptyRule, ForeignRule, Otherwise, ReasoningRule, ResultRule, ServiceRules,
    },
};
use crate::{
    body::BodyWire,
    fields::{Fields, raw},
    provider_calls::ids_of_assistants_provider_calls,
};

/// A request that the rules of a service allow.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Fitted {
    /// The request to write.
    pub request: ChatRequest,
    /// The names that are sent in another form, for the reader of the answer.
    pub names: NameMap,
    /// What is sent in another form, and what is left out.
    pub changes: Vec<Change>,
}

/// In the extensions of a request that was fitted: what the writer of its body has to know of the rules.
#[derive(Debug, Clone, Copy)]
struct IsFitted(ForeignRule);

/// Makes a request one that the rules of a service allow.
///
/// What the rules allow is left as it is. A message, and so the bytes that are sent for it, depends on the
/// messages before it alone. Of media that move behind the results of a round, the message of the user that
/// has them stands behind the last result that the request has.
///
/// Content that the service has refused, by the [`RefusalMarks`] in the extensions of the request, is replaced
/// by a sentence.
///
/// A request that was fitted is returned as it is.
pub fn fit(request: &ChatRequest, rules: &ServiceRules) -> Fitted {
    if request.extensions.get::<IsFitted>().is_some() {
        return Fitted { request: request.clone(), names: NameMap::default(), changes: Vec::new() };
    }
    let mut fitting = Fitting::new(rules);
    fitting.unanswered = hosted::unanswered(&request.messages, rules.wire);
    let refused = Refused::of(request, rules);
    for message in &request.messages {
        match refused.replace(message) {
            Some(replaced) => fitting.push_replaced(replaced),
            None => fitting.push(message),
        }
    }
    fitting.put_behind();
    let options = fitting.options(&request.options);
    let Fitting { messages, has_changed, names, changes, .. } = fitting;
    let mut request = request.clone();
    if has_changed {
        request.messages = messages.into_iter().collect();
    }
    if let Some(options) = options {
        request.options = Arc::new(options);
    }
    request.extensions.insert(IsFitted(rules.foreign_calls));
    Fitted { request, names, changes }
}

/// What a service would receive of these messages in another form than they are stored, and what it would
/// not receive, as [`fit`] changes them.
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

/// The request, fitted to the rules if it was not fitted yet.
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

/// What calls of other services need in a request that was fitted.
pub(crate) fn foreign_rule(request: &ChatRequest) -> Option<ForeignRule> {
    request.extensions.get::<IsFitted>().map(|fitted| fitted.0)
}

/// What stands between the results of tools and a message of the user where a message of the assistant has
/// to.
const BRIDGE: &str = "Ok.";

/// What begins the message of the user with the media of results.
const BEHIND: &str = "The attachments of the results above:";

#[derive(Debug)]
struct Fitting<'r> {
    rules: &'r ServiceRules,
    messages: Vec<Arc<Message>>,
    has_changed: bool,
    names: NameMap,
    ids: CallIds,
    changes: Vec<Change>,
    /// The media of results that follow the results of the round.
    behind: Vec<Part>,
    /// The media in the messages since the last one of the assistant.
    count: Count,
    /// The names of the tools that the history calls, as they are sent.
    called: Vec<String>,
    has_results: bool,
    /// The ids of calls of the service's own tools that nothing answers.
    unanswered: HashSet<String>,
}

/// One message as it is fitted.
#[derive(Debug, Default)]
struct FittedParts {
    parts: Vec<Part>,
    has_changed: bool,
    /// The media of its results that follow them.
    behind: Vec<Part>,
    /// The ids of calls that a service ran itself and that are left out.
    left_out: HashSet<Option<String>>,
    has_call: bool,
}

impl<'r> Fitting<'r> {
    fn new(rules: &'r ServiceRules) -> Self {
        Self {
            rules,
            messages: Vec::new(),
            has_changed: false,
            names: NameMap::default(),
            ids: CallIds::new(rules.call_ids),
            changes: Vec::new(),
            behind: Vec::new(),
            count: Count::default(),
            called: Vec::new(),
            has_results: false,
            unanswered: HashSet::new(),
        }
    }

    fn push_replaced(&mut self, replaced: Replaced) {
        let Replaced { message, what } = replaced;
        self.has_changed = true;
        what.into_iter().for_each(|what| self.change(&message, ChangeKind::Refused, what));
        self.push(&message);
    }

    fn push(&mut self, message: &Arc<Message>) {
        let has_results = message.role != Role::Assistant && message.results().next().is_some();
        if !has_results && !matches!(message.role, Role::Tool) {
            self.put_behind();
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
            self.count = Count::default();
        }
        self.ids.follow(message.role, message.calls().next().is_some());
        if is_plain(message) {
            return self.finish(message, None);
        }
        let mut fitted_parts = FittedParts::default();
        let at_provider = ids_of_assistants_provider_calls(message);
        for part in &message.parts {
            self.part(message, part, &mut fitted_parts, &at_provider);
        }
        if message.role == Role::Assistant {
            self.complete_calls(message, &mut fitted_parts);
        } else if self.rules.user_media.named_documents {
            add_text_beside(&mut fitted_parts);
        }
        let behind = std::mem::take(&mut fitted_parts.behind);
        if is_mixed && !behind.is_empty() {
            fitted_parts.parts.extend(behind);
        } else {
            self.behind.extend(behind);
        }
        self.finish(message, Some(fitted_parts));
    }

    /// Adds a message, with its own parts or the fitted ones, unless nothing is left of it.
    fn finish(&mut self, message: &Arc<Message>, fitted_parts: Option<FittedParts>) {
        let parts = fitted_parts
            .as_ref()
            .map_or(message.parts.as_slice(), |fitted_parts| &fitted_parts.parts);
        let was_emptied = parts.is_empty() && !message.parts.is_empty();
        let is_refused = self.rules.empty_assistant == EmptyRule::LeaveOut
            && message.role == Role::Assistant
            && !parts.iter().any(|part| says_something(part, message, self.rules));
        if was_emptied || is_refused {
            self.has_changed = true;
            self.change(message, ChangeKind::Message, "a message without a content is left out");
            return;
        }
        if parts.iter().any(|part| matches!(part, Part::Text(_) | Part::Media(_))) {
            self.bridge(message.role);
        }
        let changed = fitted_parts.filter(|fitted_parts| fitted_parts.has_changed);
        self.has_changed |= changed.is_some();
        self.messages.push(match changed {
            Some(fitted_parts) => Arc::new(message.with_parts(fitted_parts.parts)),
            None => Arc::clone(message),
        });
    }

    /// Adds a message of the assistant where one has to stand before a message of the user.
    fn bridge(&mut self, role: Role) {
        let follows_results =
            self.messages.last().is_some_and(|last| last.role == Role::Tool) && role == Role::User;
        if follows_results && self.rules.answer_after_results {
            self.has_changed = true;
            let what = "a message of the assistant is added between results and the user";
            self.changes.push(Change::new(ChangeKind::Message, what));
            self.messages.push(Arc::new(Message::assistant(BRIDGE)));
        }
    }

    /// Adds the media that follow the results of a round.
    fn put_behind(&mut self) {
        if self.behind.is_empty() {
            return;
        }
        self.has_changed = true;
        self.bridge(Role::User);
        let media = std::mem::take(&mut self.behind);
        let parts = std::iter::once(Part::text(BEHIND)).chain(media).collect();
        self.messages.push(Arc::new(Message::new(Role::User, parts)));
    }

    fn change(&mut self, message: &Message, kind: ChangeKind, what: impl Into<String>) {
        self.changes.push(Change::new(kind, what).of_message(message.id));
    }

    fn part(
        &mut self,
        message: &Message,
        part: &Part,
        fitted_parts: &mut FittedParts,
        at_provider: &HashSet<Option<&str>>,
    ) {
        if self.is_unanswered(part) {
            fitted_parts.has_changed = true;
            let what = "a call of a tool of the service is left out, since it has no result";
            return self.change(message, ChangeKind::Native, what);
        }
        match part {
            Part::Text(text) => {
                let native = self.native(message, text.native.as_ref(), fitted_parts);
                let text = Text::new(&text.text);
                fitted_parts
                    .parts
                    .push(Part::Text(with_native(text, native, |text| &mut text.native)));
            }
            Part::Reasoning(reasoning) => {
                if self.is_left_out(message, reasoning) {
                    fitted_parts.has_changed = true;
                } else {
                    fitted_parts.parts.push(part.clone());
                }
            }
            Part::ToolCall(call) if call.provider_executed => {
                if is_foreign(call.native.as_ref(), self.rules)
                    || has_id_of_other_service(call, self.rules)
                {
                    fitted_parts.left_out.insert(call.id.clone());
                    fitted_parts.has_changed = true;
                    let what =
                        format!("a call of {:?} that another service ran is left out", call.name);
                    self.change(message, ChangeKind::Native, what);
                } else {
                    fitted_parts.parts.push(part.clone());
                }
            }
            Part::ToolCall(call) => {
                let call = self.call(message, call, fitted_parts);
                fitted_parts.has_call = true;
                fitted_parts.parts.push(Part::ToolCall(call));
            }
            Part::ToolResult(result) if at_provider.contains(&result.call_id.as_deref()) => {
                if fitted_parts.left_out.contains(&result.call_id)
                    || is_foreign(result.native.as_ref(), self.rules)
                {
                    fitted_parts.has_changed = true;
                } else {
                    fitted_parts.parts.push(part.clone());
                }
            }
            Part::ToolResult(result) => {
                self.has_results = true;
                let result = self.result(message, result, fitted_parts);
                fitted_parts.parts.push(Part::ToolResult(result));
            }
            Part::Media(media) => {
                let part = self.media(message, media, fitted_parts);
                fitted_parts.parts.push(part);
            }
            Part::Native(native) => {
                if is_foreign(Some(native), self.rules)
                    || is_result_of_other_service(native, self.rules)
                {
                    fitted_parts.has_changed = true;
                    self.left_out(message, native);
                } else {
                    fitted_parts.parts.push(part.clone());
                }
            }
            part => fitted_parts.parts.push(part.clone()),
        }
    }

    fn is_unanswered(&self, part: &Part) -> bool {
        !self.unanswered.is_empty()
            && hosted::call_of(part, self.rules.wire)
                .is_some_and(|id| self.unanswered.contains(&id))
    }

    /// The native item of a part, unless another service made it.
    fn native(
        &mut self,
        message: &Message,
        native: Option<&Native>,
        fitted_parts: &mut FittedParts,
    ) -> Option<Native> {
        if !is_foreign(native, self.rules) {
            return native.cloned();
        }
        fitted_parts.has_changed = true;
        if let Some(native) = native {
            self.left_out(message, native);
        }
        None
    }

    fn left_out(&mut self, message: &Message, native: &Native) {
        let issuer = native.issuer.as_deref().unwrap_or("another service");
        self.change(message, ChangeKind::Native, format!("an item of {issuer} is left out"));
    }

    fn is_left_out(&mut self, message: &Message, reasoning: &Reasoning) -> bool {
        let is_foreign = is_foreign(reasoning.native.as_ref(), self.rules);
        let is_refused = self.rules.own_reasoning == ReasoningRule::LeftOut
            || is_in_refused_field(reasoning, self.rules);
        if is_foreign || is_refused {
            let issuer = reasoning.native.as_ref().and_then(|native| native.issuer.as_deref());
            let what = format!("reasoning of {} is left out", issuer.unwrap_or("another service"));
            self.change(message, ChangeKind::Native, what);
        }
        is_foreign || is_refused
    }

    fn call(
        &mut self,
        message: &Message,
        call: &ToolCall,
        fitted_parts: &mut FittedParts,
    ) -> ToolCall {
        let mut sent = call.clone();
        sent.native = self.native(message, call.native.as_ref(), fitted_parts);
        sent.id = self.ids.call(call.id.as_deref());
        if sent.id != call.id {
            fitted_parts.has_changed = true;
            let ids = (call.id.as_deref().unwrap_or_default(), sent.id.as_deref());
            let what = format!("the call {:?} is sent as {:?}", ids.0, ids.1.unwrap_or_default());
            self.change(message, ChangeKind::CallId, what);
        }
        if let Some(name) = self.name(&call.name) {
            fitted_parts.has_changed = true;
            sent.name = name;
        }
        if self.rules.definitions_with_calls && !self.called.contains(&sent.name) {
            self.called.push(sent.name.clone());
        }
        if self.rules.arguments == ArgumentRule::Object
            && has_json_arguments(&sent, self.rules.wire)
            && (has_text_arguments(self.rules.wire) || !call.arguments.trim().is_empty())
            && let Some(arguments) = arguments::as_object(&call.arguments)
        {
            fitted_parts.has_changed = true;
            sent.arguments = arguments;
            let what = format!("the arguments of a call of {:?} are made a JSON object", call.name);
            self.change(message, ChangeKind::Arguments, what);
        }
        sent
    }

    /// The name to send for a tool, if it is another.
    fn name(&mut self, name: &str) -> Option<String> {
        let count = self.names.len();
        let sent = self.names.sent(name, &self.rules.tool_names)?;
        if self.names.len() > count {
            let what = format!("the tool {name:?} is sent as {sent:?}");
            self.changes.push(Change::new(ChangeKind::Name, what));
        }
        Some(sent)
    }

    fn result(
        &mut self,
        message: &Message,
        result: &ToolResult,
        fitted_parts: &mut FittedParts,
    ) -> ToolResult {
        let mut sent = result.clone();
        sent.native = self.native(message, result.native.as_ref(), fitted_parts);
        sent.call_id = self.ids.result(result.call_id.as_deref());
        if let Some(name) = result.name.as_deref().and_then(|name| self.name(name)) {
            sent.name = Some(name);
        }
        let is_text_only = result.is_error && self.rules.error_results == ResultRule::TextOnly;
        let mut content = Vec::with_capacity(result.content.len());
        let mut has_moved = false;
        let mut has_changed = false;
        for part in &result.content {
            match part {
                Part::Media(media) => match self.result_media(media, is_text_only) {
                    Placed::Here(media) => {
                        has_changed |= media.is_some();
                        content.push(media.map_or_else(|| part.clone(), Part::Media));
                    }
                    Placed::Behind(media) => {
                        (has_moved, has_changed) = (true, true);
                        let what =
                            format!("{} of a result is sent behind the results", media.media_type);
                        self.change(message, ChangeKind::Media, what);
                        fitted_parts.behind.push(Part::Media(media));
                    }
                    Placed::Sentence => {
                        has_changed = true;
                        content.push(self.sentence(message, media));
                    }
                },
                Part::Native(native) => {
                    let is_foreign = is_foreign(Some(native), self.rules);
                    if is_foreign || is_text_only {
                        has_changed = true;
                        self.left_out(message, native);
                    } else {
                        content.push(part.clone());
                    }
                }
                Part::Text(text) => {
                    let native = self.native(message, text.native.as_ref(), fitted_parts);
                    let text = Text::new(&text.text);
                    content.push(Part::Text(with_native(text, native, |text| &mut text.native)));
                }
                part => content.push(part.clone()),
            }
        }
        let is_blank = !content.iter().any(|part| match part {
            Part::Text(text) => !text.text.trim().is_empty(),
            Part::Media(_) | Part::Native(_) => true,
            _ => false,
        });
        if is_blank && (has_moved || is_text_only || has_changed && !result.content.is_empty()) {
            has_changed = true;
            let text = match (has_moved, result.is_error) {
                (true, false) => {
                    "[The attachments of this result are in the message behind the results.]"
                }
                (true, true) => {
                    "[The tool failed. What it returned is in the message behind the results.]"
                }
                (false, true) => "The tool failed.",
                (false, false) => "[The content of this result cannot be shown to this model.]",
            };
            content.retain(|part| part.as_text().is_none());
            content.push(Part::text(text));
            self.change(message, ChangeKind::Result, "a result gets a text that says what it had");
        }
        sent.content = content;
        fitted_parts.has_changed |=
            has_changed || sent.call_id != result.call_id || sent.name != result.name;
        sent
    }

    /// Where media of a result go.
    fn result_media(&mut self, media: &Media, is_text_only: bool) -> Placed {
        let rules = self.rules;
        let native = media.native.clone().filter(|native| !is_foreign(Some(native), rules));
        let plain = media::normal(media, rules.wire).or_else(|| {
            (native.is_none() && media.native.is_some())
                .then(|| Media::new(&*media.media_type, media.source.clone()))
        });
        let found = plain.as_ref().unwrap_or(media);
        if !is_text_only && media::is_taken(found, &rules.tool_media, rules) {
            return match self.count.admit(found, &rules.tool_media) {
                true => Placed::Here(plain),
                false => Placed::Sentence,
            };
        }
        let may_move = is_text_only || rules.tool_media.otherwise == Otherwise::Behind;
        let can_move = may_move && media::is_taken_from(Role::User, found, rules);
        if can_move && self.count.admit(found, &rules.user_media) {
            Placed::Behind(Media::new(&*found.media_type, found.source.clone()))
        } else {
            Placed::Sentence
        }
    }

    /// Media in a message of the user, the system or the assistant.
    fn media(&mut self, message: &Message, media: &Media, fitted_parts: &mut FittedParts) -> Part {
        let native = self.native(message, media.native.as_ref(), fitted_parts);
        let mut sent = media.clone();
        sent.native = native;
        if let Some(normal) = media::normal(&sent, self.rules.wire) {
            fitted_parts.has_changed = true;
            sent = normal;
        }
        let is_taken = media::is_taken_from(message.role, &sent, self.rules);
        if is_taken && self.count.admit(&sent, &self.rules.user_media) {
            return Part::Media(sent);
        }
        fitted_parts.has_changed = true;
        self.sentence(message, media)
    }

    fn sentence(&mut self, message: &Message, media: &Media) -> Part {
        let what = format!("{} is replaced by a sentence", media.media_type);
        self.change(message, ChangeKind::Media, what);
        Part::text(media::sentence(media))
    }

    /// Adds what the service needs with calls of other services.
    fn complete_calls(&mut self, message: &Message, fitted_parts: &mut FittedParts) {
        if !fitted_parts.has_call {
            return;
        }
        match self.rules.foreign_calls {
            ForeignRule::Nothing => {}
            ForeignRule::EmptyReasoning(field) => {
                let wire = wire_name(self.rules.wire);
                let has_own = fitted_parts.parts.iter().any(|part| match part {
                    Part::Reasoning(reasoning) => {
                        Fields::of_native(reasoning.native.as_ref(), wire)
                            .is_some_and(|fields| fields.contains(field))
                    }
                    _ => false,
                });
                if !has_own {
                    let mut fields = Fields::default();
                    fields.set(field, raw(&()));
                    let mut reasoning = Reasoning::new("");
                    reasoning.native = Some(fields.into_native(wire));
                    fitted_parts.parts.insert(0, Part::Reasoning(reasoning));
                    fitted_parts.has_changed = true;
                    let what = format!("an empty {field} is added to calls without one");
                    self.change(message, ChangeKind::Reasoning, what);
                }
            }
            // Gemini's own wire adds its stand-in where it writes the call.
            ForeignRule::Signature(signature) if self.rules.wire == BodyWire::OpenAiChat => {
                if sign_first_call(fitted_parts, signature) {
                    let what = "the stand-in for a signature is added to a call";
                    self.change(message, ChangeKind::Reasoning, what);
                }
            }
            ForeignRule::Signature(_) => {}
        }
    }

    /// The options, if they change.
    fn options(&mut self, options: &ChatOptions) -> Option<ChatOptions> {
        let mut sent = options.clone();
        let mut has_changed = self.leave_out_tools(&mut sent);
        for tool in &mut sent.tools {
            if tool.parameters.is_null() && tool.native.is_some() {
                continue;
            }
            if let Some(name) = self.name(&tool.name) {
                tool.name = name;
                has_changed = true;
            }
            // A definition that was read from the wire is written as it was, where that is accepted.
            let is_of_wire = tool
                .native
                .as_ref()
                .is_some_and(|native| &*native.wire == wire_name(self.rules.wire));
            let is_openai =
                matches!(self.rules.wire, BodyWire::OpenAiChat | BodyWire::OpenAiResponses);
            if (is_openai || !is_of_wire) && add_properties(&mut tool.parameters) {
                has_changed = true;
                let what = format!("the schema of {:?} gets empty properties", tool.name);
                self.changes.push(Change::new(ChangeKind::Definition, what));
            }
        }
        if let Some(ToolChoice::Tool(name)) = &sent.tool_choice
            && let Some(name) = self.name(name)
        {
            sent.tool_choice = Some(ToolChoice::Tool(name));
            has_changed = true;
        }
        has_changed |= self.define_called(&mut sent);
        has_changed.then_some(sent)
    }

    /// Leaves out tools none of which may be called, where the wire has no word for that.
    fn leave_out_tools(&mut self, options: &mut ChatOptions) -> bool {
        let may_call_none = options.tool_choice == Some(ToolChoice::None);
        if self.rules.wire != BodyWire::BedrockConverse || !may_call_none {
            return false;
        }
        options.tool_choice = None;
        if !options.tools.is_empty() {
            options.tools.clear();
            let what = "the tools are left out, since none of them may be called";
            self.changes.push(Change::new(ChangeKind::Definition, what));
        }
        true
    }

    /// Defines the tools that the history calls, where the service wants definitions and there are none.
    fn define_called(&mut self, options: &mut ChatOptions) -> bool {
        let has_blocks = !self.called.is_empty() || self.has_results;
        let is_defined = options
            .tools
            .iter()
            .any(|tool| self.rules.wire.render_tool(tool).is_some())
            || options.extra.get("toolConfig").is_some_and(|config| config.get("tools").is_some());
        if !self.rules.definitions_with_calls || !has_blocks || is_defined {
            return false;
        }
        let mut names = std::mem::take(&mut self.called);
        if names.is_empty() {
            names.push("tool".to_owned());
        }
        let what = "definitions are made of the tools that the history calls";
        self.changes.push(Change::new(ChangeKind::Definition, what));
        options.tool_choice = None;
        options.tools.extend(names.into_iter().map(|name| {
            let schema = json!({"type": "object", "properties": {}});
            ToolDefinition::new(
                name,
                "A tool of an earlier answer. It cannot be called now.",
                schema,
            )
        }));
        true
    }
}

/// Where media of a result go.
#[derive(Debug)]
enum Placed {
    /// They stay in the result, in another form if there is one.
    Here(Option<Media>),
    /// A message behind the results has them.
    Behind(Media),
    /// A sentence stands in their place.
    Sentence,
}

/// Whether the message has a text alone, which every service takes.
fn is_plain(message: &Message) -> bool {
    message.parts.iter().all(|part| matches!(part, Part::Text(text) if text.native.is_none()))
}

fn with_native<P>(
    mut part: P,
    native: Option<Native>,
    field: impl FnOnce(&mut P) -> &mut Option<Native>,
) -> P {
    *field(&mut part) = native;
    part
}

/// Whether the arguments of the call are JSON: those of OpenAI's custom and hosted tools are not.
fn has_json_arguments(call: &ToolCall, wire: BodyWire) -> bool {
    let Some(fields) = Fields::of_native(call.native.as_ref(), wire_name(wire)) else {
        return true;
    };
    match wire {
        BodyWire::OpenAiChat => !fields.contains("custom"),
        BodyWire::OpenAiResponses => fields.text("type").is_none_or(|kind| kind == "function_call"),
        BodyWire::Anthropic
        | BodyWire::Gemini
        | BodyWire::BedrockConverse
        | BodyWire::Cohere
        | BodyWire::Ollama => true,
    }
}

/// Whether the arguments are a text on the wire. On the others they are a JSON value, which is missing
/// where there are none.
fn has_text_arguments(wire: BodyWire) -> bool {
    matches!(wire, BodyWire::OpenAiChat | BodyWire::OpenAiResponses | BodyWire::Cohere)
}

/// Whether a service that refuses empty answers takes one with this part.
fn says_something(part: &Part, message: &Message, rules: &ServiceRules) -> bool {
    match part {
        Part::Text(text) => !text.text.trim().is_empty(),
        Part::ToolCall(call) => !call.provider_executed,
        Part::ToolResult(result) => {
            let at_provider = ids_of_assistants_provider_calls(message);
            !at_provider.contains(&result.call_id.as_deref())
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

/// Whether a message of the assistant with this part is surely written, so that the messages of the user
/// before and behind it are not joined.
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

/// Adds a text to media that the service takes beside a text alone.
fn add_text_beside(fitted_parts: &mut FittedParts) {
    let is_document = |part: &Part| matches!(part, Part::Media(media) if !media::is_image(media));
    let has_text = fitted_parts
        .parts
        .iter()
        .any(|part| part.as_text().is_some_and(|text| !text.trim().is_empty()));
    if !has_text && fitted_parts.parts.iter().any(is_document) {
        fitted_parts.has_changed = true;
        fitted_parts.parts.push(Part::text("The attached document:"));
    }
}

/// Adds a signature to the first call of an answer, as Gemini's endpoint of Chat Completions takes it,
/// unless the call has one.
fn sign_first_call(fitted_parts: &mut FittedParts, signature: &str) -> bool {
    let first = fitted_parts.parts.iter_mut().find_map(|part| match part {
        Part::ToolCall(call) if !call.provider_executed => Some(call),
        _ => None,
    });
    let Some(call) = first else { return false };
    let wire = wire_name(BodyWire::OpenAiChat);
    let mut fields = Fields::of_native(call.native.as_ref(), wire).unwrap_or_default();
    if fields.contains("extra_content") {
        return false;
    }
    if fields.is_empty() {
        fields.set("type", raw("function"));
        fields.set("function", raw(&json!({})));
    }
    fields.set("extra_content", raw(&json!({"google": {"thought_signature": signature}})));
    call.native = Some(fields.into_native(wire));
    fitted_parts.has_changed = true;
    true
}
