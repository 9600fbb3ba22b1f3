//! A statement with its parameters, run on either database. One text serves both databases wherever both accept it (`$1`
//! numbers parameters in SQLite too); the others are [`Statement::PerDialect`].
//!
//! Knows no table. Errors are converted to the store's and name the operation that the statement belongs to.
//!
//! What a statement returns is boxed, here and in [`crate::sql::database`]: every function that awaits one has to be `Send`, and
//! the compiler would look for that through all of the driver's types again in each of them, which takes minutes.

use futures_util::future::BoxFuture;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments, FromRow, SqliteConnection};
use uuid::Uuid;

use crate::model::ids::{
    AccountId, AlbumId, ConsentId, DeliveryId, ErasureId, EventId, GrantId, KeyId, LeaseId, OrganizationId,
    PhotoId, ProbeId, ProcessId, ReportId, SessionId, WebhookId,
};
use crate::sql::connection::timed::TimedConnection;
use crate::sql::error::store_error;
use crate::traits::Result;

/// The text of a statement.
#[derive(Clone, Copy)]
pub(crate) enum Statement {
    /// For both databases.
    Portable(&'static str),
    /// One text per database, with the same parameters and columns.
    PerDialect {
        /// For SQLite.
        sqlite: &'static str,
        /// For Postgres.
        postgres: &'static str,
    },
}

impl Statement {
    pub(crate) fn sqlite_text(self) -> &'static str {
        match self {
            Self::Portable(text) | Self::PerDialect { sqlite: text, .. } => text,
        }
    }

    pub(crate) fn postgres_text(self) -> &'static str {
        match self {
            Self::Portable(text) | Self::PerDialect { postgres: text, .. } => text,
        }
    }
}

impl From<&'static str> for Statement {
    fn from(text: &'static str) -> Self {
        Self::Portable(text)
    }
}

/// The value of a parameter.
pub(crate) enum Value {
    Id(Uuid),
    OptionalId(Option<Uuid>),
    Number(Option<i64>),
    Text(Option<String>),
    Real(f64),
    Bytes(Option<Vec<u8>>),
    /// An array; for SQLite, which has none, a JSON list of hexadecimal strings.
    Ids(Vec<Uuid>),
    /// An array; for SQLite, which has none, a JSON list.
    Numbers(Vec<i64>),
    /// An array; for SQLite, which has none, a JSON list.
    Texts(Vec<String>),
}

macro_rules! impl_value_from {
    ($($from:ty => |$value:ident| $into:expr),+ $(,)?) => {$(
        impl From<$from> for Value {
            fn from($value: $from) -> Self {
                $into
            }
        }
    )+};
}

impl_value_from! {
    AccountId => |id| Self::Id(id.0),
    AlbumId => |id| Self::Id(id.0),
    Option<AlbumId> => |id| Self::OptionalId(id.map(|id| id.0)),
    ConsentId => |id| Self::Id(id.0),
    ReportId => |id| Self::Id(id.0),
    DeliveryId => |id| Self::Id(id.0),
    ErasureId => |id| Self::Id(id.0),
    Option<ErasureId> => |id| Self::OptionalId(id.map(|id| id.0)),
    EventId => |id| Self::Id(id.0),
    GrantId => |id| Self::Id(id.0),
    KeyId => |id| Self::Id(id.0),
    LeaseId => |id| Self::Id(id.0),
    OrganizationId => |id| Self::Id(id.0),
    PhotoId => |id| Self::Id(id.0),
    ProbeId => |id| Self::Id(id.0),
    ProcessId => |id| Self::Id(id.0),
    SessionId => |id| Self::Id(id.0),
    WebhookId => |id| Self::Id(id.0),
    i64 => |number| Self::Number(Some(number)),
    Option<i64> => |number| Self::Number(number),
    &str => |text| Self::Text(Some(text.to_owned())),
    String => |text| Self::Text(Some(text)),
    Option<String> => |text| Self::Text(text),
    f64 => |number| Self::Real(number),
    Vec<u8> => |bytes| Self::Bytes(Some(bytes)),
    Option<Vec<u8>> => |bytes| Self::Bytes(bytes),
    Uuid => |id| Self::Id(id),
    Vec<Uuid> => |ids| Self::Ids(ids),
    Vec<i64> => |numbers| Self::Numbers(numbers),
    Vec<String> => |texts| Self::Texts(texts),
}

