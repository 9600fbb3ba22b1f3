//! `photofinish organization`: erases everything of an organization.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use photofinish_store::model::album::{AlbumQuery, Tenant};
use photofinish_store::model::erasure::{Erasure, ErasureState, LedgerFate};
use photofinish_store::model::ids::{AlbumId, KeyId, OrganizationId};
use photofinish_store::model::key::KeyMode;
use photofinish_store::{Store, StoreErrorKind};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::config::Config;
use crate::role::Role;
use crate::store::EmbeddedLocks;
use crate::{run, schema, store};

/// How long one album may take until its receipt is signed: the processes bring their face indexes up to date first.
const RECEIPT_TIMEOUT: Duration = Duration::from_mins(10);
/// How often it is looked for meanwhile.
const RECEIPT_POLL: Duration = Duration::from_millis(500);
/// In place of a key, as who asked.
const COMMAND: KeyId = KeyId(Uuid::nil());

/// What to do with organizations.
#[derive(Subcommand)]
pub enum OrganizationCommand {
    /// Erases everything of an organization: albums with photos and faces, keys, accounts, webhooks, events. Prints the signed
    /// receipt of each album, and last that of the organization. With SQLite the service must be stopped
    Erase(EraseArguments),
}

/// The organization to erase.
#[derive(Args)]
pub struct EraseArguments {
    /// Its name, which is asked for again; its id where an erasure was interrupted before its receipt
    name: String,
    /// Also removes what was used by day; without it these numbers stay, without ids
    #[arg(long)]
    ledger_too: bool,
}

/// Runs the command.
///
/// # Errors
/// When there is no such organization, its name is not repeated, or something of it is left.
pub fn run(config: &Config, command: &OrganizationCommand) -> anyhow::Result<ExitCode> {
    let OrganizationCommand::Erase(arguments) = command;
    run::block_on(async {
        schema::require_created(config).await?;
        let _locks = EmbeddedLocks::acquire(config, Role::All)?;
        let store = store::open_store(config).await?;
        let erased = erase(&store, arguments).await;
        store.close().await;
        erased
    })??;
    Ok(ExitCode::SUCCESS)
}

async fn erase(store: &Store, arguments: &EraseArguments) -> anyhow::Result<()> {
    let name = arguments.name.trim();
    let organization = store.keys.find_organization(name).await?;
    let organization = organization.with_context(|| format!("there is no organization {name}"))?;
    ensure!(
        store.erasures.can_sign(),
        "PHOTOFINISH_SECRET_KEY is missing, without which no receipt can be signed"
    );
    ensure!(!store.erasures.has_old_processes().await?, "a process of an older version runs: stop it first");
    confirm(name)?;
    eprintln!("should this be interrupted, run it again; if the name is gone by then, with {organization}");
    revoke_keys(store, organization).await?;
    for mode in [KeyMode::Live, KeyMode::Test] {
        erase_albums(store, &Tenant { organization, mode }, |jws| println!("{jws}")).await?;
    }
    let ledger = if arguments.ledger_too { LedgerFate::Delete } else { LedgerFate::KeepNumbers };
    let receipt = store.erasures.erase_organization(organization, ledger).await?;
    println!("{}", receipt.jws);
    std::io::stdout().flush().context("writing the receipt")?;
    store.erasures.forget_organization(organization).await?;
    eprintln!("{name} is gone; the receipts of its albums stay in the database, the last one here alone");
    Ok(())
}

/// Asks for the name again.
fn confirm(name: &str) -> anyhow::Result<()> {
    eprint!("Everything of {name} goes for good. Its name again: ");
    std::io::stderr().flush().ok();
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).context("reading the name")?;
    if answer.trim() != name {
        bail!("that is another name, nothing was erased");
    }
    Ok(())
}

/// So that nothing new comes meanwhile.
async fn revoke_keys(store: &Store, organization: OrganizationId) -> anyhow::Result<()> {
    let keys = store.keys.list().await?;
    for key in keys.iter().filter(|key| key.tenant.organization == organization) {
        store.keys.revoke(key.id).await?;
    }
    Ok(())
}

