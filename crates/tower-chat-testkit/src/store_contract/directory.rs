//! The rules for the [directory](Directory) of conversations, which has their times, counts and
//! usage, and for their [descriptions](Description). A staged write belongs to an open run, which
//! is later committed or discarded.

use std::{sync::Arc, time::SystemTime};

use serde_json::{Map, Value, json};
use tower_chat_core::{
    ApprovalRequest, ConversationKey, Message, MessageId, Part, PersistenceMode, Role, RunId,
    ToolCall, ToolStatus, Usage,
    store::{
        Capability, ConversationQuery, ConversationState, ConversationSummary, Description,
        DescriptionPatch, Directory, HistoryStore, Keep, Maintenance, MessagePage, ModelUsage,
        Revision, RunActivity, StoreError, UsageGrouping, UsageQuery, UsageSum, author::Write,
    },
};

use super::{
    Store,
    fixture::{
        StagedRun, acknowledged, asking, at, commit, discard, key, lacks, pending, revision,
        staging, stored, texts, write, write_messages,
    },
};

/// Returns the usage of one service call of a model.
pub(super) fn used(model: &str, tokens: u64) -> ModelUsage {
    let mut tokens = Usage::new(tokens, tokens + 1);
    tokens.cached_input_tokens = tokens.input_tokens / 2;
    tokens.reasoning_tokens = tokens.output_tokens / 3;
    let sum = UsageSum::of_calls(1, 2).with_tokens(tokens).with_cost_nanos(tokens.input_tokens);
    ModelUsage::new(Some(model.into()), sum)
}

pub(super) fn sum_of<'a>(usage: impl IntoIterator<Item = &'a ModelUsage>) -> UsageSum {
    let mut sum = UsageSum::default();
    usage.into_iter().for_each(|usage| sum += &usage.sum);
    sum
}

/// Returns the activity of a run at a time in milliseconds since 1970.
pub(super) fn activity(milliseconds: u64, usage: &[ModelUsage]) -> RunActivity {
    RunActivity::new(at(milliseconds)).with_usage(usage.iter().cloned())
}

/// Returns a write with one user message. `id` is the id of the message.
pub(super) fn write_of(key: &ConversationKey, id: MessageId, at: Revision, text: &str) -> Write {
    Write::new(key.clone(), id, at, [Arc::new(Message::user(text))])
}

pub(super) fn id(run: RunId, index: u32) -> MessageId {
    MessageId { run, index }
}

/// Returns the summary of a conversation, which must also be in the list of conversations.
pub(super) async fn summary(store: &Store, key: &ConversationKey) -> ConversationSummary {
    let summary = store
        .summary(key)
        .await
        .expect("the summary is read")
        .expect("the conversation is in the directory");
    let query = ConversationQuery::in_scope(key.scope()).with_limit(10_000);
    let page = store.conversations(&query).await.expect("the page of conversations is read");
    assert_eq!((page.unreadable, page.next), (Vec::new(), None));
    let listed = page.conversations.into_iter().find(|listed| &listed.key == key);
    assert_eq!(listed.as_ref(), Some(&summary), "the list and the summary agree");
    summary
}

async fn has_entry(store: &Store, key: &ConversationKey) -> bool {
    let summary = store.summary(key).await.expect("the summary is read");
    let query = ConversationQuery::in_all_scopes().with_limit(10_000);
    let listed =
        store.conversations(&query).await.expect("the page of conversations is read").conversations;
    let is_listed = listed.iter().any(|listed| &listed.key == key);
    assert_eq!(summary.is_some(), is_listed, "the list and the summary agree");
    is_listed
}

pub(super) fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().expect("the value is an object")
}

/// Returns metadata with the maximum number of levels of nesting.
fn deepest() -> Map<String, Value> {
    let inner = (2..Description::NESTING_LIMIT).fold(json!([7]), |inner, _| json!([inner]));
    object(json!({ "deep": inner }))
}

fn described(title: &str, metadata: Value) -> Description {
    let description = Description::new().with_title(title).expect("the title is short enough");
    description.with_metadata(object(metadata)).expect("the metadata are small enough")
}

