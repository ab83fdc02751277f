//! A message that shows no more than its store has to know.
//!
//! Its calls and results stay in their places, since the record of tool calls refers to them, with
//! what they hold sealed; everything else is one sealed value in front of them.

use serde::{Serialize, de::DeserializeOwned};
use tower_chat_core::{
    ApprovalRequest, Message, Native, Part, RawJson, ToolCall, ToolResult, format,
};

use crate::{
    EncryptionError,
    seal::{Found, Opener, Place, Sealer},
};

/// The wire of sealed items. No leaf knows it.
const WIRE: &str = "tower-chat-encrypted";

const BODY: &str = "body";
const CALL: &str = "call";
pub(crate) const RESULT: &str = "result";

/// What was sealed of a call: the call, or the whole request for consent to it. Neither has the
/// fields of the other.
enum Asked {
    Call(ToolCall),
    Request(ApprovalRequest),
}

impl Sealer {
    /// The message as the store inside gets it.
    pub(crate) fn message(
        &self,
        sequence: u64,
        message: &Message,
    ) -> Result<Message, EncryptionError> {
        let mut shells = Vec::new();
        let mut rest = Vec::new();
        for part in &message.parts {
            let at = Place { sequence, index: shells.len() as u64 };
            match part {
                Part::ToolCall(call) => {
                    shells.push(Part::from(self.call(at, call, &json(call))?));
                    rest.push(no_call().into());
                }
                Part::ApprovalRequest(request) => {
                    // All of it is sealed: consent is given by its id.
                    let call = self.call(at, &request.call, &json(request))?;
                    let shell = ApprovalRequest::new(request.id.clone(), call, request.required);
                    shells.push(shell.into());
                    rest.push(ApprovalRequest::new("", no_call(), false).into());
                }
                Part::ToolResult(result) => {
                    shells.push(self.result(at, RESULT, result)?.into());
                    rest.push(ToolResult::new("", "").with_content(Vec::new()).into());
                }
                other => rest.push(other.clone()),
            }
        }
        let body = format::encode(&message.with_parts(rest));
        let mut parts = vec![self.native(Place { sequence, index: 0 }, BODY, &body)?];
        parts.append(&mut shells);
        let mut envelope = Message::new(message.role, parts);
        envelope.id = message.id;
        Ok(envelope)
    }

    /// What is shown of a call, with something sealed in the place of its arguments.
    fn call(&self, at: Place, call: &ToolCall, sealed: &str) -> Result<ToolCall, EncryptionError> {
        let mut shell = no_call();
        shell.id.clone_from(&call.id);
        shell.name.clone_from(&call.name);
        shell.provider_executed = call.provider_executed;
        shell.arguments = self.seal(at, CALL, sealed)?;
        Ok(shell)
    }

    pub(crate) fn result(
        &self,
        at: Place,
        column: &str,
        result: &ToolResult,
    ) -> Result<ToolResult, EncryptionError> {
        let sealed = self.native(at, column, &json(result))?;
        let mut shell = ToolResult::new("", "").with_content(vec![sealed]);
        shell.call_id.clone_from(&result.call_id);
        shell.name.clone_from(&result.name);
        Ok(shell)
    }

    fn native(&self, at: Place, column: &str, value: &str) -> Result<Part, EncryptionError> {
        let sealed = self.seal(at, column, value)?;
        #[allow(clippy::expect_used, reason = "text has a JSON form")]
        let item = RawJson::from_value(&sealed).expect("text is JSON");
        Ok(Native::new(WIRE, item).into())
    }
}

