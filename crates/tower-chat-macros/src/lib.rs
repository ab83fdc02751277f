//! For users of `tower-chat` with the feature `macros`: the attribute `#[tool]`, which makes a tool of
//! an async function.
//!
//! Nobody depends on this crate alone: what it writes names items of `tower-chat`.
//!
//! ```
//! use tower_chat::prelude::*;
//!
//! /// The weather in a city.
//! #[tool]
//! async fn weather(city: String) -> String {
//!     format!("Rain in {city}.")
//! }
//!
//! let tools = Tools::new().with(weather());
//! assert_eq!(&*tools.definitions()[0].name, "weather");
//! ```
//!
//! [`macro@tool`] has the rules of parameters, results and settings.

mod function;
mod settings;

use proc_macro::TokenStream;
use syn::{ItemFn, parse_macro_input};

use self::{function::ToolFunction, settings::Settings};

/// Turns an async function into a tool.
///
/// The function's name and documentation are what the model is told of the tool, its parameters are
/// the arguments that the model writes. What is left is a function of the same name that makes the
/// tool:
///
/// ```
/// use tower_chat::{Tool, Tools, tool};
///
/// /// The weather in a city.
/// #[tool]
/// async fn weather(
///     /// The city's name, in English.
///     city: String,
///     /// How many days ahead, today if left out.
///     days: Option<u8>,
/// ) -> String {
///     format!("Rain in {city} in {} days.", days.unwrap_or(0))
/// }
///
/// let tools = Tools::new().with(weather());
/// let definition = &tools.definitions()[0];
/// assert_eq!((&*definition.name, &*definition.description), ("weather", "The weather in a city."));
/// ```
///
/// # Parameters
///
/// An owned parameter is an argument. Its type implements `serde::Deserialize` and
/// `schemars::JsonSchema`, of the versions that `tower_chat::serde` and `tower_chat::schemars` are; its
/// documentation is the description that the model sees, and attributes of
/// `serde` and `schemars` on it are those of a field. Arguments that do not fit go back to the model
/// as an error that names the field.
///
/// `&ToolContext` is the call: its id, its conversation, its idempotency key. Every other reference is
/// state, which is handed in, as a value or in an `Arc`, where the tool is made:
///
/// ```
/// use tower_chat::{Tools, tool, tool::ToolContext};
///
/// struct Inventory(Vec<&'static str>);
///
/// /// Whether a dish is on the menu.
/// #[tool]
/// async fn on_the_menu(context: &ToolContext, inventory: &Inventory, dish: String) -> bool {
///     println!("call {}", context.call_id());
///     inventory.0.contains(&&*dish)
/// }
///
/// let tools = Tools::new().with(on_the_menu(Inventory(vec!["soup"])));
/// ```
///
/// # Results
///
/// Text, a `ToolOutput` and its parts (`Part`, `Vec<Part>`, `Media`) are the result as they are, `()`
/// says that the tool is done, and every other type is written as JSON by `serde::Serialize`. A
/// `Result` with an error that converts into `BoxError`, such as `anyhow::Error`, is a tool that can
/// fail; `ToolError` says whether the model is told why, or the run fails.
///
/// # Settings
///
/// | setting | meaning |
/// |---|---|
/// | `name = "..."`, `description = "..."` | instead of those of the function |
/// | `needs_approval` | every call waits for approval |
/// | `safe_to_retry` | a call that may or may not have run can be run again |
/// | `retries = 3`, `retry_delay_ms = 100` | a call that fails is run again, after a delay that doubles; the tool is safe to retry |
/// | `strict` | providers that can hold the model to the schema |
/// | `persist = path` | a function that decides what of a call is stored, as of `persist_with` |
/// | `accepts_stored_arguments` | the tool can be run with what that function stores |
/// | `crate = path` | where `tower-chat` is, if not at `::tower_chat` |
///
/// ```
/// use tower_chat::{BoxError, Tool, tool, tool::{Retention, StoredCall, ToolError}};
///
/// fn without_card(call: &mut StoredCall<'_>) -> Result<Retention, BoxError> {
///     call.redact_arguments(r#"{"cents": 0, "card": "removed"}"#);
///     Ok(Retention::Keep)
/// }
///
/// /// Charges a card.
/// #[tool(needs_approval, persist = without_card)]
/// async fn charge(cents: u64, card: String) -> Result<String, ToolError> {
///     if cents == 0 {
///         return Err(ToolError::for_model("an amount of 0 cannot be charged"));
///     }
///     Ok(format!("{cents} cents charged to a card of {} digits", card.len()))
/// }
/// assert!(charge().definition().needs_approval);
/// ```
///
/// # What does not compile
///
/// A function that is not async, has type parameters, or is a method; an argument that is borrowed; a
/// setting that does not exist:
///
/// ```compile_fail
/// #[tower_chat::tool]
/// fn weather(city: String) -> String { city }
/// ```
/// ```compile_fail
/// #[tower_chat::tool]
/// async fn weather<C>(city: C) -> String { String::new() }
/// ```
/// ```compile_fail
/// #[tower_chat::tool]
/// async fn weather(city: &str) -> String { city.to_owned() }
/// ```
/// ```compile_fail
/// #[tower_chat::tool(aproval)]
/// async fn weather(city: String) -> String { city }
/// ```
#[proc_macro_attribute]
pub fn tool(settings: TokenStream, item: TokenStream) -> TokenStream {
    let settings = parse_macro_input!(settings as Settings);
    let function = parse_macro_input!(item as ItemFn);
    ToolFunction::new(function)
        .map(|function| function.expand(&settings))
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}
