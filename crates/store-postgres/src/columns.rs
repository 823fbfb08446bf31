//! Values for a statement, column by column. A column is an array, or one value if all rows have the same value.
//!
//! The server needs time to decode and to unnest each element of an array, and a batch would have about thirty arrays. So a column that entries may
//! share has two parameters, an array and a single value, and one of them is empty. Concurrent runs of one workflow share their tenant, owner,
//! status, kind and more.

use sqlx::encode::Encode;
use sqlx::postgres::{PgArguments, PgBindIterExt as _, PgHasArrayType};
use sqlx::query::Query;
use sqlx::{Postgres, Type};

/// A column of values in a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueColumn {
    pub(crate) name: &'static str,
    kind: &'static str,
    is_shared: bool,
}

/// Creates a column whose values may be the same for all rows.
pub(crate) const fn shared(name: &'static str, kind: &'static str) -> ValueColumn {
    ValueColumn { name, kind, is_shared: true }
}

/// Creates a column whose values mostly differ between rows.
pub(crate) const fn each(name: &'static str, kind: &'static str) -> ValueColumn {
    ValueColumn { name, kind, is_shared: false }
}

/// Returns the names of columns as a list.
pub(crate) fn names(columns: &[&[ValueColumn]]) -> String {
    let names: Vec<_> = columns.concat().iter().map(|column| column.name).collect();
    names.join(", ")
}

/// The rows of values that a statement gets.
#[derive(Debug)]
pub(crate) struct Rows {
    /// The text of the `FROM` clause.
    pub(crate) from: String,
    values: Vec<(&'static str, String)>,
}

impl Rows {
    /// Creates rows with these columns and this alias. Their parameters come after number `parameter`.
    pub(crate) fn new(parameter: &mut usize, alias: &str, columns: &[&[ValueColumn]]) -> Self {
        let (mut values, mut arrays) = (Vec::new(), Vec::new());
        let mut next = || {
            *parameter += 1;
            *parameter
        };
        for ValueColumn { name, kind, is_shared } in columns.concat() {
            arrays.push(format!("${}::{kind}[]", next()));
            // Keep the single value out of the rows, because the server copies the rows several times.
            values.push((
                name,
                match is_shared {
                    true => format!("coalesce(${}::{kind}, {alias}.{name})", next()),
                    false => format!("{alias}.{name}"),
                },
            ));
        }
        let from = format!("unnest({}) AS {alias}({})", arrays.join(", "), names(columns));
        Self { from, values }
    }

    /// Returns the expression for the value of a column in these rows.
    pub(crate) fn of<'a>(&'a self, column: &'a str) -> &'a str {
        self.values.iter().find(|(name, _)| *name == column).map_or(column, |(_, value)| value)
    }

    /// Returns the expressions for the values of columns as a list.
    pub(crate) fn values(&self, columns: &[&[ValueColumn]]) -> String {
        let values: Vec<_> = columns.concat().iter().map(|column| self.of(column.name)).collect();
        values.join(", ")
    }

    /// Returns the assignments of the columns for a `SET` clause.
    pub(crate) fn set(&self, columns: &[ValueColumn]) -> String {
        let set: Vec<_> =
            columns.iter().map(|ValueColumn { name, .. }| format!("{name} = {}", self.of(name))).collect();
        set.join(", ")
    }
}

pub(crate) type Values = Query<'static, Postgres, PgArguments>;

/// Binds a column that has a value for each row.
pub(crate) fn bind_each<T>(query: Values, values: impl Iterator<Item = T>) -> Values
where
    T: for<'q> Encode<'q, Postgres> + Type<Postgres> + PgHasArrayType,
{
    query.bind(values.bind_iter())
}

/// Binds a column whose values may be the same for all rows.
pub(crate) fn bind_shared<T>(query: Values, values: impl Iterator<Item = Option<T>> + Clone) -> Values
where
    T: for<'q> Encode<'q, Postgres> + Type<Postgres> + PgHasArrayType + PartialEq,
{
    let mut all = values.clone();
    let first = all.next();
    let is_same = all.all(|value| Some(&value) == first.as_ref());
    let many = values.take(if is_same { 0 } else { usize::MAX });
    query.bind(many.bind_iter()).bind(first.filter(|_| is_same).flatten())
}
