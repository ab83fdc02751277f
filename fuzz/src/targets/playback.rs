//! Recorded conversations, as the program `play` of the campaigns reads them. The campaigns are not
//! a dependency of this crate, so their reader is compiled into this crate too.

#[path = "../../../tests/campaigns/src/playback/pairing.rs"]
#[allow(dead_code, reason = "the campaigns use all of it")]
mod pairing;
#[path = "../../../tests/campaigns/src/playback/recording.rs"]
#[allow(dead_code, reason = "the campaigns use all of it")]
mod recording;

use tower_chat_testkit::Rng;

use super::Entry;
use crate::seeds;

/// The scope of the recorded conversations.
const SCOPE: &str = "recorded";

pub(crate) fn target() -> Entry {
    Entry::new("recorded-conversations", "the lines that `play` of the campaigns reads", || {
        let run = |bytes: &[u8], _: &mut Rng| {
            let Ok(text) = std::str::from_utf8(bytes) else { return false };
            recording::Recording::read_lines(text).is_ok()
        };
        (seeds::conversations(), Box::new(run))
    })
}
