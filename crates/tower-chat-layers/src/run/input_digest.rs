//! The digest of the user's messages in the input of a run. With this digest, a run detects that
//! its id was already used with another input.

use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};
use tower_chat_core::{MediaSource, Message, Part, Role};

use super::repeated_input::{ends_input, is_repeated};

/// The metadata key of the digest in the first stored message of a run.
const INPUT_DIGEST: &str = "run_input";

/// The first characters of a digest: the version of its algorithm. Digests of other versions are
/// not compared.
const VERSION: &str = "1:";

/// Returns the digest of the user's messages in the input of a run: texts, media, and decisions
/// about approval requests with their arguments. System messages are not covered, because they may
/// contain the current time.
pub(super) fn input_digest(input: &[Arc<Message>]) -> Option<String> {
    digest_of_first(usize::MAX, input)
}

/// Returns the digest of the first `max_messages` user messages in `input`.
fn digest_of_first(max_messages: usize, input: &[Arc<Message>]) -> Option<String> {
    let mut hash = Sha256::new();
    let mut count = 0_usize;
    for message in input.iter().filter(|message| message.role == Role::User).take(max_messages) {
        count += 1;
        add(&mut hash, "message");
        for part in &message.parts {
            match part {
                Part::Text(text) => {
                    add(&mut hash, "text");
                    add(&mut hash, &text.text);
                }
                Part::Media(media) => {
                    let (kind, source) = match &media.source {
                        MediaSource::Url(url) => ("url", url),
                        MediaSource::Base64(bytes) => ("base64", bytes),
                        MediaSource::File(file) => ("file", file),
                        _ => continue,
                    };
                    add(&mut hash, kind);
                    add(&mut hash, &media.media_type);
                    add(&mut hash, source);
                }
                Part::ApprovalResponse(decision) => {
                    add(&mut hash, if decision.approved { "approved" } else { "rejected" });
                    add(&mut hash, &decision.request_id);
                    add(&mut hash, decision.reason.as_deref().unwrap_or_default());
                    if let Some(arguments) = &decision.arguments {
                        add(&mut hash, "arguments");
                        add(&mut hash, arguments);
                    }
                }
                _ => {}
            }
        }
    }
    let digits = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    (count > 0).then(|| format!("{VERSION}{count}:{digits}"))
}

/// Adds a text and its length to the hash. Without the lengths, two sequences of texts could result
/// in the same bytes.
fn add(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}

pub(super) fn mark_input(message: &mut Arc<Message>, digest: &str) {
    let metadata = &mut Arc::make_mut(message).metadata;
    metadata.insert(INPUT_DIGEST.to_owned(), Value::from(digest));
}

pub(super) fn take_mark(message: &mut Arc<Message>) -> Option<String> {
    if !message.metadata.contains_key(INPUT_DIGEST) {
        return None;
    }
    match Arc::make_mut(message).metadata.remove(INPUT_DIGEST)? {
        Value::String(digest) => Some(digest),
        _ => None,
    }
}

/// Returns whether the input of a request differs from the input with the digest `stored` and from
/// the user messages after it in `added`, the stored messages of the run. The request may repeat
/// only a part of these messages. It may have further messages at its end if `added` contains
/// nothing else than input. Returns `false` if `stored` is `None` or has another version.
pub(super) fn differs(
    stored: Option<&str>,
    added: &[Arc<Message>],
    input: &[Arc<Message>],
) -> bool {
    let of_stored = stored.and_then(|stored| stored.strip_prefix(VERSION)?.split_once(':'));
    let count = of_stored.and_then(|(count, _)| count.parse().ok());
    let Some(count) = count else { return false };
    let stored_input = added.iter().take_while(|message| !ends_input(message));
    let further_stored = further(stored_input, count);
    let further_sent = further(input, count);
    let is_continuation = further_stored.starts_with(&further_sent)
        || (further_sent.starts_with(&further_stored) && begins_with_roles(input, added));
    !is_continuation || digest_of_first(count, input).as_deref() != stored
}

/// Returns the contents of the user messages after the first `count` ones.
fn further<'m>(
    messages: impl IntoIterator<Item = &'m Arc<Message>>,
    count: usize,
) -> Vec<&'m Vec<Part>> {
    let of_user = messages.into_iter().filter(|message| message.role == Role::User);
    of_user.skip(count).map(|message| &message.parts).collect()
}

