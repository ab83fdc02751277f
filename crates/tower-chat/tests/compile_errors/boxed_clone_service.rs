//! A boxed service that is not `Sync` is used as a model client.

use tower_chat::tower::util::BoxCloneService;
use tower_chat::{BoxError, ChatPipeline, ChatRequest, ChatResponse};

pub fn pipeline(client: BoxCloneService<ChatRequest, ChatResponse, BoxError>) {
    let _ = ChatPipeline::builder(client);
}

fn main() {}
