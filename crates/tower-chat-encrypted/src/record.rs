//! Seals (encrypts) and opens (decrypts) rows of the record of tool calls, which has one row for
//! each call. Also seals and opens open runs (runs that are not committed yet), heads and whole
//! writes. The sealed head of a conversation is stored in place of its service id (the id under
//! which the model's service has the history). In a chain, each message contains the digest of the
//! previous one.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tower_chat_core::{
    Message, RunId, ToolInvocation,
    store::{
        OpenRun, SequencePosition, ServiceIdChange,
        author::{Close, RecordedResult, Staged, ToolRecord, Write, milliseconds},
    },
};

use crate::{
    EncryptionError,
    chain::{Chain, Kind, Link, Linked},
    envelope::{BODY, RESULT, json},
    seal::{Format, Found, Opener, Position, Sealer, is_sealed},
    sealing_cache::{Known, SealedHead},
};

const RECORDED_RESULT: &str = "recorded result";
/// The column (the authenticated kind of a value) of the sealed error of a row in a former format.
const RECORDED_ERROR: &str = "recorded error";
/// The column of the sealed content of a row. The content is stored in place of the row's error.
const ROW: &str = "row of the record";
const HEAD: &str = "head";

/// The fields of a row that are sealed with its error, so that a change of any of them is detected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SealedRow {
    round: u32,
    call_id: String,
    name: String,
    status: String,
    result: SealedResult,
    error: Option<String>,
    started: Option<i64>,
    finished: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum SealedResult {
    None,
    Apart,
    /// The sequence number of the message with the result, and the index of the result among its
    /// results.
    InMessage(u64, u32),
}

impl SealedRow {
    fn of(row: &ToolRecord, error: Option<String>) -> Self {
        Self {
            round: row.round_index,
            call_id: row.call_id.clone(),
            name: row.name.clone(),
            status: row.status.as_str().to_owned(),
            result: match &row.result {
                RecordedResult::None => SealedResult::None,
                RecordedResult::Apart(_) => SealedResult::Apart,
                RecordedResult::InMessage(at) => SealedResult::InMessage(at.sequence, at.index),
            },
            error,
            started: row.started_at.map(milliseconds::of),
            finished: row.end().map(milliseconds::of),
        }
    }

    /// Returns whether a call of the record has the fields of the row. The result is not compared.
    fn describes(&self, call: &ToolInvocation) -> bool {
        let Self { round, call_id, name, status, started, finished, .. } = self;
        (*round, call_id, name) == (call.round_index, &call.call_id, &call.name)
            && status == call.status.as_str()
            && *started == call.started_at.map(milliseconds::of)
            && *finished == call.held_until.or(call.finished_at).map(milliseconds::of)
    }
}

impl Sealer {
    /// Seals a write for the inner store, with `head` in place of the service id. Adds the digests
    /// of the write's messages to `known`.
    pub(crate) fn write(
        &self,
        write: &Write,
        head: Option<&SealedHead>,
        known: &mut Known,
    ) -> Result<Write, EncryptionError> {
        let kind = match write.as_staged().map(|staged| staged.close) {
            None => Kind::Visible,
            Some(Some(Close::Commit)) => Kind::Committed,
            Some(None | Some(Close::Discard { .. })) => Kind::Staged,
        };
        let mut messages = Vec::with_capacity(write.messages().len());
        if !write.messages().is_empty() {
            let at = write.expected().sequence;
            let mut before = known
                .recent_digest(at)
                .ok_or_else(|| EncryptionError::HeadNotRead { key: write.key().clone() })?;
            for (sequence, message) in (at.saturating_add(1)..).zip(write.messages()) {
                let link = Link { before, kind };
                let (envelope, digest) = self.message(sequence, message, link)?;
                messages.push(Arc::new(envelope));
                known.written(sequence, kind, digest);
                before = digest;
            }
        }
        let tools = write.tools().iter().map(|row| self.row(row)).collect::<Result<_, _>>()?;
        let mut sealed = Write::new(write.key().clone(), write.id(), write.expected(), messages)
            .with_tools(tools)
            .with_claims(write.claims().to_vec())
            .with_parent(write.parent().cloned())
            .sealed();
        if let Some(from) = write.load_from() {
            let range = self.range(from, &known.digests, known.pruned)?;
            sealed = sealed.with_load_from(Some(range.sealed.clone()));
            known.range = Some(range);
        }
        sealed = match write.activity() {
            Some(activity) => sealed.with_activity(activity.clone()),
            None => sealed.without_activity(),
        };
        let head = head.map(|head| self.head(head)).transpose()?;
        match (write.as_staged(), head) {
            (Some(staged), head) => {
                let mut staged = self.staged(write.run(), staged)?;
                staged.service_id = head;
                sealed = sealed.staged(staged);
                if write.begins_attempt() {
                    sealed = sealed.beginning_attempt();
                }
            }
            (None, Some(head)) => sealed = sealed.with_service_id(head),
            (None, None) => {}
        }
        Ok(sealed)
    }

