//! Locks of this crate. A panic while a lock is held is already isolated by the runner, and every state behind a lock
//! here is whole between two statements, so a poisoned lock is taken as it is.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes the lock, poisoned or not.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
