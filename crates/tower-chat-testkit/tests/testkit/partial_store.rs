//! Tests the contract of stores with stores that have at most one of the capabilities.

use async_trait::async_trait;
use tower_chat_core::{
    MemoryStore,
    store::{
        Capability, Directory, HistoryStore, Journal, Maintenance, StoreError, Summaries,
        ToolCallQueries,
        author::{AppendError, Slot, StoreWrapper, Ticket, Write},
    },
};

/// A store that offers only the given capability, or none.
struct Partial(MemoryStore, Option<Capability>);

impl Partial {
    fn has(&self, capability: Capability) -> bool {
        self.1 == Some(capability)
    }
}

#[async_trait]
impl StoreWrapper for Partial {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.0
    }

    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket {
        let is_staged = writes.iter().any(|write| write.as_staged().is_some());
        if is_staged && !self.has(Capability::Journal) {
            let source = StoreError::from(Capability::Journal);
            return Ticket::done(Err(AppendError { completed: 0, source }));
        }
        self.0.append(slot, writes)
    }

    fn journal(&self) -> Option<&dyn Journal> {
        self.has(Capability::Journal).then_some(&self.0 as _)
    }

    fn directory(&self) -> Option<&dyn Directory> {
        self.has(Capability::Directory).then_some(&self.0 as _)
    }

    fn tool_calls(&self) -> Option<&dyn ToolCallQueries> {
        self.has(Capability::ToolCallQueries).then_some(&self.0 as _)
    }

    fn maintenance(&self) -> Option<&dyn Maintenance> {
        self.has(Capability::Maintenance).then_some(&self.0 as _)
    }

    fn summaries(&self) -> Option<&dyn Summaries> {
        self.has(Capability::Summaries).then_some(&self.0 as _)
    }
}

mod without_capabilities {
    tower_chat_testkit::store_contract!(
        super::Partial(tower_chat_core::MemoryStore::new(), None);
        one_runtime: "the wrapped memory store is tested on both runtimes";
        heavy: "the wrapped memory store runs the slow tests";
        directory: "this store has none"; maintenance: "this store has none";
        journal: "this store has none"; tool_calls: "this store has none"; summaries: "this store has none"
    );
}

mod with_a_journal {
    tower_chat_testkit::store_contract!(
        super::Partial(tower_chat_core::MemoryStore::new(), Some(super::Capability::Journal));
        one_runtime: "the wrapped memory store is tested on both runtimes";
        heavy: "the wrapped memory store runs the slow tests";
        directory: "this store has none"; maintenance: "this store has none";
        tool_calls: "this store has none"; summaries: "this store has none"
    );
}

mod with_a_directory {
    tower_chat_testkit::store_contract!(
        super::Partial(tower_chat_core::MemoryStore::new(), Some(super::Capability::Directory));
        one_runtime: "the wrapped memory store is tested on both runtimes";
        heavy: "the wrapped memory store runs the slow tests";
        maintenance: "this store has none"; journal: "this store has none";
        tool_calls: "this store has none"; summaries: "this store has none"
    );
}

mod with_queries_of_tool_calls {
    tower_chat_testkit::store_contract!(
        super::Partial(tower_chat_core::MemoryStore::new(), Some(super::Capability::ToolCallQueries));
        one_runtime: "the wrapped memory store is tested on both runtimes";
        heavy: "the wrapped memory store runs the slow tests";
        directory: "this store has none"; maintenance: "this store has none";
        journal: "this store has none"; summaries: "this store has none"
    );
}

mod with_maintenance {
    tower_chat_testkit::store_contract!(
        super::Partial(tower_chat_core::MemoryStore::new(), Some(super::Capability::Maintenance));
        one_runtime: "the wrapped memory store is tested on both runtimes";
        heavy: "the wrapped memory store runs the slow tests";
        directory: "this store has none"; journal: "this store has none";
        tool_calls: "this store has none"; summaries: "this store has none"
    );
}

mod with_summaries {
    tower_chat_testkit::store_contract!(
        super::Partial(tower_chat_core::MemoryStore::new(), Some(super::Capability::Summaries));
        one_runtime: "the wrapped memory store is tested on both runtimes";
        heavy: "the wrapped memory store runs the slow tests";
        directory: "this store has none"; maintenance: "this store has none";
        journal: "this store has none"; tool_calls: "this store has none"
    );
}
