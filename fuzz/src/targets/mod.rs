//! The fuzz targets: parsers of external data.

mod clients;
mod endpoint;
mod export;
mod filled;
mod headers;
mod imports;
mod inspector;
mod mcp;
mod playback;
mod redis;
mod rows;
mod rules;
mod stored;
mod wires;

pub(crate) use redis::record as record_redis;
use tower_chat_testkit::Rng;

use crate::Plant;

/// A parser with its seed inputs.
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) seeds: Vec<Vec<u8>>,
    /// Calls the parser with an input. Returns whether the parser accepts the input.
    pub(crate) run: Box<Parser>,
}

pub(crate) type Parser = dyn Fn(&[u8], &mut Rng) -> bool;

/// A target whose seed inputs and parser are created when the search begins.
pub(crate) struct Entry {
    pub(crate) name: String,
    /// A description of the parser.
    pub(crate) parser: &'static str,
    /// Whether each input needs a file, a connection or a store.
    pub(crate) is_slow: bool,
    make: Box<dyn Fn() -> Made>,
}

/// The seed inputs of a target and its parser.
pub(crate) type Made = (Vec<Vec<u8>>, Box<Parser>);

impl Entry {
    fn new(
        name: impl Into<String>,
        parser: &'static str,
        make: impl Fn() -> Made + 'static,
    ) -> Self {
        Self { name: name.into(), parser, is_slow: false, make: Box::new(make) }
    }

    fn slow(mut self) -> Self {
        self.is_slow = true;
        self
    }

    pub(crate) fn make(&self) -> Target {
        let (seeds, run) = (self.make)();
        Target { name: self.name.clone(), seeds, run }
    }
}

pub(crate) fn all(plant: Option<Plant>) -> Vec<Entry> {
    let mut targets = wires::targets(plant);
    targets.push(headers::target());
    targets.push(stored::messages(plant));
    targets.extend([stored::imported_rows(), export::target(), playback::target()]);
    targets.extend(imports::targets());
    targets.extend(rows::targets());
    targets.push(redis::target());
    targets.extend(mcp::targets());
    targets.extend(endpoint::targets());
    targets.push(inspector::target());
    targets
}

/// Returns the targets that these names select, or all targets if there are no names. A name that
/// is not the name of a target selects all targets whose names contain it.
pub(crate) fn chosen(names: &[String], plant: Option<Plant>) -> Vec<Entry> {
    let mut targets = all(plant);
    let known: Vec<String> = targets.iter().map(|target| target.name.clone()).collect();
    let is_named = |target: &Entry, name: &String| match known.contains(name) {
        true => target.name == *name,
        false => target.name.contains(name.as_str()),
    };
    targets.retain(|target| names.is_empty() || names.iter().any(|name| is_named(target, name)));
    targets
}
