//! Seals messages, and opens them. To *seal* a value means to encrypt and authenticate it, and to
//! *open* a value means to verify and decrypt it. The inner store stores a sealed message like any
//! other message. A sealed message contains only those data in plaintext that the inner store
//! needs.
//!
//! The first part of a sealed message is the body: one sealed value with the content of all parts
//! that are neither calls nor results. After the body, the message has one part for each call and
//! each result, whose content is sealed separately. The calls remain in their order, and the
//! results in theirs, because the record of tool calls (one row for each call) refers to a call or
//! a result by its index.

use serde::{Serialize, de::DeserializeOwned};
use tower_chat_core::{
    ApprovalRequest, Message, MessageId, Native, Part, RawJson, ToolCall, ToolResult, format,
    store::author::{self, SEALED_WIRE},
};

use crate::{
    EncryptionError,
    chain::{Digest, Link, Linked},
    seal::{Format, Found, Opened, Opener, Position, Sealer},
};

pub(crate) const BODY: &str = "body";
const CALL: &str = "call";
/// The index of the first call that the provider executed itself. The record does not contain these
/// calls. Other calls have the same index as in the record, from 0.
const PROVIDER_CALLS: u64 = 1 << 32;
pub(crate) const RESULT: &str = "result";

/// Returns whether a message has the form into which an [`EncryptedStore`](crate::EncryptedStore)
/// seals messages. Only a message that was read directly from the inner store has this form.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use tower_chat_core::{ConversationKey, MemoryStore, Message, MessageId, RunId};
/// use tower_chat_core::store::{HistoryStore, Revision, author::Write};
/// use tower_chat_encrypted::{EncryptedStore, MasterKeys, SecretKey, is_sealed_message};
///
/// let keys = MasterKeys::new("2026", SecretKey::random()?)?;
/// let store = EncryptedStore::new(MemoryStore::new(), keys);
/// let key = ConversationKey::new("alice", "support");
/// let id = MessageId { run: RunId::new(), index: 0 };
/// let write = Write::new(key.clone(), id, Revision::ABSENT, [Message::user("a secret").into()]);
/// store.append(store.reserve().await?, vec![write]).await?;
///
/// assert!(store.load(&key).await?.messages.iter().all(|message| !is_sealed_message(message)));
/// let inside = store.inner().load(&key).await?;
/// assert!(inside.messages.iter().all(|message| is_sealed_message(message)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub fn is_sealed_message(message: &Message) -> bool {
    author::is_sealed_message(message)
}

/// The content of the sealed field `arguments`: a call, or an approval request that contains the
/// call. A call and a request have different fields, so that the content can be parsed as only one
/// of the two.
enum SealedCall {
    Call(ToolCall),
    Request(ApprovalRequest),
}

impl Sealer {
    /// Returns the sealed message for the inner store, and its digest.
    pub(crate) fn message(
        &self,
        sequence: u64,
        message: &Message,
        link: Link,
    ) -> Result<(Message, Digest), EncryptionError> {
        let mut texts = Vec::new();
        let mut placeholders = Vec::new();
        let mut rest = Vec::new();
        // Calls and results are numbered separately, as in the record of tool calls.
        let (mut calls, mut results, mut provider_calls) = (0.., 0.., PROVIDER_CALLS..);
        let mut next = |part: &Part| {
            let index = match part {
                Part::ToolCall(call) if call.provider_executed => provider_calls.next(),
                Part::ToolCall(_) | Part::ApprovalRequest(_) => calls.next(),
                Part::ToolResult(_) => results.next(),
                _ => None,
            };
            Position { sequence, index: index.unwrap_or_default() }
        };
        for part in &message.parts {
            let at = next(part);
            match part {
                Part::ToolCall(call) => {
                    let text = json(call);
                    placeholders.push(Part::from(self.call(at, message.id, call, &text)?));
                    texts.push(text);
                    let mut marker = no_call();
                    marker.provider_executed = call.provider_executed;
                    rest.push(marker.into());
                }
                Part::ApprovalRequest(request) => {
                    // The whole request is sealed, not only its call. The id of the request is also
                    // in plaintext, because an approval refers to the request by this id. Opening
                    // compares the two ids.
                    let text = json(request);
                    let call = self.call(at, message.id, &request.call, &text)?;
                    texts.push(text);
                    let placeholder =
                        ApprovalRequest::new(request.id.clone(), call, request.required);
                    placeholders.push(placeholder.into());
                    rest.push(ApprovalRequest::new("", no_call(), false).into());
                }
                Part::ToolResult(result) => {
                    let text = json(result);
                    placeholders.push(self.result(at, message.id, RESULT, result, &text)?.into());
                    texts.push(text);
                    rest.push(ToolResult::new("", "").with_content(Vec::new()).into());
                }
                other => rest.push(other.clone()),
            }
        }
        let body = format::encode(&message.with_parts(rest));
        let position = Position { sequence, index: 0 };
        // The body is sealed together with a digest of the message's calls and results.
        let content = Digest::START.after(message.id, &texts);
        let linked = [link.to_text(), content.to_text()].concat() + &body;
        let mut parts = vec![self.native(position, message.id, BODY, &linked)?];
        texts.insert(0, body);
        parts.append(&mut placeholders);
        let mut envelope = Message::new(message.role, parts);
        envelope.id = message.id;
        Ok((envelope, link.before.after(message.id, &texts)))
    }

