//! The rules for queries of the directory, which has the times, counts and usage of conversations
//! and runs.

use serde_json::json;
use tower_chat_core::{
    ConversationKey, RunId,
    store::{
        Capability, ConversationQuery, Description, Directory, DirectoryCursor, HistoryStore,
        Maintenance, Parent, Revision, UsageGroup, UsageGrouping, UsageQuery, UsageSum, UtcDay,
    },
};

use super::{
    Store,
    directory::{activity, id, object, sum_of, summary, used, write_of},
    fixture::{StagedRun, at, key, lacks, staging, stored, write},
};

async fn begin(store: &Store, key: &ConversationKey, milliseconds: u64) {
    let first = write(key, Revision::ABSENT, &[key.id()]);
    stored(store, first.with_activity(activity(milliseconds, &[]))).await;
}

async fn found(store: &Store, query: &ConversationQuery) -> Vec<ConversationKey> {
    let page = store.conversations(query).await.expect("the page of conversations is read");
    assert_eq!((page.unreadable, page.next), (Vec::new(), None));
    page.conversations.into_iter().map(|summary| summary.key).collect()
}

/// Conversations are listed by the time of their last activity, the most recent first, and by key
/// if the times are equal. The pages together contain the same conversations as the whole list.
pub async fn conversations_are_listed_by_their_last_activity(store: Store) {
    let keys = [
        ("scope", "b", 30),
        ("scope", "B", 30),
        ("scope", "a", 30),
        ("scope", "é", 30),
        ("Scope", "a", 30),
        ("scope ", "a", 30),
        ("scope", "newest", 40),
        ("scope", "oldest", 10),
        ("scope", "", 30),
        ("", "scope", 20),
    ]
    .map(|(scope, id, time)| (ConversationKey::new(scope, id), time));
    for (key, time) in &keys {
        begin(&store, key, *time).await;
    }
    let mut sorted = keys.to_vec();
    sorted.sort_by(|(left, earlier), (right, later)| later.cmp(earlier).then(left.cmp(right)));
    let sorted: Vec<_> = sorted.into_iter().map(|(key, _)| key).collect();
    let of_scope = sorted.iter().filter(|key| key.scope() == "scope").cloned().collect();
    for (query, expected) in [
        (ConversationQuery::in_all_scopes(), sorted),
        (ConversationQuery::in_scope("scope"), of_scope),
        (ConversationQuery::in_scope(""), vec![ConversationKey::new("", "scope")]),
        (ConversationQuery::in_scope("SCOPE"), vec![]),
    ] {
        assert_eq!(found(&store, &query).await, expected);
        for limit in 1..=expected.len() + 1 {
            let mut listed = Vec::new();
            let mut asked = query.clone().with_limit(limit);
            loop {
                let page =
                    store.conversations(&asked).await.expect("the page of conversations is read");
                assert!(page.conversations.len() <= limit);
                listed.extend(page.conversations.iter().map(|summary| summary.key.clone()));
                let Some(next) = page.next else { break };
                assert_eq!(page.conversations.len(), limit, "a page is full unless it is the last");
                assert_eq!(
                    page.conversations.last().map(DirectoryCursor::after),
                    Some(next.clone())
                );
                asked = asked.after(next.to_string().parse().expect("a cursor"));
            }
            assert_eq!(listed, expected, "{limit} at a time");
        }
    }
    let nothing = ConversationQuery::in_scope("scope").with_limit(0);
    assert_eq!(
        store
            .conversations(&nothing)
            .await
            .expect("the page of conversations is read")
            .conversations,
        []
    );
    // A page may begin after the position of a conversation that does not exist.
    let between = DirectoryCursor::new(30, ConversationKey::new("scope", "aa"));
    let after = found(&store, &ConversationQuery::in_scope("scope").after(between)).await;
    assert_eq!(after, ["b", "é", "oldest"].map(key));
}

