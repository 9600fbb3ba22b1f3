//! Implements the API's traits with the store and the pipeline. No rules of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use photofinish_api::context::{ComponentHealth, ComponentState, Health, ProbeEmbedder, ProbeError};
use photofinish_pipeline::{
    Pipeline, PipelineStatus, ProbeService, ProbeServiceError, ProbeStatus, ProbeTurn,
};
use photofinish_store::model::cost::CostMeter;
use photofinish_store::model::ids::OrganizationId;
use photofinish_store::model::photo::Embedding;
use photofinish_store::model::process::Process;
use photofinish_store::{Store, StoreError};

use crate::own_process::OwnProcess;

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
    async fn embed(
        self: Box<Self>,
        selfie: bytes::Bytes,
        spent: Arc<CostMeter>,
    ) -> Result<Embedding, ProbeError> {
        let face = self.0.embed(selfie, spent).await.map_err(to_probe_error)?;
        Ok(Embedding { model: face.model, vector: face.vector })
    }
}

/// A selfie that takes too long each time is unreadable: the API remembers that, and it is not tried again.
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
    store: Store,
    pipeline: Option<Arc<Pipeline>>,
    probes: Option<Arc<ProbeService>>,
    own: Arc<OwnProcess>,
}

impl ServiceHealth {
    /// The health of a process with these components.
    pub fn new(
        store: &Store,
        pipeline: Option<&Arc<Pipeline>>,
        probes: Option<&Arc<ProbeService>>,
        own: &Arc<OwnProcess>,
    ) -> Self {
        Self {
            store: store.clone(),
            pipeline: pipeline.cloned(),
            probes: probes.cloned(),
            own: Arc::clone(own),
        }
    }
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
        if let Some(device) = crate::devices::describe() {
            parts.push(ComponentHealth { name: "device", state: ComponentState::RunningWith(device) });
        }
        if let Some(pipeline) = &self.pipeline {
            // Only in workers: the API confirms photos and searches albums without the queue, and a load balancer would
            // remove an API that reports a component as down.
            parts.push(ComponentHealth { name: "queue", state: running(self.store.check_queue().await) });
            let state = match pipeline.status() {
                PipelineStatus::Starting => ComponentState::Starting,
                PipelineStatus::Running => ComponentState::Running,
                PipelineStatus::RunningOnSome { reason } => ComponentState::RunningWith(reason),
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

    async fn list_processes(&self) -> Result<Vec<Process>, StoreError> {
        if self.own.is_alone(&self.store) {
            return Ok(vec![self.own.describe()]);
        }
        self.store.processes.list().await
    }

    /// The bottleneck of this process; where it processes nothing, that of the others.
    async fn find_bottleneck(&self) -> Option<String> {
        if let Some(stage) = self.pipeline.as_ref().and_then(|pipeline| pipeline.bottleneck()) {
            return Some(stage.to_owned());
        }
        match self.store.processes.list().await {
            Ok(processes) => find_common_bottleneck(&processes),
            Err(error) => {
                tracing::warn!(%error, "failed to read the reports of processes");
                None
            }
        }
    }
}

/// The stage that limits the processes with most of the photos in flight.
fn find_common_bottleneck(processes: &[Process]) -> Option<String> {
    let mut photos: BTreeMap<&str, u64> = BTreeMap::new();
    for pipeline in processes.iter().filter_map(|process| process.report.pipeline.as_ref()) {
        if let Some(stage) = &pipeline.bottleneck {
            *photos.entry(stage).or_default() += pipeline.photos_in_flight;
        }
    }
    photos.into_iter().max_by_key(|(_, photos)| *photos).map(|(stage, _)| stage.to_owned())
}

#[cfg(test)]
mod tests {
    use photofinish_store::model::ids::ProcessId;
    use photofinish_store::model::process::{PipelineReport, ProcessReport};
    use time::OffsetDateTime;

    use super::*;

    fn worker(bottleneck: Option<&str>, photos_in_flight: u64) -> Process {
        let bottleneck = bottleneck.map(str::to_owned);
        Process {
            id: ProcessId::generate(),
            role: "work".to_owned(),
            host: "a".to_owned(),
            version: "1".to_owned(),
            started_at: OffsetDateTime::UNIX_EPOCH,
            report: ProcessReport {
                pipeline: Some(PipelineReport { photos_in_flight, bottleneck, ..PipelineReport::default() }),
                ..ProcessReport::default()
            },
        }
    }

    #[test]
    fn the_bottleneck_of_a_cluster_is_where_most_photos_are() {
        let api = Process { report: ProcessReport::default(), ..worker(None, 0) };
        let workers = [worker(Some("decode"), 20), worker(Some("read"), 12), worker(Some("read"), 12)];
        assert_eq!(find_common_bottleneck(&workers).as_deref(), Some("read"));
        assert_eq!(find_common_bottleneck(&workers[..2]).as_deref(), Some("decode"));
        assert_eq!(find_common_bottleneck(&[api, worker(None, 3)]), None);
    }
}
