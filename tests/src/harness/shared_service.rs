//! One service for several tests, started once.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use photofinish_launcher::log_tail;

use super::service::{Service, ServiceOptions};

/// One service for a group of tests: started by the first that runs, stopped after the last that runs beside it.
pub struct SharedService(Mutex<Weak<Service>>);

impl SharedService {
    /// A group whose service does not run yet.
    pub const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    /// The running service, started with `options` when none runs.
    pub fn get_or_start(&self, options: impl FnOnce() -> ServiceOptions) -> SharedServiceRef {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let service = running.upgrade().unwrap_or_else(|| Arc::new(Service::start(options())));
        *running = Arc::downgrade(&service);
        SharedServiceRef(service)
    }
}

impl Default for SharedService {
    fn default() -> Self {
        Self::new()
    }
}

/// One test's reference to a shared service. Prints the log when the test fails.
pub struct SharedServiceRef(Arc<Service>);

impl Deref for SharedServiceRef {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.0
    }
}

impl Drop for SharedServiceRef {
    fn drop(&mut self) {
        if std::thread::panicking() && Arc::strong_count(&self.0) > 1 {
            eprintln!("---- log of the service, shared with other tests ----\n{}", log_tail(&self.log()));
        }
    }
}
