//! Implements the API's traits with the store and the pipeline. No rules of its own.

use std::sync::Arc;

use async_trait::async_trait;
use photofinish_api::context::{ComponentHealth, ComponentState, Health, ProbeError};
use photofinish_pipeline::{Pipeline, PipelineStatus, ProbeService, ProbeServiceError};
use photofinish_store::Store;
use photofinish_store::model::photo::Embedding;

/// The probe service of this process; `None` in a role without an API.
pub struct ProbeAdapter(pub Option<ProbeService>);

#[async_trait]
impl photofinish_api::context::ProbeEmbedder for ProbeAdapter {
    async fn embed(&self, selfie: bytes::Bytes) -> Result<Embedding, ProbeError> {
        let probes = self.0.as_ref().ok_or(ProbeError::Unavailable)?;
        match probes.embed(selfie).await {
            Ok(face) => Ok(Embedding { model: face.model, vector: face.vector }),
            Err(ProbeServiceError::NoFace) => Err(ProbeError::NoFace),
            Err(ProbeServiceError::Unreadable) => Err(ProbeError::Unreadable),
            Err(ProbeServiceError::Busy { retry_after: try_again_in }) => {
                Err(ProbeError::Busy { try_again_in })
            }
            Err(ProbeServiceError::Unavailable) => Err(ProbeError::Unavailable),
        }
    }
}

/// The health of the components of this process.
pub struct ServiceHealth {
    pub store: Store,
    pub pipeline: Option<Arc<Pipeline>>,
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
        parts
    }

    fn bottleneck(&self) -> Option<String> {
        self.pipeline.as_ref()?.bottleneck().map(str::to_owned)
    }
}
