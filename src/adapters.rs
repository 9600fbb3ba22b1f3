//! Connects what the API asks for to what the pipeline offers. No rules of its own.

use std::sync::Arc;

use async_trait::async_trait;
use photofinish_api::context::{Health, Part, PartState, ProbeError};
use photofinish_pipeline::{DeskError, Pipeline, ProbeDesk, Status};
use photofinish_store::Store;
use photofinish_store::photo::Embedding;

/// The probe desk, where this process has one.
pub struct Desk(pub Option<ProbeDesk>);

#[async_trait]
impl photofinish_api::context::ProbeDesk for Desk {
    async fn embed(&self, selfie: bytes::Bytes) -> Result<Embedding, ProbeError> {
        let desk = self.0.as_ref().ok_or(ProbeError::Unavailable)?;
        match desk.embed(selfie).await {
            Ok(face) => Ok(Embedding { model: face.model, vector: face.vector }),
            Err(DeskError::NoFace) => Err(ProbeError::NoFace),
            Err(DeskError::Unreadable) => Err(ProbeError::Unreadable),
            Err(DeskError::Busy { try_again_in }) => Err(ProbeError::Busy { try_again_in }),
            Err(DeskError::Unavailable) => Err(ProbeError::Unavailable),
        }
    }
}

/// How the parts of this process are.
pub struct ServiceHealth {
    pub store: Store,
    pub pipeline: Option<Arc<Pipeline>>,
}

#[async_trait]
impl Health for ServiceHealth {
    async fn parts(&self) -> Vec<Part> {
        let running = |result: Result<(), photofinish_store::error::StoreError>| match result {
            Ok(()) => PartState::Running,
            Err(error) => PartState::Down(error.with_causes()),
        };
        let mut parts = vec![
            Part { name: "database", state: running(self.store.check_database().await) },
            Part { name: "storage", state: running(self.store.check_storage().await) },
        ];
        if let Some(pipeline) = &self.pipeline {
            // Only of those that take photos from it: without the queue photos are confirmed, and albums searched, as
            // ever, and an API that said it were not ready would be taken off the service.
            parts.push(Part { name: "queue", state: running(self.store.check_queue().await) });
            let state = match pipeline.status() {
                Status::Starting => PartState::Starting,
                Status::Running => PartState::Running,
                Status::Down { part, reason, .. } => PartState::Down(format!("{part}: {reason}")),
            };
            parts.push(Part { name: "pipeline", state });
        }
        parts
    }

    fn bottleneck(&self) -> Option<String> {
        self.pipeline.as_ref()?.bottleneck().map(str::to_owned)
    }
}
