//! Implements the API's traits with the store and the pipeline. No rules of its own.

use std::sync::Arc;

use async_trait::async_trait;
use photofinish_api::context::{ComponentHealth, ComponentState, Health, ProbeEmbedder, ProbeError};
use photofinish_pipeline::{
    Pipeline, PipelineStatus, ProbeService, ProbeServiceError, ProbeStatus, ProbeTurn,
};
use photofinish_store::Store;
use photofinish_store::model::ids::OrganizationId;
use photofinish_store::model::photo::Embedding;

/// The probe service of this process; `None` in a role without an API.
pub struct ProbeAdapter(pub Option<Arc<ProbeService>>);

#[async_trait]
impl ProbeEmbedder for ProbeAdapter {
    async fn take_turn(
        &self,
        organization: OrganizationId,
    ) -> Result<Box<dyn photofinish_api::context::ProbeTurn>, ProbeError> {
        let probes = self.0.as_ref().ok_or(ProbeError::Unavailable)?;
        match probes.take_turn(organization).await {
            Ok(turn) => Ok(Box::new(TurnAdapter(turn))),
            Err(error) => Err(to_probe_error(error)),
        }
    }
}

struct TurnAdapter(ProbeTurn);

#[async_trait]
impl photofinish_api::context::ProbeTurn for TurnAdapter {
    async fn embed(self: Box<Self>, selfie: bytes::Bytes) -> Result<Embedding, ProbeError> {
        let face = self.0.embed(selfie).await.map_err(to_probe_error)?;
        Ok(Embedding { model: face.model, vector: face.vector })
    }
}

/// A selfie that takes too long is unreadable: the API remembers that, and it is not tried again.
fn to_probe_error(error: ProbeServiceError) -> ProbeError {
    match error {
        ProbeServiceError::NoFace => ProbeError::NoFace,
        ProbeServiceError::Unreadable | ProbeServiceError::TimedOut => ProbeError::Unreadable,
        ProbeServiceError::Busy { retry_after: try_again_in } => ProbeError::Busy { try_again_in },
        ProbeServiceError::Unavailable => ProbeError::Unavailable,
    }
}

/// The health of the components of this process.
pub struct ServiceHealth {
    pub store: Store,
    pub pipeline: Option<Arc<Pipeline>>,
    pub probes: Option<Arc<ProbeService>>,
}

#[async_trait]
impl Health for ServiceHealth {
    async fn check_components(&self) -> Vec<ComponentHealth> {
        let running = |result: Result<(), photofinish_store::error::StoreError>| match result {
            Ok(()) => ComponentState::Running,
            Err(error) => ComponentState::Down(error.to_string_with_causes()),
        };
        let mut parts = vec![
            ComponentHealth { name: "database", state: running(self.store.check_database().await) },
            ComponentHealth { name: "storage", state: running(self.store.check_storage().await) },
        ];
        if let Some(pipeline) = &self.pipeline {
            // Only in workers: the API confirms photos and searches albums without the queue, and a load balancer would
            // remove an API that reports a component as down.
            parts.push(ComponentHealth { name: "queue", state: running(self.store.check_queue().await) });
            let state = match pipeline.status() {
                PipelineStatus::Starting => ComponentState::Starting,
                PipelineStatus::Running => ComponentState::Running,
                PipelineStatus::Down { component: part, reason, .. } => {
                    ComponentState::Down(format!("{part}: {reason}"))
                }
            };
            parts.push(ComponentHealth { name: "pipeline", state });
        }
        if let Some(probes) = &self.probes {
            let state = match probes.status() {
                ProbeStatus::Starting => ComponentState::Starting,
                ProbeStatus::Running => ComponentState::Running,
                ProbeStatus::Down(reason) => ComponentState::Down(reason),
            };
            parts.push(ComponentHealth { name: "selfies", state });
        }
        parts
    }

    fn bottleneck(&self) -> Option<String> {
        self.pipeline.as_ref()?.bottleneck().map(str::to_owned)
    }
}
