//! Formats the parts of a message that are neither calls nor results.

use tower_chat::{
    Part,
    message::{Media, MediaSource},
};

use super::text::in_line;

/// The output for a part: a label that names the kind of the part, and a text.
pub(super) struct PrintedPart {
    pub(super) label: Option<String>,
    pub(super) text: Option<String>,
}

impl PrintedPart {
    pub(super) fn of(part: &Part, is_full: bool) -> Self {
        let labelled = |label: String| Self { label: Some(in_line(&label)), text: None };
        match part {
            Part::Text(text) => Self { label: None, text: Some(text.text.clone()) },
            Part::Reasoning(reasoning) => {
                let text = Some(reasoning.text.clone()).filter(|text| !text.is_empty());
                let label = if text.is_some() { "reasoning" } else { "hidden reasoning" };
                Self { label: Some(label.to_owned()), text }
            }
            Part::Media(media) => labelled(media_label(media)),
            Part::Error(error) => {
                let code = error.code.as_deref().map(|code| format!(" {code}")).unwrap_or_default();
                Self {
                    label: Some(in_line(&format!("error{code}"))),
                    text: Some(error.message.clone()),
                }
            }
            Part::Native(native) => {
                let item = native.item.get();
                let label = format!("item of {}, {} bytes", native.wire, item.len());
                Self { label: Some(in_line(&label)), text: is_full.then(|| item.to_owned()) }
            }
            Part::ApprovalResponse(response) => {
                let decision = if response.approved { "approved" } else { "rejected" };
                let text = response.arguments.clone().or_else(|| response.reason.clone());
                let with = if response.arguments.is_some() { " with other arguments" } else { "" };
                let label = format!("{decision} {}{with}", response.request_id);
                Self { label: Some(in_line(&label)), text }
            }
            _ => labelled("part of a newer release".to_owned()),
        }
    }
}

/// Returns the content of a result as one text. Parts that are not texts are described in brackets.
pub(super) fn content_text(content: &[Part], is_full: bool) -> String {
    let texts = content.iter().map(|part| {
        let PrintedPart { label, text } = PrintedPart::of(part, is_full);
        match (label, text) {
            (None, text) => text.unwrap_or_default(),
            (Some(label), None) => format!("[{label}]"),
            (Some(label), Some(text)) => format!("[{label}] {text}"),
        }
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn media_label(media: &Media) -> String {
    let kind = &media.media_type;
    match &media.source {
        MediaSource::Url(url) => format!("{kind} at {url}"),
        MediaSource::Base64(data) => format!("{kind}, {} bytes of base64", data.len()),
        MediaSource::File(id) => format!("{kind}, file {id}"),
        _ => kind.clone(),
    }
}