/// Erases the albums of a tenant and shows the receipt of each, those first whose erasure was begun before: such an album is
/// closed, and is not listed.
async fn erase_albums(store: &Store, tenant: &Tenant, mut show: impl FnMut(&str)) -> anyhow::Result<()> {
    let mut show_receipt = |erasure: Erasure| {
        show(&erasure.receipt.context("a finished erasure has a receipt")?.jws);
        anyhow::Ok(())
    };
    let mut after = None;
    loop {
        let running = store.erasures.list_running(after).await?;
        let Some(last) = running.last() else { break };
        after = Some(*last);
        for id in running {
            match store.erasures.get(tenant, id).await {
                Ok(begun) => show_receipt(finish_erasure(store, &begun).await?)?,
                // Another tenant's.
                Err(error) if error.kind == StoreErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    while let Some(album) = find_album(store, tenant).await? {
        let id = store.erasures.begin_album(tenant, album, COMMAND).await?;
        let begun = store.erasures.get(tenant, id).await?;
        show_receipt(finish_erasure(store, &begun).await?)?;
    }
    Ok(())
}

async fn find_album(store: &Store, tenant: &Tenant) -> anyhow::Result<Option<AlbumId>> {
    let query = AlbumQuery { after: None, limit: 1, title: None };
    let page = store.albums.list(tenant, query).await?;
    Ok(page.albums.first().map(|album| album.id))
}

/// Does what is left of an erasure, and waits for its receipt.
async fn finish_erasure(store: &Store, begun: &Erasure) -> anyhow::Result<Erasure> {
    let Erasure { id, tenant, album, .. } = begun;
    let deadline = Instant::now() + RECEIPT_TIMEOUT;
    loop {
        store.erasures.remove_objects(*id).await?;
        store.erasures.finish(&[*id]).await?;
        let erasure = store.erasures.get(tenant, *id).await?;
        if erasure.state == ErasureState::Done {
            return Ok(erasure);
        }
        ensure!(Instant::now() < deadline, "album {album} is not clean yet: run this again");
        sleep(RECEIPT_POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use photofinish_store::conformance::{AlbumFixture, album_config, test_settings};
    use photofinish_store::model::erasure::ErasureQuery;
    use photofinish_store::model::object_key::{ObjectKey, ObjectRole};

    use super::*;

    /// Killed after it has closed an album, the command is run again.
    #[tokio::test]
    async fn albums_whose_erasure_was_interrupted_are_erased_first_and_have_true_receipts() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(test_settings(folder.path())).await.unwrap();
        let begun = AlbumFixture::create(&store).await;
        let open = begun.create_album(album_config()).await;
        let stranger = AlbumFixture::create(&store).await;
        let tenant = begun.tenant;
        for (fixture, photos) in [(&begun, 2), (&open, 1), (&stranger, 3)] {
            for photo in fixture.create_photos(photos).await {
                let organization = fixture.tenant.organization;
                let key = ObjectKey::photo(organization, fixture.album, photo, ObjectRole::Original);
                store.blobs.write(&key, "image/jpeg", "a photo".into()).await.unwrap();
            }
        }
        for fixture in [&begun, &stranger] {
            store.erasures.begin_album(&fixture.tenant, fixture.album, COMMAND).await.unwrap();
        }
        let ledger = LedgerFate::KeepNumbers;
        let refused = store.erasures.erase_organization(tenant.organization, ledger).await.unwrap_err();
        assert_eq!(refused.kind, StoreErrorKind::Conflict, "{refused}");

        let mut shown = Vec::new();
        erase_albums(&store, &tenant, |jws| shown.push(jws.to_owned())).await.unwrap();
        let query = ErasureQuery { before: None, album: None, limit: 10 };
        let mut erasures = store.erasures.list(&tenant, query).await.unwrap().erasures;
        erasures.reverse();
        let receipts: Vec<_> = erasures.into_iter().map(|erasure| erasure.receipt.unwrap()).collect();
        let signed: Vec<String> = receipts.iter().map(|receipt| receipt.jws.clone()).collect();
        assert_eq!(shown, signed);
        let removed: Vec<_> =
            receipts.iter().map(|receipt| (receipt.album_id, receipt.removed.objects)).collect();
        assert_eq!(removed, [(begun.album, 2), (open.album, 1)]);
        assert_eq!(store.erasures.list_running(None).await.unwrap().len(), 1, "that of the stranger");
        store.erasures.erase_organization(tenant.organization, ledger).await.unwrap();
    }
}
