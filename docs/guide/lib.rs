//! The guide to tower-chat. `mdbook build docs/guide` builds a book from the same chapters.
//!
//! Each chapter is the documentation of a module in this file, so that `cargo test -p
//! tower-chat-guide --doc` compiles and runs the programs in the chapters.

macro_rules! chapters {
    ($($module:ident = $file:literal),* $(,)?) => {
        $(
            #[doc = include_str!(concat!("src/", $file))]
            pub mod $module {}
        )*

        #[cfg(test)]
        const CHAPTERS: &[(&str, &str)] = &[$(($file, include_str!(concat!("src/", $file)))),*];
    };
}

chapters! {
    first_agent = "first-agent.md",
    chat = "chat.md",
    modes = "modes.md",
    settings = "settings.md",
    layers = "layers.md",
    into_your_stack = "into-your-stack.md",
    crash_recovery = "crash-recovery.md",
    approvals = "approvals.md",
    results = "results.md",
    windows_and_caches = "windows-and-caches.md",
    stores = "stores.md",
    processes = "processes.md",
    providers = "providers.md",
    structured = "structured.md",
    mcp = "mcp.md",
    endpoint = "endpoint.md",
    reconnecting = "reconnecting.md",
    errors = "errors.md",
    testing = "testing.md",
    importing = "importing.md",
    migrating = "migrating.md",
    traces = "traces.md",
    going_back = "going-back.md",
    directory = "directory.md",
    inspector = "inspector.md",
    operating = "operating.md",
}

/// The program of the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}

/// The program of the README of the crate `tower-chat`.
#[cfg(doctest)]
#[doc = include_str!("../../crates/tower-chat/README.md")]
mod readme_of_the_crate {}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::CHAPTERS;

    const SUMMARY: &str = include_str!("src/SUMMARY.md");

    /// Returns the targets of the links in a text, in order.
    fn links(text: &str) -> impl Iterator<Item = &str> {
        text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0))
    }

    /// Returns the anchors of the headings in a text: their letters and digits, with hyphens for
    /// spaces.
    fn anchors(text: &str) -> Vec<String> {
        let headings = text.lines().filter_map(|line| line.strip_prefix("## "));
        let anchor = |heading: &str| {
            let letters = heading.chars().filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-');
            letters.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
        };
        headings.map(anchor).collect()
    }

    #[test]
    fn every_chapter_of_the_summary_is_tested_in_its_order() {
        let (chapters, _reference) = SUMMARY.split_once("# Reference").unwrap_or((SUMMARY, ""));
        let in_summary: Vec<&str> = links(chapters).collect();
        let tested: Vec<&str> = CHAPTERS.iter().map(|(file, _)| *file).collect();
        assert_eq!(tested, in_summary);
    }

    /// Returns the names of the variants of an enum in a source file.
    fn variants<'s>(source: &'s str, name: &str) -> Vec<&'s str> {
        let start = format!("pub enum {name} {{\n");
        let body = source.split_once(&start).and_then(|(_, rest)| rest.split_once("\n}\n"));
        let lines = body.map_or("", |(body, _)| body).lines();
        let unindented = lines.filter_map(|line| line.strip_prefix("    "));
        let names = unindented.filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
        names.filter_map(|line| line.split([' ', '(', ',']).next()).collect()
    }

    #[test]
    fn the_page_of_errors_names_each_variant() {
        let page = include_str!("src/errors.md");
        let enums = [
            ("BuildError", include_str!("../../crates/tower-chat-layers/src/pipeline/error.rs")),
            ("ProviderErrorKind", include_str!("../../crates/tower-chat-providers/src/error.rs")),
            (
                "ToolLoopError",
                include_str!("../../crates/tower-chat-layers/src/tool_loop/error.rs"),
            ),
            ("PersistenceError", include_str!("../../crates/tower-chat-layers/src/error.rs")),
            ("StoreError", include_str!("../../crates/tower-chat-core/src/store/error.rs")),
            ("DeliveryError", include_str!("../../crates/tower-chat-delivery/src/runs/error.rs")),
        ];
        for (name, source) in enums {
            let table = page.split_once(&format!("| `{name}` |")).map(|(_, rest)| rest);
            let table = table.and_then(|rest| rest.split("\n\n").next()).unwrap_or("");
            let variants = variants(source, name);
            assert!(!variants.is_empty(), "{name}");
            for variant in variants {
                assert!(table.contains(&format!("`{variant}`")), "{name}::{variant}");
            }
        }
    }

    /// Returns the first line of a text that adds crates, and the first program of the text.
    fn first_agent(text: &str) -> Option<(&str, &str)> {
        let added = text.lines().find(|line| line.starts_with("$ cargo add "))?;
        Some((added, text.split_once("```rust,no_run\n")?.1.split_once("\n```\n")?.0))
    }

    #[test]
    fn the_first_agent_is_the_same_in_the_guide_and_in_the_readmes() {
        let of_readme = first_agent(include_str!("../../README.md"));
        assert!(of_readme.is_some());
        assert_eq!(first_agent(include_str!("src/first-agent.md")), of_readme);
        assert_eq!(first_agent(include_str!("../../crates/tower-chat/README.md")), of_readme);
    }

    #[test]
    fn every_link_to_another_page_leads_to_a_file_and_a_heading() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        for (file, text) in CHAPTERS.iter().chain([&("SUMMARY.md", SUMMARY)]) {
            for link in links(text).filter(|link| !link.starts_with("https://")) {
                let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target = if target.is_empty() { *file } else { target };
                // The target may be an image, whose bytes are not valid UTF-8.
                let read = std::fs::read(folder.join(target));
                let Ok(page) = read.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                else {
                    panic!("{file} links {link}, which is no file")
                };
                let has_anchor = anchor.is_empty() || anchors(&page).iter().any(|it| it == anchor);
                assert!(has_anchor, "{file} links {link}, which has no such heading");
            }
        }
    }
}