/// The first write of a run contains the time at which the request arrived. The directory returns
/// this time as the start of the run, and later writes do not change it.
pub async fn a_run_begins_when_its_request_arrived(store: Store) {
    let key = key("arrived before it was written");
    let run = RunId::from_bytes([0xa7; 16]);
    let activity_of =
        |written, arrived| activity(written, &[used("a model", 7)]).with_start(at(arrived));
    let mut revision = Revision::ABSENT;
    for (index, (written, arrived)) in (0..).zip([(9_000, 4_000), (12_000, 11_000)]) {
        let write = write_of(&key, id(run, index), revision, "text");
        revision = stored(&store, write.with_activity(activity_of(written, arrived))).await;
    }
    let runs = store.runs(&key, None, 10).await.expect("the runs are read");
    let times = runs.iter().map(|run| (run.started_at(), run.last_written_at));
    assert_eq!(times.collect::<Vec<_>>(), [(at(4_000), at(12_000))]);
    let summary = summary(&store, &key).await;
    assert_eq!((summary.created_at, summary.last_active_at), (at(4_000), at(12_000)));
    // Without the time at which the request arrived, the run begins at the time of its first write.
    let other = write_of(&key, id(RunId::new(), 0), revision, "text");
    stored(&store, other.with_activity(activity(20_000, &[]))).await;
    let runs = store.runs(&key, None, 10).await.expect("the runs are read");
    assert!(runs.iter().any(|run| run.started_at() == at(20_000)));
}

/// The directory contains a conversation from its first write on. The entry contains the times of
/// the first and the last write, the last mode that a write has named, and the number of runs.
pub async fn the_directory_has_a_conversation_from_its_first_write_on(store: Store) {
    let key = key("described by its writes");
    assert!(!has_entry(&store, &key).await);
    assert_eq!(store.runs(&key, None, 10).await.expect("the runs are read"), []);
    let [first, second] = [RunId::new(), RunId::new()];
    let write = |run, index, at, text: &str| write_of(&key, id(run, index), at, text);
    let begun = activity(2_000_000_000_123, &[]).with_mode(PersistenceMode::PerServiceCall);
    let revision =
        stored(&store, write(first, 0, Revision::ABSENT, "a").with_activity(begun)).await;
    let now = summary(&store, &key).await;
    let expected = [at(2_000_000_000_123); 2];
    assert_eq!([now.created_at, now.last_active_at], expected);
    assert_eq!((now.messages, now.runs, now.description_version), (1, 1, 0));
    assert_eq!((now.usage, now.state), (UsageSum::default(), ConversationState::Idle));
    assert_eq!(now.last_mode, Some(PersistenceMode::PerServiceCall));
    assert!(now.description.is_empty());

    let earlier = activity(2_000_000_000_122, &[]);
    let revision = stored(&store, write(second, 0, revision, "b").with_activity(earlier)).await;
    let now = summary(&store, &key).await;
    assert_eq!([now.created_at, now.last_active_at], expected, "the clock was set back");
    assert_eq!((now.messages, now.runs), (2, 2));
    assert_eq!(now.last_mode, Some(PersistenceMode::PerServiceCall), "later writes had no mode");

    let later = activity(2_000_000_000_124, &[]).with_mode(PersistenceMode::Journaled);
    let revision = stored(&store, write(second, 1, revision, "c").with_activity(later)).await;
    let now = summary(&store, &key).await;
    assert_eq!([now.created_at, now.last_active_at], [expected[0], at(2_000_000_000_124)]);
    assert_eq!((now.messages, now.runs), (3, 2), "it is the same run");
    assert_eq!(now.last_mode, Some(PersistenceMode::Journaled));
    stored(&store, write(first, 1, revision, "d").with_activity(activity(0, &[]))).await;
    assert_eq!(summary(&store, &key).await.runs, 3, "another run was written in between");
}

