//! Tests of the rules that all stores share: writes to open runs, pruning, and matching of queries.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId, ToolStatus,
    store::{
        ConversationQuery, ConversationState, ConversationSummary, Description, DirectoryCursor,
        Head, InvocationQuery, Keep, Lease, LeaseEnd, OpenRun, Revision, SequencePosition,
        StoreError, StoreHandle, UsageSum,
        author::{Close, Pruning, Staged, Write},
    },
};

fn run(number: u8) -> RunId {
    RunId::from_bytes([number; 16])
}

fn lease(attempt: u32, holder: u64) -> Lease {
    Lease { attempt, holder, renewed_at: UNIX_EPOCH, until: LeaseEnd::NotHeld }
}

fn staged(lease: Lease, close: Option<Close>) -> Staged {
    Staged { lease, close, service_id: None, partial_text: None }
}

#[test]
fn an_open_run_accepts_writes_of_its_holder_and_of_later_attempts() {
    let open = OpenRun::new(run(1), lease(3, 7), 9);
    let discard = |visible| Some(Close::Discard { visible });
    for (attempt, holder, close, is_admitted) in [
        (3, 7, None, true),
        (3, 7, Some(Close::Commit), true),
        (3, 8, None, false),
        (2, 7, None, false),
        (2, 8, None, false),
        (4, 8, None, true),
        (4, 7, None, true),
        (3, 7, discard(9), true),
        (3, 7, discard(8), false),
        (4, 8, discard(10), false),
    ] {
        let write = staged(lease(attempt, holder), close);
        assert_eq!(open.admits(run(1), &write), is_admitted, "{attempt} {holder} {close:?}");
        assert!(!open.admits(run(2), &write), "{attempt} {holder} {close:?}");
    }
}

#[test]
fn a_store_handle_reports_whether_only_one_process_opens_its_store() {
    assert!(StoreHandle::exclusive().is_exclusive());
    assert!(!StoreHandle::new().is_exclusive());
    assert!(!StoreHandle::with_outbox_limit(3).is_exclusive());
}

#[test]
fn a_new_incarnation_is_never_zero_and_never_equals_the_old_incarnation() {
    let mut seen = Vec::new();
    for incarnation in [1, 2, 1 << 63, u64::MAX, 0x1234_5678] {
        let revision = Revision { incarnation, sequence: 4 };
        // If the new incarnation were a plain XOR of two numbers, the last two holders would result
        // in the incarnation 0 and in the previous incarnation.
        let holders = [0, 5, incarnation.rotate_left(1), incarnation.rotate_left(1) ^ incarnation];
        let taken = holders.map(|holder| revision.taken_by(holder));
        for next in taken.into_iter().chain([revision.pruned(), revision.rewritten()]) {
            assert_ne!(next.incarnation, 0, "{incarnation}");
            assert_ne!(next.incarnation, incarnation);
            assert_eq!(next.sequence, 4);
        }
        seen.push(taken[1].incarnation);
        assert_ne!(revision.pruned(), revision.pruned());
    }
    seen.dedup();
    assert_eq!(seen.len(), 5, "{seen:?}");
}

#[test]
fn only_the_commit_of_a_later_attempt_creates_a_new_incarnation() {
    let at = Revision { incarnation: 5, sequence: 2 };
    let id = MessageId { run: run(3), index: 0 };
    let result = |attempt, close| {
        let key = ConversationKey::new("alice", "commits");
        Write::new(key, id, at, [Message::user("hi").into()])
            .staged(staged(lease(attempt, 9), close))
            .result()
    };
    let after = Revision { incarnation: 5, sequence: 3 };
    assert_eq!(result(1, Some(Close::Commit)), after);
    assert_eq!(result(2, None), after);
    assert_eq!(result(2, Some(Close::Commit)), after.back_to(3, run(3)));
    assert_ne!(result(2, Some(Close::Commit)), after);
    assert_eq!(result(1, Some(Close::Discard { visible: 1 })), after.back_to(1, run(3)));
}

