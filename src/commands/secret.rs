//! `photofinish secret`: changes the key that seals the secrets in the database.

use std::process::ExitCode;

use clap::Subcommand;

use crate::config::Config;
use crate::{run, schema, store};

/// What to do with sealed secrets.
#[derive(Subcommand)]
pub enum SecretCommand {
    /// Seals every secret with PHOTOFINISH_SECRET_KEY that is sealed with PHOTOFINISH_SECRET_KEY_OLD
    Reseal,
}

/// Runs the command.
///
/// # Errors
/// When the store cannot be opened, or a secret is sealed with neither key.
pub fn run(config: &Config, command: &SecretCommand) -> anyhow::Result<ExitCode> {
    let SecretCommand::Reseal = command;
    let resealed = run::block_on(async {
        schema::require_created(config).await?;
        let store = store::open_readable_store(config).await?;
        let resealed = store.reseal().await?;
        store.close().await;
        anyhow::Ok(resealed)
    })??;
    println!("{resealed} secrets sealed again");
    Ok(ExitCode::SUCCESS)
}