/// If the caller sets no [`RunActivity`], the directory uses the time at which the write was made,
/// and counts the tool calls in its messages as usage. A write without messages whose activity was
/// removed belongs to no run, and does not change the entry.
pub async fn a_write_tells_when_it_was_made_and_which_tools_it_asks_for(store: Store) {
    let key = key("nothing is said");
    let before = SystemTime::now();
    let plain = write_messages(&key, Revision::ABSENT, [asking(&["a", "b"]), asking(&["c"])]);
    let revision = stored(&store, plain).await;
    let now = summary(&store, &key).await;
    let millisecond = std::time::Duration::from_millis(1);
    assert!(now.created_at + millisecond >= before, "{:?}", now.created_at);
    assert!(now.last_active_at <= SystemTime::now());
    assert_eq!((now.usage, now.last_mode), (UsageSum::of_calls(0, 3), None));
    let of_no_run = write_messages(&key, revision, []).without_activity();
    stored(&store, of_no_run).await;
    assert_eq!(summary(&store, &key).await, now);
}

/// The directory adds up usage for each run and model. A repeated write, and a write without
/// messages, add no usage.
pub async fn usage_is_added_up_once(store: Store) {
    let key = key("usage");
    let run = RunId::new();
    let usage = [used("b", 100), used("a", 10), used("b", 1000)];
    let first = write_of(&key, id(run, 0), Revision::ABSENT, "question")
        .with_activity(activity(5, &[]).with_mode(PersistenceMode::PerRun));
    let at_first = stored(&store, first.clone()).await;
    let second = write_of(&key, id(run, 1), at_first, "answer")
        .with_activity(activity(7, &usage[..2]).with_mode(PersistenceMode::PerServiceCall));
    let at_second = stored(&store, second.clone()).await;
    let third = write_of(&key, id(run, 2), at_second, "another answer")
        .with_activity(activity(9, &usage[2..]));
    let at_third = stored(&store, third.clone()).await;
    let without_messages = Write::new(key.clone(), id(run, 3), at_third, [])
        .with_activity(activity(11, &[used("c", 5)]));
    for write in [&first, &second, &third, &without_messages, &without_messages, &third] {
        acknowledged(&store, write).await;
    }
    let now = summary(&store, &key).await;
    assert_eq!((now.usage, now.runs), (sum_of(&usage), 1));
    assert_eq!(now.usage.cost_nanos, Some(1110));
    let runs = store.runs(&key, None, 10).await.expect("the runs are read");
    let [found] = &runs[..] else { panic!("expected 1 run, not {runs:?}") };
    assert_eq!((found.run, found.is_open), (run, false));
    assert_eq!([found.began_at, found.last_written_at], [at(5), at(11)]);
    let mut of_b = usage[0].clone();
    of_b.sum += &usage[2].sum;
    assert_eq!(found.usage, [usage[1].clone(), of_b]);
    let conflict = write_of(&key, id(RunId::new(), 0), at_first, "refused");
    super::fixture::refused(&store, conflict.with_activity(activity(99, &[used("d", 7)]))).await;
    assert_eq!(summary(&store, &key).await, now, "a refused write adds nothing");
}

/// A count has a largest value, which every store can represent. A sum that would exceed this value
/// is stored as this value.
pub async fn usage_stops_at_the_largest_count(store: Store) {
    let key = key("much usage");
    let tokens = Usage::new(u64::MAX, u64::MAX);
    let sum = UsageSum::of_calls(u64::MAX, u64::MAX).with_tokens(tokens).with_cost_nanos(u64::MAX);
    let usage = [ModelUsage::new(None, sum)];
    let mut revision = Revision::ABSENT;
    let run = RunId::new();
    for (index, text) in (0..).zip(["first", "second", "third"]) {
        let write = write_of(&key, id(run, index), revision, text);
        revision = stored(&store, write.with_activity(activity(3, &usage))).await;
    }
    let mut largest = sum;
    largest += &sum;
    assert_eq!(summary(&store, &key).await.usage, largest);
    let totals =
        store.usage(&UsageQuery::of(&key, UsageGrouping::Run)).await.expect("the totals are read");
    assert_eq!(totals.iter().map(|total| total.sum).collect::<Vec<_>>(), [largest]);
}

