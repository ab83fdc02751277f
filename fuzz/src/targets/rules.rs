//! Rules that several targets share.

use tower_chat::{
    Message,
    message::Messages,
    replay::{DanglingCalls, Replay},
    store::format,
};

use crate::Plant;

pub(crate) fn replayed(messages: &Messages) -> Messages {
    let mut replay = Replay::new(DanglingCalls::Interrupted);
    messages.iter().for_each(|message| replay.push(message));
    drop(replay.split_open());
    replay.view()
}

/// Panics if a message cannot be stored and read again unchanged.
pub(crate) fn assert_storable(message: &Message, plant: Option<Plant>) {
    let stored = format::encode(message);
    let mut again = format::decode(&stored).expect("a stored message can be read");
    if plant == Some(Plant::Roundtrip) {
        again.parts.pop();
    }
    again.id = message.id;
    assert_eq!(format::encode(&again), stored, "a message changes when it is stored and read");
    assert!(again == *message, "{message:?}\nis after it was stored: {again:?}");
}
