//! The accessors of the inner service. The service of every layer has these accessors, as in
//! tower-http.

/// Defines `get_ref`, `get_mut` and `into_inner` in the `impl<S>` of a service with the field
/// `inner: S`.
#[doc(hidden)]
#[macro_export]
macro_rules! __inner_service_accessors {
    ($inner:ty) => {
        /// Returns a reference to the inner service.
        pub fn get_ref(&self) -> &$inner {
            &self.inner
        }

        /// Returns a mutable reference to the inner service.
        pub fn get_mut(&mut self) -> &mut $inner {
            &mut self.inner
        }

        /// Returns the inner service.
        pub fn into_inner(self) -> $inner {
            self.inner
        }
    };
}