/// A query can select conversations by each of its criteria.
pub async fn conversations_are_found_by_times_and_metadata(store: Store) {
    let [first, second, third] = ["first", "second", "third"].map(key);
    for (key, created, active, metadata) in [
        (&first, 10, 100, json!({"topic": "coats", "n": 1, "deep": {"a": [1, null]}})),
        (&second, 20, 30, json!({"topic": "coats", "n": 2, "deep": {"a": [1, null], "b": 2}})),
        (&third, 30, 50, json!({"topic": "hats", "n": null, "it's \"quoted\"": true})),
    ] {
        begin(&store, key, created).await;
        let at = super::fixture::revision(&store, key).await;
        stored(&store, write(key, at, &["later"]).with_activity(activity(active, &[]))).await;
        let description = Description::new()
            .with_metadata(object(metadata))
            .expect("the metadata are small enough");
        store.set_description(key, &description, 0).await.expect("the description is set");
    }
    let all = || ConversationQuery::in_scope("scope");
    for (query, expected) in [
        (all(), vec![&first, &third, &second]),
        (all().active_since(at(50)), vec![&first, &third]),
        (all().active_since(at(51)), vec![&first]),
        (all().active_before(at(50)), vec![&second]),
        (all().active_before(at(51)), vec![&third, &second]),
        (all().active_since(at(30)).active_before(at(100)), vec![&third, &second]),
        (all().created_since(at(20)), vec![&third, &second]),
        (all().created_before(at(20)), vec![&first]),
        (all().created_since(at(11)).created_before(at(30)), vec![&second]),
        (all().with_metadata("topic", "coats"), vec![&first, &second]),
        (all().with_metadata("topic", "coats").with_metadata("n", 2), vec![&second]),
        (all().with_metadata("topic", "Coats"), vec![]),
        (all().with_metadata("absent", json!(null)), vec![]),
        (all().with_metadata("n", json!(null)), vec![&third]),
        (all().with_metadata("n", "1"), vec![]),
        (all().with_metadata("deep", json!({"a": [1, null]})), vec![&first]),
        (all().with_metadata("deep.a", 1), vec![]),
        (all().with_metadata("it's \"quoted\"", true), vec![&third]),
        (ConversationQuery::in_all_scopes().with_metadata("topic", "hats"), vec![&third]),
        (ConversationQuery::in_scope("other").with_metadata("topic", "hats"), vec![]),
    ] {
        let expected: Vec<_> = expected.into_iter().cloned().collect();
        assert_eq!(found(&store, &query).await, expected, "{query:?}");
        let paged = query.clone().with_limit(1);
        let page = store.conversations(&paged).await.expect("the page of conversations is read");
        let listed: Vec<_> = page.conversations.iter().map(|it| it.key.clone()).collect();
        assert_eq!(listed, expected[..expected.len().min(1)], "{paged:?}");
        assert_eq!(page.next.is_some(), expected.len() > 1, "{paged:?}");
    }
}

