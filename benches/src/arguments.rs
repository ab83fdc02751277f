//! The command line of the program.

use std::ffi::OsString;

use crate::Effort;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    pub(crate) effort: Effort,
    /// The cases to measure; empty for all.
    cases: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Help,
    Measurement(Arguments),
}

impl Arguments {
    /// Parses the arguments after the name of the program.
    ///
    /// # Errors
    ///
    /// A description of the invalid argument.
    pub(crate) fn parse(
        arguments: impl IntoIterator<Item = OsString>,
        names: &[&str],
    ) -> Result<Wanted, String> {
        let mut parsed = Self { effort: Effort::Full, cases: Vec::new() };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            match argument.to_str() {
                Some("--help" | "-h") => return Ok(Wanted::Help),
                Some("--quick") => parsed.effort = Effort::Quick,
                Some("--case") => {
                    let name = arguments.next().ok_or("--case needs the name of a case")?;
                    match name.to_str().filter(|name| names.contains(name)) {
                        Some(name) => parsed.cases.push(name.to_owned()),
                        None => return Err(format!("there is no case {name:?}")),
                    }
                }
                _ => return Err(format!("unknown argument {argument:?}")),
            }
        }
        Ok(Wanted::Measurement(parsed))
    }

    pub(crate) fn wants(&self, case: &str) -> bool {
        self.cases.is_empty() || self.cases.iter().any(|wanted| wanted == case)
    }
}

/// Returns the usage text.
pub(crate) fn usage(names: &[&str]) -> String {
    format!(
        "usage: tower-chat-benches [--quick] [--case NAME]...\n\n  \
         --quick      few repetitions: shows that everything runs, the figures mean little\n  \
         --case NAME  measure this case alone; may be repeated\n\ncases: {}",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[&str] = &["a", "b"];

    fn parse(arguments: &[&str]) -> Result<Wanted, String> {
        Arguments::parse(arguments.iter().map(OsString::from), NAMES)
    }

    #[test]
    fn without_arguments_every_case_is_measured() {
        let Ok(Wanted::Measurement(arguments)) = parse(&[]) else { panic!("refused") };
        assert_eq!(arguments.effort, Effort::Full);
        assert!(arguments.wants("a") && arguments.wants("b"));
    }

    #[test]
    fn only_the_named_cases_are_measured() {
        let Ok(Wanted::Measurement(arguments)) = parse(&["--case", "b", "--quick"]) else {
            panic!("refused")
        };
        assert_eq!(arguments.effort, Effort::Quick);
        assert!(!arguments.wants("a") && arguments.wants("b"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(parse(&["--case"]).unwrap_err().contains("--case"));
        assert!(parse(&["--case", "c"]).unwrap_err().contains("\"c\""));
        assert!(parse(&["--fast"]).unwrap_err().contains("--fast"));
    }
}
