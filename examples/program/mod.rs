//! How these examples are started, and how they fail.

use std::{error::Error, fmt};

use tower_chat::BoxError;

/// The arguments, or what stands for those that are not given.
///
/// Anything else ends the program with a word about its use: no option becomes the name of a file.
pub(crate) fn arguments(usage: &str, defaults: [&str; 2]) -> [String; 2] {
    let given: Vec<String> = std::env::args().skip(1).collect();
    if given.len() > defaults.len() || given.first().is_some_and(|first| first.starts_with('-')) {
        eprintln!("usage: {usage}");
        std::process::exit(2);
    }
    let mut given = given.into_iter();
    defaults.map(|default| given.next().unwrap_or_else(|| default.to_owned()))
}

/// An error that `main` shows in words, with what caused it.
pub(crate) struct Failure(BoxError);

impl<E: Into<BoxError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut description = self.0.to_string();
        let mut source = self.0.source();
        while let Some(error) = source {
            let words = error.to_string();
            // Some errors say what their source says.
            if !description.contains(&words) {
                description = format!("{description}: {words}");
            }
            source = Error::source(error);
        }
        f.write_str(&description)
    }
}