/// A query can add up usage for each run, conversation, scope, model or day.
pub async fn usage_is_grouped_as_a_query_asks(store: Store) {
    const DAY: u64 = 86_400_000;
    let alice = ConversationKey::new("alice", "a");
    let other = ConversationKey::new("alice", "b");
    let bob = ConversationKey::new("bob", "a");
    let runs = [(); 4].map(|()| RunId::new());
    // Each write has a conversation, a run, the index of its message in the run, a time in
    // milliseconds, and usage.
    let [x1, x2, y1, none] = [used("x", 1), used("x", 20), used("y", 300), used("", 4000)];
    let mut ends = std::collections::HashMap::new();
    for (key, run, index, time, usage) in [
        (&alice, runs[0], 0, DAY, vec![]),
        (&alice, runs[0], 1, 2 * DAY - 1, vec![x1.clone(), y1.clone()]),
        (&alice, runs[0], 2, 2 * DAY, vec![x2.clone()]),
        (&alice, runs[1], 0, 3 * DAY, vec![x2.clone()]),
        (&other, runs[2], 0, 2 * DAY, vec![none.clone()]),
        (&bob, runs[3], 0, 3 * DAY + 5, vec![y1.clone()]),
        (&bob, runs[0], 0, 3 * DAY + 6, vec![x1.clone()]),
    ] {
        let at = ends.get(key).copied().unwrap_or(Revision::ABSENT);
        let text = format!("{key} {run} {index}");
        let write = write_of(key, id(run, index), at, &text);
        ends.insert(key, stored(&store, write.with_activity(activity(time, &usage))).await);
    }
    let day = |number| UsageGroup::Day(UtcDay::from_days(number));
    let model = |name: &str| UsageGroup::Model(Some(name.into()));
    let of = |key: &ConversationKey, run| UsageGroup::Run(key.clone(), run);
    let everything = UsageQuery::in_all_scopes;
    let a = "alice";
    let (x, y, n) = (&x1, &y1, &none);
    let cases = [
        (
            everything(UsageGrouping::Scope),
            vec![
                (UsageGroup::Scope(a.into()), 3, vec![x, y, &x2, &x2, n]),
                (UsageGroup::Scope("bob".into()), 2, vec![y, x]),
            ],
        ),
        (
            everything(UsageGrouping::Model),
            vec![
                (UsageGroup::Model(None), 1, vec![n]),
                (model("x"), 3, vec![x, &x2, &x2, x]),
                (model("y"), 2, vec![y, y]),
            ],
        ),
        (
            everything(UsageGrouping::Day),
            vec![(day(1), 1, vec![x, y, &x2]), (day(2), 1, vec![n]), (day(3), 3, vec![&x2, y, x])],
        ),
        (
            UsageQuery::in_scope(a, UsageGrouping::Conversation),
            vec![
                (UsageGroup::Conversation(alice.clone()), 2, vec![x, y, &x2, &x2]),
                (UsageGroup::Conversation(other.clone()), 1, vec![n]),
            ],
        ),
        (
            UsageQuery::of(&alice, UsageGrouping::Run),
            vec![(of(&alice, runs[0]), 1, vec![x, y, &x2]), (of(&alice, runs[1]), 1, vec![&x2])],
        ),
        (
            UsageQuery::of(&bob, UsageGrouping::Run).since(at(3 * DAY + 6)),
            vec![(of(&bob, runs[0]), 1, vec![x])],
        ),
        (
            everything(UsageGrouping::Scope).since(at(2 * DAY)).before(at(3 * DAY)),
            vec![(UsageGroup::Scope(a.into()), 1, vec![n])],
        ),
        // The usage of a model in one run belongs to one day: the day of the run's first write with
        // usage of this model.
        (
            everything(UsageGrouping::Model).since(at(DAY)).before(at(2 * DAY)),
            vec![(model("x"), 1, vec![x, &x2]), (model("y"), 1, vec![y])],
        ),
        (UsageQuery::in_scope("ALICE", UsageGrouping::Model), vec![]),
        (everything(UsageGrouping::Day).since(at(4 * DAY)), vec![]),
    ];
    for (query, expected) in cases {
        let totals = store.usage(&query).await.expect("the totals are read");
        let totals: Vec<(UsageGroup, u64, UsageSum)> =
            totals.into_iter().map(|total| (total.group, total.runs, total.sum)).collect();
        let mut expected: Vec<_> =
            expected.into_iter().map(|(group, runs, usage)| (group, runs, sum_of(usage))).collect();
        expected.sort_by(|(left, ..), (right, ..)| left.cmp(right));
        assert_eq!(totals, expected, "{query:?}");
    }
}

/// Runs are listed in descending order of their ids. The pages together contain the same runs as
/// the whole list.
pub async fn runs_are_listed_newest_first(store: Store) {
    if lacks(&store, &[Capability::Journal]) {
        return;
    }
    let (key, other) = (key("runs"), key("another"));
    let mut runs: Vec<RunId> = (0..5).map(|_| RunId::new()).collect();
    // The runs are written in another order than that of their ids.
    runs.swap(1, 3);
    let mut revision = Revision::ABSENT;
    for (number, run) in (1..).zip(&runs) {
        let write = write_of(&key, id(*run, 0), revision, &format!("{number}"));
        revision = stored(&store, write.with_activity(activity(number * 10, &[]))).await;
    }
    stored(&store, write(&other, Revision::ABSENT, &["another"])).await;
    let mut open = StagedRun::new(&key, revision);
    stored(&store, open.text(staging(1), "open").with_activity(activity(60, &[]))).await;
    runs.push(open.run);
    runs.sort_by(|left, right| right.cmp(left));
    for limit in 1..8 {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let page = store.runs(&key, after, limit).await.expect("the runs are read");
            assert!(page.len() <= limit);
            listed.extend(page.iter().map(|run| (run.run, run.is_open)));
            match page.last() {
                Some(last) => after = Some(last.run),
                None => break,
            }
        }
        let expected: Vec<_> = runs.iter().map(|run| (*run, *run == open.run)).collect();
        assert_eq!(listed, expected, "{limit} at a time");
    }
    let newest = store.runs(&key, None, 1).await.expect("the runs are read");
    assert_eq!(newest[0].began_at, at(60));
    assert_eq!(store.runs(&key, None, 0).await.expect("the runs are read"), []);
}

