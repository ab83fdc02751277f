//! Implements `--attach`: follows a run that another process executes.
//!
//! The other process writes the deltas and messages of the run to an update log, which this command
//! reads. An *attempt* is one execution of the run.

use std::process::ExitCode;

use tower_chat::{ChatUpdate, ConversationKey, run::RunId};
use tower_chat_delivery::{
    DeliveryError, DetachedRunsLayer, RunEnd, RunEvent, RunKey, RunReader, UpdateLogError,
    UpdatePosition,
};

use super::{
    ChatArguments, ChatError,
    interrupts::Interrupts,
    report::notes_of,
    scope,
    screen::{Screen, ScreenOptions},
    turn::Printer,
};
use crate::error::CliError;

/// Prints the updates of a run until the run ends.
pub(super) async fn attach(
    arguments: &ChatArguments,
    run: RunId,
    mut interrupts: Interrupts,
) -> Result<ExitCode, CliError> {
    let name = arguments.name.as_deref().ok_or(ChatError::NoConversation)?;
    let run = RunKey::new(ConversationKey::new(scope(arguments), name), run);
    let location = arguments.updates.clone().unwrap_or_else(|| arguments.store.updates());
    let runs = DetachedRunsLayer::new(location.open_updates().await?);
    let reader = runs.attach(&run, UpdatePosition::START).await.map_err(not_followed)?;
    let options = ScreenOptions { reasoning: arguments.reasoning, has_prompt: false };
    let mut printer = Printer::of_other_process(Screen::new(options));
    let code = follow(reader, &mut printer, arguments.verbose, &mut interrupts).await?;
    printer.screen.finish().map_err(ChatError::Output)?;
    Ok(code)
}

async fn follow(
    mut reader: RunReader,
    printer: &mut Printer,
    is_verbose: bool,
    interrupts: &mut Interrupts,
) -> Result<ExitCode, ChatError> {
    while printer.screen.is_open() {
        let event = tokio::select! {
            biased;
            () = interrupts.next() => {
                printer.screen.note("the command no longer follows the run, which continues");
                return Ok(ExitCode::from(130));
            }
            event = reader.next() => event,
        };
        match event {
            Some(Ok(RunEvent::Update { update: ChatUpdate::Finish(finish), .. })) => {
                notes_of(&finish, is_verbose).iter().for_each(|note| printer.screen.note(note));
            }
            Some(Ok(RunEvent::Update { update, .. })) => printer.print_update(update),
            Some(Ok(RunEvent::Restarted { attempt, .. })) => {
                printer.restart();
                printer.screen.note(&format!(
                    "attempt {attempt} continues the run; the text of the unfinished message begins anew"
                ));
            }
            Some(Ok(RunEvent::Ended(end))) => return Ok(ended(&end, printer)),
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                printer.screen.end_line();
                return Err(not_followed(error));
            }
            None => break,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints how the run has ended, and returns the exit code.
fn ended(end: &RunEnd, printer: &mut Printer) -> ExitCode {
    let note = match end {
        RunEnd::Completed => return ExitCode::SUCCESS,
        RunEnd::Failed { message } => format!("the run has failed: {message}"),
        RunEnd::Interrupted => {
            "the run was interrupted, because its process has died or has lost the update log; \
             print its stored messages with `tower-chat show`"
                .to_owned()
        }
        RunEnd::Truncated => {
            "the run is complete, but the update log lacks its last updates; print its stored messages with \
             `tower-chat show`"
                .to_owned()
        }
        _ => "the run has ended in a way that this release does not know".to_owned(),
    };
    printer.screen.note(&note);
    ExitCode::FAILURE
}

fn not_followed(error: DeliveryError) -> ChatError {
    match error {
        DeliveryError::UnknownRun { run } => ChatError::UnknownRun { run },
        DeliveryError::Log(error @ UpdateLogError::Undecodable { .. }) => {
            ChatError::UnreadableUpdates(error)
        }
        other => ChatError::Follow(other),
    }
}
