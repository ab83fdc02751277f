//! Checks the media in the new user and system messages of a request.

use std::{error::Error, fmt};

use tower_chat_core::{ChatRequest, Media, Part, Retryability, Role};

use super::{
    media::{MediaCount, is_accepted_from, is_image},
    service_rules::ServiceRules,
};

/// The error of a request whose new messages contain media that the service does not accept. The
/// request was not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnsupportedMedia {
    /// The service does not accept media of this type, or with this kind of source, in a message of
    /// this role.
    Media {
        /// The role of the message: `user` or `system`.
        role: &'static str,
        /// The IANA type of the media.
        media_type: String,
        /// The name of the service: the field `issuer` of its rules.
        service: String,
    },
    /// The new messages together contain more images or documents than the service accepts in one
    /// message.
    TooMany {
        /// `images` or `documents`.
        what: &'static str,
        /// The name of the service: the field `issuer` of its rules.
        service: String,
    },
}

impl fmt::Display for UnsupportedMedia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Media { role, media_type, service } => write!(
                f,
                "the {role} message adds media of the type {media_type}, which {service} does not accept in a {role} \
                 message: remove them, or convert them to an accepted type"
            ),
            Self::TooMany { what, service } => write!(
                f,
                "the user messages add more {what} than {service} accepts in one message: send fewer \
                 {what}"
            ),
        }
    }
}

impl Error for UnsupportedMedia {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(Retryability::Permanent.as_source())
    }
}

/// Returns an error if the new user and system messages of a request contain media that the service
/// does not accept.
///
/// The new messages are those after the [history](ChatRequest::history) and after the last
/// assistant or tool message of the request. The media of all new messages are counted together,
/// because the request body may contain them as one message.
///
/// The results of tools are not checked: the tools have already run, and an error would discard
/// their work. [`fit`](fn@super::fit) replaces or moves the media in results.
///
/// # Errors
///
/// [`UnsupportedMedia`], for the first media that the service does not accept.
///
/// ```
/// use tower_chat_core::{ChatRequest, Media, MediaSource, Message, Part, Role};
/// use tower_chat_wire::{body::BodyWire, rules::{ServiceRules, check_new}};
/// let rules = ServiceRules::unknown(BodyWire::Anthropic, "anthropic");
/// let docx = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
/// let file = Media::new(docx, MediaSource::Base64("UEsDBA==".to_owned()));
/// let request = ChatRequest::new(Message::new(Role::User, vec![Part::Media(file)]));
/// assert!(check_new(&request, &rules).is_err());
/// ```
pub fn check_new(request: &ChatRequest, rules: &ServiceRules) -> Result<(), UnsupportedMedia> {
    let messages = request.messages();
    let answered = messages
        .iter()
        .rposition(|message| matches!(message.role, Role::Assistant | Role::Tool))
        .map_or(0, |last| last + 1);
    let mut count = MediaCount::default();
    for message in messages.iter_from(request.history_len().max(answered)) {
        for media in message.parts.iter().filter_map(as_media) {
            if !is_accepted_from(message.role, media, rules) {
                let role = match message.role {
                    Role::System | Role::Developer => "system",
                    _ => "user",
                };
                let media_type = media.media_type.clone();
                let service = rules.issuer.to_string();
                return Err(UnsupportedMedia::Media { role, media_type, service });
            }
            if !count.admit(media, &rules.user_media) {
                let what = if is_image(media) { "images" } else { "documents" };
                return Err(UnsupportedMedia::TooMany { what, service: rules.issuer.to_string() });
            }
        }
    }
    Ok(())
}

fn as_media(part: &Part) -> Option<&Media> {
    match part {
        Part::Media(media) => Some(media),
        _ => None,
    }
}
