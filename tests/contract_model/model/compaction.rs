//! Computes which messages a service receives if an answer contains an item in which the service
//! has summarized the earlier messages.

use super::replay::SentItem;
use crate::contract_model::compaction::{Item, Service};

/// An item that a request may contain.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Compaction {
    pub(super) item: Item,
    /// Whether a text of the same message precedes the item.
    pub(super) follows_text: bool,
    /// Whether a call of the same message precedes the item.
    pub(super) follows_calls: bool,
}

/// Returns whether the last message contains an item by this service. The service then continues a
/// paused answer, and receives all messages.
fn is_paused(shown: &[SentItem], service: Service) -> bool {
    let is_own = |sent: &SentItem| {
        sent.compaction.as_ref().is_some_and(|it| it.item.issuer == service && !it.follows_calls)
    };
    match shown {
        [.., item] if is_own(item) => true,
        [.., item, text] => {
            let is_before = item.compaction.as_ref().is_some_and(|it| !it.item.is_last);
            is_own(item) && is_before && text.text.starts_with("assistant: a")
        }
        _ => false,
    }
}

/// Removes the messages before the last usable item by this service, and all other items. The
/// message with the item is sent completely. An item is not usable if a result after it answers a
/// call before it.
pub(super) fn received(mut shown: Vec<SentItem>, service: Service) -> Vec<SentItem> {
    let is_usable = |sent: &SentItem| {
        let compaction = sent.compaction.as_ref();
        compaction.is_some_and(|it| it.item.issuer == service && !it.follows_calls)
    };
    if is_paused(&shown, service) {
        shown.retain(|sent| sent.compaction.as_ref().is_none_or(|it| it.item.issuer == service));
        return shown;
    }
    let used = shown.iter().rposition(is_usable);
    let mut at = 0;
    shown.retain(|sent| {
        at += 1;
        sent.compaction.is_none() || Some(at - 1) == used
    });
    let Some(position) = shown.iter().position(|sent| sent.compaction.is_some()) else {
        return shown;
    };
    let follows_text = shown[position].compaction.as_ref().is_some_and(|it| it.follows_text);
    shown.split_off(position - usize::from(follows_text))
}