    /// Returns the placeholder of a call, which the inner store stores instead of the call. The
    /// field `arguments` of the placeholder contains the whole sealed call.
    fn call(
        &self,
        at: Position,
        message: Option<MessageId>,
        call: &ToolCall,
        sealed: &str,
    ) -> Result<ToolCall, EncryptionError> {
        let mut placeholder = no_call();
        placeholder.id.clone_from(&call.id);
        placeholder.name.clone_from(&call.name);
        placeholder.provider_executed = call.provider_executed;
        placeholder.arguments = self.seal(at, message, CALL, sealed)?;
        Ok(placeholder)
    }

    pub(crate) fn result(
        &self,
        at: Position,
        message: Option<MessageId>,
        column: &str,
        result: &ToolResult,
        text: &str,
    ) -> Result<ToolResult, EncryptionError> {
        let sealed = self.native(at, message, column, text)?;
        let mut placeholder = ToolResult::new("", "").with_content(vec![sealed]);
        placeholder.call_id.clone_from(&result.call_id);
        placeholder.name.clone_from(&result.name);
        Ok(placeholder)
    }

    fn native(
        &self,
        at: Position,
        message: Option<MessageId>,
        column: &str,
        value: &str,
    ) -> Result<Part, EncryptionError> {
        let sealed = self.seal(at, message, column, value)?;
        #[allow(clippy::expect_used, reason = "text has a JSON form")]
        let item = RawJson::from_value(&sealed).expect("text is JSON");
        Ok(Native::new(SEALED_WIRE, item).into())
    }
}

