//! `telemetry`: the cost of the layers for telemetry if no subscriber and no recorder is installed.
//! The stack is in per-service-call mode with a traced store in memory. The time of a complete run
//! is divided by its service calls.
//!
//! Floor: the same stack without these layers and with a store that is not traced. The two stacks
//! alternate, because the load of the machine changes. The field `history` is the number of service
//! calls of a run, 21 or 1.

use std::{sync::Arc, time::Instant};

use tower::{
    Layer, Service, ServiceExt,
    util::{BoxCloneSyncService, option_layer},
};
use tower_chat::{
    BoxError, ChatRequest, ChatResponse, ConversationKey, HistoryStore, MemoryStore,
    PersistenceMode,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    telemetry::{TelemetryLayer, TracedStore},
};

use crate::{
    Effort,
    report::{Line, Samples, us_since},
    workload::{self, CALLS, Model},
};

type Stack = BoxCloneSyncService<ChatRequest, ChatResponse, BoxError>;

pub(crate) fn measure(effort: Effort) -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let (store, model) = (MemoryStore::new(), Model::default());
    let mut stacks =
        [true, false].map(|traced| (stack(&store, &model, traced), Samples::default()));
    for calls in [1, CALLS] {
        stacks.iter_mut().for_each(|(_, samples)| *samples = Samples::default());
        for repetition in 0..effort.repetitions(20_000 / calls) {
            let mut turns = stacks.each_mut();
            if repetition % 2 == 1 {
                turns.reverse();
            }
            for (stack, samples) in turns {
                samples.add(runtime.block_on(sample(stack, &store, &model, calls))?);
            }
        }
        let [(_, ours), (_, floor)] = &stacks;
        let (us, floor) = (ours.median(), floor.median());
        Line::new("telemetry", "per_service_call", "memory", calls, us, floor).print()?;
    }
    Ok(())
}

fn stack(store: &MemoryStore, model: &Model, traced: bool) -> Stack {
    let layer = |layer: fn() -> TelemetryLayer| option_layer(traced.then(layer));
    let store: Arc<dyn HistoryStore> = match traced {
        true => Arc::new(TracedStore::new(store.clone())),
        false => Arc::new(store.clone()),
    };
    let client = layer(TelemetryLayer::chat).layer(model.clone());
    let below = PerServiceCallPersistence::new(store.clone()).layer(client);
    let tool_loop = ToolLoopLayer::new(workload::tools()).layer(below);
    let run = PerRunPersistence::new(store).mode(PersistenceMode::PerServiceCall).layer(tool_loop);
    BoxCloneSyncService::new(layer(TelemetryLayer::agent).layer(run))
}

/// Returns the time of one run for each service call, in a new conversation.
async fn sample(
    stack: &mut Stack,
    store: &MemoryStore,
    model: &Model,
    calls: usize,
) -> Result<f64, BoxError> {
    let key = ConversationKey::new("benches", "telemetry");
    store.delete(&key).await?;
    model.prepare(calls - 1);
    let request = workload::input().in_conversation(key);
    let start = Instant::now();
    let answer = stack.ready().await?.call(request).await?.collect().await?;
    let us = us_since(start);
    if model.calls().len() != calls || answer.messages.is_empty() {
        return Err("the run ended without its final answer".into());
    }
    Ok(us / f64::from(u32::try_from(calls)?))
}
