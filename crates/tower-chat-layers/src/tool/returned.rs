//! Converts the value that a function with the attribute `#[tool]` returns. The conversion depends
//! on the type of the value, which a macro does not know. The compiler therefore selects the
//! conversion by method resolution: of two methods with the same name, the inherent method is
//! called if its bounds are satisfied, and the trait method otherwise.

use super::{IntoToolOutput, Json, ToolOutput};
use crate::BoxError;

/// A value that a tool function returned. The macro calls `result` and `output` to select the
/// conversion.
#[derive(Debug)]
pub struct Returned<'v, T>(pub &'v T);

impl<T, E> Returned<'_, Result<T, E>> {
    /// Selects the conversion for a function that returns a `Result`.
    pub fn result(&self) -> OfResult {
        OfResult
    }
}

impl<T: IntoToolOutput> Returned<'_, T> {
    /// Selects the conversion for a value that implements [`IntoToolOutput`].
    pub fn output(&self) -> AsItIs {
        AsItIs
    }
}

/// The fallback for values that are not a `Result`.
pub trait ValueReturned {
    /// Selects the conversion for a function that does not return a `Result`.
    fn result(&self) -> OfValue {
        OfValue
    }
}

impl<T> ValueReturned for Returned<'_, T> {}

/// The fallback for values that do not implement [`IntoToolOutput`].
pub trait JsonReturned {
    /// Selects the conversion to JSON.
    fn output(&self) -> AsJson {
        AsJson
    }
}

impl<T> JsonReturned for Returned<'_, T> {}

/// The conversion of a `Result`.
#[derive(Debug)]
pub struct OfResult;

impl OfResult {
    /// Returns the value of the function, or its error.
    ///
    /// # Errors
    ///
    /// Returns the error of the function.
    pub fn of<T, E: ToolFailure>(self, returned: Result<T, E>) -> Result<T, BoxError> {
        returned.map_err(ToolFailure::into_box)
    }
}

/// The conversion of a value that is not a `Result`.
#[derive(Debug)]
pub struct OfValue;

impl OfValue {
    /// Returns the value.
    ///
    /// # Errors
    ///
    /// Never returns an error.
    pub fn of<T>(self, returned: T) -> Result<T, BoxError> {
        Ok(returned)
    }
}

/// The conversion of a value that implements [`IntoToolOutput`].
#[derive(Debug)]
pub struct AsItIs;

impl AsItIs {
    /// Converts the value into an output.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`IntoToolOutput`].
    pub fn of<T: IntoToolOutput>(self, value: T) -> Result<ToolOutput, BoxError> {
        value.into_tool_output()
    }
}

/// The conversion of other values to JSON.
#[derive(Debug)]
pub struct AsJson;

impl AsJson {
    /// Converts the value into an output.
    ///
    /// # Errors
    ///
    /// Returns an error if the value cannot be serialized.
    pub fn of<T: JsonOutput>(self, value: T) -> Result<ToolOutput, BoxError> {
        value.into_json_output()
    }
}

/// A value that is converted to JSON.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the result of a tool",
    note = "a result is a `String`, a `ToolOutput`, `()`, or a type that derives `serde::Serialize`"
)]
pub trait JsonOutput {
    /// Converts the value into an output.
    ///
    /// # Errors
    ///
    /// Returns an error if the value cannot be serialized.
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
    /// Converts the error into a [`BoxError`].
    fn into_box(self) -> BoxError;
}

#[diagnostic::do_not_recommend]
impl<E: Into<BoxError>> ToolFailure for E {
    fn into_box(self) -> BoxError {
        self.into()
    }
}

/// Implemented by the types of state that a tool function can borrow.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the state of a tool",
    label = "not `Send + Sync + 'static`",
    note = "calls of a tool run at the same time and on any thread: `Arc` instead of `Rc`, a `Mutex`, a \
            `RwLock` or an atomic instead of a `Cell` or a `RefCell`"
)]
pub trait ToolState {}

#[diagnostic::do_not_recommend]
impl<T: ?Sized + Send + Sync + 'static> ToolState for T {}

/// Causes a compile error if a type cannot be the state of a tool.
pub fn is_state<T: ?Sized + ToolState>() {}
