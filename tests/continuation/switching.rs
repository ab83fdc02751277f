//! Tests that a conversation can switch to another provider and back.

use serde_json::Value;
use tower_chat::{HistoryStore, MemoryStore, PersistenceMode};
use tower_chat_testkit::validate::validate;

use crate::continuation::{
    conversation::{Recorded, Turn},
    processes::{recorded, services},
    providers::{PROVIDERS, Provider},
};

/// Returns whether a provider is not the first one in [`PROVIDERS`], but has the same JSON format.
fn is_compatible(provider: &Provider) -> bool {
    provider.wire == PROVIDERS[0].wire && provider.name != PROVIDERS[0].name
}

fn entries(provider: &Provider, body: &str) -> Vec<Value> {
    let body: Value = serde_json::from_str(body).unwrap();
    body[provider.wire.conversation_field()].as_array().unwrap().clone()
}

fn assert_accepted(source: &str, provider: &Provider, turn: &Turn) {
    assert!(turn.succeeded, "{source}: {}", turn.outcome);
    for request in &turn.sent {
        let body: Value = serde_json::from_str(&request.body).unwrap();
        validate(provider.wire, &body)
            .unwrap_or_else(|invalid| panic!("{source}: {invalid}\n{body:#}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_can_continue_with_another_provider_and_then_with_the_first_again() {
    let recorded = recorded();
    let services = services().await;
    let mut count = 0;
    for home in &PROVIDERS {
        for away in PROVIDERS.iter().filter(|away| away.name != home.name) {
            let of = |provider: &'static str| {
                recorded.iter().filter(move |it| {
                    it.provider.name == provider && it.mode == PersistenceMode::PerServiceCall
                })
            };
            // All compatible services use the same model client. Two pairs are enough.
            let pairs =
                if [home, away].iter().any(|it| is_compatible(it)) { 2 } else { usize::MAX };
            for (one, other) in of(home.name).zip(of(away.name)).take(pairs) {
                let source = format!("{}, {}", one.source, other.source);
                switches_there_and_back(&source, one, other, &services).await;
                count += 1;
            }
        }
    }
    println!("{count} conversations went to another provider and back");
    assert!(count >= PROVIDERS.len() * (PROVIDERS.len() - 1), "{count}");
}

async fn switches_there_and_back(
    source: &str,
    one: &Recorded,
    other: &Recorded,
    services: &std::collections::BTreeMap<&'static str, crate::continuation::conversation::Service>,
) {
    let (home, away) = (&services[one.provider.name], &services[other.provider.name]);
    let store = MemoryStore::new();
    let stored = async || {
        let history = store.load(&one.key()).await.unwrap();
        history.messages.iter().cloned().collect::<Vec<_>>()
    };

    home.server.play(&one.answers, 0);
    let stack = one.stack(home, store.clone());
    let first = one.turn(&stack, home, 0).await;
    assert_accepted(source, one.provider, &first);
    let after_first = stored().await;

    away.server.play(&other.answers, 0);
    let stack = other.stack(away, store.clone());
    let second = other.turn_in(one.key(), &stack, away, 1).await;
    assert_accepted(source, other.provider, &second);
    let after_second = stored().await;
    assert!(second.sent[0].body.contains("question 0"), "{source}");

    home.server.play(&one.answers, first.sent.len());
    let stack = one.stack(home, store.clone());
    let third = one.turn(&stack, home, 2).await;
    assert_accepted(source, one.provider, &third);
    let after_third = stored().await;
    assert_eq!(after_second[..after_first.len()], after_first, "{source}: the record has changed");
    assert_eq!(after_third[..after_second.len()], after_second, "{source}: the record has changed");

    // The provider receives its own answers unchanged, as in a conversation without a switch.
    let alone = MemoryStore::new();
    home.server.play(&one.answers, 0);
    let stack = one.stack(home, alone);
    one.turn(&stack, home, 0).await;
    let at_home = one.turn(&stack, home, 2).await;
    let mut own = entries(one.provider, &at_home.sent[0].body);
    own.pop();
    let sent = entries(one.provider, &third.sent[0].body);
    assert!(sent.starts_with(&own), "{source}\n{own:#?}\n{sent:#?}");
    assert!(sent.len() > own.len() + 1, "{source}: the other provider's turn is missing");
}
