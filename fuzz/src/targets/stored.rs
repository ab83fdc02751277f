//! Fuzz targets for stored messages, and for rows that are imported from another system.

use std::sync::Arc;

use tower_chat::{ChatRequest, Message, import::rows, replay::DanglingCalls, store::format};
use tower_chat_testkit::Rng;
use tower_chat_wire::body::BodyWire;

use super::{
    Entry,
    rules::{assert_storable, replayed},
    wires::{WIRES, render},
};
use crate::{
    Plant,
    seeds::{self, OWN_ROWS},
};

pub(crate) fn messages(plant: Option<Plant>) -> Entry {
    Entry::new("stored-messages", "format::decode, and every wire's render_request", move || {
        (stored_messages(), Box::new(move |bytes: &[u8], _: &mut Rng| accepts(bytes, plant)))
    })
}

fn accepts(bytes: &[u8], plant: Option<Plant>) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(message) = format::decode(text) else { return false };
    assert_storable(&message, plant);
    // A stored message may contain an item that is nested more deeply than an answer may be.
    // `render` then returns `None`, which is no failure of this target.
    let request = ChatRequest::new(vec![Message::user("Go on."), message]);
    let mut sent = request.clone();
    sent.set_new_messages(replayed(request.messages()));
    for (_, body, wire) in WIRES {
        for request in [&request, &sent] {
            let _what_is_sent = render(body, wire, request);
        }
    }
    true
}

pub(crate) fn imported_rows() -> Entry {
    Entry::new("imported-rows", "import::rows::read_rows, valid_messages_of_rows", || {
        let run = |bytes: &[u8], _: &mut Rng| {
            let Ok(text) = std::str::from_utf8(bytes) else { return false };
            let Ok(read) = rows::read_rows(text.lines()) else { return false };
            rows::valid_messages_of_rows(read, DanglingCalls::Interrupted).is_ok()
        };
        (vec![OWN_ROWS.into()], Box::new(run))
    })
}

/// Returns the messages of the seeds in their stored form.
fn stored_messages() -> Vec<Vec<u8>> {
    let mut messages: Vec<Arc<Message>> = Vec::new();
    for (_, body, _) in WIRES {
        let seeds = seeds::of_wire(body);
        if body == BodyWire::OpenAiChat {
            let requests = seeds.requests.iter();
            let requests = requests.filter_map(|bytes| serde_json::from_slice(bytes).ok());
            let requests = requests.filter_map(|json| body.parse_request(json).ok());
            messages.extend(
                requests.flat_map(|request| request.messages().iter().cloned().collect::<Vec<_>>()),
            );
        }
        let answers = seeds.answers.iter().filter_map(|bytes| std::str::from_utf8(bytes).ok());
        let answers = answers.filter_map(|text| body.parse_answer(text).ok());
        messages.extend(answers.flat_map(|answer| answer.messages));
    }
    messages.iter().map(|message| format::encode(message).into_bytes()).collect()
}
