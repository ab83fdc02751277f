use std::fmt::{self, Display};

/// The counts and measurements of a campaign, with one name and value on each line.
#[derive(Debug, Default)]
pub struct Figures(Vec<(String, String)>);

impl Figures {
    /// Appends a line.
    pub fn add(&mut self, name: impl Display, value: impl Display) {
        self.0.push((name.to_string(), value.to_string()));
    }

    /// Returns the value with this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(added, _)| added == name).map(|(_, value)| value.as_str())
    }
}

impl Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        for (name, value) in &self.0 {
            writeln!(f, "{name:width$}  {value}")?;
        }
        Ok(())
    }
}
