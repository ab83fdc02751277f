//! Tower layers that make LLM conversations durable and always valid to replay.
