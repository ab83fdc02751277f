//! Tests long transcripts. Short ones are tested through the layers and the HTTP endpoint.

use tower_chat_core::Message;

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