    /// Returns the change that stores a sealed head in place of the service id.
    pub(crate) fn head(&self, head: &SealedHead) -> Result<ServiceIdChange, EncryptionError> {
        let sealed = self.seal(OUTSIDE_MESSAGES, None, HEAD, &json(&head.content))?;
        Ok(ServiceIdChange::Set(sealed.into()))
    }

    fn staged(&self, run: RunId, staged: &Staged) -> Result<Staged, EncryptionError> {
        let mut sealed = staged.clone();
        // An empty text is not sealed, because the inner store deletes the stored text when it
        // receives an empty text.
        if let Some(text) = staged.partial_text.as_ref().filter(|text| !text.is_empty()) {
            let column = partial_text(run);
            sealed.partial_text = Some(self.seal(OUTSIDE_MESSAGES, None, &column, text)?.into());
        }
        Ok(sealed)
    }

    pub(crate) fn row(&self, row: &ToolRecord) -> Result<ToolRecord, EncryptionError> {
        let (at, mut sealed) = (at(row.call), row.clone());
        if let RecordedResult::Apart(result) = &row.result {
            let placeholder = self.result(at, None, RECORDED_RESULT, result, &json(result))?;
            sealed.result = RecordedResult::Apart(Box::new(placeholder));
        }
        let content = json(&SealedRow::of(row, row.error.clone()));
        sealed.error = Some(self.seal(at, None, ROW, &content)?);
        Ok(sealed)
    }
}

