//! `photofinish credits`: grants credits to organizations and shows what they have.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use photofinish_store::Organizations;
use photofinish_store::model::album::Tenant;
use photofinish_store::model::credit::{Balance, Credits, NewGrant};
use photofinish_store::model::ids::OrganizationId;
use photofinish_store::model::key::KeyMode;

use super::key::ModeArgument;
use crate::config::Config;
use crate::{run, schema, store};

/// What to do with credits.
#[derive(Subcommand)]
pub enum CreditsCommand {
    /// Grants credits, or takes some back with a negative amount
    Grant(GrantArguments),
    /// Shows what an organization has
    Show {
        /// The organization
        #[arg(long)]
        organization: String,
    },
}

/// The grant.
#[derive(Args)]
pub struct GrantArguments {
    /// The organization, which must exist
    #[arg(long)]
    organization: String,
    /// How many credits, with at most three decimals
    #[arg(long, allow_hyphen_values = true)]
    amount: Credits,
    /// Which keys may spend them
    #[arg(long, value_enum, default_value = "live")]
    mode: ModeArgument,
    /// Why, for people
    #[arg(long, default_value = "")]
    note: String,
}

/// Runs the command.
///
/// # Errors
/// When the database cannot be used, or there is no such organization.
pub fn run(config: &Config, command: CreditsCommand) -> anyhow::Result<ExitCode> {
    run::block_on(async {
        match command {
            CreditsCommand::Grant(_) => schema::require_created(config).await?,
            CreditsCommand::Show { .. } => schema::require_current(config).await?,
        }
        let organizations = store::open_organizations(config).await?;
        match command {
            CreditsCommand::Grant(arguments) => grant(&organizations, arguments).await,
            CreditsCommand::Show { organization } => show(&organizations, &organization).await,
        }
    })??;
    Ok(ExitCode::SUCCESS)
}

/// Returns the organization of a name.
///
/// # Errors
/// When there is none: a name with a mistake must not get an account of its own.
pub async fn find_organization(organizations: &Organizations, name: &str) -> anyhow::Result<OrganizationId> {
    let found = organizations.keys.find_organization(name.trim()).await?;
    found.with_context(|| format!("there is no organization {name}: create a key for it first"))
}

async fn grant(organizations: &Organizations, arguments: GrantArguments) -> anyhow::Result<()> {
    let organization = find_organization(organizations, &arguments.organization).await?;
    let mode = KeyMode::from(arguments.mode);
    let grant = NewGrant {
        tenant: Tenant { organization, mode },
        amount: arguments.amount,
        note: arguments.note,
        granted_by: "operator".to_owned(),
    };
    let balance = organizations.credits.grant(grant).await?;
    println!("{}", format_balance(mode, &balance));
    Ok(())
}

async fn show(organizations: &Organizations, organization: &str) -> anyhow::Result<()> {
    let organization = find_organization(organizations, organization).await?;
    for mode in [KeyMode::Live, KeyMode::Test] {
        let balance = organizations.credits.balance(&Tenant { organization, mode }).await?;
        println!("{}", format_balance(mode, &balance));
    }
    Ok(())
}

fn format_balance(mode: KeyMode, balance: &Balance) -> String {
    format!(
        "{}  balance {}  held {}  spent {}  granted {}",
        mode.as_str(),
        balance.available(),
        balance.held,
        balance.spent,
        balance.granted
    )
}
