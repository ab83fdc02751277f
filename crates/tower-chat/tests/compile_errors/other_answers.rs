//! A client that answers with a type of its own is given to a pipeline.

use tower_chat::tower::util::BoxCloneSyncService;
use tower_chat::{BoxError, ChatPipeline, ChatRequest};

pub fn pipeline(client: BoxCloneSyncService<ChatRequest, String, BoxError>) {
    let _ = ChatPipeline::builder(client);
}

fn main() {}