/// The directory includes the activity of staged writes immediately. A discard decrements the
/// number of runs, but does not change the usage, because the service calls were paid for.
pub async fn staged_runs_are_in_the_directory_at_once(store: Store) {
    if lacks(&store, &[Capability::Journal]) {
        return;
    }
    let [committed, discarded] = [key("committed"), key("discarded")];
    for key in [&committed, &discarded] {
        let mut run = StagedRun::new(key, Revision::ABSENT);
        let input = activity(10, &[]).with_mode(PersistenceMode::Journaled);
        stored(&store, run.text(staging(1), "question").with_activity(input)).await;
        let answer = run.text(staging(1), "answer").with_activity(activity(20, &[used("m", 50)]));
        stored(&store, answer.clone()).await;
        acknowledged(&store, &answer).await;
        let open = summary(&store, key).await;
        assert_eq!((open.messages, open.runs, open.state), (0, 1, ConversationState::RunOpen));
        assert_eq!([open.created_at, open.last_active_at], [at(10), at(20)]);
        assert_eq!(
            (open.usage, open.last_mode),
            (used("m", 50).sum, Some(PersistenceMode::Journaled))
        );
        let runs = store.runs(key, None, 10).await.expect("the runs are read");
        assert_eq!(
            runs.iter().map(|it| (it.run, it.is_open)).collect::<Vec<_>>(),
            [(run.run, true)]
        );
        let is_committed = key == &committed;
        let end = if is_committed { commit(1) } else { discard(1, 0) };
        let end = run.write(end, []).with_activity(activity(30, &[]));
        stored(&store, end.clone()).await;
        acknowledged(&store, &end).await;
        let closed = summary(&store, key).await;
        let counts = if is_committed { (2, 1) } else { (0, 0) };
        assert_eq!((closed.messages, closed.runs), counts);
        assert_eq!((closed.usage, closed.state), (open.usage, ConversationState::Idle));
        assert_eq!(closed.last_active_at, at(30));
        let runs = store.runs(key, None, 10).await.expect("the runs are read");
        assert!(runs.iter().all(|run| !run.is_open));
        assert_eq!(runs.iter().map(|it| it.usage.len()).collect::<Vec<_>>(), [1]);
    }
    assert!(store.delete(&discarded).await.expect("the conversation is deleted"));
    assert!(!has_entry(&store, &discarded).await);
}

/// The number of runs does not include a discarded run. A run with visible messages is counted
/// once, even if it continues after another run was discarded, or if its later messages are
/// discarded.
pub async fn a_discarded_run_is_taken_off_the_count(store: Store) {
    if lacks(&store, &[Capability::Journal]) {
        return;
    }
    let key = key("counted");
    let earlier = RunId::new();
    let first = write_of(&key, id(earlier, 0), Revision::ABSENT, "first");
    let mut open = StagedRun::new(&key, stored(&store, first).await);
    stored(&store, open.text(staging(1), "staged")).await;
    assert_eq!(summary(&store, &key).await.runs, 2);
    let revision = stored(&store, open.write(discard(1, 1), [])).await;
    assert_eq!(summary(&store, &key).await.runs, 1);
    let revision = stored(&store, write_of(&key, id(earlier, 1), revision, "second")).await;
    assert_eq!(summary(&store, &key).await.runs, 1, "the earlier run is the last run again");
    let mut same = StagedRun::new(&key, revision);
    same.run = earlier;
    stored(&store, same.text(staging(1), "staged by the earlier run")).await;
    assert_eq!(summary(&store, &key).await.runs, 1);
    let revision = stored(&store, same.write(discard(1, 2), [])).await;
    assert_eq!(summary(&store, &key).await.runs, 1);
    let mut whole = StagedRun::new(&key, revision);
    stored(&store, whole.text(commit(1), "committed at once")).await;
    assert_eq!(summary(&store, &key).await.runs, 2);
}

