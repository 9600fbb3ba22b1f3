//! Locking for this crate. The runner catches panics, and every value behind a lock is consistent between two
//! statements, so a poisoned lock is used as it is.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Acquires the lock, poisoned or not.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
