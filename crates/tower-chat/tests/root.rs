//! Tests that the root of the facade has few names, and that every item has one path.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

const SOURCE: &str = include_str!("../src/lib.rs");

/// Returns the names that a `pub use` exports. `tree` is the text after the keywords, such as
/// `a::{b::C, D as E}`.
fn used_names(tree: &str) -> Vec<String> {
    let inner = match tree.split_once('{') {
        Some((_, inner)) => inner.rsplit_once('}').unwrap().0,
        None => tree,
    };
    let mut names = Vec::new();
    let (mut depth, mut start) = (0, 0);
    let ends = inner.char_indices().chain([(inner.len(), ',')]);
    for (position, character) in ends {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let item = inner[start..position].trim();
                start = position + 1;
                if item.contains('{') {
                    names.extend(used_names(item));
                } else if !item.is_empty() {
                    let name = item.rsplit([' ', ':']).next().unwrap();
                    names.push(name.to_owned());
                }
            }
            _ => {}
        }
    }
    names
}

/// Returns the names that the file declares at this level of indentation, without those that are
/// hidden in the documentation.
fn declared(indentation: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_hidden = false;
    let mut lines = SOURCE.lines();
    while let Some(line) = lines.next() {
        let Some(line) = line.strip_prefix(indentation) else { continue };
        if let Some(module) = line.strip_prefix("pub mod ") {
            names.push(module.trim_end_matches([';', '{', ' ']).to_owned());
        } else if let Some(first) = line.strip_prefix("pub use ") {
            let mut tree = first.to_owned();
            while !tree.ends_with(';') {
                tree.push_str(lines.next().unwrap().trim());
            }
            if !std::mem::take(&mut is_hidden) {
                names.extend(used_names(tree.trim_end_matches(';')));
            }
        }
        is_hidden = line == "#[doc(hidden)]" || is_hidden && line.starts_with('#');
    }
    names
}

#[test]
fn the_root_has_at_most_60_names() {
    let root: BTreeSet<String> = declared("").into_iter().collect();
    for name in ["ChatPipeline", "Message", "tool_fn", "tool", "store", "sqlite", "serde"] {
        assert!(root.contains(name), "{name} is missing in {root:?}");
    }
    assert!(root.len() <= 60, "the root has {} names: {root:?}", root.len());
}

#[test]
fn no_item_has_two_paths() {
    let mut seen: BTreeSet<String> = declared("").into_iter().collect();
    for name in declared("    ") {
        assert!(name == "*" || seen.insert(name.clone()), "{name} has two paths");
    }
}