/// Returns whether the roles of the messages in `input` begin with the roles of `added`, without
/// the messages that a request need not repeat.
fn begins_with_roles(input: &[Arc<Message>], added: &[Arc<Message>]) -> bool {
    let roles = |messages: &[Arc<Message>]| -> Vec<Role> {
        let others = messages.iter().filter(|message| is_repeated(message));
        others.map(|message| message.role).collect()
    };
    roles(input).starts_with(&roles(added))
}

#[cfg(test)]
mod tests {
    use tower_chat_core::{ApprovalRequest, Media, ToolCall};

    use super::*;

    fn digest(messages: impl IntoIterator<Item = Message>) -> Option<String> {
        let messages: Vec<_> = messages.into_iter().map(Arc::new).collect();
        input_digest(&messages)
    }

    fn user(part: impl Into<Part>) -> Message {
        Message::new(Role::User, vec![part.into()])
    }

    #[test]
    fn inputs_that_differ_have_different_digests() {
        let decided = |approved: bool, reason: Option<&str>| {
            let call = ToolCall::new("c1", "pay", "{}");
            let mut decision = ApprovalRequest::new("a1", call, true).approve();
            decision.approved = approved;
            decision.reason = reason.map(str::to_owned);
            user(Part::ApprovalResponse(decision))
        };
        let approved_with = |arguments: &str| {
            let call = ToolCall::new("c1", "pay", "{}");
            user(ApprovalRequest::new("a1", call, true).approve_with(arguments))
        };
        let media = |source| user(Part::Media(Media::new("image/png", source)));
        let inputs = [
            vec![Message::user("a")],
            vec![Message::user("b")],
            vec![Message::user("a"), Message::user("b")],
            vec![Message::user("ab")],
            vec![Message::new(Role::User, vec![Part::text("a"), Part::text("b")])],
            vec![decided(true, None)],
            vec![decided(false, None)],
            vec![decided(false, Some("no"))],
            vec![approved_with("{}")],
            vec![approved_with("[]")],
            vec![media(MediaSource::Url("x".into()))],
            vec![media(MediaSource::File("x".into()))],
        ];
        let digests: Vec<_> = inputs.into_iter().map(digest).collect();
        for (position, one) in digests.iter().enumerate() {
            assert!(one.is_some());
            assert!(!digests[..position].contains(one), "{position}");
        }
    }

    #[test]
    fn system_messages_and_metadata_do_not_change_the_input_digest() {
        let mut noted = Message::user("a");
        noted.metadata.insert("seen".into(), true.into());
        let expected = digest([Message::user("a")]);
        assert_eq!(digest([Message::system("It is 10:42."), noted]), expected);
        assert_eq!(digest([Message::system("It is 10:42.")]), None);
        assert_eq!(digest([Message::tool_results([])]), None);
    }

    #[test]
    fn digests_of_other_versions_are_not_compared() {
        let input = [Arc::new(Message::user("a"))];
        assert!(!differs(Some("2:1:00"), &input, &input));
        assert!(!differs(None, &input, &input));
        assert!(differs(Some("1:1:00"), &input, &input));
        assert!(!differs(input_digest(&input).as_deref(), &input, &input));
    }

    #[test]
    fn an_input_has_further_messages_only_if_they_or_only_the_input_are_stored() {
        let [one, two] = ["a", "b"].map(|text| Arc::new(Message::user(text)));
        let (system, answer) = (Message::system("now"), Message::assistant("c"));
        let added = [Arc::new(system), one.clone()];
        let answered = [one.clone(), Arc::new(answer)];
        let stored = input_digest(&added);
        let longer = [one, two.clone()];
        assert!(!differs(stored.as_deref(), &added, &longer));
        assert!(differs(stored.as_deref(), &answered, &longer));
        assert!(!differs(stored.as_deref(), &answered, &longer[..1]));
        assert!(differs(stored.as_deref(), &added, std::slice::from_ref(&two)));
        let [other, again] = ["c", "b"].map(|text| Arc::new(Message::user(text)));
        let continued = [longer[0].clone(), two, answered[1].clone()];
        for (further, is_other) in [(again, false), (other, true)] {
            let sent = [longer[0].clone(), further];
            assert_eq!(differs(stored.as_deref(), &continued, &sent), is_other);
        }
        let stored = input_digest(&longer);
        assert!(differs(stored.as_deref(), &longer, &longer[..1]));
    }
}
