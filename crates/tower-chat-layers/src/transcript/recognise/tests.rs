//! Tests long, pruned and reordered transcripts. Others are tested through the layers and the HTTP
//! endpoint.

use tower_chat_core::{Media, MediaSource, Message, Part, Role, ToolCall, ToolResult};

use super::*;

fn equal(count: usize) -> Messages {
    let both = [Message::user("ok"), Message::assistant("ok")].map(std::sync::Arc::new);
    both.into_iter().cycle().take(count).collect()
}

#[test]
fn a_transcript_of_twenty_thousand_equal_messages_is_recognised() {
    let stored = equal(20_000);
    let mut sent = stored.clone();
    sent.push(Message::user("and now?"));
    let Ok(Recognised::New(new)) = recognise(&stored, &sent, false) else { unreachable!() };
    assert_eq!(new.iter().map(|it| it.text()).collect::<Vec<_>>(), ["and now?"]);
    // The lists differ late, and each shorter overlap must be excluded too.
    let mut stored = equal(20_000);
    stored.push(Message::user("the end"));
    stored.push(Message::assistant("bye"));
    let mut other = equal(19_999);
    other.push(Message::assistant("no"));
    other.push(Message::user("and now?"));
    let diverged = recognise(&stored, &other, false);
    assert_eq!(diverged, Err(TranscriptError::Diverged { position: 19_999 }));
}

fn messages<const N: usize>(messages: [Message; N]) -> Messages {
    messages.into()
}

fn texts(recognised: Result<Recognised, TranscriptError>) -> Result<Vec<String>, TranscriptError> {
    match recognised? {
        Recognised::New(new) => Ok(new.iter().map(|message| message.text()).collect()),
        Recognised::LastAnswer => unreachable!(),
    }
}

#[test]
fn a_transcript_may_begin_before_the_stored_messages_only_if_messages_were_pruned() {
    let stored = messages([Message::user("q2"), Message::assistant("a2")]);
    let mut sent = messages([Message::user("q1"), Message::assistant("a1")]);
    sent.append(&stored);
    sent.push(Message::user("q3"));
    assert_eq!(texts(recognise_after_cut(&stored, 2, &sent, false)), Ok(vec!["q3".to_owned()]));
    let diverged = Err(TranscriptError::Diverged { position: 0 });
    assert_eq!(texts(recognise(&stored, &sent, false)), diverged);
}

#[test]
fn system_messages_between_repeated_messages_are_not_new() {
    let stored = messages([Message::system("now"), Message::user("q1"), Message::assistant("a1")]);
    let sent = [
        Message::user("q1"),
        Message::system("later"),
        Message::assistant("a1"),
        Message::user("q2"),
    ];
    assert_eq!(texts(recognise(&stored, &messages(sent), false)), Ok(vec!["q2".to_owned()]));
}

#[test]
fn a_question_with_another_picture_is_new() {
    let picture = |file: &str| {
        let media = Media::new("image/png", MediaSource::File(file.to_owned()));
        Message::new(Role::User, vec![Part::text("what is this?"), Part::Media(media)])
    };
    let stored = messages([picture("f1"), Message::assistant("a cat")]);
    let mut same = stored.clone();
    same.push(Message::user("sure?"));
    assert_eq!(texts(recognise(&stored, &same, false)), Ok(vec!["sure?".to_owned()]));
    let other = messages([picture("f2"), Message::assistant("a cat"), Message::user("sure?")]);
    let diverged = Err(TranscriptError::Diverged { position: 0 });
    assert_eq!(texts(recognise(&stored, &other, false)), diverged);
}

#[test]
fn a_result_of_another_call_is_new() {
    let called = [Message::user("q1"), Message::tool_calls([ToolCall::new("c1", "look", "{}")])];
    let transcript = |result: &str| {
        let result = Message::tool_results([ToolResult::new(result, "seen")]);
        Messages::from_iter(called.iter().cloned().chain([result, Message::assistant("a1")]))
    };
    let stored = transcript("c1");
    let mut same = stored.clone();
    same.push(Message::user("q2"));
    assert_eq!(texts(recognise(&stored, &same, false)), Ok(vec!["q2".to_owned()]));
    let mut other = transcript("c2");
    other.push(Message::user("q2"));
    texts(recognise(&stored, &other, false)).unwrap_err();
}
