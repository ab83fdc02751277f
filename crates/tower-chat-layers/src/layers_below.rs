//! Detects which layers of this crate are below a layer, before a request reaches any of them.

use std::{
    cell::Cell,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll},
};

use tower_service::Service;

/// The layers of this crate that other layers detect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LayerKind {
    PerRunPersistence,
    ToolLoop,
    PerServiceCallPersistence,
}

/// The number of readiness polls on one thread, for each kind of layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Polls {
    per_run: u64,
    tool_loop: u64,
    per_service_call: u64,
}

thread_local! {
    static POLLS: Cell<Polls> = const {
        Cell::new(Polls { per_run: 0, tool_loop: 0, per_service_call: 0 })
    };
}

pub(crate) fn report_readiness_poll(layer: LayerKind) {
    let mut polls = POLLS.get();
    let count = match layer {
        LayerKind::PerRunPersistence => &mut polls.per_run,
        LayerKind::ToolLoop => &mut polls.tool_loop,
        LayerKind::PerServiceCallPersistence => &mut polls.per_service_call,
    };
    *count = count.wrapping_add(1);
    POLLS.set(polls);
}

/// The layers that were found below a service, shared by its clones.
///
/// Before the first request, only readiness polls reach the services of a stack: `poll_ready` of a
/// service calls `poll_ready` of its inner service on the same thread. Each service of this crate
/// counts its own polls. A service above compares the counts before and after it polls its inner
/// service: if the count of a kind has changed, a layer of this kind is below. Services of other
/// crates need no code for this purpose. A service that does not poll its inner service in the same
/// call, such as tower's `Buffer`, hides the layers below.
#[derive(Debug, Default)]
pub(crate) struct LayersBelow {
    per_run: AtomicBool,
    tool_loop: AtomicBool,
    per_service_call: AtomicBool,
}

impl LayersBelow {
    /// Polls an inner service for readiness, and records the layers that the poll has reached.
    pub(crate) fn poll_ready<S, R>(
        &self,
        service: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), S::Error>>
    where
        S: Service<R>,
    {
        let before = POLLS.get();
        let ready = service.poll_ready(cx);
        let after = POLLS.get();
        for (found, before, after) in [
            (&self.per_run, before.per_run, after.per_run),
            (&self.tool_loop, before.tool_loop, after.tool_loop),
            (&self.per_service_call, before.per_service_call, after.per_service_call),
        ] {
            if before != after {
                found.store(true, Ordering::Release);
            }
        }
        ready
    }

    pub(crate) fn holds(&self, layer: LayerKind) -> bool {
        match layer {
            LayerKind::PerRunPersistence => &self.per_run,
            LayerKind::ToolLoop => &self.tool_loop,
            LayerKind::PerServiceCallPersistence => &self.per_service_call,
        }
        .load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::ready};

    use tower::{Layer, ServiceExt, service_fn, util::BoxCloneSyncService};
    use tower_chat_core::{BoxError, ChatRequest, ChatResponse, MemoryStore};

    use super::*;
    use crate::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer, Tools};

    const ALL: [LayerKind; 3] =
        [LayerKind::PerRunPersistence, LayerKind::ToolLoop, LayerKind::PerServiceCallPersistence];

    type Client = BoxCloneSyncService<ChatRequest, ChatResponse, BoxError>;

    fn model() -> Client {
        let model = service_fn(|_: ChatRequest| ready(Err::<ChatResponse, _>("not called".into())));
        BoxCloneSyncService::new(model)
    }

    fn found(service: &mut Client) -> Vec<LayerKind> {
        let below = LayersBelow::default();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(below.poll_ready(service, &mut cx).is_ready());
        ALL.into_iter().filter(|layer| below.holds(*layer)).collect()
    }

    #[test]
    fn each_layer_is_found_below_boxes_and_other_layers() {
        let store = MemoryStore::new();
        assert_eq!(found(&mut model()), []);
        let below = PerServiceCallPersistence::new(store.clone()).layer(model());
        let mut below = BoxCloneSyncService::new(below);
        assert_eq!(found(&mut below), [LayerKind::PerServiceCallPersistence]);
        let looped = ToolLoopLayer::new(Tools::new()).layer(below);
        let mut looped = BoxCloneSyncService::new(looped);
        assert_eq!(found(&mut looped), ALL[1..]);
        let above = PerRunPersistence::new(store).layer(looped);
        assert_eq!(found(&mut BoxCloneSyncService::new(above)), ALL);
    }

    #[tokio::test]
    async fn layers_of_another_stack_on_the_same_thread_are_not_reported() {
        let other = PerServiceCallPersistence::new(MemoryStore::new()).layer(model());
        BoxCloneSyncService::new(other).ready().await.unwrap();
        assert_eq!(found(&mut model()), []);
    }

    #[test]
    fn a_service_with_another_request_type_can_be_polled_and_reports_no_layers() {
        let below = LayersBelow::default();
        let mut service = service_fn(|_: u8| ready(Ok::<_, Infallible>(())));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(below.poll_ready::<_, u8>(&mut service, &mut cx).is_ready());
        assert!(ALL.into_iter().all(|layer| !below.holds(layer)));
    }
}