/// A prune (a deletion of the oldest runs) does not change the number of runs, their usage, or the
/// creation time of the conversation.
pub async fn a_prune_leaves_counts_and_usage(store: Store) {
    if lacks(&store, &[Capability::Maintenance]) {
        return;
    }
    let key = key("pruned");
    let mut revision = Revision::ABSENT;
    let runs = [(); 3].map(|()| RunId::new());
    for (run, (text, time)) in runs.into_iter().zip([("a", 100), ("b", 200), ("c", 300)]) {
        let activity = activity(time, &[used("m", time)]);
        revision =
            stored(&store, write_of(&key, id(run, 0), revision, text).with_activity(activity))
                .await;
    }
    let version = store.set_description(&key, &described("kept", json!({"k": 1})), 0).await;
    let mut before = summary(&store, &key).await;
    assert_eq!(
        store.prune(&key, Keep::Messages(1)).await.expect("the conversation is pruned").messages,
        2
    );
    let after = summary(&store, &key).await;
    assert_eq!((after.messages, after.runs), (1, 3));
    before.messages = 1;
    assert_eq!(after, before, "nothing else has changed");
    assert_eq!(version.expect("the description is set"), after.description_version);
    let listed = store.runs(&key, None, 10).await.expect("the runs are read");
    assert_eq!(listed.len(), 3);
}

/// A copy has the description, the number of runs and the mode of the original. The copy has no
/// usage, and its own creation time.
pub async fn a_fork_has_the_description_and_has_used_nothing(store: Store) {
    if lacks(&store, &[Capability::Journal, Capability::Maintenance]) {
        return;
    }
    let (from, to) = (key("original"), key("copy"));
    let runs = [(); 3].map(|()| RunId::new());
    let mut revision = Revision::ABSENT;
    for (run, text) in runs.into_iter().zip(["a", "b"]) {
        let activity = activity(100, &[used("m", 9)]).with_mode(PersistenceMode::PerServiceCall);
        let write = write_of(&from, id(run, 0), revision, text).with_activity(activity);
        revision = stored(&store, write).await;
    }
    let description = described("the original", json!({"topic": ["coats", 7]}));
    store.set_description(&from, &description, 0).await.expect("the description is set");
    let mut open = StagedRun::new(&from, revision);
    stored(&store, open.text(staging(1), "staged").with_activity(activity(200, &[]))).await;
    let before = SystemTime::now() - std::time::Duration::from_millis(1);
    store.fork_at(&from, None, &to).await.expect("the conversation is forked");
    let copy = summary(&store, &to).await;
    assert_eq!(copy.description, description);
    assert_eq!((copy.messages, copy.runs, copy.usage), (2, 2, UsageSum::default()));
    assert_eq!(
        (copy.state, copy.last_mode),
        (ConversationState::Idle, Some(PersistenceMode::PerServiceCall))
    );
    assert!(copy.created_at >= before && copy.last_active_at >= copy.created_at);
    let totals =
        store.usage(&UsageQuery::of(&to, UsageGrouping::Run)).await.expect("the totals are read");
    assert_eq!(totals, []);
    let change = described("the copy", json!({}));
    store
        .set_description(&to, &change, copy.description_version)
        .await
        .expect("the description is set");
    assert_eq!(summary(&store, &from).await.description, description, "the original is unchanged");
}

/// After a deletion, the directory contains no data of the conversation. A new conversation with
/// the same key begins without a description and without usage.
pub async fn a_deleted_conversation_leaves_the_directory(store: Store) {
    let (deleted, other) = (key("deleted"), key("other"));
    for key in [&deleted, &other] {
        let first = write(key, Revision::ABSENT, &[key.id()]);
        stored(&store, first.with_activity(activity(5, &[used("m", 10)]))).await;
        store
            .set_description(key, &described("old", json!({"old": true})), 0)
            .await
            .expect("the description is set");
    }
    store.delete(&deleted).await.expect("the conversation is deleted");
    assert!(!has_entry(&store, &deleted).await);
    assert!(store.runs(&deleted, None, 10).await.expect("the runs are read").is_empty());
    let totals = |key: &ConversationKey| UsageQuery::of(key, UsageGrouping::Model);
    assert_eq!(store.usage(&totals(&deleted)).await.expect("the totals are read"), []);
    let in_scope = UsageQuery::in_scope("scope", UsageGrouping::Scope);
    let in_scope = store.usage(&in_scope).await.expect("the totals are read");
    assert_eq!(in_scope.iter().map(|total| total.sum).collect::<Vec<_>>(), [used("m", 10).sum]);
    match store.set_description(&deleted, &Description::new(), 1).await {
        Err(StoreError::NoConversation { key }) => assert_eq!(key, deleted),
        other => panic!("expected an error because the conversation does not exist, not {other:?}"),
    }
    let again = write(&deleted, Revision::ABSENT, &["again"]);
    stored(&store, again.with_activity(activity(50, &[]))).await;
    let again = summary(&store, &deleted).await;
    assert_eq!((again.description_version, again.runs, again.usage), (0, 1, UsageSum::default()));
    assert_eq!(again.created_at, at(50));
    assert!(again.description.is_empty());
    assert_eq!(store.runs(&deleted, None, 10).await.expect("the runs are read").len(), 1);
}