/// The entry of a branch (a copy of a conversation) contains its parent and the position of the
/// fork. A query finds the branches of a conversation, even after the conversation was deleted.
pub async fn branches_are_found_by_their_parent(store: Store) {
    if lacks(&store, &[Capability::Maintenance]) {
        return;
    }
    let [from, other, first, second, nested] =
        ["from", "other", "first", "second", "nested"].map(key);
    for parent in [&from, &other] {
        let mut revision = Revision::ABSENT;
        for (text, time) in [("a", 10), ("b", 20), ("c", 30)] {
            let turn = write(parent, revision, &[text]).with_activity(activity(time, &[]));
            revision = stored(&store, turn).await;
        }
    }
    for (parent, before, branch) in [
        (&from, Some(1), &first),
        (&from, Some(3), &second),
        (&second, None, &nested),
        (&other, None, &key("of the other")),
    ] {
        store.fork_at(parent, before, branch).await.expect("the conversation is forked");
    }
    assert_eq!(summary(&store, &from).await.parent, None);
    let expected = [(&first, &from, 0, 0), (&second, &from, 2, 2), (&nested, &second, 2, 2)];
    for (branch, parent, position, runs) in expected {
        let found = summary(&store, branch).await;
        assert_eq!(found.parent, Some(Parent::new(parent.clone(), position)), "{branch}");
        assert_eq!((found.messages, found.runs), (position, runs), "{branch}");
    }
    let branches = async |of: &ConversationKey| {
        let mut found =
            found(&store, &ConversationQuery::in_scope("scope").branches_of(of.clone())).await;
        found.sort();
        found
    };
    assert_eq!(branches(&from).await, [first.clone(), second.clone()]);
    assert_eq!(branches(&second).await, [nested]);
    assert_eq!(branches(&first).await, []);
    let elsewhere = ConversationKey::new("another scope", "from");
    assert_eq!(branches(&elsewhere).await, []);
    let one = ConversationQuery::in_all_scopes().branches_of(from.clone()).with_limit(1);
    let page = store.conversations(&one).await.expect("the page of conversations is read");
    assert_eq!(page.conversations.len(), 1);
    let next = one.after(page.next.expect("there is another branch"));
    assert_eq!(found(&store, &next).await.len(), 1);

    let at = store.head(&second).await.expect("the head is read").revision;
    stored(&store, write(&second, at, &["later"]).with_activity(activity(40, &[]))).await;
    store.delete(&from).await.expect("the conversation is deleted");
    assert_eq!(branches(&from).await, [first.clone(), second.clone()]);
    let parent = summary(&store, &second).await.parent;
    assert_eq!(parent, Some(Parent::new(from.clone(), 2)));
    store.delete(&first).await.expect("the branch is deleted");
    begin(&store, &first, 50).await;
    assert_eq!(branches(&from).await, [second]);
}

/// The write that creates a conversation sets its parent, and later writes do not change it.
pub async fn a_parent_is_set_by_the_first_write(store: Store) {
    let (branch, plain) = (key("branch"), key("plain"));
    let parent = Parent::new(ConversationKey::new("scope of the parent", "naïve"), u64::MAX / 4);
    let first = write(&branch, Revision::ABSENT, &["a"]).with_parent(Some(parent.clone()));
    let at = stored(&store, first.with_activity(activity(10, &[]))).await;
    let later = Parent::new(key("another"), 1);
    let second = write(&branch, at, &["b"]).with_parent(Some(later.clone()));
    stored(&store, second.with_activity(activity(20, &[]))).await;
    assert_eq!(summary(&store, &branch).await.parent, Some(parent.clone()));
    begin(&store, &plain, 10).await;
    let at = store.head(&plain).await.expect("the head is read").revision;
    let second = write(&plain, at, &["b"]).with_parent(Some(later));
    stored(&store, second.with_activity(activity(20, &[]))).await;
    assert_eq!(summary(&store, &plain).await.parent, None);
    let of_parent = ConversationQuery::in_scope("scope").branches_of(parent.key);
    assert_eq!(found(&store, &of_parent).await, [branch]);
}
