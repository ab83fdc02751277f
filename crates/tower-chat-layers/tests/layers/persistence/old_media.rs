//! Tests that the policy for old pictures and documents does not affect the media of a run that is
//! sent again.

use tower_chat::{
    ChatRequest, Message, Part, Tools,
    message::{Media, MediaSource},
    replay::{OldMedia, ReplayPolicy},
};
use tower_chat_testkit::{ScriptedModel, Step};

use crate::common::*;

fn asking(text: &str, pictures: [&str; 2]) -> Message {
    let mut message = Message::user(text);
    let media = pictures.map(|data| Media::new("image/png", MediaSource::Base64(data.to_owned())));
    message.parts.extend(media.map(Part::Media));
    message
}

/// Returns for each message of the user the data of its pictures, or `-` for each picture that is
/// not sent.
fn pictures(request: &ChatRequest) -> Vec<String> {
    let picture = |part: &Part| match part {
        Part::Media(Media { source: MediaSource::Base64(data), .. }) => Some(data.clone()),
        Part::Text(text) if text.text.starts_with('[') => Some("-".to_owned()),
        _ => None,
    };
    let messages = request.messages().iter();
    let pictures = messages.map(|message| message.parts.iter().filter_map(picture).collect());
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
