//! `photofinish key`: creates, lists and revokes API keys. The text of a new key is printed once, alone on standard output.

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use photofinish_api::key::KeyText;
use photofinish_store::model::ids::KeyId;
use photofinish_store::model::key::{Key, KeyMode, NewKey, Scope};
use photofinish_store::model::rate::{RateClass, RateLimits};
use photofinish_store::traits::Keys;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use crate::config::Config;
use crate::config::credits::{limits_to_text, rate_limit};
use crate::{run, schema, store};

/// What to do with keys.
#[derive(Subcommand)]
pub enum KeyCommand {
    /// Creates a key and prints it; it cannot be shown again
    Create(CreateArguments),
    /// Lists all keys, without their secrets
    List,
    /// Revokes a key
    Revoke {
        /// The key's id, from `key list`
        id: KeyId,
    },
}

/// The key to create.
#[derive(Args)]
pub struct CreateArguments {
    /// The organization that owns the key; created when there is none of this name
    #[arg(long)]
    organization: String,
    /// Which environment it belongs to
    #[arg(long, value_enum)]
    mode: ModeArgument,
    /// What it permits: search:read, photo:upload, album:manage; several allowed
    #[arg(long = "scope", required = true, value_delimiter = ',', num_args = 1.., value_parser = parse_scope)]
    scopes: Vec<Scope>,
    /// A name for people
    #[arg(long, default_value = "")]
    label: String,
    /// Limits of its own in place of the service's, such as search=6000: units a minute, 0 for none; several allowed
    #[arg(long = "limit", value_name = "CLASS=UNITS", value_delimiter = ',', value_parser = rate_limit)]
    limits: Vec<(RateClass, u32)>,
    /// The key expires after this many days; never when left out
    #[arg(long = "expires-in-days", value_name = "DAYS", value_parser = parse_expiry)]
    expires_at: Option<OffsetDateTime>,
}

/// The mode of a key.
#[derive(Clone, Copy, ValueEnum)]
pub enum ModeArgument {
    /// Sandbox
    Test,
    /// Production
    Live,
}

impl From<ModeArgument> for KeyMode {
    fn from(mode: ModeArgument) -> Self {
        match mode {
            ModeArgument::Test => Self::Test,
            ModeArgument::Live => Self::Live,
        }
    }
}

fn parse_scope(text: &str) -> Result<Scope, String> {
    Scope::ALL.into_iter().find(|scope| scope.as_str() == text).ok_or_else(|| {
        let names: Vec<&str> = Scope::ALL.iter().map(|scope| scope.as_str()).collect();
        format!("must be one of {}", names.join(", "))
    })
}

/// The time in so many days. Parsed with the arguments, so that no organization is created for an invalid key.
fn parse_expiry(text: &str) -> Result<OffsetDateTime, String> {
    let days = text.parse().ok().map(|days: u32| Duration::days(i64::from(days)));
    days.and_then(|days| OffsetDateTime::now_utc().checked_add(days))
        .ok_or_else(|| "must be a number of days that ends before the year 10000".to_owned())
}

/// Runs the command.
///
/// # Errors
/// When the database cannot be used, or the key to revoke does not exist.
pub fn run(config: &Config, command: KeyCommand) -> anyhow::Result<ExitCode> {
    run::block_on(async {
        match command {
            KeyCommand::Create(_) => {}
            KeyCommand::List => schema::require_current(config).await?,
            KeyCommand::Revoke { .. } => schema::require_created(config).await?,
        }
        let keys = store::open_keys(config).await?;
        match command {
            KeyCommand::Create(arguments) => create(keys.as_ref(), arguments).await,
            KeyCommand::List => list(keys.as_ref()).await,
            KeyCommand::Revoke { id } => {
                keys.revoke(id).await.with_context(|| format!("revoking the key {id}"))
            }
        }
    })??;
    Ok(ExitCode::SUCCESS)
}

async fn create(keys: &dyn Keys, arguments: CreateArguments) -> anyhow::Result<()> {
    if arguments.organization.trim().is_empty() {
        bail!("--organization must have a name");
    }
    let mode = KeyMode::from(arguments.mode);
    let mut limits = RateLimits::default();
    for (class, limit) in arguments.limits {
        limits.set(class, limit);
    }
    let text = KeyText::generate(mode);
    let key = NewKey {
        organization: keys.get_or_create_organization(arguments.organization.trim()).await?,
        mode,
        label: arguments.label,
        hint: text.hint(),
        scopes: arguments.scopes,
        limits,
        expires_at: arguments.expires_at,
        digest: text.digest(),
    };
    keys.create(key).await?;
    println!("{}", text.reveal());
    Ok(())
}

async fn list(keys: &dyn Keys) -> anyhow::Result<()> {
    let now = OffsetDateTime::now_utc();
    for key in keys.list().await? {
        println!("{}", format_key(&key, now)?);
    }
    Ok(())
}

fn key_state(key: &Key, now: OffsetDateTime) -> &'static str {
    if key.revoked_at.is_some() {
        "revoked"
    } else if key.expires_at.is_some_and(|expiry| expiry <= now) {
        "expired"
    } else {
        "active"
    }
}

fn format_key(key: &Key, now: OffsetDateTime) -> anyhow::Result<String> {
    let format = |time: Option<OffsetDateTime>| time.map_or(Ok("never".to_owned()), |t| t.format(&Rfc3339));
    let scopes: Vec<&str> = key.scopes.iter().map(|scope| scope.as_str()).collect();
    let state = key_state(key, now);
    let limits = match limits_to_text(&key.limits) {
        limits if limits.is_empty() => String::new(),
        limits => format!("limits {limits}  "),
    };
    Ok(format!(
        "{}  {}  {}…  {state}  {}  created {}  used {}  expires {}  {limits}{}",
        key.id,
        key.organization_name,
        key.hint,
        scopes.join(","),
        format(Some(key.created_at))?,
        format(key.last_used_at)?,
        format(key.expires_at)?,
        key.label,
    ))
}