/// The connection on which a statement runs, in a transaction or not.
pub(crate) enum ConnectionRef<'c> {
    Sqlite(&'c mut SqliteConnection),
    Postgres(&'c mut TimedConnection),
}

/// A type that can be read from a row of either database.
pub(crate) trait FromAnyRow:
    for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin + 'static
{
}

impl<T> FromAnyRow for T where
    T: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin + 'static
{
}

/// A statement and the values bound to it.
pub(crate) struct Query {
    operation: &'static str,
    statement: Statement,
    values: Vec<Value>,
}

/// A statement of the operation of this name, for errors.
pub(crate) fn query(operation: &'static str, statement: impl Into<Statement>) -> Query {
    Query { operation, statement: statement.into(), values: Vec::new() }
}

/// Runs `$answer` for the database of the connection: `$query` is the text and the arguments, `$connection` the connection,
/// each of the type of that database.
macro_rules! run {
    ($self:ident, $on:ident, |$query:ident, $connection:ident| $answer:expr) => {{
        let Self { operation, statement, values } = $self;
        match $on {
            ConnectionRef::Sqlite($connection) => {
                let $query =
                    (statement.sqlite_text(), sqlite_arguments(values).map_err(store_error(operation))?);
                $answer
            }
            ConnectionRef::Postgres($connection) => {
                let $query =
                    (statement.postgres_text(), postgres_arguments(values).map_err(store_error(operation))?);
                $answer
            }
        }
        .map_err(store_error(operation))
    }};
}

impl Query {
    /// Binds the value of the next parameter.
    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Runs the statement; returns how many rows it changed.
    pub(crate) fn execute<'c>(self, on: impl Into<ConnectionRef<'c>>) -> BoxFuture<'c, Result<u64>> {
        let on = on.into();
        Box::pin(async move {
            run!(self, on, |query, connection| {
                sqlx::query_with(query.0, query.1).execute(connection).await.map(|done| done.rows_affected())
            })
        })
    }

    /// Returns every row.
    pub(crate) fn fetch_all<'c, R: FromAnyRow>(
        self,
        on: impl Into<ConnectionRef<'c>>,
    ) -> BoxFuture<'c, Result<Vec<R>>> {
        let on = on.into();
        Box::pin(async move {
            run!(self, on, |query, connection| sqlx::query_as_with(query.0, query.1)
                .fetch_all(connection)
                .await)
        })
    }

    /// Returns the first row, if there is one.
    pub(crate) fn fetch_optional<'c, R: FromAnyRow>(
        self,
        on: impl Into<ConnectionRef<'c>>,
    ) -> BoxFuture<'c, Result<Option<R>>> {
        let on = on.into();
        Box::pin(async move {
            run!(self, on, |query, connection| sqlx::query_as_with(query.0, query.1)
                .fetch_optional(connection)
                .await)
        })
    }

    /// Returns the first row; `NotFound` when there is none.
    pub(crate) fn fetch_one<'c, R: FromAnyRow>(
        self,
        on: impl Into<ConnectionRef<'c>>,
    ) -> BoxFuture<'c, Result<R>> {
        let operation = self.operation;
        let found = self.fetch_optional(on);
        Box::pin(async move { found.await?.ok_or_else(|| store_error(operation)(sqlx::Error::RowNotFound)) })
    }
}

fn sqlite_arguments(values: Vec<Value>) -> EncodeResult<SqliteArguments> {
    let json = |list: &[String]| serde_json::to_string(list);
    let mut arguments = SqliteArguments::default();
    for value in values {
        match value {
            Value::Id(id) => Arguments::add(&mut arguments, id),
            Value::OptionalId(id) => Arguments::add(&mut arguments, id),
            Value::Number(number) => Arguments::add(&mut arguments, number),
            Value::Text(text) => Arguments::add(&mut arguments, text),
            Value::Real(number) => Arguments::add(&mut arguments, number),
            Value::Bytes(bytes) => Arguments::add(&mut arguments, bytes),
            Value::Ids(ids) => {
                let ids: Vec<String> = ids.iter().map(|id| id.simple().to_string()).collect();
                Arguments::add(&mut arguments, json(&ids).map_err(encode_error)?)
            }
            Value::Numbers(numbers) => {
                Arguments::add(&mut arguments, serde_json::to_string(&numbers).map_err(encode_error)?)
            }
            Value::Texts(texts) => Arguments::add(&mut arguments, json(&texts).map_err(encode_error)?),
        }
        .map_err(encode_error)?;
    }
    Ok(arguments)
}

fn postgres_arguments(values: Vec<Value>) -> EncodeResult<PgArguments> {
    let mut arguments = PgArguments::default();
    for value in values {
        match value {
            Value::Id(id) => arguments.add(id),
            Value::OptionalId(id) => arguments.add(id),
            Value::Number(number) => arguments.add(number),
            Value::Text(text) => arguments.add(text.map(strip_nul)),
            Value::Real(number) => arguments.add(number),
            Value::Bytes(bytes) => arguments.add(bytes),
            Value::Ids(ids) => arguments.add(ids),
            Value::Numbers(numbers) => arguments.add(numbers),
            Value::Texts(texts) => arguments.add(texts.into_iter().map(strip_nul).collect::<Vec<_>>()),
        }
        .map_err(encode_error)?;
    }
    Ok(arguments)
}

/// The arguments of a statement, encoded for one database.
type EncodeResult<T> = std::result::Result<T, sqlx::Error>;

fn encode_error(cause: impl Into<BoxDynError>) -> sqlx::Error {
    sqlx::Error::Encode(cause.into())
}

/// Removes NUL characters, which Postgres refuses in a text. Cameras pad their names with them, and a partner's filename
/// may contain anything.
pub(crate) fn strip_nul(mut text: String) -> String {
    text.retain(|character| character != '\0');
    text
}
