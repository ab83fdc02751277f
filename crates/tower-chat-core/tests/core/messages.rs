//! Tests that the shared sequence of messages behaves like a vector.

use std::sync::Arc;

use tower_chat_core::{Message, Messages};

const SIZES: [usize; 16] =
    [0, 1, 2, 63, 64, 65, 127, 128, 129, 1_000, 4_095, 4_096, 4_097, 8_192, 9_999, 10_000];

fn numbered(from: usize, count: usize) -> Vec<Arc<Message>> {
    (from..from + count).map(|number| Arc::new(Message::user(number.to_string()))).collect()
}

#[track_caller]
fn assert_same(messages: &Messages, model: &[Arc<Message>]) {
    assert_eq!(messages.len(), model.len());
    assert_eq!(messages.is_empty(), model.is_empty());
    assert!(messages.iter().zip(model).all(|(left, right)| Arc::ptr_eq(left, right)));
    assert!(messages.iter().rev().zip(model.iter().rev()).all(|(l, r)| Arc::ptr_eq(l, r)));
    assert_eq!(messages.last(), model.last());
    assert_eq!(messages.get(model.len() / 2), model.get(model.len() / 2));
    assert_eq!(messages.get(model.len()), None);
}

#[test]
fn skip_take_and_iter_from_match_a_vector_at_every_size() {
    for size in SIZES {
        let model = numbered(0, size);
        let messages: Messages = model.iter().cloned().collect();
        assert_same(&messages, &model);
        for count in SIZES.into_iter().chain([size.saturating_sub(1), size + 1]) {
            let cut = count.min(size);
            assert_same(&messages.skip(count), &model[cut..]);
            assert_same(&messages.take(count), &model[..cut]);
            let from: Vec<_> = messages.iter_from(count).cloned().collect();
            assert_same(&from.into_iter().collect(), &model[cut..]);
        }
        assert_same(&messages, &model);
    }
}

#[test]
fn append_matches_a_vector_at_every_pair_of_sizes() {
    for left in SIZES {
        for right in SIZES {
            let (first, second) = (numbered(0, left), numbered(left, right));
            let mut messages: Messages = first.iter().cloned().collect();
            let other: Messages = second.iter().cloned().collect();
            messages.append(&other);
            let mut model = first;
            model.extend(second.iter().cloned());
            assert_same(&messages, &model);
            assert_same(&other, &second);
            messages.push(Message::user("end"));
            assert_eq!(messages.len(), left + right + 1);
            assert_eq!(other.len(), right);
        }
    }
}

#[test]
fn many_joins_and_cuts_in_a_row_match_a_vector() {
    let mut model: Vec<Arc<Message>> = Vec::new();
    let mut messages = Messages::new();
    for step in 0..300_usize {
        let more = numbered(step * 1_000, (step * 37) % 150);
        let other: Messages = more.iter().cloned().collect();
        if step % 3 == 0 {
            let mut joined = other;
            joined.append(&messages);
            messages = joined;
            model.splice(0..0, more);
        } else {
            messages.append(&other);
            model.extend(more);
        }
        if step % 7 == 0 {
            messages = messages.skip(step % 90);
            model.drain(..(step % 90).min(model.len()));
        }
        if step % 11 == 0 {
            let keep = model.len() - model.len().min(step % 50);
            messages = messages.take(keep);
            model.truncate(keep);
        }
    }
    assert!(model.len() > 5_000);
    assert_same(&messages, &model);
}

#[test]
fn a_clone_shares_its_messages_and_never_sees_later_changes() {
    let mut messages: Messages = numbered(0, 1_000).into_iter().collect();
    let snapshot = messages.clone();
    messages.push(Message::user("later"));
    messages.append(&snapshot);
    messages.extend([Message::user("last")]);
    assert_eq!((snapshot.len(), messages.len()), (1_000, 2_002));
    assert!(snapshot.iter().zip(messages.iter()).all(|(left, right)| Arc::ptr_eq(left, right)));
    assert_eq!(snapshot.last().map(|message| message.text()).as_deref(), Some("999"));
}

#[test]
fn a_long_sequence_can_be_dropped_without_recursion() {
    let mut messages = Messages::new();
    for message in numbered(0, 10_000) {
        let snapshot = messages.clone();
        messages.push(message);
        drop(snapshot);
    }
    assert_eq!(messages.len(), 10_000);
}
