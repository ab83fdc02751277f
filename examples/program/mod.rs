//! The arguments and the errors of the examples.

use std::{error::Error, fmt};

use tower_chat::BoxError;

/// Returns the arguments, with the defaults for missing ones. An option ends the program with a
/// usage message. Otherwise, the program would open a file with this name.
pub(crate) fn arguments(usage: &str, defaults: [&str; 2]) -> [String; 2] {
    let given: Vec<String> = std::env::args().skip(1).collect();
    if given.len() > defaults.len() || given.first().is_some_and(|first| first.starts_with('-')) {
        eprintln!("usage: {usage}");
        std::process::exit(2);
    }
    let mut given = given.into_iter();
    defaults.map(|default| given.next().unwrap_or_else(|| default.to_owned()))
}

/// An error that `main` prints as text, with its causes.
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
            // Some errors include the text of their source.
            if !description.contains(&words) {
                description = format!("{description}: {words}");
            }
            source = Error::source(error);
        }
        f.write_str(&description)
    }
}
