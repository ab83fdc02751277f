//! Tests which media are sent again.

use std::time::SystemTime;

use tower_chat_core::{MessageId, Native, RunId, ToolCall, ToolResult};

use super::*;
use crate::replay::{DanglingCalls, Replay, ReplayContext, ReplayPolicy, Window};

fn picture(data: &str) -> Part {
    Part::Media(Media::new("image/png", MediaSource::Base64(data.to_owned())))
}

fn user(parts: Vec<Part>) -> Message {
    Message::new(Role::User, parts)
}

/// Returns three turns, which contain a question with two pictures, a tool result with one picture,
/// a question with a file, and an answer with a picture.
fn conversation() -> Messages {
    let mut result = ToolResult::new("c1", "a map");
    result.content.push(picture("bWFw"));
    result.native = Some(Native::new("test", "{}".parse().unwrap()));
    let file = Media::new("application/pdf", MediaSource::Url("https://example.com/a.pdf".into()));
    let turns = [
        vec![
            user(vec![Part::text("look"), picture("b25l"), picture("dHdvMg==")]),
            Message::assistant("two pictures"),
        ],
        vec![
            Message::user("a map?"),
            Message::tool_calls([ToolCall::new("c1", "map", "{}")]),
            Message::tool_results([result]),
            Message::assistant("here"),
        ],
        vec![
            user(vec![Part::Media(file), Part::text("read")]),
            Message::new(Role::Assistant, vec![picture("ZHJhd24=")]),
        ],
    ];
    let messages = turns.into_iter().flat_map(|turn| {
        let run = RunId::new();
        turn.into_iter().zip(0..).map(move |(mut message, index)| {
            message.id = Some(MessageId { run, index });
            Arc::new(message)
        })
    });
    messages.collect()
}

/// Returns for each message a list of its media. The item is `media` if the medium is sent, or else
/// the sentence that replaces the medium.
fn media(messages: &Messages) -> Vec<Vec<String>> {
    let wording = |part: &Part| match part {
        Part::Media(_) => Some("media".to_owned()),
        Part::Text(text) if text.text.starts_with('[') => Some(text.text.clone()),
        _ => None,
    };
    let of_message = |message: &Arc<Message>| {
        let parts = message.parts.iter().flat_map(|part| match part {
            Part::ToolResult(result) => result.content.iter().filter_map(wording).collect(),
            part => wording(part).into_iter().collect::<Vec<_>>(),
        });
        parts.collect::<Vec<_>>()
    };
    messages.iter().map(of_message).filter(|parts| !parts.is_empty()).collect()
}

#[test]
fn only_the_newest_media_are_sent_and_sentences_replace_the_older_media() {
    let three = "[An earlier attachment (image/png, 3 bytes) is not sent again.]";
    let four = "[An earlier attachment (image/png, 4 bytes) is not sent again.]";
    let pdf = "[An earlier attachment (application/pdf) is not sent again.]";
    let sent = "media";
    for (policy, question, result, file) in [
        (OldMedia::keep_last(9), [sent, sent], sent, sent),
        (OldMedia::keep_last(4), [sent, sent], sent, sent),
        (OldMedia::keep_last(3), [three, sent], sent, sent),
        (OldMedia::keep_last(2), [three, four], sent, sent),
        (OldMedia::keep_last(1), [three, four], three, sent),
        (OldMedia::keep_last(0), [three, four], three, pdf),
        (OldMedia::keep_turns(3), [sent, sent], sent, sent),
        (OldMedia::keep_turns(2), [three, four], sent, sent),
        (OldMedia::keep_turns(1), [three, four], three, sent),
        (OldMedia::keep_turns(0), [three, four], three, pdf),
    ] {
        let found = media(&policy.apply(&conversation()));
        let expected = [question.to_vec(), vec![result], vec![file], vec![sent]];
        assert_eq!(found, expected, "{policy:?}");
    }
}

#[test]
fn a_window_counts_the_sentences_in_place_of_old_media() {
    let of_media = |message: &Message| media(&Messages::from([message.clone()])).concat();
    let media_alone = |text: &String| text == "media";
    let counter =
        move |message: &Message| of_media(message).iter().filter(|it| media_alone(it)).count();
    let policy = ReplayPolicy::default()
        .with_old_media(OldMedia::keep_last(1))
        .with_window(Window::tokens_counted_by(2, counter));
    let (messages, context) = (conversation(), ReplayContext::at(SystemTime::UNIX_EPOCH));
    assert_eq!(policy.apply(&messages, &context).len(), messages.len());
    let policy = ReplayPolicy::default().with_window(Window::tokens_counted_by(2, counter));
    assert!(policy.apply(&messages, &context).len() < messages.len());
}