impl Opener<'_> {
    /// Opens the next message of a chain, and checks its link to the previous one.
    pub(crate) async fn next_message(
        &mut self,
        chain: &mut Chain,
        sequence: u64,
        envelope: &Message,
    ) -> Result<(Message, Option<Linked>), EncryptionError> {
        let opened = self.message(sequence, envelope).await;
        let Ok((message, linked)) = opened else {
            chain.lose();
            return opened;
        };
        let followed = chain.follow(sequence, envelope.id, linked);
        followed.map_err(|reason| self.not_sealed(Found::in_message(sequence), BODY, reason))?;
        Ok((message, linked))
    }

    /// Opens all messages after the sequence number `before`, and checks that a conversation may
    /// end with them.
    pub(crate) async fn messages<'m>(
        &mut self,
        before: u64,
        chain: &mut Chain,
        envelopes: impl Iterator<Item = &'m Arc<Message>>,
    ) -> Result<Vec<Arc<Message>>, EncryptionError> {
        let messages = self.all_messages(before, chain, envelopes).await?;
        self.check_end(chain, before.saturating_add(messages.len() as u64))?;
        Ok(messages)
    }

    /// Opens all messages after the sequence number `before`.
    pub(crate) async fn all_messages<'m>(
        &mut self,
        before: u64,
        chain: &mut Chain,
        envelopes: impl Iterator<Item = &'m Arc<Message>>,
    ) -> Result<Vec<Arc<Message>>, EncryptionError> {
        let mut messages = Vec::new();
        for (sequence, envelope) in (before.saturating_add(1)..).zip(envelopes) {
            messages.push(Arc::new(self.next_message(chain, sequence, envelope).await?.0));
        }
        Ok(messages)
    }

    /// Checks that a visible conversation may end with the message `last`.
    pub(crate) fn check_end(&self, chain: &Chain, last: u64) -> Result<(), EncryptionError> {
        let ended = chain.check_end(self.committed());
        ended.map_err(|reason| self.not_sealed(Found::in_message(last), BODY, reason))
    }

    pub(crate) async fn row(&mut self, mut row: ToolRecord) -> Result<ToolRecord, EncryptionError> {
        let found = Found::from(at(row.call));
        let sealed = self.sealed_row(found, row.error.as_deref()).await?;
        match sealed {
            Some(sealed) => {
                if SealedRow::of(&row, sealed.error.clone()) != sealed {
                    return Err(self.not_sealed(found, ROW, CHANGED));
                }
                row.error = sealed.error;
            }
            None => row.error = self.former_error(found, row.error.as_deref()).await?,
        }
        if let RecordedResult::Apart(placeholder) = &mut row.result {
            **placeholder = self.result(found, None, RECORDED_RESULT, placeholder).await?.0;
        }
        Ok(row)
    }

    /// Opens the sealed content of a row from its error column; `None` for a row of the first
    /// format, if this format is accepted.
    async fn sealed_row(
        &mut self,
        found: Found,
        error: Option<&str>,
    ) -> Result<Option<SealedRow>, EncryptionError> {
        match error {
            Some(sealed) if is_sealed(sealed) => {
                let opened = self.open(found, None, ROW, sealed).await?;
                self.parsed(found, ROW, &opened.text).map(Some)
            }
            _ if self.accepts_first_format(found.sequence.unwrap_or_default()) => Ok(None),
            _ => Err(self.not_sealed(found, ROW, "it is not encrypted, or has the former format")),
        }
    }

    async fn former_error(
        &mut self,
        found: Found,
        error: Option<&str>,
    ) -> Result<Option<String>, EncryptionError> {
        match error {
            Some(error) => Ok(Some(self.open(found, None, RECORDED_ERROR, error).await?.text)),
            None => Ok(None),
        }
    }

    /// Opens the head that is stored in place of a service id; `None` for a plaintext service id.
    pub(crate) async fn head(
        &mut self,
        service_id: Option<&str>,
    ) -> Result<Option<SealedHead>, EncryptionError> {
        let Some(sealed) = service_id.filter(|id| is_sealed(id)) else { return Ok(None) };
        let opened = self.open(OUTSIDE_MESSAGES.into(), None, HEAD, sealed).await?;
        let content = self.parsed(OUTSIDE_MESSAGES.into(), HEAD, &opened.text)?;
        Ok(opened.life.map(|life| SealedHead { life, content }))
    }

    /// Opens the open run. The opened run gets the service id in `head`, the sealed head of the
    /// run.
    pub(crate) async fn open_run(
        &mut self,
        mut open: OpenRun,
        head: Option<&SealedHead>,
    ) -> Result<OpenRun, EncryptionError> {
        if let Some(text) = &open.partial_text {
            let column = partial_text(open.run);
            let opened = self.open(OUTSIDE_MESSAGES.into(), None, &column, text).await?;
            open.partial_text = Some(opened.text.into());
        }
        if let Some(head) = head {
            open.service_id = head.service_id_change();
        }
        Ok(open)
    }

    /// Opens a call of the record, with its arguments and its result.
    pub(crate) async fn invocation(
        &mut self,
        mut invocation: ToolInvocation,
    ) -> Result<ToolInvocation, EncryptionError> {
        let call =
            SequencePosition { sequence: invocation.sequence, index: invocation.sequence_index };
        let found = Found::from(at(call));
        // In the first format, calls and results were numbered together.
        let in_message = Found::in_message(call.sequence);
        let (asked, opened) =
            self.call(in_message, invocation.message, &invocation.arguments).await?;
        invocation.arguments = asked.arguments;
        if opened.format != Format::First {
            if opened.position != at(call) {
                return Err(self.not_sealed(found, ROW, "it belongs to another call"));
            }
            self.refuse_before(opened.format);
        }
        let Some(row) = self.sealed_row(found, invocation.error.as_deref()).await? else {
            return self.former_invocation(found, invocation).await;
        };
        if !row.describes(&invocation) {
            return Err(self.not_sealed(found, ROW, CHANGED));
        }
        invocation.error = row.error;
        invocation.result = match (row.result, invocation.result) {
            (SealedResult::None, None) => None,
            (SealedResult::Apart, Some(placeholder)) => {
                Some(self.result(found, None, RECORDED_RESULT, &placeholder).await?.0)
            }
            (SealedResult::InMessage(sequence, index), Some(placeholder)) => {
                let in_message = Found::in_message(sequence);
                let (result, opened) = self.result(in_message, None, RESULT, &placeholder).await?;
                if opened.format != Format::First && opened.position.index != u64::from(index) {
                    return Err(self.not_sealed(found, ROW, "its result belongs to another call"));
                }
                Some(result)
            }
            _ => return Err(self.not_sealed(found, ROW, CHANGED)),
        };
        Ok(invocation)
    }

    /// Opens a call in the first format, in which the position of the result is not sealed. For a
    /// result in a message, only the conversation is checked.
    async fn former_invocation(
        &mut self,
        found: Found,
        mut invocation: ToolInvocation,
    ) -> Result<ToolInvocation, EncryptionError> {
        if let Some(placeholder) = &mut invocation.result {
            let apart = self.result(found, None, RECORDED_RESULT, placeholder).await;
            *placeholder = match apart {
                Ok((result, _)) => result,
                Err(EncryptionError::Moved { .. } | EncryptionError::NotOpened { .. }) => {
                    self.result(Found::somewhere(), None, RESULT, placeholder).await?.0
                }
                Err(error) => return Err(error),
            };
        }
        invocation.error = self.former_error(found, invocation.error.as_deref()).await?;
        Ok(invocation)
    }
}

const CHANGED: &str = "the row was changed";

/// The position of a value that is not part of a message.
const OUTSIDE_MESSAGES: Position = Position { sequence: 0, index: 0 };

fn partial_text(run: RunId) -> String {
    format!("partial text of {run}")
}

fn at(call: SequencePosition) -> Position {
    Position { sequence: call.sequence, index: call.index.into() }
}