impl Opener<'_> {
    /// The message as it was before it was sealed.
    pub(crate) async fn message(
        &mut self,
        sequence: u64,
        envelope: &Message,
    ) -> Result<Message, EncryptionError> {
        let mut parts = envelope.parts.iter();
        let body = match parts.next() {
            Some(part) => self.native(Place { sequence, index: 0 }.into(), BODY, part).await?,
            None => return Err(self.not_whole(Found::in_message(sequence))),
        };
        let message =
            format::decode(&body).map_err(|_| self.not_whole(Found::in_message(sequence)))?;
        let mut opened = Vec::with_capacity(message.parts.len());
        let mut index = 0;
        for part in &message.parts {
            let found = Found::from(Place { sequence, index });
            let is_shell = match part {
                Part::ToolCall(_) | Part::ApprovalRequest(_) | Part::ToolResult(_) => true,
                other => {
                    opened.push(other.clone());
                    false
                }
            };
            if is_shell {
                index += 1;
                opened.push(match (part, parts.next()) {
                    (Part::ToolCall(_), Some(Part::ToolCall(shell))) => {
                        match self.asked(found, &shell.arguments).await? {
                            Asked::Call(call) => call.into(),
                            Asked::Request(_) => return Err(self.not_whole(found)),
                        }
                    }
                    (Part::ApprovalRequest(_), Some(Part::ApprovalRequest(shell))) => {
                        self.approval_request(found, shell).await?.into()
                    }
                    (Part::ToolResult(_), Some(Part::ToolResult(shell))) => {
                        self.result(found, RESULT, shell).await?.into()
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
        Ok(message)
    }

    pub(crate) async fn approval_request(
        &mut self,
        found: Found,
        shell: &ApprovalRequest,
    ) -> Result<ApprovalRequest, EncryptionError> {
        match self.asked(found, &shell.call.arguments).await? {
            Asked::Request(request)
                if (&request.id, request.required) == (&shell.id, shell.required) =>
            {
                Ok(request)
            }
            Asked::Request(_) | Asked::Call(_) => Err(self.not_whole(found)),
        }
    }

    /// The call that was sealed in the place of its arguments.
    pub(crate) async fn call(
        &mut self,
        found: Found,
        sealed: &str,
    ) -> Result<ToolCall, EncryptionError> {
        Ok(match self.asked(found, sealed).await? {
            Asked::Call(call) => call,
            Asked::Request(request) => request.call,
        })
    }

    async fn asked(&mut self, found: Found, sealed: &str) -> Result<Asked, EncryptionError> {
        let json = self.open(found, CALL, sealed).await?;
        match serde_json::from_str(&json) {
            Ok(call) => Ok(Asked::Call(call)),
            Err(_) => self.parsed(found, CALL, &json).map(Asked::Request),
        }
    }

    pub(crate) async fn result(
        &mut self,
        found: Found,
        column: &str,
        shell: &ToolResult,
    ) -> Result<ToolResult, EncryptionError> {
        let [part] = shell.content.as_slice() else {
            return Err(self.not_sealed(found, column, "it is in clear"));
        };
        let result = self.native(found, column, part).await?;
        self.parsed(found, column, &result)
    }

    async fn native(
        &mut self,
        found: Found,
        column: &str,
        part: &Part,
    ) -> Result<String, EncryptionError> {
        let sealed: Option<String> = match part {
            Part::Native(native) if &*native.wire == WIRE => native.item.parse().ok(),
            _ => None,
        };
        match sealed {
            Some(sealed) => self.open(found, column, &sealed).await,
            None => Err(self.not_sealed(found, column, "it is in clear")),
        }
    }

    fn parsed<T: DeserializeOwned>(
        &self,
        found: Found,
        column: &str,
        json: &str,
    ) -> Result<T, EncryptionError> {
        serde_json::from_str(json)
            .map_err(|_| self.not_sealed(found, column, "a newer release may have sealed it"))
    }

    fn not_whole(&self, found: Found) -> EncryptionError {
        self.not_sealed(found, BODY, "something of the message is missing, or was changed")
    }
}

fn no_call() -> ToolCall {
    ToolCall::without_id("", "")
}

#[allow(clippy::expect_used, reason = "all map keys are strings and nothing else can fail")]
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("calls and results have a JSON form")
}
