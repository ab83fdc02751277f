//! Saved inputs that break a rule.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// An input that breaks a rule.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Finding {
    /// The name of the target.
    pub target: String,
    /// The number from which the search generates its inputs.
    pub seed: u64,
    /// The number of the case that created the input.
    pub case: u64,
    /// The rule that the input breaks.
    pub rule: Rule,
    /// The file with the input.
    pub input: PathBuf,
}

/// The rule that an input breaks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Rule {
    /// The parser panicked, or an assertion of the target failed.
    Panic(String),
    /// The execution allocated more memory than the limit for the length of its input.
    Memory {
        /// The peak memory, in bytes.
        bytes: usize,
        /// The length of the input, in bytes.
        length: usize,
    },
    /// The execution took longer than the limit for the length of its input.
    Time {
        /// The processor time in milliseconds, the minimum of several executions.
        milliseconds: u64,
        /// The length of the input, in bytes.
        length: usize,
    },
    /// The execution ended the process. Contains the exit status.
    Ended(String),
    /// The execution did not terminate.
    Hung,
}

impl Finding {
    /// Saves the input in a folder, and returns the finding.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub(crate) fn save(
        target: &str,
        seed: u64,
        case: u64,
        rule: Rule,
        bytes: &[u8],
        folder: &Path,
    ) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let input = folder.join(format!("{target}-{seed}-{case}"));
        fs::write(&input, bytes)?;
        Ok(Self { target: target.to_owned(), seed, case, rule, input })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, seed, case, rule, input } = self;
        write!(
            f,
            "found in {target}: {rule}\n  input: {}\n  repeat: --seed {seed} --case {case} {target}",
            input.display()
        )
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panic(text) => write!(f, "it panicked: {text}"),
            Self::Memory { bytes, length } => {
                write!(f, "{bytes} bytes of memory for an input of {length} bytes")
            }
            Self::Time { milliseconds, length } => {
                write!(f, "{milliseconds} ms for an input of {length} bytes")
            }
            Self::Ended(status) => write!(f, "the process ended with {status}"),
            Self::Hung => f.write_str("it did not terminate"),
        }
    }
}
