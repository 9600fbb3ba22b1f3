//! One service for several tests, so that a group of them starts it once.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::service::{Options, Service, tail};

/// One service for a group of tests: started by the first that runs, stopped after the last that runs beside it.
pub struct Group(Mutex<Weak<Service>>);

impl Group {
    /// A group whose service does not run yet.
    pub const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    /// The running service, started with `options` when none runs.
    pub fn service(&self, options: impl FnOnce() -> Options) -> Shared {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let service = running.upgrade().unwrap_or_else(|| Arc::new(Service::start(options())));
        *running = Arc::downgrade(&service);
        Shared(service)
    }
}

impl Default for Group {
    fn default() -> Self {
        Self::new()
    }
}

/// A share in a group's service. Prints the log when its test fails.
pub struct Shared(Arc<Service>);

impl Deref for Shared {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.0
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if std::thread::panicking() && Arc::strong_count(&self.0) > 1 {
            eprintln!("---- log of the service, shared with other tests ----\n{}", tail(&self.log()));
        }
    }
}
