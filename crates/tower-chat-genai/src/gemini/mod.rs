//! Gemini's `generateContent`, in the Gemini API and in Vertex AI.

mod answer;
mod body;
mod draft;

pub(crate) use self::{answer::parse, body::render, draft::GeminiDraft};