impl Opener<'_> {
    /// Opens a message. Also returns its link (the digest of the previous message, and how the
    /// message was stored); `None` for a message in a former format.
    pub(crate) async fn message(
        &mut self,
        sequence: u64,
        envelope: &Message,
    ) -> Result<(Message, Option<Linked>), EncryptionError> {
        let mut parts = envelope.parts.iter();
        let body = match parts.next() {
            Some(part) => {
                let position = Position { sequence, index: 0 };
                self.native(position.into(), envelope.id, BODY, part).await?
            }
            None => return Err(self.not_whole(Found::in_message(sequence))),
        };
        let format = body.format;
        let (link, text) = match format {
            Format::Third => {
                let read = Link::read(&body.text).and_then(|(link, rest)| {
                    let (content, text) = Digest::read(rest)?;
                    Some((Some((link, content)), text))
                });
                read.ok_or_else(|| self.not_whole(Found::in_message(sequence)))?
            }
            Format::First | Format::Second => (None, body.text.as_str()),
        };
        let message =
            format::decode(text).map_err(|_| self.not_whole(Found::in_message(sequence)))?;
        let mut texts = Vec::new();
        let mut opened = Vec::with_capacity(message.parts.len());
        let (mut calls, mut results, mut provider_calls) = (0, 0, 0);
        for part in &message.parts {
            let index = match part {
                // In the first format, calls and results are numbered together.
                _ if format == Format::First => calls + results + provider_calls,
                Part::ToolResult(_) => results,
                Part::ToolCall(call) if call.provider_executed => PROVIDER_CALLS + provider_calls,
                _ => calls,
            };
            let found = Found::from(Position { sequence, index });
            let is_envelope = match part {
                Part::ToolCall(call) if call.provider_executed => {
                    provider_calls += 1;
                    true
                }
                Part::ToolCall(_) | Part::ApprovalRequest(_) => {
                    calls += 1;
                    true
                }
                Part::ToolResult(_) => {
                    results += 1;
                    true
                }
                other => {
                    opened.push(other.clone());
                    false
                }
            };
            if is_envelope {
                opened.push(match (part, parts.next()) {
                    (Part::ToolCall(_), Some(Part::ToolCall(placeholder))) => {
                        match self.sealed_call(found, envelope.id, &placeholder.arguments).await? {
                            (SealedCall::Call(call), sealed) if sealed.format == format => {
                                texts.push(sealed.text);
                                call.into()
                            }
                            _ => return Err(self.not_whole(found)),
                        }
                    }
                    (Part::ApprovalRequest(_), Some(Part::ApprovalRequest(placeholder))) => {
                        let (request, sealed) =
                            self.approval_request(found, envelope.id, placeholder).await?;
                        if sealed.format != format {
                            return Err(self.not_whole(found));
                        }
                        texts.push(sealed.text);
                        request.into()
                    }
                    (Part::ToolResult(_), Some(Part::ToolResult(placeholder))) => {
                        let (result, sealed) =
                            self.result(found, envelope.id, RESULT, placeholder).await?;
                        if sealed.format != format {
                            return Err(self.not_whole(found));
                        }
                        texts.push(sealed.text);
                        result.into()
                    }
                    _ => return Err(self.not_whole(Found::in_message(sequence))),
                });
            }
        }
        if parts.next().is_some() || message.role != envelope.role {
            return Err(self.not_whole(Found::in_message(sequence)));
        }
        let mut message = message.with_parts(opened);
        message.id = envelope.id;
        let Some((link, content)) = link else { return Ok((message, None)) };
        if content != Digest::START.after(envelope.id, &texts) {
            return Err(self.not_whole(Found::in_message(sequence)));
        }
        texts.insert(0, text.to_owned());
        Ok((message, Some(Linked { link, digest: link.before.after(envelope.id, &texts) })))
    }

    pub(crate) async fn approval_request(
        &mut self,
        found: Found,
        message: Option<MessageId>,
        placeholder: &ApprovalRequest,
    ) -> Result<(ApprovalRequest, Opened), EncryptionError> {
        match self.sealed_call(found, message, &placeholder.call.arguments).await? {
            (SealedCall::Request(request), opened)
                if (&request.id, request.required) == (&placeholder.id, placeholder.required) =>
            {
                Ok((request, opened))
            }
            (SealedCall::Request(_) | SealedCall::Call(_), _) => Err(self.not_whole(found)),
        }
    }

    /// Opens the call in the sealed field `arguments` of a placeholder.
    pub(crate) async fn call(
        &mut self,
        found: Found,
        message: MessageId,
        sealed: &str,
    ) -> Result<(ToolCall, Opened), EncryptionError> {
        Ok(match self.sealed_call(found, Some(message), sealed).await? {
            (SealedCall::Call(call), opened) => (call, opened),
            (SealedCall::Request(request), opened) => (request.call, opened),
        })
    }

    async fn sealed_call(
        &mut self,
        found: Found,
        message: Option<MessageId>,
        sealed: &str,
    ) -> Result<(SealedCall, Opened), EncryptionError> {
        let opened = self.open(found, message, CALL, sealed).await?;
        let call = match serde_json::from_str(&opened.text) {
            Ok(call) => SealedCall::Call(call),
            Err(_) => SealedCall::Request(self.parsed(found, CALL, &opened.text)?),
        };
        Ok((call, opened))
    }

    pub(crate) async fn result(
        &mut self,
        found: Found,
        message: Option<MessageId>,
        column: &str,
        placeholder: &ToolResult,
    ) -> Result<(ToolResult, Opened), EncryptionError> {
        let [part] = placeholder.content.as_slice() else {
            return Err(self.not_sealed(found, column, "it is not encrypted"));
        };
        let opened = self.native(found, message, column, part).await?;
        Ok((self.parsed(found, column, &opened.text)?, opened))
    }

    async fn native(
        &mut self,
        found: Found,
        message: Option<MessageId>,
        column: &str,
        part: &Part,
    ) -> Result<Opened, EncryptionError> {
        let sealed: Option<String> = match part {
            Part::Native(native) if &*native.wire == SEALED_WIRE => native.item.parse().ok(),
            _ => None,
        };
        match sealed {
            Some(sealed) => self.open(found, message, column, &sealed).await,
            None => Err(self.not_sealed(found, column, "it is not encrypted")),
        }
    }

    pub(crate) fn parsed<T: DeserializeOwned>(
        &self,
        found: Found,
        column: &str,
        json: &str,
    ) -> Result<T, EncryptionError> {
        serde_json::from_str(json)
            .map_err(|_| self.not_sealed(found, column, "a newer release may have sealed it"))
    }

    fn not_whole(&self, found: Found) -> EncryptionError {
        self.not_sealed(found, BODY, "a part of the message is missing, or was changed")
    }
}

fn no_call() -> ToolCall {
    ToolCall::without_id("", "")
}

#[allow(clippy::expect_used, reason = "all map keys are strings and nothing else can fail")]
pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("calls and results have a JSON form")
}
