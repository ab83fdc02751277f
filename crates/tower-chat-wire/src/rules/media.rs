//! Decides which media a service accepts, and describes other media in a sentence.

use tower_chat_core::{Media, MediaSource, Role};

use super::service_rules::{MediaRule, ServiceRules, essence};
use crate::body::BodyWire;

/// Returns whether the service accepts the media at a position to which this rule applies. On the
/// wire Gemini, a file is accepted only if its id is a URI.
pub(super) fn is_accepted(media: &Media, rule: &MediaRule, rules: &ServiceRules) -> bool {
    let is_named = |id: &str| rules.wire == BodyWire::Gemini && !id.contains("://");
    let is_unnamed_file = matches!(&media.source, MediaSource::File(id) if is_named(id));
    rule.accepts(media) && !is_unnamed_file
}

/// Returns whether the service accepts the media in a message of this role.
pub(super) fn is_accepted_from(role: Role, media: &Media, rules: &ServiceRules) -> bool {
    let may_have = match role {
        Role::Assistant | Role::System | Role::Developer => rules.assistant_media,
        _ => true,
    };
    may_have && is_accepted(media, &rules.user_media, rules)
}

/// The numbers of images and of other media (documents) in one message.
#[derive(Debug, Default)]
pub(super) struct MediaCount {
    images: usize,
    documents: usize,
}

impl MediaCount {
    /// Counts these media, unless the message would then contain too many. Returns whether the
    /// media were counted.
    pub(super) fn admit(&mut self, media: &Media, rule: &MediaRule) -> bool {
        let (count, max) = if is_image(media) {
            (&mut self.images, rule.max_images)
        } else {
            (&mut self.documents, rule.max_documents)
        };
        let has_room = max.is_none_or(|max| *count < max);
        *count += usize::from(has_room);
        has_room
    }
}

pub(super) fn is_image(media: &Media) -> bool {
    essence(&media.media_type).starts_with("image/")
}

/// Returns the media with a normalized media type: in lower case, without parameters, and with
/// `image/jpeg` instead of `image/jpg`. Returns `None` if the type is already normalized. Also
/// returns `None` for media with a native item, the JSON in which they were received.
pub(super) fn normalized(media: &Media) -> Option<Media> {
    if media.native.is_some() {
        return None;
    }
    let essence = essence(&media.media_type);
    let media_type = if essence == "image/jpg" { "image/jpeg".to_owned() } else { essence };
    (media_type != media.media_type).then(|| Media::new(media_type, media.source.clone()))
}

/// Returns the sentence that replaces media that the service does not accept.
pub(super) fn unsupported_sentence(media: &Media) -> String {
    description(media, "this model cannot read it here")
}

/// Returns the sentence that replaces media that the service has refused.
pub(super) fn refused_sentence(media: &Media) -> String {
    description(media, "the service has refused it")
}

/// Returns the sentence that replaces a text that the service has refused.
pub(super) fn refused_text_sentence(text: &str) -> String {
    format!("[A text of {} is not shown: the service has refused it.]", size(text.len()))
}

fn description(media: &Media, why: &str) -> String {
    let kind = &media.media_type;
    let position = match &media.source {
        MediaSource::Base64(data) => format!("of {}", size(data.len() / 4 * 3)),
        MediaSource::Url(url) => format!("at {}", beginning(url)),
        MediaSource::File(id) => format!("in the file {}", beginning(id)),
        _ => "elsewhere".to_owned(),
    };
    format!("[An attachment of the type {kind}, {position}, is not shown: {why}.]")
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{} kB", bytes / 1_000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

fn beginning(text: &str) -> String {
    text.chars().take(300).collect()
}
