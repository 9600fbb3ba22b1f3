//! The real servers of the cluster profile, started for tests and trials: [`Postgres`], [`NatsServer`], [`S3Server`],
//! each with its own folder and a free port, stopped and removed with the process that started it. A [`Proxy`] in front of a
//! server disturbs its connections; a [`LoadBalancer`] forwards to those of several servers that are ready;
//! a [`Receiver`] keeps what a client of HTTP sends;
//! [`find_faketime`] finds the library that sets a process's clock wrong.
//!
//! Knows nothing of the product: it provides addresses, and what a client needs to use them.

#![expect(clippy::unwrap_used, reason = "a test fails if its server cannot be started or reached")]

mod clock;
mod environment;
mod load_balancer;
mod nats;
mod ports;
mod postgres;
mod proxy;
mod receiver;
mod s3;

pub use clock::find_faketime;
pub use environment::{
    is_skipping_forbidden, read_variable, repository_root, skip_or_fail, variable_or_installed_path,
};
pub use load_balancer::LoadBalancer;
pub use nats::NatsServer;
pub use ports::free_port;
pub use postgres::Postgres;
pub use proxy::{Proxy, ProxyFault};
pub use receiver::{Answer, ReceivedRequest, Receiver};
pub use s3::{BUCKET, S3Server, count_files_below};

use std::time::Duration;

/// Longer than anything that a server does unless it never ends.
const DEADLINE: Duration = Duration::from_secs(30);
