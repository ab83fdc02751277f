//! A client with its own response type is used as a model client.

use tower_chat::tower::util::BoxCloneSyncService;
use tower_chat::{BoxError, ChatPipeline, ChatRequest};

pub fn pipeline(client: BoxCloneSyncService<ChatRequest, String, BoxError>) {
    let _ = ChatPipeline::builder(client);
}

fn main() {}
