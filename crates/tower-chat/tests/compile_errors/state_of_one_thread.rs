//! The state of a tool cannot be shared between threads.

use std::rc::Rc;

/// Counts.
#[tower_chat::tool]
async fn count(seen: &Rc<u8>) -> String {
    format!("{seen}")
}

fn main() {
    count(std::sync::Arc::new(Rc::new(1)));
}
