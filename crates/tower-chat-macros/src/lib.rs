//! The attribute `#[tool]`, which makes a tool from an async function. Applications use the
//! attribute by enabling the feature `macros` of `tower-chat`.
//!
//! The expansion refers to items of `tower-chat`, so this crate cannot be used alone. The
//! documentation of `tower_chat::tool` has the rules for parameters, results and settings, with
//! examples. This crate has no example of its own: for an example, cargo would build `tower-chat` a
//! second time, as a dependency of a procedural macro.

mod function;
mod settings;

use proc_macro::TokenStream;
use syn::{ItemFn, parse_macro_input};

use self::{function::ToolFunction, settings::Settings};

/// Turns an async function into a tool. `tower_chat::tool` has the documentation.
#[proc_macro_attribute]
pub fn tool(settings: TokenStream, item: TokenStream) -> TokenStream {
    let settings = parse_macro_input!(settings as Settings);
    let function = parse_macro_input!(item as ItemFn);
    ToolFunction::new(function)
        .and_then(|function| function.expand(&settings))
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}
