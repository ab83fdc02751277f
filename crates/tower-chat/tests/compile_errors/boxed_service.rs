//! A boxed service that is neither `Clone` nor `Sync` is given to a pipeline.

use tower_chat::tower::util::BoxService;
use tower_chat::{BoxError, ChatPipeline, ChatRequest, ChatResponse};

pub fn pipeline(client: BoxService<ChatRequest, ChatResponse, BoxError>) {
    let _ = ChatPipeline::builder(client);
}

fn main() {}
