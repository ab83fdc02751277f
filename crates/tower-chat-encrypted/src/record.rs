//! What is sealed in the record of tool calls, in open runs, and in whole writes.

use std::sync::Arc;

use tower_chat_core::{
    Message, RunId, ToolInvocation,
    store::{CallPlace, OpenRun, RecordedResult, Staged, ToolRecord, Write},
};

use crate::{
    EncryptionError,
    envelope::RESULT,
    seal::{Found, Opener, Place, Sealer},
};

const RECORDED_RESULT: &str = "recorded result";
const RECORDED_ERROR: &str = "recorded error";

impl Sealer {
    /// The write as the store inside gets it.
    pub(crate) fn write(&self, write: &Write) -> Result<Write, EncryptionError> {
        let first = write.expected().sequence + 1;
        let messages = (first..).zip(write.messages());
        let messages = messages
            .map(|(sequence, message)| Ok(Arc::new(self.message(sequence, message)?)))
            .collect::<Result<Vec<_>, EncryptionError>>()?;
        let tools = write.tools().iter().map(|row| self.row(row)).collect::<Result<_, _>>()?;
        let mut sealed = Write::new(write.key().clone(), write.id(), write.expected(), messages)
            .with_tools(tools)
            .with_claims(write.claims().to_vec());
        if let Some(change) = write.service_id() {
            sealed = sealed.with_service_id(change.clone());
        }
        if let Some(staged) = write.as_staged() {
            sealed = sealed.staged(self.staged(write.run(), staged)?);
            if write.begins_attempt() {
                sealed = sealed.beginning_attempt();
            }
        }
        Ok(sealed)
    }

    fn staged(&self, run: RunId, staged: &Staged) -> Result<Staged, EncryptionError> {
        let mut sealed = staged.clone();
        // An empty text forgets what was kept, which the store inside has to see.
        if let Some(text) = staged.partial_text.as_ref().filter(|text| !text.is_empty()) {
            let column = partial_text(run);
            sealed.partial_text = Some(self.seal(NOWHERE, &column, text)?.into());
        }
        Ok(sealed)
    }

    fn row(&self, row: &ToolRecord) -> Result<ToolRecord, EncryptionError> {
        let (at, mut sealed) = (at(row.call), row.clone());
        if let RecordedResult::Apart(result) = &row.result {
            let shell = self.result(at, RECORDED_RESULT, result)?;
            sealed.result = RecordedResult::Apart(Box::new(shell));
        }
        if let Some(error) = &row.error {
            sealed.error = Some(self.seal(at, RECORDED_ERROR, error)?);
        }
        Ok(sealed)
    }
}

impl Opener<'_> {
    /// Messages that follow the first `before` of their conversation.
    pub(crate) async fn messages<'m>(
        &mut self,
        before: u64,
        envelopes: impl Iterator<Item = &'m Arc<Message>>,
    ) -> Result<Vec<Arc<Message>>, EncryptionError> {
        let mut messages = Vec::new();
        for (sequence, envelope) in (before + 1..).zip(envelopes) {
            messages.push(Arc::new(self.message(sequence, envelope).await?));
        }
        Ok(messages)
    }

    pub(crate) async fn row(&mut self, mut row: ToolRecord) -> Result<ToolRecord, EncryptionError> {
        let found = Found::from(at(row.call));
        if let RecordedResult::Apart(shell) = &mut row.result {
            **shell = self.result(found, RECORDED_RESULT, shell).await?;
        }
        if let Some(error) = &mut row.error {
            *error = self.open(found, RECORDED_ERROR, error).await?;
        }
        Ok(row)
    }

    pub(crate) async fn open_run(&mut self, mut open: OpenRun) -> Result<OpenRun, EncryptionError> {
        if let Some(text) = &open.partial_text {
            let opened = self.open(NOWHERE.into(), &partial_text(open.run), text).await?;
            open.partial_text = Some(opened.into());
        }
        Ok(open)
    }

    /// A call of the record with what its messages hold. Where a result stands is not told by the
    /// record's answer, so of its place only the conversation is checked here.
    pub(crate) async fn invocation(
        &mut self,
        mut invocation: ToolInvocation,
    ) -> Result<ToolInvocation, EncryptionError> {
        let call = CallPlace { sequence: invocation.sequence, index: invocation.sequence_index };
        let found = Found::from(at(call));
        let in_message = Found::in_message(call.sequence);
        invocation.arguments = self.call(in_message, &invocation.arguments).await?.arguments;
        if let Some(shell) = &mut invocation.result {
            let apart = self.result(found, RECORDED_RESULT, shell).await;
            *shell = match apart {
                Ok(result) => result,
                Err(EncryptionError::Moved { .. } | EncryptionError::NotOpened { .. }) => {
                    self.result(Found::somewhere(), RESULT, shell).await?
                }
                Err(error) => return Err(error),
            };
        }
        if let Some(error) = &mut invocation.error {
            *error = self.open(found, RECORDED_ERROR, error).await?;
        }
        Ok(invocation)
    }
}

/// The place of what belongs to no message.
const NOWHERE: Place = Place { sequence: 0, index: 0 };

fn partial_text(run: RunId) -> String {
    format!("partial text of {run}")
}

fn at(call: CallPlace) -> Place {
    Place { sequence: call.sequence, index: call.index.into() }
}
