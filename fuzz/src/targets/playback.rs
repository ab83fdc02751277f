//! A fuzz target for files of recorded conversations, which the command `play` of the campaigns
//! reads. The source file of the reader is included, because this crate does not depend on the
//! campaigns.

#[path = "../../../tests/campaigns/src/playback/pairing.rs"]
#[allow(dead_code, reason = "the campaigns use all of it")]
mod pairing;
#[path = "../../../tests/campaigns/src/playback/recording.rs"]
#[allow(dead_code, reason = "the campaigns use all of it")]
mod recording;

use tower_chat_testkit::Rng;

use super::Entry;
use crate::seeds;

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
