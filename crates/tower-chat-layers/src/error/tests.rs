use std::sync::Arc;

use tower_chat_core::{
    BoxError, ContentKind, Finish, MessageId, RefusalMark,
    store::{AddedSummary, StoreError},
};

use super::*;
use crate::{
    ToolLoopError,
    replay::DanglingCallError,
    summarize::SummaryFailure,
    tool_loop::{CallNotRun, ToolFailure},
    transcript::DifferenceKind,
    validate::{Fault, InvalidMessages},
};

#[derive(Debug, thiserror::Error)]
#[error("a layer adds something")]
struct Wrapped(#[source] BoxError);

fn key() -> ConversationKey {
    ConversationKey::new("s", "c")
}

fn away(retryable: bool) -> StoreError {
    StoreError::backend("read", retryable, "away")
}

fn not_stored(source: StoreError) -> PersistenceError {
    let (key, unsaved, answer) = (key(), Vec::new(), None);
    PersistenceError::NotStored(Box::new(NotStored { key, source, unsaved, answer }))
}

fn not_summarized(failure: SummaryFailure) -> PersistenceError {
    PersistenceError::NotSummarized { key: key(), source: failure.classified() }
}

fn answer() -> Box<Answer> {
    Box::new(Answer::new(Vec::new(), Finish::default()))
}

/// Returns the errors that the store, the service or another run causes. The flag is set if the
/// error is retryable.
fn of_surroundings() -> [(PersistenceError, bool); 20] {
    let (run, id) = (RunId::new(), Arc::<str>::from("id"));
    let until = SystemTime::UNIX_EPOCH;
    let (remembered, requested) = (Arc::clone(&id), Arc::clone(&id));
    let (kept, missing, lost) = (Arc::clone(&id), Arc::clone(&id), id);
    let dangling = DanglingCallError { tool: "pay".to_owned(), call_id: "c1".to_owned() };
    [
        (PersistenceError::NotLoaded { key: key(), source: away(true) }, true),
        (PersistenceError::NotLoaded { key: key(), source: away(false) }, false),
        (not_stored(away(true)), true),
        (not_stored(StoreError::ReadOnly), false),
        (
            PersistenceError::ServiceKeepsHistory {
                key: key(),
                service_id: kept,
                answer: answer(),
            },
            false,
        ),
        (PersistenceError::ServiceIdMismatch { key: key(), remembered, requested }, false),
        (
            PersistenceError::ServiceIdMissing {
                key: key(),
                service_id: missing,
                answer: answer(),
            },
            false,
        ),
        (
            PersistenceError::ServiceHistoryLost {
                key: key(),
                service_id: lost,
                is_recorded: true,
                source: as_permanent("gone".into()),
            },
            false,
        ),
        (
            PersistenceError::ContentRefused {
                key: key(),
                mark: RefusalMark::new("s", MessageId { run, index: 0 }, ContentKind::Image),
                is_marked: false,
                source: as_permanent(Retryability::Retryable.into()),
            },
            false,
        ),
        (PersistenceError::RunOvertaken { key: key(), run }, false),
        (PersistenceError::RunUnderWay { key: key(), run }, true),
        (PersistenceError::RunHeld { key: key(), run, holder: 1, until }, true),
        (PersistenceError::OpenRun { key: key(), run }, false),
        (PersistenceError::RunGone { key: key(), run }, false),
        (PersistenceError::NotRecovered { key: key(), run, source: away(true) }, true),
        (PersistenceError::NotRecovered { key: key(), run, source: away(false) }, false),
        (not_summarized(SummaryFailure::NotAdded(AddedSummary::Superseded)), true),
        (not_summarized(SummaryFailure::NoText), false),
        (PersistenceError::RunIdReused { key: key(), run }, false),
        (PersistenceError::Dangling { key: key(), source: dangling }, false),
    ]
}

/// Returns the errors that the request or the stack itself causes.
fn of_request() -> [PersistenceError; 15] {
    let (layer, mode) = ("L", "per-run");
    let difference = TranscriptDifference { position: 0, kind: DifferenceKind::Role };
    let empty = InvalidMessages::of(vec![Fault::NoMessages]).expect_err("a fault");
    let (tool, call_id, reason) = ("pay".to_owned(), "c1".to_owned(), "forgot it".to_owned());
    [
        PersistenceError::NoConversation { layer },
        PersistenceError::PersisterMissing { key: key() },
        PersistenceError::PendingCallNotKept {
            key: key(),
            tool,
            call_id,
            reason,
            answer: answer(),
        },
        PersistenceError::BelowToolLoop { key: key(), layer },
        PersistenceError::RunMissing { key: key(), mode },
        PersistenceError::CitationsAtSave { key: key(), mode: PersistenceMode::Journaled },
        PersistenceError::MissingCapability { key: key(), capability: Capability::Journal },
        PersistenceError::LayerTwice { layer },
        PersistenceError::DifferentStores { key: key() },
        PersistenceError::HistorySentAgain { key: key(), difference },
        PersistenceError::TranscriptRepeated { key: key(), position: 0 },
        PersistenceError::TranscriptDiverged { key: key(), position: 0 },
        PersistenceError::NothingNew { key: key() },
        PersistenceError::MessagesWithContinuation { messages: 1 },
        PersistenceError::EmptyRequest { key: key(), source: empty },
    ]
}

fn of_the_loop() -> [(ToolLoopError, bool); 13] {
    let conversation = || Some(key());
    let calls = || vec![CallNotRun { tool: "pay".to_owned(), call_id: "c1".to_owned() }];
    let (id, ids) = (|| "r1".to_owned(), vec!["r1".to_owned()]);
    let (failures, unknown) = (Vec::new(), Vec::new());
    let failure = ToolFailure {
        tool: "pay".to_owned(),
        call_id: "c1".to_owned(),
        round_index: 0,
        source: "broke".into(),
    };
    let conversation = &conversation;
    [
        (
            ToolLoopError::ConsecutiveFailures {
                rounds: 4,
                failures,
                conversation: conversation(),
            },
            true,
        ),
        (ToolLoopError::ToolFailedRun { failure, conversation: conversation() }, true),
        (ToolLoopError::ApprovalMissing { ids, conversation: conversation() }, false),
        (ToolLoopError::ApprovalAnswered { id: id(), conversation: conversation() }, false),
        (ToolLoopError::ApprovalUnknown { id: id(), conversation: conversation() }, false),
        (
            ToolLoopError::ApprovalHeld {
                id: id(),
                until: SystemTime::UNIX_EPOCH,
                conversation: conversation(),
            },
            true,
        ),
        (ToolLoopError::ApprovalContradicted { id: id(), conversation: conversation() }, false),
        (ToolLoopError::ResultsMissing { calls: calls(), conversation: conversation() }, false),
        (ToolLoopError::ArgumentsNotKept { calls: calls(), conversation: conversation() }, false),
        (ToolLoopError::UnknownCalls { calls: unknown, conversation: conversation() }, false),
        (ToolLoopError::TooManyCalls { calls: 2, limit: 1, conversation: conversation() }, false),
        (ToolLoopError::PersisterAbove { conversation: conversation() }, false),
        (ToolLoopError::PerRunPersistenceBelow { conversation: conversation() }, false),
    ]
}

#[test]
fn every_error_is_classified_as_retryable_or_permanent_even_inside_of_another_error() {
    let permanent = of_request().into_iter().map(|error| (error, false));
    for (error, expected) in of_surroundings().into_iter().chain(permanent) {
        assert_eq!(error.is_retryable(), expected, "{error}");
        assert_eq!(is_retryable(&error), Some(expected), "{error}");
        assert_eq!(is_retryable(&Wrapped(error.into())), Some(expected));
    }
    for (error, expected) in of_the_loop() {
        assert_eq!(error.is_retryable(), expected, "{error}");
        assert_eq!(is_retryable(&error), Some(expected), "{error}");
        assert_eq!(is_retryable(&Wrapped(error.into())), Some(expected));
    }
}