/// The directory contains the state of each conversation, and a query can select conversations by
/// their state.
pub async fn the_directory_tells_what_continues(store: Store) {
    if lacks(&store, &[Capability::Journal]) {
        return;
    }
    let [idle, waiting, open, both] = ["idle", "waiting", "open", "both"].map(key);
    stored(&store, write(&idle, Revision::ABSENT, &["idle"])).await;
    let mut row = pending(1, 0, "a");
    row.status = ToolStatus::PendingApproval;
    let mut revisions = Vec::new();
    for key in [&waiting, &both] {
        let request = ApprovalRequest::new(key.id(), ToolCall::new("", "a", "{}"), true);
        let asks = Message::new(Role::Assistant, vec![Part::ApprovalRequest(request)]);
        let asks = write_messages(key, Revision::ABSENT, [asks]);
        revisions.push(stored(&store, asks.with_tools(vec![row.clone()])).await);
    }
    stored(&store, StagedRun::new(&open, Revision::ABSENT).text(staging(1), "open")).await;
    stored(&store, StagedRun::new(&both, revisions[1]).text(staging(1), "both")).await;
    let mut approved = row.clone();
    for (key, state) in [
        (&idle, ConversationState::Idle),
        (&waiting, ConversationState::WaitingForApproval),
        (&open, ConversationState::RunOpen),
        (&both, ConversationState::RunOpen),
    ] {
        assert_eq!(summary(&store, key).await.state, state, "{key}");
    }
    for (state, expected) in [
        (ConversationState::Idle, vec![&idle]),
        (ConversationState::WaitingForApproval, vec![&waiting]),
        (ConversationState::RunOpen, vec![&both, &open]),
        (ConversationState::Damaged, vec![]),
    ] {
        let query = ConversationQuery::in_scope("scope").in_state(state);
        let mut found = store
            .conversations(&query)
            .await
            .expect("the page of conversations is read")
            .conversations;
        found.sort_by(|left, right| left.key.cmp(&right.key));
        assert_eq!(found.iter().map(|it| &it.key).collect::<Vec<_>>(), expected, "{state}");
    }
    approved.status = ToolStatus::Ok;
    stored(&store, write(&waiting, revisions[0], &["approved"]).with_tools(vec![approved])).await;
    assert_eq!(summary(&store, &waiting).await.state, ConversationState::Idle);
}

