//! The directory of a store: its conversations, their activity, and the usage of their runs.

mod cursor;
mod day;
mod description;
mod entry;
mod messages;
mod query;
mod summary;
mod usage;
mod usage_query;

pub use self::{
    cursor::{DirectoryCursor, ParseCursorError},
    day::UtcDay,
    description::{Description, DescriptionPatch, DescriptionTooLarge},
    entry::DirectoryEntry,
    messages::MessagePage,
    query::{ConversationPage, ConversationQuery, UnreadableConversation},
    summary::{ConversationState, ConversationSummary, Parent, RunSummary},
    usage::{ModelUsage, RunActivity, UsageSum},
    usage_query::{UsageGroup, UsageGrouping, UsageQuery, UsageReport, UsageTotals},
};
