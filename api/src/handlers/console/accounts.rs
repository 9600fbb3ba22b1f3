//! The accounts of an organization, and the own one.

use photofinish_store::error::StoreErrorKind;
use photofinish_store::model::account::{Account as StoredAccount, LinkPurpose, NewAccount};
use photofinish_store::model::ids::AccountId;
use time::OffsetDateTime;

use super::{check_not_blocked, check_password, make_link};
use crate::auth::{INSUFFICIENT_ROLE, Member, Owner};
use crate::context::Context;
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::session;
use crate::validate::issues::PathSegment;
use crate::wire::console::Nothing;
use crate::wire::console::account::{
    Account, AccountPage, InviteAccount, InvitedAccount, OneAccount, PasswordChange, UpdateAccount,
    UpdateOwnAccount,
};

pub(crate) async fn list(ctx: Context, caller: Owner, _: Nothing) -> Result<AccountPage, ApiError> {
    Ok(ctx.store.accounts.list(Some(caller.tenant.organization)).await?.into())
}

pub(crate) async fn invite(
    ctx: Context,
    caller: Owner,
    input: InviteAccount,
) -> Result<InvitedAccount, ApiError> {
    // An account without a password can be invited again, and who has the link chooses its password.
    let known = ctx.store.accounts.find(&input.email).await?;
    let known = known.filter(|known| known.organization == caller.tenant.organization);
    if let Some(known) = &known {
        check_manageable(&caller, known)?;
    }
    let (link, url) = make_link(&ctx, LinkPurpose::Welcome);
    let account = NewAccount {
        organization: caller.tenant.organization,
        email: input.email,
        role: input.role,
        // Another operator may invite one again, who stays one. Who becomes one just now is refused by the store.
        is_operator: known.is_some_and(|known| known.is_operator),
    };
    match ctx.store.accounts.invite(account, link).await {
        Ok(account) => {
            tracing::info!(account.id = %account.id, by = %caller.signed_in.account, "account invited");
            Ok(InvitedAccount { account: account.into(), link: url, expires_at: link.expires_at })
        }
        Err(error) if error.kind == StoreErrorKind::Conflict => {
            Err(ApiError::new(ErrorKind::Conflict).with_code("ADDRESS_TAKEN"))
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn reset(
    ctx: Context,
    caller: Owner,
    input: OneAccount,
) -> Result<InvitedAccount, ApiError> {
    let account = find_manageable(&ctx, &caller, input.account).await?;
    let purpose = if account.has_password { LinkPurpose::Reset } else { LinkPurpose::Welcome };
    let (link, url) = make_link(&ctx, purpose);
    ctx.store.accounts.make_link(account.id, link).await?;
    tracing::info!(account.id = %account.id, by = %caller.signed_in.account, "link to another password made");
    Ok(InvitedAccount { account: account.into(), link: url, expires_at: link.expires_at })
}

/// Returns an account that the caller may manage.
///
/// # Errors
/// As those of [`check_manageable`]; 404 if the organization has no such account.
async fn find_manageable(ctx: &Context, caller: &Owner, id: AccountId) -> Result<StoredAccount, ApiError> {
    let accounts = ctx.store.accounts.list(Some(caller.tenant.organization)).await?;
    let account = accounts.into_iter().find(|account| account.id == id).ok_or_else(ApiError::not_found)?;
    check_manageable(caller, &account)?;
    Ok(account)
}

/// Checks that the caller may manage an account of the organization. An operator may do more than an owner: whoever could make
/// a link into the account of one would have what operators may, and who could disable it could lock them out.
///
/// # Errors
/// 403 `INSUFFICIENT_ROLE` for the account of an operator, unless the caller is one.
fn check_manageable(caller: &Owner, account: &StoredAccount) -> Result<(), ApiError> {
    if account.is_operator && !caller.signed_in.is_operator {
        return Err(ApiError::new(ErrorKind::Forbidden).with_code(INSUFFICIENT_ROLE));
    }
    Ok(())
}

pub(crate) async fn update(ctx: Context, caller: Owner, input: UpdateAccount) -> Result<Account, ApiError> {
    find_manageable(&ctx, &caller, input.account).await?;
    let updated = ctx.store.accounts.update(caller.tenant.organization, input.account, input.change).await;
    match updated {
        Ok(account) => {
            tracing::info!(account.id = %account.id, by = %caller.signed_in.account, "account changed");
            Ok(account.into())
        }
        Err(error) if error.kind == StoreErrorKind::Conflict => {
            Err(ApiError::new(ErrorKind::Conflict).with_code("LAST_OWNER"))
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn update_own(
    ctx: Context,
    caller: Member,
    input: UpdateOwnAccount,
) -> Result<Account, ApiError> {
    if let Some(change) = input.password {
        change_password(&ctx, &caller, change).await?;
    }
    let organization = caller.tenant.organization;
    let account = ctx.store.accounts.update(organization, caller.signed_in.account, input.change);
    Ok(account.await?.into())
}

/// Sets another password, and ends the links and the other sessions. Wrong guesses of the one until now count as those at the
/// sign-in.
async fn change_password(ctx: &Context, caller: &Member, change: PasswordChange) -> Result<(), ApiError> {
    let (accounts, now) = (&ctx.store.accounts, OffsetDateTime::now_utc());
    let (_, account) = session::find(&**accounts, &caller.signed_in.digest, now).await?;
    check_not_blocked(ctx, &account.email, now).await?;
    check_current_password(ctx, &account.email, change.current).await?;
    let path = vec![PathSegment::Field("password"), PathSegment::Field("new")];
    check_password(&change.new, &account.email, path)?;
    let hash = ctx.passwords.hash(change.new).await?;
    accounts.set_password(account.id, hash, caller.signed_in.session).await?;
    tracing::info!(account.id = %account.id, "password changed");
    Ok(())
}

/// Checks the password until now, which an account that came by a one-time link alone does not have.
///
/// # Errors
/// 403 `WRONG_PASSWORD`; 429 after too many wrong ones.
async fn check_current_password(ctx: &Context, email: &str, current: String) -> Result<(), ApiError> {
    let accounts = &ctx.store.accounts;
    let turn = ctx.passwords.take_turn().await?;
    // Only now, and the turn lasts until a wrong one is recorded: of many that are tried at once each is checked after others.
    check_not_blocked(ctx, email, OffsetDateTime::now_utc()).await?;
    let credentials = accounts.find_credentials(email).await?.ok_or_else(ApiError::not_found)?;
    if credentials.password.is_some() && !turn.verify(current, credentials.password).await? {
        accounts.record_failure(email, OffsetDateTime::now_utc()).await?;
        return Err(ApiError::new(ErrorKind::Forbidden).with_code("WRONG_PASSWORD"));
    }
    Ok(())
}
