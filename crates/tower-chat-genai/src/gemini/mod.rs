//! Gemini's `generateContent`, in the Gemini API and in Vertex AI.

mod body;

pub(crate) use self::body::render;
