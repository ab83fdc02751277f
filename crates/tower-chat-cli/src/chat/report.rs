//! Prints messages about a run after the run has ended.

use tower_chat::{
    Finish, Role,
    request::{EndedBy, FinishReason},
    run::RunId,
    store::{Directory, StoreError},
};

use super::{
    error::ChatError,
    session::Session,
    stored::{stored_of_run, title_of},
};

impl Session {
    /// Prints notes about the end of an answer, such as that the answer was cut off.
    pub(super) fn report_finish(&mut self, finish: &Finish) {
        for note in notes_of(finish, self.settings.is_verbose) {
            self.note(&note);
        }
    }

    /// Prints which messages of an interrupted run are stored.
    pub(super) async fn report_interrupted(&mut self, run: RunId) -> Result<(), ChatError> {
        match self.stored_of(run).await? {
            Some(stored) => self.note(&format!("interrupted; stored of this run: {stored}")),
            None => self.note("interrupted; nothing of this run is stored"),
        }
        Ok(())
    }

    /// Returns which messages of a failed run are stored, and what the user can do.
    pub(super) async fn report_of_failure(&mut self, run: RunId) -> Result<String, ChatError> {
        let stored = self.stored_of(run).await?;
        let is_open = self.head().await?.open_run.is_some_and(|open| open.run == run);
        let is_asked = self.input.is_terminal();
        Ok(match (is_open, stored) {
            (true, _) if is_asked => {
                "the messages before the failure are stored: /retry continues the run, and a new message \
                 begins another run"
                    .to_owned()
            }
            (true, _) => {
                "the messages before the failure are stored: start the same chat again to continue the run"
                    .to_owned()
            }
            (false, Some(stored)) if is_asked => {
                format!("stored of this run: {stored}; /retry continues it")
            }
            (false, Some(stored)) => format!("stored of this run: {stored}"),
            (false, None) if is_asked => {
                "nothing of this run is stored; /retry sends the message again".to_owned()
            }
            (false, None) => "nothing of this run is stored".to_owned(),
        })
    }

    /// Returns a description of the stored messages of a run.
    async fn stored_of(&self, run: RunId) -> Result<Option<String>, ChatError> {
        // A run whose response was dropped has submitted its writes without waiting for them.
        self.store.flush().await.map_err(ChatError::Flush)?;
        let history = self.store.load(&self.settings.key).await;
        let history = history.map_err(|source| self.not_read(source))?;
        Ok(stored_of_run(history.messages.iter(), run))
    }

    /// Sets the title to the beginning of the user's first message, unless there is a title.
    pub(super) async fn set_title(&mut self) -> Result<(), ChatError> {
        if self.has_title {
            return Ok(());
        }
        let key = &self.settings.key;
        let not_set = |source| ChatError::Title { key: key.clone(), source };
        let summary = match self.store.summary(key).await {
            Ok(Some(summary)) => summary,
            Ok(None) => return Ok(()),
            Err(StoreError::MissingCapability { .. }) => {
                self.has_title = true;
                return Ok(());
            }
            Err(error) => return Err(not_set(error)),
        };
        if summary.description.title().is_some() {
            self.has_title = true;
            return Ok(());
        }
        let history = self.store.load(key).await.map_err(|source| self.not_read(source))?;
        let mut questions = history.messages.iter().filter(|it| it.role == Role::User);
        let Some(title) = questions.find_map(|question| title_of(&question.text())) else {
            return Ok(());
        };
        let Ok(description) = summary.description.with_title(title) else { return Ok(()) };
        match self.store.set_description(key, &description, summary.description_version).await {
            // Another program has set a description at the same time.
            Ok(_) | Err(StoreError::DescriptionChanged { .. }) => self.has_title = true,
            Err(error) => return Err(not_set(error)),
        }
        Ok(())
    }

    pub(super) fn not_read(&self, source: StoreError) -> ChatError {
        ChatError::Load { key: self.settings.key.clone(), source }
    }
}

pub(super) fn notes_of(finish: &Finish, is_verbose: bool) -> Vec<String> {
    let mut notes = Vec::new();
    match &finish.reason {
        Some(FinishReason::Length) => {
            notes.push("the answer was cut off at its limit of tokens (--max-tokens)".to_owned());
        }
        Some(FinishReason::ContentFilter) => {
            notes.push("a content filter of the provider ended the answer".to_owned());
        }
        _ => {}
    }
    if finish.ended_by == Some(EndedBy::RoundLimit) {
        notes.push(
            "the run has ended, because the model has reached the maximum number of tool rounds for one message"
                .to_owned(),
        );
    }
    if is_verbose {
        let usage = &finish.usage;
        let part = |count: u64, name: &str| match count {
            0 => String::new(),
            count => format!(" ({count} {name})"),
        };
        let cached = part(usage.cached_input_tokens, "from the provider's cache");
        let reasoning = part(usage.reasoning_tokens, "of reasoning");
        let model = finish.model.as_ref().map_or(String::new(), |model| format!("{model}: "));
        notes.push(format!(
            "{model}{} tokens read{cached}, {} written{reasoning}",
            usage.input_tokens, usage.output_tokens
        ));
    }
    notes
}
