//! A boxed service that is neither `Clone` nor `Sync` is used as a model client.

use tower_chat::tower::util::BoxService;
use tower_chat::{BoxError, ChatPipeline, ChatRequest, ChatResponse};

pub fn pipeline(client: BoxService<ChatRequest, ChatResponse, BoxError>) {
    let _ = ChatPipeline::builder(client);
}

fn main() {}
