//! The recorded request bodies.

use serde_json::Value;
use tower_chat_testkit::{recordings::Recordings, validate::Wire};

use crate::wires::codec::WIRES;

/// A recorded request body that a provider answered with 2xx.
pub(crate) struct Accepted {
    pub(crate) wire: Wire,
    pub(crate) id: String,
    pub(crate) body: Value,
}

/// Returns the accepted bodies of all [`WIRES`] (JSON formats of providers).
pub(crate) fn accepted() -> Vec<Accepted> {
    let recordings = Recordings::all();
    let bodies = WIRES.into_iter().flat_map(|wire| {
        let accepted = recordings.accepted(wire.name()).unwrap().into_iter();
        accepted.map(move |request| Accepted { wire, id: request.id, body: request.body })
    });
    bodies.collect()
}
