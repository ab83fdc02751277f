//! What a store is made of: for those who write a [`HistoryStore`](super::HistoryStore), or a wrapper
//! around one that does more than count.
//!
//! | a store | with |
//! |---|---|
//! | admits writers up to a bound, and tells them how their writes went | [`Slot`], [`Ticket`], [`TicketSender`], [`AppendError`] |
//! | stores a write, once, where the conversation is as the write expects | [`Write`], [`WriteId`], [`Claim`] |
//! | keeps the record of tool calls | [`ToolRecord`], [`RecordedResult`], [`PendingBatches`], [`milliseconds`] |
//! | stages the writes of open runs, and commits or discards them | [`Staged`], [`Close`], [`OpenRunContent`], [`replace_staged`] |
//! | answers from the directory | [`DirectoryEntry`], [`UsageReport`], [`ConversationPage::of_all`](super::ConversationPage::of_all), [`MessagePage::of`](super::MessagePage::of) |
//! | prunes old runs | [`Pruning`], [`Cut`] |
//! | changes conversations in tasks of a runtime, those of one conversation in order | [`TaskQueue`] |
//! | repeats requests while its server is out of reach | [`Retry`] |
//! | refuses numbers that it cannot keep | [`LAST_SEQUENCE`], [`Head::check_range`](super::Head::check_range), [`Write::check_range`] |
//! | holds sealed data of a wrapper that encrypts | [`Write::sealed`], [`SealMark`], [`is_sealed_message`], [`SEALED_WIRE`] |
//! | keeps in memory what readers derived from a history | [`HistoryMemo`] |
//!
//! `store_contract!` of `tower-chat-testkit` tests a store against everything that it promises.

pub mod milliseconds;

pub use super::{
    directory::{DirectoryEntry, UsageReport},
    error::AppendError,
    history::HistoryMemo,
    journal::{Claim, Close, OpenRunContent, Staged, replace_staged},
    prune::{Cut, Pruning},
    range::LAST_SEQUENCE,
    retry::Retry,
    sealed::{SEALED_WIRE, SealMark, SealedChange, is_sealed_message},
    slot::Slot,
    task_queue::TaskQueue,
    ticket::{Ticket, TicketSender},
    tool_record::{RecordedResult, ToolRecord, UnresolvedRecord},
    write::{Write, WriteId},
};
pub use crate::pairing::PendingBatches;
