//! Classifies database errors by what a caller can do about them.

use std::time::Duration;

use sqlx::error::{DatabaseError, ErrorKind};
use sqlx::migrate::MigrateError;
use sqlx::postgres::PgDatabaseError;

use crate::error::{StoreError, StoreErrorKind};

/// When to retry while the database is busy or unavailable.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Returns the conversion of database errors of this operation to store errors.
pub(crate) fn store_error(operation: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |cause| {
        let kind = classify_error(&cause);
        let mut error = StoreError::new(kind, operation);
        error.is_rejected_value = is_rejected_value(&cause);
        if kind == StoreErrorKind::Unavailable {
            error.retry_after = Some(RETRY_AFTER);
        }
        error.with_source(cause)
    }
}

/// Whether a statement has waited for as long as it may for what others had locked.
pub(crate) fn is_lock_timeout(error: &StoreError) -> bool {
    let cause = error.source.as_ref().and_then(|source| source.downcast_ref::<sqlx::Error>());
    let Some(sqlx::Error::Database(cause)) = cause else { return false };
    cause.code().is_some_and(|code| code == "55P03")
}

fn classify_error(cause: &sqlx::Error) -> StoreErrorKind {
    match cause {
        sqlx::Error::RowNotFound => StoreErrorKind::NotFound,
        sqlx::Error::Database(cause) => classify_database_error(cause.as_ref()),
        sqlx::Error::Migrate(cause) => match cause.as_ref() {
            MigrateError::Execute(cause) | MigrateError::ExecuteMigration(cause, _) => classify_error(cause),
            _ => StoreErrorKind::Corrupt,
        },
        sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Decode(_)
        | sqlx::Error::Encode(_)
        | sqlx::Error::ColumnNotFound(_) => StoreErrorKind::Corrupt,
        // The connection: refused, lost, or not acquired in time.
        _ => StoreErrorKind::Unavailable,
    }
}

/// SQLite names constraints only for checks, so the class of the violation decides: a duplicate, a reference to a row that
/// does not exist, or a shape that this version does not write.
fn classify_database_error(cause: &dyn DatabaseError) -> StoreErrorKind {
    match cause.kind() {
        ErrorKind::UniqueViolation => return StoreErrorKind::Conflict,
        ErrorKind::ForeignKeyViolation => return StoreErrorKind::NotFound,
        ErrorKind::NotNullViolation | ErrorKind::CheckViolation => return StoreErrorKind::Corrupt,
        _ => {}
    }
    let code = cause.code().unwrap_or_default();
    match cause.try_downcast_ref::<PgDatabaseError>() {
        Some(_) => classify_postgres_code(&code),
        None => classify_sqlite_code(code.parse().unwrap_or(0)),
    }
}

/// The low byte is the class: 1 error (a statement that does not fit the tables), 11 corrupt, 18 too large a value, 20 a
/// value of another type, 26 not a database. The rest (5 busy, 6 locked, 8 read-only, 10 input or output, 13 full,
/// 14 cannot open ..) may be temporary.
fn classify_sqlite_code(code: i32) -> StoreErrorKind {
    match code & 0xff {
        1 | 11 | 18 | 20 | 26 => StoreErrorKind::Corrupt,
        _ => StoreErrorKind::Unavailable,
    }
}

/// The first two characters are the class: 0A not supported, 21 and 22 a value that does not fit, 42 a statement that does
/// not fit the tables, XX corrupted. The rest (08 connection, 25006 a standby, 28 a password that is being changed, 40 a
/// deadlock or serialization failure, 53 disk full or too many connections, 55P03 lock not available, 57 shut down or too
/// slow, 58 the disk ..) may be temporary.
fn classify_postgres_code(code: &str) -> StoreErrorKind {
    match code.get(..2) {
        Some("0A" | "21" | "22" | "42" | "XX") => StoreErrorKind::Corrupt,
        _ => StoreErrorKind::Unavailable,
    }
}

/// Whether the database rejected a value, as it always will.
fn is_rejected_value(cause: &sqlx::Error) -> bool {
    match cause {
        sqlx::Error::Encode(_) => true,
        sqlx::Error::Database(cause) => {
            let code = cause.code().unwrap_or_default();
            match cause.try_downcast_ref::<PgDatabaseError>() {
                Some(_) => is_rejected_by_postgres(&code),
                None => is_rejected_by_sqlite(code.parse().unwrap_or(0)),
            }
        }
        _ => false,
    }
}

/// 18 too large, 19 a constraint that it breaks, 20 of another type.
fn is_rejected_by_sqlite(code: i32) -> bool {
    matches!(code & 0xff, 18..=20)
}

/// 21 and 22 a value that does not fit its column, 23 a constraint that it breaks.
fn is_rejected_by_postgres(code: &str) -> bool {
    matches!(code.get(..2), Some("21" | "22" | "23"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_database_is_not_blamed_on_the_value() {
        for code in ["XX001", "XX002", "42P01", "42703", "0A000", "25006", "40P01", "53100", "57014", ""] {
            assert!(!is_rejected_by_postgres(code), "{code}");
        }
        for code in ["21000", "22003", "22021", "23502", "23514"] {
            assert!(is_rejected_by_postgres(code), "{code}");
        }
        // 779 is a damaged index.
        for code in [0, 1, 5, 10, 11, 13, 26, 779] {
            assert!(!is_rejected_by_sqlite(code), "{code}");
        }
        // 275 is a check, 1299 a column that must not be null.
        for code in [18, 20, 275, 1299] {
            assert!(is_rejected_by_sqlite(code), "{code}");
        }
    }

    #[test]
    fn temporary_errors_are_outages() {
        for code in ["57P01", "57P03", "40001", "40P01", "53300", "53100", "57014", "55P03", "08006", "25006"]
        {
            assert_eq!(classify_postgres_code(code), StoreErrorKind::Unavailable, "{code}");
        }
        for code in ["42P01", "42703", "22021", "XX001", "0A000"] {
            assert_eq!(classify_postgres_code(code), StoreErrorKind::Corrupt, "{code}");
        }
    }
}
