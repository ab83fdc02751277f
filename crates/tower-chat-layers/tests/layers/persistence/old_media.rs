//! Tests which pictures a run sends under the policy for old pictures and documents, if it is sent
//! again.

use tower_chat::{
    ChatRequest, Message, Part, PersistenceMode, ToolContext, Tools,
    message::{Media, MediaSource},
    replay::{OldMedia, ReplayPolicy, ToolHistory},
    tool_fn,
};
use tower_chat_testkit::{ScriptedModel, Step};

use crate::common::*;

pub(super) fn asking<const N: usize>(text: &str, pictures: [&str; N]) -> Message {
    let mut message = Message::user(text);
    let media = pictures.map(|data| Media::new("image/png", MediaSource::Base64(data.to_owned())));
    message.parts.extend(media.map(Part::Media));
    message
}

/// Returns for each message of the user or with results the data of its pictures, or `-` for each
/// picture that is not sent.
pub(super) fn pictures(request: &ChatRequest) -> Vec<String> {
    let picture = |part: &Part| match part {
        Part::Media(Media { source: MediaSource::Base64(data), .. }) => Some(data.clone()),
        Part::Text(text) if text.text.starts_with('[') => Some("-".to_owned()),
        _ => None,
    };
    let messages = request.messages().iter();
    let pictures = messages.map(|message| {
        let of_results = message.results().flat_map(|result| &result.content);
        message.parts.iter().chain(of_results).filter_map(picture).collect()
    });
    pictures.filter(|pictures: &Vec<_>| !pictures.is_empty()).map(|it| it.join(" ")).collect()
}

#[tokio::test]
async fn a_run_that_is_sent_again_sends_all_its_media() {
    every_case(async |case| {
        for (kept, earlier) in [
            (OldMedia::keep_last(0), "- -"),
            (OldMedia::keep_last(1), "- dHdv"),
            (OldMedia::keep_turns(0), "- -"),
            (OldMedia::keep_turns(1), "b25l dHdv"),
        ] {
            let store = case.store().await;
            let steps = [Step::text("a1"), Step::error("overloaded"), Step::text("a2")];
            let model = ScriptedModel::new(steps);
            let replay = ReplayPolicy::default().with_old_media(kept);
            let policy = policy().with_replay(replay);
            let client = case.stack(model.clone(), &store, policy, Tools::new());
            let first = case.request_with([asking("q1", ["b25l", "dHdv"])]);
            send(&client, first).await.unwrap();
            let second = case.request_with([asking("q2", ["M3Jk", "NHRo"])]);
            send(&client, second.clone()).await.unwrap_err();
            assert_eq!(send(&client, second).await.unwrap().text(), "a2");
            let requests = model.requests();
            let sent: Vec<_> = requests[1..].iter().map(pictures).collect();
            assert_eq!(sent, [[earlier, "M3Jk NHRo"]; 2], "{kept:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_run_that_is_sent_again_sends_the_pictures_of_its_results() {
    every_case(async |case| {
        for tool_history in [ToolHistory::Replay, ToolHistory::Omit] {
            let store = case.store().await;
            let asks = || case.calls([("map", "c1")]);
            let fails = || Step::error("overloaded");
            let texts = [Step::text("a1"), asks(), fails(), asks(), Step::text("a2")];
            let model = ScriptedModel::new(texts);
            let map = |_: ToolContext| async {
                let data = MediaSource::Base64("bWFw".to_owned());
                Ok::<_, tower_chat::BoxError>(Media::new("image/png", data))
            };
            let tools = Tools::new().with(tool_fn(definition("map"), map));
            let replay = ReplayPolicy::default()
                .with_old_media(OldMedia::keep_last(0))
                .with_tool_history(tool_history);
            let client = case.stack(model.clone(), &store, policy().with_replay(replay), tools);
            send(&client, case.request_with([asking("q1", ["b25l"])])).await.unwrap();
            let second = case.request_with([asking("q2", [])]);
            send(&client, second.clone()).await.unwrap_err();
            let before = model.requests().len();
            send(&client, second).await.unwrap();
            for request in &model.requests()[1..] {
                let sent = pictures(request);
                assert_eq!(sent[0], "-", "{tool_history:?}: {sent:?}");
                assert!(sent[1..].iter().all(|it| it == "bWFw"), "{tool_history:?}: {sent:?}");
            }
            if tool_history == ToolHistory::Replay && !case.is(PersistenceMode::PerRun) {
                assert_eq!(pictures(&model.requests()[before]), ["-", "bWFw"]);
            }
        }
    })
    .await;
}
