//! The health of the whole service, and grants of credits.

use photofinish_store::model::ids::{GrantId, ProcessId};
use photofinish_store::model::key::KeyMode;
use photofinish_store::model::process::{HeldTask as StoredTask, Process as StoredProcess};
use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use utoipa::ToSchema;
use utoipa::openapi::schema::Object;

use super::pipeline::Process;
use crate::context::{ComponentHealth, ComponentState};
use crate::validate::input::{Fields, Input};
use crate::validate::validators::{Number, OneOf, text, uuid};
use crate::wire::{Output, sample, string_enum};

/// A component of the process that answers.
#[derive(Serialize, ToSchema)]
pub(crate) struct Component {
    name: String,
    #[schema(schema_with = state_schema)]
    state: String,
    /// What an operator should know of it.
    #[schema(required)]
    detail: Option<String>,
}

fn state_schema() -> Object {
    string_enum(["starting", "running", "down"])
}

impl From<ComponentHealth> for Component {
    fn from(health: ComponentHealth) -> Self {
        let (state, detail) = match health.state {
            ComponentState::Starting => ("starting", None),
            ComponentState::Running => ("running", None),
            ComponentState::RunningWith(detail) => ("running", Some(detail)),
            ComponentState::Down(reason) => ("down", Some(reason)),
        };
        Self { name: health.name.to_owned(), state: state.to_owned(), detail }
    }
}

/// The photos of all organizations that wait.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WaitingPhotos {
    #[schema(value_type = f64, minimum = 0)]
    pub(crate) queued: u64,
    /// How long the oldest has waited, seconds; null if none does.
    #[schema(required)]
    pub(crate) oldest_seconds: Option<f64>,
}

/// A task of which one process at a time has the turn.
#[derive(Serialize, ToSchema)]
pub(crate) struct HeldTask {
    /// `event_publisher`, `ledger`, `judging`, `erasing`, `retention`, `marking`, `selfies`; may grow.
    name: String,
    /// Where the process runs that does it; null if that has not reported.
    #[schema(required)]
    host: Option<String>,
    /// Until when it has the task, unless it goes on.
    #[serde(with = "time::serde::rfc3339")]
    until: OffsetDateTime,
}

impl HeldTask {
    pub(crate) fn new(task: StoredTask, processes: &[StoredProcess]) -> Self {
        let holder = processes.iter().find(|process| process.id == task.holder);
        Self { name: task.name, host: holder.map(|process| process.host.clone()), until: task.held_until }
    }
}

/// The health of the whole service.
#[derive(Serialize, ToSchema)]
pub(crate) struct ServiceHealth {
    components: Vec<Component>,
    processes: Vec<Process>,
    tasks: Vec<HeldTask>,
    queue: WaitingPhotos,
    version: String,
}

impl ServiceHealth {
    pub(crate) fn new(
        components: Vec<ComponentHealth>,
        processes: Vec<StoredProcess>,
        tasks: Vec<StoredTask>,
        queue: WaitingPhotos,
        version: &str,
    ) -> Self {
        Self {
            components: components.into_iter().map(Component::from).collect(),
            tasks: tasks.into_iter().map(|task| HeldTask::new(task, &processes)).collect(),
            processes: processes.into_iter().map(Process::from).collect(),
            queue,
            version: version.to_owned(),
        }
    }
}

impl Output for ServiceHealth {
    fn example() -> Self {
        let database = ComponentHealth { name: "database", state: ComponentState::Running };
        let queue = WaitingPhotos { queued: 12, oldest_seconds: Some(1.5) };
        let task = StoredTask {
            name: "event_publisher".to_owned(),
            holder: ProcessId(sample::KEY.0),
            held_until: sample::TIME,
        };
        Self::new(vec![database], Vec::new(), vec![task], queue, "0.1.0")
    }
}

/// Body of `operator/credits/grant`.
pub(crate) struct GrantCredits {
    pub(crate) organization: String,
    pub(crate) mode: KeyMode,
    pub(crate) credits: f64,
    pub(crate) note: String,
    pub(crate) grant: Option<GrantId>,
}

impl Input for GrantCredits {
    const NAME: &'static str = "GrantCredits";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let organization = fields.required("organization", "Its name.", text(1, 200));
        let modes = OneOf { choices: &[KeyMode::Test, KeyMode::Live], to_name: KeyMode::as_str };
        let mode = fields.required("mode", "Of which environment.", modes);
        let credits = Number { min: -1e9, max: 1e9 };
        let credits = fields.required("credits", "How many; negative to take them back.", credits);
        let note = fields.optional("note", "What for.", text(0, 1000));
        let note = note.unwrap_or_default();
        let description = "An id that the caller makes for it. Sent again with it, as where no answer came, it counts once; 409 \
            where another grant has the id.";
        let grant = fields.optional("grantId", description, uuid());
        Some(Self { organization: organization?, mode: mode?, credits: credits?, note, grant })
    }

    fn example() -> Value {
        json!({ "organization": "Lake Timing", "mode": "live", "credits": 1000, "note": "invoice 17" })
    }
}

/// What an organization has after a grant.
#[derive(Serialize, ToSchema)]
pub(crate) struct GrantedBalance {
    pub(crate) balance: f64,
}

impl Output for GrantedBalance {
    fn example() -> Self {
        Self { balance: 1000.0 }
    }
}
