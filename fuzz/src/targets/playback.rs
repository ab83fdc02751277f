//! Recorded conversations, as `tower-chat play` reads them. The command is a program and not a library, so
//! its reader is compiled into this crate too.

#[path = "../../../crates/tower-chat-cli/src/playback/pairing.rs"]
#[allow(dead_code, reason = "the command uses all of it")]
mod pairing;
#[path = "../../../crates/tower-chat-cli/src/playback/recording.rs"]
#[allow(dead_code, reason = "the command uses all of it")]
mod recording;

use tower_chat_testkit::Rng;

use super::Entry;
use crate::seeds;

/// The scope of the recorded conversations.
const SCOPE: &str = "recorded";

pub(crate) fn target() -> Entry {
    Entry::new("recorded-conversations", "the lines that `tower-chat play` reads", || {
        let run = |bytes: &[u8], _: &mut Rng| {
            let Ok(text) = std::str::from_utf8(bytes) else { return false };
            recording::Recording::read_lines(text).is_ok()
        };
        (seeds::conversations(), Box::new(run))
    })
}
