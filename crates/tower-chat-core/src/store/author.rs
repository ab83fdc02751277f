//! The types and functions from which a [`HistoryStore`](super::HistoryStore) is built. These types
//! and functions are for authors of stores, and for authors of wrappers that do more than forward
//! calls.
//!
//! | a store that ... | uses |
//! |---|---|
//! | admits a bounded number of writers, and reports the outcome of their writes | [`Slot`], [`Ticket`], [`TicketSender`], [`AppendError`] |
//! | stores a write once, if the conversation is in the state that the write expects | [`Write`], [`WriteId`], [`Claim`], [`decide`], [`Changes`] |
//! | reads and writes whole conversations | [`StoredConversation`] |
//! | stores the record of tool calls | [`ToolRecord`], [`ToolColumns`], [`RecordedResult`], [`PendingBatches`], [`milliseconds`] |
//! | stages the writes of open runs, and commits or discards them | [`Staged`], [`Close`], [`OpenRunContent`] |
//! | answers queries from the directory | [`DirectoryEntry`], [`UsageReport`], [`ConversationPage::of_all`](super::ConversationPage::of_all), [`MessagePage::of`](super::MessagePage::of) |
//! | prunes old runs | [`Pruning`], [`Cut`] |
//! | stores summaries | [`HistorySummary::decide`](super::HistorySummary::decide), [`Rewrite::first_message`](super::Rewrite::first_message) |
//! | copies a conversation up to the end of a turn | [`Forking`], [`ForkEnd`], [`ToolRecord::in_copy`] |
//! | changes conversations in tasks of a runtime, in order within each conversation | [`TaskQueue`] |
//! | repeats requests while its server is unreachable | [`Retry`] |
//! | refuses numbers that are out of range | [`LAST_SEQUENCE`], [`Head::check_range`](super::Head::check_range), [`Write::check_range`] |
//! | stores sealed data of an encrypting wrapper | [`Write::sealed`], [`SealMark`], [`is_sealed_message`], [`SEALED_WIRE`] |
//! | forwards most calls to another store | [`StoreWrapper`] |
//! | loads only the messages that a run needs | [`LoadFrom`], [`History::with_skipped`](super::History::with_skipped) |
//! | caches values that readers derive from a history | [`HistoryMemo`] |
//!
//! `store_contract!` of `tower-chat-testkit` tests whether a store fulfils all requirements of the
//! trait.

pub mod milliseconds;
mod stored_conversation;

pub use self::stored_conversation::StoredConversation;
pub use super::{
    decide::{CallState, Changes, Decision, Lookup, decide},
    directory::{DirectoryEntry, UsageReport},
    error::AppendError,
    fork::{ForkEnd, Forking},
    history::HistoryMemo,
    journal::{Claim, Close, OpenRunContent, Staged},
    load_from::LoadFrom,
    prune::{Cut, Pruning},
    range::LAST_SEQUENCE,
    retry::Retry,
    sealed::{SEALED_WIRE, SealMark, SealedChange, is_sealed_message},
    slot::Slot,
    task_queue::TaskQueue,
    ticket::{Ticket, TicketSender},
    tool_columns::{ToolColumns, ToolColumnsError},
    tool_record::{RecordedResult, ToolRecord, UnresolvedRecord},
    wrapper::StoreWrapper,
    write::{Write, WriteId},
};
pub use crate::pairing::PendingBatches;
