//! Detects which layers of this crate are below a layer, before a request reaches any of them.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU8, Ordering},
    task::{Context, Poll},
};

use tower_service::Service;

/// The layers of this crate that other layers detect. Each has one bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LayerKind {
    PerRunPersistence = 1,
    ToolLoop = 2,
    PerServiceCallPersistence = 4,
}

thread_local! {
    /// The layers that report a readiness poll during the innermost active
    /// [`LayersBelow::poll_ready`] on this thread.
    static POLLED: Cell<u8> = const { Cell::new(0) };
}

pub(crate) fn report_readiness_poll(layer: LayerKind) {
    POLLED.set(POLLED.get() | layer as u8);
}

/// The layers that were found below a service, shared by its clones.
///
/// Before the first request, only readiness polls reach the services of a stack: `poll_ready` of a
/// service calls `poll_ready` of its inner service on the same thread. Each service of this crate
/// reports its own polls. A service above clears the reports before it polls its inner service: the
/// layers that have reported a poll afterwards are below. Services of other crates need no code for
/// this purpose. A service that does not poll its inner service in the same call, such as tower's
/// `Buffer`, hides the layers below.
#[derive(Debug, Default)]
pub(crate) struct LayersBelow(AtomicU8);

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
        let before = POLLED.replace(0);
        let ready = service.poll_ready(cx);
        let below = POLLED.get();
        self.0.fetch_or(below, Ordering::Release);
        // A layer above must also find the layers that this layer has found.
        POLLED.set(before | below);
        ready
    }

    pub(crate) fn holds(&self, layer: LayerKind) -> bool {
        self.0.load(Ordering::Acquire) & layer as u8 != 0
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