/// Returns a pruning that keeps the last message. The conversation has three runs of two messages
/// each.
fn pruning() -> Pruning {
    let key = ConversationKey::new("alice", "pruned");
    let head = Head::new(Revision { incarnation: 1, sequence: 6 });
    let mut pruning = Pruning::new(&key, &head, Keep::Messages(1));
    for sequence in 1..=6 {
        pruning.see_message(sequence, run(u8::try_from(sequence.div_ceil(2)).expect("few runs")));
    }
    pruning
}

#[test]
fn a_prune_fails_with_a_corruption_error_if_a_call_has_no_message() {
    let call = |sequence| SequencePosition { sequence, index: 0 };
    for sequence in [1, 6] {
        let mut pruning = pruning();
        pruning.see_call(call(sequence), ToolStatus::Ok, None);
        assert_eq!(pruning.cut().expect("it is whole").last_sequence, 4, "{sequence}");
    }
    for sequence in [0, 7] {
        let mut pruning = pruning();
        pruning.see_call(call(sequence), ToolStatus::Ok, None);
        let damage = pruning.cut().expect_err("there is no such message");
        assert!(matches!(damage, StoreError::Corrupt { .. }), "{damage}");
    }
}

#[test]
fn a_call_that_waits_for_approval_prevents_the_prune_of_its_run_and_of_later_runs() {
    for (sequence, last, runs) in [(1, 0, 0), (3, 2, 1), (4, 2, 1), (6, 4, 2)] {
        let waiting = SequencePosition { sequence, index: 1 };
        let mut pruning = pruning();
        pruning.see_call(waiting, ToolStatus::PendingApproval, None);
        let cut = pruning.cut().expect("it is whole");
        assert_eq!((cut.last_sequence, cut.pruned.runs, cut.pruned.messages), (last, runs, last));
        // The cut reports the waiting call only if the prune would otherwise delete the run of this
        // call.
        assert_eq!(cut.pruned.held_back_by, (sequence <= 4).then_some(waiting));
    }
}

fn time(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

#[test]
fn a_conversation_matches_a_query_only_if_it_matches_every_filter() {
    let key = ConversationKey::new("alice", "fits");
    let mut summary = ConversationSummary::new(key.clone(), &Head::new(Revision::ABSENT), time(20));
    summary.created_at = time(10);
    summary.description = Description::new()
        .with_metadata([("team".to_owned(), "blue".into())].into_iter().collect())
        .expect("little");
    let alice = || ConversationQuery::in_scope("alice");
    let cursor = |milliseconds| DirectoryCursor::new(milliseconds, key.clone());
    let state = summary.state;
    let other =
        ConversationState::ALL.into_iter().find(|other| *other != state).expect("another state");
    for (query, fits) in [
        (alice(), true),
        (ConversationQuery::in_all_scopes(), true),
        (ConversationQuery::in_scope("bob"), false),
        (alice().active_since(time(20)), true),
        (alice().active_since(time(21)), false),
        (alice().active_before(time(20)), false),
        (alice().active_before(time(21)), true),
        (alice().created_since(time(10)), true),
        (alice().created_since(time(11)), false),
        (alice().created_before(time(10)), false),
        (alice().created_before(time(11)), true),
        (alice().in_state(state), true),
        (alice().in_state(other), false),
        (alice().with_metadata("team", "blue"), true),
        (alice().with_metadata("team", "red"), false),
        (alice().after(cursor(20_001)), true),
        (alice().after(cursor(20_000)), false),
        (alice().after(cursor(19_999)), false),
    ] {
        assert_eq!(query.fits(&summary), fits, "{query:?}");
    }
    assert_eq!(cursor(-7).last_active_milliseconds(), -7);
}

#[test]
fn usage_counts_service_calls_and_tool_calls_separately() {
    let sum = UsageSum::of_calls(2, 3);
    assert_eq!((sum.service_calls, sum.tool_calls), (2, 3));
}

#[test]
fn an_invocation_query_of_a_conversation_contains_its_scope_and_its_id() {
    let query = InvocationQuery::of(&ConversationKey::new("alice", "calls"));
    assert_eq!((query.scope.as_str(), query.conversation.as_deref()), ("alice", Some("calls")));
}
