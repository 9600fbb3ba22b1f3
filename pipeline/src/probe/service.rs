//! The probe service turns selfies into face embeddings. It has its own thread and models, so that a search neither
//! waits for photos nor fails when the pipeline is down. It knows nothing of HTTP, albums or the database.
//!
//! A caller first waits for its turn, without the selfie's bytes, and then hands them over. Organizations take turns,
//! and each has a limited number of places: when they are taken, its callers are told when to retry.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossbeam_channel::{Sender, bounded};
use photofinish_models::traits::ModelFactory;
use photofinish_store::model::cost::CostMeter;
use photofinish_store::model::ids::OrganizationId;
use tokio::sync::oneshot;
use tracing::Span;

use super::devices::ProbeDevices;
use super::error::ProbeServiceError;
use super::extractor::ProbeFace;
use super::state::{ProbeState, ProbeStatus};
use super::supervisor::{ProbeRequest, ProbeSupervisor, TimeLimits};
use super::turns::{NoTurn, Turn, Turns};
use super::worker::{STAGE, WorkerContext};
use crate::engine::cpu_shares::ReservedCores;
use crate::engine::metrics as names;
use crate::engine::stage_stats::StageStats;
use crate::engine::sync::lock;
use crate::settings::Limits;

/// Callers that have a turn at the same time: one whose selfie is examined, and some that read theirs meanwhile. Their
/// selfies are the only ones in memory.
const TURNS: usize = 4;

/// The settings of the service.
#[derive(Clone, Copy, Debug)]
pub struct ProbeSettings {
    /// The limits of a photo. Those of a selfie are lower.
    pub limits: Limits,
    /// Selfies of one organization that may wait or be examined at the same time, at least one.
    pub places: usize,
    /// How long examining one selfie may take. After that its thread is left behind and replaced.
    pub time_limit: Duration,
    /// How long one call of a device may take. One that takes longer never returns.
    pub device_call_limit: Duration,
}

/// The service, running on its own threads. When it is stopped or dropped it accepts no more selfies; those whose turn
/// has come are still examined.
#[derive(Debug)]
pub struct ProbeService {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    turns: Arc<Turns>,
    requests: Mutex<Option<Sender<ProbeRequest>>>,
    state: Arc<ProbeState>,
}

/// The turn of a caller: its selfie is next.
#[derive(Debug)]
pub struct ProbeTurn {
    shared: Arc<Shared>,
    turn: Turn,
    asked_at: Instant,
}

impl ProbeService {
    /// Starts the service. The models are loaded in the background, on one of their devices, of which there is at least one: on
    /// the first, and on the next where that fails. While a selfie is examined, one of `cores` is reserved for it.
    pub fn start(models: Vec<Arc<dyn ModelFactory>>, settings: ProbeSettings, cores: ReservedCores) -> Self {
        // Requests hold turns, so there are never more.
        let (sender, receiver) = bounded(TURNS);
        let state = Arc::new(ProbeState::default());
        let context = WorkerContext { limits: settings.limits, stats: Arc::new(StageStats::new(STAGE)) };
        let time_limits = TimeLimits { selfie: settings.time_limit, device_call: settings.device_call_limit };
        let supervisor = ProbeSupervisor::new(
            receiver,
            ProbeDevices::new(models),
            context,
            time_limits,
            Arc::clone(&state),
            cores,
        );
        let spawned =
            std::thread::Builder::new().name("probe-supervisor".into()).spawn(move || supervisor.run());
        let thread = match spawned {
            Ok(thread) => Some(thread),
            Err(error) => {
                tracing::error!(error = %error, "failed to start probe thread, selfies are refused");
                state.set_status(ProbeStatus::Down(format!("no thread: {error}")));
                None
            }
        };
        let turns = Turns::new(TURNS, settings.places);
        let shared = Arc::new(Shared { turns, requests: Mutex::new(Some(sender)), state });
        Self { shared, thread: Mutex::new(thread) }
    }

    /// Waits for a turn of the organization.
    ///
    /// # Errors
    /// `Busy` when all its places are taken, `Unavailable` when the service has stopped.
    pub async fn take_turn(&self, organization: OrganizationId) -> Result<ProbeTurn, ProbeServiceError> {
        let asked_at = Instant::now();
        match self.shared.turns.take(organization).await {
            Ok(turn) => Ok(ProbeTurn { shared: Arc::clone(&self.shared), turn, asked_at }),
            Err(no_turn) => {
                let error = match no_turn {
                    NoTurn::Full { ahead } => {
                        ProbeServiceError::Busy { retry_after: self.shared.state.rate.estimate(ahead) }
                    }
                    NoTurn::Closed => ProbeServiceError::Unavailable,
                };
                count_result(error.as_label());
                Err(error)
            }
        }
    }

    /// Returns whether selfies can be examined.
    pub fn status(&self) -> ProbeStatus {
        self.shared.state.status()
    }

    /// Returns why this process cannot use any of its devices any more: they are lost and could not be opened again, or calls
    /// of them never return. The process has to be replaced; no selfie is examined until then.
    pub fn device_failure(&self) -> Option<&str> {
        self.shared.state.device_failure()
    }

    /// Accepts no more selfies, processes those whose turn has come, and ends the threads but those that hang. Blocks.
    pub fn stop(&self) {
        self.shared.close();
        let Some(thread) = lock(&self.thread).take() else { return };
        if thread.join().is_err() {
            tracing::error!("probe thread panicked");
        }
    }
}

impl Drop for ProbeService {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Shared {
    fn close(&self) {
        self.turns.close();
        lock(&self.requests).take();
    }
}

impl ProbeTurn {
    /// Returns the embedding of the largest face in the selfie, a JPEG, PNG or WebP file. The turn ends when the selfie
    /// was examined.
    ///
    /// # Errors
    /// All but `Busy`.
    pub async fn embed(self, selfie: Bytes, spent: Arc<CostMeter>) -> Result<ProbeFace, ProbeServiceError> {
        let Self { shared, turn, asked_at } = self;
        let (reply, response) = oneshot::channel();
        let request = ProbeRequest { selfie, reply, span: Span::current(), asked_at, spent, turn };
        let is_sent =
            lock(&shared.requests).as_ref().is_some_and(|requests| requests.try_send(request).is_ok());
        let result = if is_sent {
            // The reply is dropped if the threads end before they get to this request.
            response.await.unwrap_or(Err(ProbeServiceError::Unavailable))
        } else {
            Err(ProbeServiceError::Unavailable)
        };
        count_result(result.as_ref().map_or_else(ProbeServiceError::as_label, |_| "face"));
        result
    }
}

fn count_result(label: &'static str) {
    metrics::counter!(names::PROBES, "answer" => label).increment(1);
}