/// A description is set only if the stored version is the one that the caller expects. The rest of
/// the entry does not change.
pub async fn a_description_is_set_by_who_knows_its_version(store: Store) {
    if lacks(&store, &[Capability::Journal]) {
        return;
    }
    let [key, open] = ["described", "open"].map(key);
    let unwritten = store.set_description(&key, &Description::new(), 0).await;
    assert!(matches!(unwritten, Err(StoreError::NoConversation { .. })), "{unwritten:?}");
    stored(&store, StagedRun::new(&open, Revision::ABSENT).text(staging(1), "open")).await;
    let first = write(&key, Revision::ABSENT, &["first"]).with_activity(activity(5, &[]));
    let at_first = stored(&store, first).await;
    for key in [&key, &open] {
        let before = summary(&store, key).await;
        let head = store.head(key).await.expect("the head is read");
        let mut version = 0;
        let large = "x".repeat(Description::METADATA_LIMIT - r#"{"a":""}"#.len());
        for description in [
            described("a title", json!({"a": {"b": [1, 2.5, null]}, "é": "\0 \" \\ \n"})),
            described("it's \"quoted\"\0 — 😀", json!({})),
            described(&"t".repeat(Description::TITLE_LIMIT), json!({ "a": large })),
            Description::new()
                .with_metadata(object(json!({"untitled": true})))
                .expect("the metadata are small enough"),
            Description::new().with_metadata(deepest()).expect("the metadata are small enough"),
            Description::new(),
        ] {
            let set = store
                .set_description(key, &description, version)
                .await
                .expect("the description is set");
            assert_eq!(set, version + 1);
            let again = store.set_description(key, &Description::new(), version).await;
            match again {
                Err(StoreError::DescriptionChanged { key: of, expected, found }) => {
                    assert_eq!((&of, expected, found), (key, version, set));
                }
                other => {
                    panic!("expected a conflict because the description was changed, not {other:?}")
                }
            }
            version = set;
            let now = summary(&store, key).await;
            assert_eq!((&now.description, now.description_version), (&description, version));
        }
        let mut after = summary(&store, key).await;
        after.description_version = before.description_version;
        assert_eq!(after, before, "nothing else has changed");
        assert_eq!(store.head(key).await.expect("the head is read"), head);
    }
    assert_eq!(revision(&store, &key).await, at_first);
    assert_eq!(texts(&store, &key).await, ["first"]);
}

/// If several tasks change a description at the same time, all changes are applied.
pub async fn changes_of_a_description_are_merged(store: Store) {
    let key = key("changed by many");
    stored(&store, write(&key, Revision::ABSENT, &["first"])).await;
    let changes = (0..8).map(|number| {
        let (store, key) = (store.clone(), key.clone());
        tokio::spawn(async move {
            let member = object(json!({ format!("member {number}"): number }));
            let patch = DescriptionPatch::new().with_metadata(member);
            store.change_description(&key, &patch).await.expect("the description is changed")
        })
    });
    for change in changes.collect::<Vec<_>>() {
        change.await.expect("the description is changed");
    }
    let patch = DescriptionPatch::new()
        .with_title("changed")
        .with_metadata(object(json!({"member 0": null, "member 1": {"inner": 1}})));
    let changed = store.change_description(&key, &patch).await.expect("the description is changed");
    let now = summary(&store, &key).await;
    assert_eq!((&now.description, now.description_version), (&changed, 9));
    assert_eq!(changed.title(), Some("changed"));
    let mut expected: Map<String, Value> =
        (2..8).map(|number| (format!("member {number}"), number.into())).collect();
    expected.insert("member 1".to_owned(), json!({"inner": 1}));
    assert_eq!(changed.metadata(), &expected);
    let large = DescriptionPatch::new().with_title("x".repeat(Description::TITLE_LIMIT + 1));
    let refused = store.change_description(&key, &large).await;
    assert!(matches!(refused, Err(StoreError::DescriptionTooLarge(_))), "{refused:?}");
    let nobody = store.change_description(&super::fixture::key("nobody"), &patch).await;
    assert!(matches!(nobody, Err(StoreError::NoConversation { .. })), "{nobody:?}");
}

/// Pages of messages are read from the end of the conversation backwards. Only visible messages are
/// returned.
pub async fn messages_are_paged_from_the_end(store: Store) {
    if lacks(&store, &[Capability::Journal, Capability::Maintenance]) {
        return;
    }
    let key = key("paged");
    let page = store.messages_before(&key, None, 5).await.expect("the page of messages is read");
    assert_eq!(page, MessagePage::default());
    let mut revision = Revision::ABSENT;
    for text in ["1", "2", "3", "4", "5", "6", "7"] {
        revision = stored(&store, write(&key, revision, &[text])).await;
    }
    let mut open = StagedRun::new(&key, revision);
    for pruned in [0, 2] {
        if pruned > 0 {
            stored(&store, open.write(discard(1, 7), [])).await;
            assert_eq!(
                store
                    .prune(&key, Keep::Messages(5))
                    .await
                    .expect("the conversation is pruned")
                    .messages,
                2
            );
            open.at = super::fixture::revision(&store, &key).await;
            open = StagedRun::new(&key, open.at);
        }
        stored(&store, open.text(staging(1), "nobody sees it")).await;
        let all = store.load(&key).await.expect("the history is loaded");
        for limit in [1, 2, 3, 5, 7, 100] {
            let mut before = None;
            let mut found = Vec::new();
            loop {
                let page = store
                    .messages_before(&key, before, limit)
                    .await
                    .expect("the page of messages is read");
                assert!(page.messages.len() <= limit && !page.messages.is_empty());
                assert_eq!(page.earlier.is_none(), page.messages[0].0 == pruned + 1);
                let is_before = |last: u64| before.is_none_or(|before| last < before);
                assert!(page.messages.last().is_some_and(|(last, _)| is_before(*last)));
                assert!(page.earlier.is_none_or(|earlier| before.is_none_or(|it| earlier < it)));
                found.splice(0..0, page.messages);
                before = page.earlier;
                if before.is_none() {
                    break;
                }
            }
            let expected: Vec<_> =
                all.numbered().map(|(sequence, message)| (sequence, message.clone())).collect();
            assert_eq!(found, expected, "{limit} at a time, {pruned} pruned");
        }
        for (before, expected) in [
            (Some(0), vec![]),
            (Some(pruned + 1), vec![]),
            (Some(pruned + 2), vec![pruned + 1]),
            (Some(8), vec![6, 7]),
            (Some(9), vec![6, 7]),
            (Some(u64::MAX), vec![6, 7]),
        ] {
            let page =
                store.messages_before(&key, before, 2).await.expect("the page of messages is read");
            let found: Vec<u64> = page.messages.iter().map(|(sequence, _)| *sequence).collect();
            assert_eq!(found, expected, "before {before:?}, {pruned} pruned");
        }
        let nothing =
            store.messages_before(&key, None, 0).await.expect("the page of messages is read");
        assert_eq!((nothing.messages.len(), nothing.earlier), (0, Some(8)));
    }
}

/// Every query of the directory includes the writes that were submitted before the query.
pub async fn the_directory_sees_what_was_submitted_before(store: Store) {
    for (name, question) in ["summary", "list", "usage", "runs", "messages", "description"]
        .into_iter()
        .enumerate()
        .map(|(number, question)| (format!("asked {number}"), question))
    {
        let key = key(&name);
        let write = write(&key, Revision::ABSENT, &[question]);
        let write = write.with_activity(activity(5, &[used("m", 10)]));
        let slot = store.reserve().await.expect("a slot is reserved");
        drop(store.append(slot, vec![write]));
        let is_seen = match question {
            "summary" => store.summary(&key).await.expect("the summary is read").is_some(),
            "list" => {
                let query = ConversationQuery::in_scope("scope").with_limit(100);
                let page =
                    store.conversations(&query).await.expect("the page of conversations is read");
                page.conversations.iter().any(|summary| summary.key == key)
            }
            "usage" => {
                let query = UsageQuery::of(&key, UsageGrouping::Model);
                !store.usage(&query).await.expect("the totals are read").is_empty()
            }
            "runs" => !store.runs(&key, None, 1).await.expect("the runs are read").is_empty(),
            "messages" => {
                let page = store
                    .messages_before(&key, None, 1)
                    .await
                    .expect("the page of messages is read");
                !page.messages.is_empty()
            }
            _ => store.set_description(&key, &Description::new(), 0).await.is_ok(),
        };
        assert!(is_seen, "{question}");
    }
}

/// A closed store refuses a new description, but its directory can be read.
pub async fn a_closed_store_keeps_its_directory(store: Store) {
    let key = key("closed");
    stored(&store, write(&key, Revision::ABSENT, &["first"])).await;
    store
        .set_description(&key, &described("before", json!({})), 0)
        .await
        .expect("the description is set");
    let before = summary(&store, &key).await;
    store.close().await.expect("the store is closed");
    let refused = store.set_description(&key, &described("after", json!({})), 1).await;
    assert!(matches!(refused, Err(StoreError::Closed)), "{refused:?}");
    assert_eq!(summary(&store, &key).await, before);
    assert_eq!(
        store
            .messages_before(&key, None, 1)
            .await
            .expect("the page of messages is read")
            .messages
            .len(),
        1
    );
}
