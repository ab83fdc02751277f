//! The parameters of statements, with their types in the database.

use std::fmt::Debug;

use tokio_postgres::types::{ToSql, Type};

/// The parameters of a statement.
pub(crate) type Values<'a> = &'a [&'a dyn Parameter];

/// A parameter of a statement. Without a prepared statement, the client sends the types of the
/// parameters.
pub(crate) trait Parameter: Debug + Sync {
    /// Returns the value for the client library.
    fn value(&self) -> &(dyn ToSql + Sync);

    /// Returns the type of the parameter in the database.
    fn kind(&self) -> Type;
}

impl<T: ToSql + Sync + HasType> Parameter for T {
    fn value(&self) -> &(dyn ToSql + Sync) {
        self
    }

    fn kind(&self) -> Type {
        T::TYPE
    }
}

/// A Rust type that corresponds to one PostgreSQL type in all statements of this crate.
pub(crate) trait HasType {
    const TYPE: Type;
}

/// A Rust type that can be an element of a list parameter.
pub(crate) trait Element {
    const LIST: Type;
}

macro_rules! types {
    ($($rust:ty => $kind:ident, $list:ident;)*) => {$(
        impl HasType for $rust {
            const TYPE: Type = Type::$kind;
        }
        impl Element for $rust {
            const LIST: Type = Type::$list;
        }
    )*};
}

types! {
    bool => BOOL, BOOL_ARRAY;
    i64 => INT8, INT8_ARRAY;
    String => TEXT, TEXT_ARRAY;
    str => TEXT, TEXT_ARRAY;
    Vec<u8> => BYTEA, BYTEA_ARRAY;
    [u8] => BYTEA, BYTEA_ARRAY;
}

impl<T: HasType + ?Sized> HasType for &T {
    const TYPE: Type = T::TYPE;
}

impl<T: Element + ?Sized> Element for &T {
    const LIST: Type = T::LIST;
}

impl<T: HasType> HasType for Option<T> {
    const TYPE: Type = T::TYPE;
}

impl<T: Element> Element for Option<T> {
    const LIST: Type = T::LIST;
}

impl<T: Element> HasType for Vec<T> {
    const TYPE: Type = T::LIST;
}

#[cfg(test)]
mod tests {
    use super::{Parameter, Type};

    #[test]
    fn each_value_names_the_type_that_the_statements_declare() {
        let rows: [(&dyn Parameter, Type); 7] = [
            (&7_i64, Type::INT8),
            (&None::<Vec<u8>>, Type::BYTEA),
            (&Some(b"key".as_slice()), Type::BYTEA),
            (&"commit", Type::TEXT),
            (&vec![Some("ok")], Type::TEXT_ARRAY),
            (&vec![b"name".as_slice()], Type::BYTEA_ARRAY),
            (&Some(vec![1_i64]), Type::INT8_ARRAY),
        ];
        for (value, kind) in rows {
            assert_eq!(value.kind(), kind);
        }
    }
}
