//! Rules that several targets have.

use tower_chat::{
    Message, Messages, format,
    replay::{DanglingCalls, Replay},
};

use crate::Plant;

/// What a model is sent of messages.
pub(crate) fn replayed(messages: &Messages) -> Messages {
    let mut replay = Replay::new(DanglingCalls::Interrupted);
    messages.iter().for_each(|message| replay.push(message));
    drop(replay.split_open());
    replay.view()
}

/// What was read can be stored, and read again as it was.
pub(crate) fn assert_storable(message: &Message, plant: Option<Plant>) {
    let stored = format::encode(message);
    let mut again = format::decode(&stored).expect("what was written is read");
    if plant == Some(Plant::Roundtrip) {
        again.parts.pop();
    }
    again.id = message.id;
    assert_eq!(format::encode(&again), stored, "what is stored is not what was read");
    assert!(again == *message, "{again:?}\nwas stored, and this was read: {message:?}");
}
