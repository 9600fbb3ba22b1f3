//! The shares of the cores as one stage takes them.

use std::sync::Arc;

use crate::engine::cpu_shares::{Candidates, CpuShares};
use crate::engine::edge::Inlet;
use crate::engine::outlet::Outlet;

/// The shares of a generation, as a stage takes them.
#[derive(Clone)]
pub(crate) struct StageShares {
    pub(crate) shares: CpuShares,
    pub(crate) candidates: Candidates,
}

impl StageShares {
    /// For a stage between `inlet` and `outlet`.
    pub(crate) fn new<T, P, O>(shares: CpuShares, inlet: Inlet<T, P>, outlet: Outlet<O>) -> Self
    where
        T: Send + 'static,
        P: Send + 'static,
        O: Send + 'static,
    {
        let has_space = move |organization| outlet.has_space(organization);
        Self { shares, candidates: Arc::new(move || inlet.organizations(&has_space)) }
    }
}
