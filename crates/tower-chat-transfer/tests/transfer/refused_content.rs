//! Tests that every store and every exported file contains the marks of content that a service has
//! refused.

use std::sync::Arc;

use tower_chat::{
    error::ContentRefused,
    message::{ContentKind, Media, MediaSource, lift_refusals},
    prelude::*,
    wire::{
        body::BodyWire,
        rules::{ServiceRules, fit},
    },
};
use tower_chat_core::ChangeKind;
use tower_chat_testkit::{ScriptedModel, Step};

use crate::{
    conversations::{export_alice, import_file, key},
    stores::Kind,
};

const ISSUER: &str = "openai";
/// The end of the sentence that is sent instead of refused content.
const SENTENCE: &str = "the service has refused it";

#[derive(Debug, thiserror::Error)]
#[error("status 400")]
struct Refused(#[source] ContentRefused);

fn calls() -> Step {
    Step::message(Message::tool_calls([ToolCall::new("c1", "draw", "{}")]))
}

fn refusal() -> Step {
    Step::error(Refused(ContentRefused::by(ISSUER).naming(ContentKind::Image)))
}

fn draw() -> Tools {
    let definition = ToolDefinition::new("draw", "Draws.", serde_json::json!({"type": "object"}));
    Tools::new().with(tool_fn(definition, |_| async {
        let source = MediaSource::Base64("AAAA".to_owned());
        Ok(ToolOutput::new(vec![Part::Media(Media::new("image/png", source))]))
    }))
}

async fn ask(
    store: &Arc<dyn HistoryStore>,
    mode: PersistenceMode,
    steps: impl IntoIterator<Item = Step>,
) -> Vec<ChatRequest> {
    let model = ScriptedModel::new(steps);
    let builder = ChatPipeline::builder(model.clone()).history(store.clone()).tools(draw());
    let agent = builder.persistence(mode).build().unwrap();
    let request = ChatRequest::user("Where is it?").in_conversation(key("map"));
    agent.oneshot(request).await.unwrap().collect().await.unwrap();
    model.requests()
}

/// Returns whether the service would receive the sentence instead of the image.
fn has_sentence(request: &ChatRequest) -> bool {
    let rules = ServiceRules::named(BodyWire::OpenAiChat, ISSUER).unwrap();
    let fitted = fit(request, &rules);
    let is_reported = fitted.changes.iter().any(|change| change.kind == ChangeKind::Refused);
    let messages = format!("{:?}", fitted.request.messages());
    assert_eq!(messages.contains(SENTENCE), is_reported, "{messages}");
    assert_ne!(messages.contains("AAAA"), is_reported, "{messages}");
    is_reported
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_of_refused_content_are_transferred_with_their_messages_until_they_are_removed() {
    let modes =
        [PersistenceMode::PerRun, PersistenceMode::PerServiceCall, PersistenceMode::Journaled];
    for (kind, mode) in Kind::all().into_iter().flat_map(|kind| modes.map(|mode| (kind, mode))) {
        let opened = kind.open().await;
        let store = opened.shared();
        let steps = [calls(), refusal(), Step::text("There.")];
        let requests = ask(&store, mode, steps).await;
        assert_eq!(requests.len(), 3, "{kind:?} {mode:?}");
        assert!(!has_sentence(&requests[1]) && has_sentence(&requests[2]), "{kind:?} {mode:?}");

        let other = kind.open().await;
        let copy = other.shared();
        import_file(&*copy, &export_alice(&*store).await).await;
        for store in [&store, &copy] {
            let later = ask(store, mode, [Step::text("Still there.")]).await;
            assert!(has_sentence(&later[0]), "{kind:?} {mode:?}");
        }
        // Removing the mark in the copy must not remove it in the source.
        assert_eq!(lift_refusals(&*copy, &key("map"), Some(ISSUER)).await.unwrap(), 1);
        for (store, expected) in [(&store, true), (&copy, false)] {
            let later = ask(store, mode, [Step::text("Still there.")]).await;
            assert_eq!(has_sentence(&later[0]), expected, "{kind:?} {mode:?}");
        }
    }
}
