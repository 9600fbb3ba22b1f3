//! SQLite's errors by what a caller can do about them.

use std::time::Duration;

use sqlx::error::{DatabaseError, ErrorKind};

use crate::error::{StoreError, StoreErrorKind};

/// When to try again after the database was busy.
const BUSY_RETRY: Duration = Duration::from_secs(1);

/// Turns an error of the call named `what` into the store's.
pub(super) fn fault(what: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |cause| {
        let kind = kind_of(&cause);
        let mut error = StoreError::new(kind, what);
        if kind == StoreErrorKind::Unavailable {
            error.retry_after = Some(BUSY_RETRY);
        }
        error.because(cause)
    }
}

fn kind_of(cause: &sqlx::Error) -> StoreErrorKind {
    match cause {
        sqlx::Error::RowNotFound => StoreErrorKind::NotFound,
        sqlx::Error::Database(cause) => database_kind(cause.as_ref()),
        sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Decode(_)
        | sqlx::Error::ColumnNotFound(_)
        | sqlx::Error::Migrate(_) => StoreErrorKind::Corrupt,
        _ => StoreErrorKind::Unavailable,
    }
}

/// SQLite names constraints only for checks, so the class of the violation decides: what is there already, what
/// the row should belong to and does not exist, a shape that this version does not write.
fn database_kind(cause: &dyn DatabaseError) -> StoreErrorKind {
    match cause.kind() {
        ErrorKind::UniqueViolation => return StoreErrorKind::Conflict,
        ErrorKind::ForeignKeyViolation => return StoreErrorKind::NotFound,
        ErrorKind::NotNullViolation | ErrorKind::CheckViolation => return StoreErrorKind::Corrupt,
        _ => {}
    }
    let code = cause.code().and_then(|code| code.parse::<i32>().ok()).unwrap_or(0);
    // The low byte is the class: 1 error (a statement that does not fit the tables), 11 corrupt, 26 not a database.
    // The rest (5 busy, 6 locked, 8 read-only, 10 input or output, 13 full, 14 cannot open ..) may pass.
    match code & 0xff {
        1 | 11 | 26 => StoreErrorKind::Corrupt,
        _ => StoreErrorKind::Unavailable,
    }
}
