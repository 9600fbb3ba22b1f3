//! `photofinish account`: lets people into the console. Links are printed, alone on standard output; nothing is mailed.

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use photofinish_api::token::Token;
use photofinish_api::welcome_url;
use photofinish_store::Organizations;
use photofinish_store::error::StoreErrorKind;
use photofinish_store::model::account::{Account, AccountChange, LinkPurpose, NewAccount, NewLink, Role};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use crate::config::Config;
use crate::{run, schema, store};

/// How long an invitation, or a link to another password, can be used.
const INVITATION_TTL: Duration = Duration::hours(72);
/// How long a link can be used that signs in without a password.
const ENTER_TTL: Duration = Duration::minutes(15);

/// What to do with accounts.
#[derive(Subcommand)]
pub enum AccountCommand {
    /// Makes an account and prints the link under which its person chooses a password
    Invite(InviteArguments),
    /// Prints a link that signs a person in once, without a password, within a quarter of an hour
    Link {
        /// The address of the person
        #[arg(long)]
        email: String,
    },
    /// Lists all accounts
    List,
    /// Ends the sessions of an account and lets nobody sign in with it
    Disable {
        /// The address of the person
        #[arg(long)]
        email: String,
    },
    /// Lets a disabled account sign in again
    Enable {
        /// The address of the person
        #[arg(long)]
        email: String,
    },
    /// Prints a link under which a person chooses another password
    Reset {
        /// The address of the person
        #[arg(long)]
        email: String,
    },
}

/// The account to make.
#[derive(Args)]
pub struct InviteArguments {
    /// The organization; created when there is none of this name
    #[arg(long)]
    organization: String,
    /// The address of the person
    #[arg(long, value_parser = parse_email)]
    email: String,
    /// What the person may do
    #[arg(long, value_enum)]
    role: RoleArgument,
    /// The person also sees the health of the whole service and grants credits
    #[arg(long)]
    operator: bool,
    /// Prints a link that signs in without a password in place of an invitation
    #[arg(long)]
    enter: bool,
}

/// A role.
#[derive(Clone, Copy, ValueEnum)]
pub enum RoleArgument {
    /// Keys, accounts and the erasure of people too
    Owner,
    /// Works with albums and photos
    Organizer,
    /// Looks and searches
    Viewer,
}

impl From<RoleArgument> for Role {
    fn from(role: RoleArgument) -> Self {
        match role {
            RoleArgument::Owner => Self::Owner,
            RoleArgument::Organizer => Self::Organizer,
            RoleArgument::Viewer => Self::Viewer,
        }
    }
}

fn parse_email(text: &str) -> Result<String, String> {
    let text = text.trim().to_lowercase();
    let is_address = text.split_once('@').is_some_and(|(name, host)| !name.is_empty() && !host.is_empty());
    if is_address && !text.contains(char::is_whitespace) {
        Ok(text)
    } else {
        Err("must be an address".to_owned())
    }
}

/// Runs the command.
///
/// # Errors
/// When the database cannot be used, or there is no account of this address.
pub fn run(config: &Config, command: AccountCommand) -> anyhow::Result<ExitCode> {
    run::block_on(async {
        match command {
            AccountCommand::Invite(_) => {}
            AccountCommand::List => schema::require_current(config).await?,
            AccountCommand::Link { .. }
            | AccountCommand::Disable { .. }
            | AccountCommand::Enable { .. }
            | AccountCommand::Reset { .. } => schema::require_created(config).await?,
        }
        let organizations = store::open_organizations(config).await?;
        match command {
            AccountCommand::Invite(arguments) => invite(config, &organizations, arguments).await,
            AccountCommand::Link { email } => {
                print_link(config, &organizations, &email, LinkPurpose::Enter).await
            }
            AccountCommand::List => list(&organizations).await,
            AccountCommand::Disable { email } => set_disabled(&organizations, &email, true).await,
            AccountCommand::Enable { email } => set_disabled(&organizations, &email, false).await,
            AccountCommand::Reset { email } => {
                print_link(config, &organizations, &email, LinkPurpose::Reset).await
            }
        }
    })??;
    Ok(ExitCode::SUCCESS)
}

fn make_link(purpose: LinkPurpose) -> (NewLink, Token) {
    let token = Token::generate();
    let ttl = if purpose == LinkPurpose::Enter { ENTER_TTL } else { INVITATION_TTL };
    (NewLink { purpose, digest: token.digest(), expires_at: OffsetDateTime::now_utc() + ttl }, token)
}

async fn invite(
    config: &Config,
    organizations: &Organizations,
    arguments: InviteArguments,
) -> anyhow::Result<()> {
    let name = arguments.organization.trim();
    if name.is_empty() {
        bail!("--organization must have a name");
    }
    let organization = organizations.keys.get_or_create_organization(name).await?;
    let (role, is_operator) = (arguments.role.into(), arguments.operator);
    let account = NewAccount { organization, email: arguments.email.clone(), role, is_operator };
    let purpose = if arguments.enter { LinkPurpose::Enter } else { LinkPurpose::Welcome };
    let (link, token) = make_link(purpose);
    match organizations.accounts.invite(account, link).await {
        Err(error) if error.kind == StoreErrorKind::Conflict => {
            bail!(
                "{} has an account: `account reset` lets its person choose another password",
                arguments.email
            )
        }
        invited => drop(invited?),
    }
    println!("{}", welcome_url(config.console_url(), &token));
    Ok(())
}

async fn find(organizations: &Organizations, email: &str) -> anyhow::Result<Account> {
    let email = email.trim().to_lowercase();
    let found = organizations.accounts.find(&email).await?;
    found.with_context(|| format!("there is no account of {email}"))
}

async fn print_link(
    config: &Config,
    organizations: &Organizations,
    email: &str,
    purpose: LinkPurpose,
) -> anyhow::Result<()> {
    let account = find(organizations, email).await?;
    let (link, token) = make_link(purpose);
    organizations.accounts.make_link(account.id, link).await?;
    println!("{}", welcome_url(config.console_url(), &token));
    Ok(())
}

async fn set_disabled(organizations: &Organizations, email: &str, disabled: bool) -> anyhow::Result<()> {
    let account = find(organizations, email).await?;
    let change = AccountChange { disabled: Some(disabled), ..AccountChange::default() };
    let changed = organizations.accounts.update(account.organization, account.id, change).await;
    match changed {
        Err(error) if error.kind == StoreErrorKind::Conflict => {
            bail!("{} is the last owner of {} who can sign in", account.email, account.organization_name)
        }
        changed => drop(changed?),
    }
    Ok(())
}

async fn list(organizations: &Organizations) -> anyhow::Result<()> {
    for account in organizations.accounts.list(None).await? {
        let state = match (&account.disabled_at, account.has_password) {
            (Some(_), _) => "disabled",
            (None, true) => "active",
            (None, false) => "invited",
        };
        let seen = account.last_seen_at.map_or(Ok("never".to_owned()), |time| time.format(&Rfc3339))?;
        let operator = if account.is_operator { "  operator" } else { "" };
        println!(
            "{}  {}  {}  {}  {state}  seen {seen}{operator}",
            account.id,
            account.organization_name,
            account.email,
            account.role.as_str(),
        );
    }
    Ok(())
}