#[test]
fn media_of_the_run_are_sent_and_media_of_an_earlier_open_round_count() {
    let messages = conversation();
    let last = messages.last().and_then(|message| message.id).map(|id| id.run);
    let run = last.unwrap_or_else(RunId::new);
    let three = "[An earlier attachment (image/png, 3 bytes) is not sent again.]";
    let four = "[An earlier attachment (image/png, 4 bytes) is not sent again.]";
    let sent = "media";
    for (policy, question, result) in [
        (OldMedia::keep_last(0), [three, four], three),
        (OldMedia::keep_last(1), [three, four], sent),
        (OldMedia::keep_last(2), [three, sent], sent),
        (OldMedia::keep_turns(0), [three, four], three),
        (OldMedia::keep_turns(1), [three, four], sent),
        (OldMedia::keep_turns(2), [sent, sent], sent),
    ] {
        let found = media(&policy.apply_before(&messages, &mut [], Some(run)));
        let expected = [question.to_vec(), vec![result], vec![sent], vec![sent]];
        assert_eq!(found, expected, "the run is sent again, {policy:?}");

        let (closed, open) = (messages.take(3), messages.skip(3).take(2));
        let mut open: Vec<_> = open.iter().cloned().collect();
        let mut references: Vec<_> = open.iter_mut().collect();
        let mut found = media(&policy.apply_before(&closed, &mut references, None));
        found.extend(media(&open.into()));
        assert_eq!(found, [question.to_vec(), vec![result]], "an open round, {policy:?}");
    }
}

#[test]
fn a_message_without_an_id_belongs_to_the_run_of_the_message_before_it() {
    let mut messages: Vec<_> = conversation().iter().cloned().collect();
    Arc::make_mut(&mut messages[4]).id = None;
    let run = messages[3].id.map(|id| id.run);
    let other = messages[0].id.map(|id| id.run);
    let messages = messages.into();
    let sent = |run| media(&OldMedia::keep_last(0).apply_before(&messages, &mut [], run));
    assert_eq!(sent(run)[1], ["media"]);
    assert_ne!(sent(other)[1], ["media"]);
}

#[test]
fn a_late_result_belongs_to_the_run_that_has_added_it() {
    let runs = [(); 3].map(|()| RunId::new());
    let mut late = ToolResult::new("c", "a map");
    late.content.push(picture("bWFw"));
    let messages = [
        (0, Message::user("where?")),
        (0, Message::tool_calls([ToolCall::new("c", "look", "{}")])),
        (1, user(vec![Part::text("look"), picture("b25l")])),
        (1, Message::assistant("a picture")),
        (2, Message::tool_results([late])),
    ];
    let mut replay = Replay::lenient();
    for (index, (run, mut message)) in (0..).zip(messages) {
        message.id = Some(MessageId { run: runs[run], index });
        replay.push(&Arc::new(message));
    }
    let messages = replay.view();
    let sent = |run| media(&OldMedia::keep_last(1).apply_before(&messages, &mut [], Some(run)));
    let three = "[An earlier attachment (image/png, 3 bytes) is not sent again.]";
    assert_eq!(sent(runs[2]), [["media"], ["media"]], "the run is sent again");
    assert_eq!(sent(RunId::new()), [[three], ["media"]], "a later run");
}

/// The result of an earlier call is stored before the result of the open round, and sent after it.
#[test]
fn media_of_an_open_round_count_in_the_order_in_which_they_are_sent() {
    let with_picture = |id: &str, data: &str| {
        let mut result = ToolResult::new(id, "a map");
        result.content.push(picture(data));
        result
    };
    let (early, last) = (with_picture("early", "b25l"), with_picture("last", "dHdvMg=="));
    let separate = [early.clone(), last.clone()].map(|result| Message::tool_results([result]));
    let together = Message::tool_results([early, last]);
    let calls = |id: &str| Message::tool_calls([ToolCall::new(id, "look", "{}")]);
    let questions =
        [Message::user("where?"), calls("early"), Message::user("and here?"), calls("last")];
    for results in [separate.to_vec(), vec![together]] {
        let runs = [(); 3].map(|()| RunId::new());
        let of_run = [0, 0, 1, 1].into_iter().chain([2; 2]);
        let messages = of_run.zip(questions.iter().cloned().chain(results));
        let mut replay = Replay::new(DanglingCalls::default());
        for (index, (run, mut message)) in (0..).zip(messages) {
            message.id = Some(MessageId { run: runs[run], index });
            replay.push(&Arc::new(message));
        }
        let policy = ReplayPolicy::default().with_old_media(OldMedia::keep_last(1));
        policy.edit(&mut replay, &ReplayContext::at(SystemTime::UNIX_EPOCH));
        let four = "[An earlier attachment (image/png, 4 bytes) is not sent again.]";
        assert_eq!(media(&replay.view()), [[four], ["media"]]);
    }
}

#[test]
fn a_message_without_old_media_is_shared_with_the_history() {
    let messages = conversation();
    let sent = OldMedia::keep_last(2).apply(&messages);
    let is_shared: Vec<bool> =
        messages.iter().zip(sent.iter()).map(|(a, b)| Arc::ptr_eq(a, b)).collect();
    assert_eq!(is_shared, [false, true, true, true, true, true, true, true]);
}

#[test]
fn a_result_whose_media_were_replaced_loses_its_native_item() {
    let native = |messages: &Messages| {
        messages.get(4).and_then(|message| message.results().next()?.native.clone())
    };
    assert!(native(&OldMedia::keep_last(2).apply(&conversation())).is_some());
    assert!(native(&OldMedia::keep_last(1).apply(&conversation())).is_none());
}
