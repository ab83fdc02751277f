//! What the attribute `#[tool]` makes of the value that a function returns. It depends on the type of the
//! value, which a macro does not know, only its name: of two methods of one name, the compiler takes the
//! inherent one where its bounds are met, and that of the trait otherwise.

use super::{IntoToolOutput, Json, ToolOutput};
use crate::BoxError;

/// A value of some type.
#[derive(Debug)]
pub struct Returned<'v, T>(pub &'v T);

impl<T, E> Returned<'_, Result<T, E>> {
    /// The function can fail.
    pub fn result(&self) -> OfResult {
        OfResult
    }
}

impl<T: IntoToolOutput> Returned<'_, T> {
    /// The value is a result as it is.
    pub fn output(&self) -> AsItIs {
        AsItIs
    }
}

/// For values of all other types.
pub trait ValueReturned {
    /// The function cannot fail.
    fn result(&self) -> OfValue {
        OfValue
    }
}

impl<T> ValueReturned for Returned<'_, T> {}

/// For values that are no results as they are.
pub trait JsonReturned {
    /// The value is written as JSON.
    fn output(&self) -> AsJson {
        AsJson
    }
}

impl<T> JsonReturned for Returned<'_, T> {}

/// How a `Result` is read.
#[derive(Debug)]
pub struct OfResult;

impl OfResult {
    /// Returns what the function returned, or its error.
    ///
    /// # Errors
    ///
    /// The function's.
    pub fn of<T, E: ToolFailure>(self, returned: Result<T, E>) -> Result<T, BoxError> {
        returned.map_err(ToolFailure::into_box)
    }
}

/// How every other value is read.
#[derive(Debug)]
pub struct OfValue;

impl OfValue {
    /// Returns the value.
    ///
    /// # Errors
    ///
    /// None.
    pub fn of<T>(self, returned: T) -> Result<T, BoxError> {
        Ok(returned)
    }
}

/// How a value becomes an output that is one as it is.
#[derive(Debug)]
pub struct AsItIs;

impl AsItIs {
    /// Makes the output.
    ///
    /// # Errors
    ///
    /// As [`IntoToolOutput`].
    pub fn of<T: IntoToolOutput>(self, value: T) -> Result<ToolOutput, BoxError> {
        value.into_tool_output()
    }
}

/// How every other value becomes an output.
#[derive(Debug)]
pub struct AsJson;

impl AsJson {
    /// Makes the output.
    ///
    /// # Errors
    ///
    /// If the value cannot be serialized.
    pub fn of<T: JsonOutput>(self, value: T) -> Result<ToolOutput, BoxError> {
        value.into_json_output()
    }
}

/// A value that is written as JSON.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the result of a tool",
    note = "a result is a `String`, a `ToolOutput`, `()`, or a type that derives `serde::Serialize`"
)]
pub trait JsonOutput {
    /// Makes the output.
    ///
    /// # Errors
    ///
    /// If the value cannot be serialized.
    fn into_json_output(self) -> Result<ToolOutput, BoxError>;
}

#[diagnostic::do_not_recommend]
impl<T> JsonOutput for T
where
    Json<T>: IntoToolOutput,
{
    fn into_json_output(self) -> Result<ToolOutput, BoxError> {
        Json(self).into_tool_output()
    }
}

/// An error of a tool's function.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a tool",
    note = "an error is a type that implements `std::error::Error` and is `Send + Sync + 'static`, an \
            `anyhow::Error`, a `BoxError` or a `String`"
)]
pub trait ToolFailure {
    /// The error as layers pass it on.
    fn into_box(self) -> BoxError;
}

#[diagnostic::do_not_recommend]
impl<E: Into<BoxError>> ToolFailure for E {
    fn into_box(self) -> BoxError {
        self.into()
    }
}

/// What a tool's function can take by reference.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the state of a tool",
    label = "not `Send + Sync + 'static`",
    note = "calls of a tool run at the same time and on any thread: `Arc` instead of `Rc`, a `Mutex`, a \
            `RwLock` or an atomic instead of a `Cell` or a `RefCell`"
)]
pub trait ToolState {}

#[diagnostic::do_not_recommend]
impl<T: ?Sized + Send + Sync + 'static> ToolState for T {}

/// Compiles if a type can be the state of a tool.
pub fn is_state<T: ?Sized + ToolState>() {}
