//! Says what a start would do to the database first. Commands that only read do none of it, and those that change what is there
//! create no database: their settings may name another one than the service's, or none.

use anyhow::bail;
use photofinish_store::{DatabaseKind, SchemaState, check_schema};

use crate::config::Config;
use crate::config::redact::redact_url;

/// Checks that opening the database neither creates nor migrates it.
///
/// # Errors
/// When it would, with what is to be done first, or the database cannot be used.
pub async fn require_current(config: &Config) -> anyhow::Result<()> {
    let schema = check_schema(&config.database_url).await?;
    match describe_unready(config, &schema) {
        None => Ok(()),
        Some(Ok(reason) | Err(reason)) => bail!("{reason}"),
    }
}

/// Checks that opening the database does not create it. It may apply migrations.
///
/// # Errors
/// When it would, with what is to be done first, or the database cannot be used.
pub async fn require_created(config: &Config) -> anyhow::Result<()> {
    match check_schema(&config.database_url).await? {
        SchemaState::Present { .. } => Ok(()),
        SchemaState::Absent => bail!("{}", describe_absent(config)),
    }
}

fn describe_absent(config: &Config) -> String {
    format!(
        "{} is not created yet: the first start or photofinish migrate does that. If it should be there, \
         PHOTOFINISH_DATABASE_URL or PHOTOFINISH_DATA_DIR is wrong",
        redact_url(&config.database_url)
    )
}

/// Says what a start would do to the database first, or why it would refuse it; `None` where it would use it as it is.
pub fn describe_unready(config: &Config, schema: &SchemaState) -> Option<Result<String, String>> {
    let SchemaState::Present { pending, unknown } = schema else {
        return Some(Ok(describe_absent(config)));
    };
    let url = redact_url(&config.database_url);
    let is_file = DatabaseKind::from_url(&config.database_url) == Some(DatabaseKind::Sqlite);
    if is_file && !unknown.is_empty() {
        return Some(Err(format!("{url} cannot be used: {}", describe_newer(unknown))));
    }
    (!pending.is_empty()).then(|| {
        Ok(format!(
            "{url} is not up to date: the next start or photofinish migrate applies {} migrations and indexes: {}",
            pending.len(),
            pending.join(", ")
        ))
    })
}

/// Names the versions of migrations that this binary does not know.
pub fn describe_newer(unknown: &[i64]) -> String {
    let versions: Vec<String> = unknown.iter().map(|version| format!("{version:04}")).collect();
    format!("a newer version of photofinish has migrated it, to {}", versions.join(", "))
}
