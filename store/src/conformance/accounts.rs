//! Accounts of people: links that let in once, sessions, wrong passwords, and who may not be taken away.

use time::{Date, Duration, OffsetDateTime};
use uuid::Uuid;

use super::assert_error_kind;
use crate::conformance::fixture::{AlbumFixture, face, random_digest, text};
use crate::error::StoreErrorKind;
use crate::model::account::{
    Account, AccountChange, LinkPurpose, LinkUse, NewAccount, NewLink, NewSession, Role, Session,
};
use crate::model::credit::UsageQuery;
use crate::model::erasure::LedgerFate;
use crate::model::ids::{OrganizationId, SessionId};
use crate::store::Store;

/// The hash of the password that accounts choose first.
const HASH: &str = "a hash";

/// Checks the backend of [`crate::traits::Accounts`].
pub async fn accounts_suite(store: &Store) {
    a_link_lets_in_once(store).await;
    an_address_has_one_account(store).await;
    an_invitation_takes_no_rights_and_enables_nobody(store).await;
    a_session_is_found_until_it_is_ended(store).await;
    another_password_ends_links_and_other_sessions(store).await;
    a_session_begins_only_with_the_password_that_the_account_has(store).await;
    wrong_passwords_block_for_a_while(store).await;
    an_organization_keeps_an_owner(store).await;
    an_erased_organization_leaves_receipts_and_numbers(store).await;
}

async fn organization(store: &Store) -> OrganizationId {
    let name = format!("organization {}", Uuid::now_v7());
    store.keys.get_or_create_organization(&name).await.expect("creates an organization")
}

fn new_account(organization: OrganizationId, role: Role) -> NewAccount {
    NewAccount {
        organization, email: format!("{}@läufer.example", Uuid::now_v7()), role, is_operator: false
    }
}

fn new_link(purpose: LinkPurpose) -> NewLink {
    NewLink { purpose, digest: random_digest(), expires_at: from_now(Duration::HOUR) }
}

fn new_session() -> NewSession {
    NewSession { digest: random_digest(), device: "a browser".into(), expires_at: from_now(Duration::DAY) }
}

/// In whole microseconds, as times are stored.
fn from_now(span: Duration) -> OffsetDateTime {
    let now = OffsetDateTime::now_utc() + span;
    now - Duration::nanoseconds(i64::from(now.nanosecond() % 1000))
}

/// Makes an account that has chosen a password.
async fn join(store: &Store, organization: OrganizationId, role: Role) -> Account {
    let link = new_link(LinkPurpose::Welcome);
    store.accounts.invite(new_account(organization, role), link).await.expect("invites");
    let usage = LinkUse {
        digest: link.digest,
        password: Some(HASH.into()),
        name: Some("Änne".into()),
        session: new_session(),
    };
    store.accounts.use_link(usage).await.expect("uses a link")
}

/// Begins a session with the password that the account chose first.
async fn begin(store: &Store, account: &Account, session: NewSession) -> Session {
    let begun = store.accounts.begin_session(account.id, HASH, session).await.expect("begins");
    begun.expect("it has that password")
}

async fn a_link_lets_in_once(store: &Store) {
    let account = new_account(organization(store).await, Role::Organizer);
    let (first, link) = (new_link(LinkPurpose::Welcome), new_link(LinkPurpose::Welcome));
    let made = store.accounts.invite(account.clone(), first).await.expect("invites");
    assert_eq!(
        (made.email.as_str(), made.role, made.has_password),
        (&*account.email, Role::Organizer, false)
    );
    let again = store.accounts.invite(account.clone(), link).await.expect("invites again");
    assert_eq!(again.id, made.id);
    assert_eq!(
        store.accounts.find_link(&first.digest).await.expect("looks"),
        None,
        "the second ends the first"
    );
    let found = store.accounts.find_link(&link.digest).await.expect("looks").expect("the link is there");
    assert_eq!((found.purpose, found.expires_at, &found.account), (link.purpose, link.expires_at, &made));
    let session = new_session();
    let usage = LinkUse {
        digest: link.digest,
        password: Some("a hash".into()),
        name: Some("Änne".into()),
        session: session.clone(),
    };
    let joined = store.accounts.use_link(usage.clone()).await.expect("uses the link");
    assert!(joined.has_password && joined.name == "Änne" && joined.last_seen_at.is_some());
    assert_error_kind(store.accounts.use_link(usage).await, StoreErrorKind::NotFound);
    let (begun, of) =
        store.accounts.find_session(&session.digest).await.expect("looks").expect("a session began");
    assert_eq!(
        (begun.device.as_str(), begun.expires_at, of),
        ("a browser", session.expires_at, joined.clone())
    );
    let credentials = store.accounts.find_credentials(&account.email).await.expect("looks");
    assert_eq!(credentials.and_then(|found| found.password).as_deref(), Some("a hash"));
    // Entering changes no password.
    let enter = new_link(LinkPurpose::Enter);
    store.accounts.make_link(joined.id, enter).await.expect("makes a link");
    let usage = LinkUse { digest: enter.digest, password: None, name: None, session: new_session() };
    assert_eq!(store.accounts.use_link(usage).await.expect("enters").name, "Änne");
    assert_eq!(store.accounts.list_sessions(joined.id).await.expect("lists").len(), 2);
}

async fn an_address_has_one_account(store: &Store) {
    let here = organization(store).await;
    let account = join(store, here, Role::Owner).await;
    let same = NewAccount { email: account.email.clone(), ..new_account(here, Role::Viewer) };
    let link = new_link(LinkPurpose::Welcome);
    assert_error_kind(store.accounts.invite(same, link).await, StoreErrorKind::Conflict);
    let invited = new_account(here, Role::Viewer);
    store.accounts.invite(invited.clone(), new_link(LinkPurpose::Welcome)).await.expect("invites");
    let elsewhere = NewAccount { organization: organization(store).await, ..invited };
    assert_error_kind(store.accounts.invite(elsewhere, link).await, StoreErrorKind::Conflict);
    let listed = store.accounts.list(Some(here)).await.expect("lists");
    assert_eq!(listed.len(), 2);
    assert!(store.accounts.list(None).await.expect("lists all").contains(&account));
    assert_eq!(store.accounts.find("nobody@läufer.example").await.expect("looks"), None);
}

async fn an_invitation_takes_no_rights_and_enables_nobody(store: &Store) {
    let here = organization(store).await;
    let operator = NewAccount { is_operator: true, ..new_account(here, Role::Owner) };
    let invite =
        async |account: &NewAccount, link: NewLink| store.accounts.invite(account.clone(), link).await;
    let made = invite(&operator, new_link(LinkPurpose::Enter)).await.expect("invites");
    let link = new_link(LinkPurpose::Welcome);
    let none = NewAccount { role: Role::Viewer, is_operator: false, ..operator.clone() };
    assert_error_kind(invite(&none, link).await, StoreErrorKind::Conflict);
    assert_eq!(store.accounts.find(&operator.email).await.expect("looks"), Some(made.clone()));
    assert_eq!(store.accounts.find_link(&link.digest).await.expect("looks"), None);
    let viewer = invite(&NewAccount { role: Role::Viewer, ..operator }, link).await.expect("invites again");
    assert_eq!(viewer, Account { role: Role::Viewer, ..made });

    let promoted = new_account(here, Role::Viewer);
    let first = new_link(LinkPurpose::Welcome);
    assert!(!invite(&promoted, first).await.expect("invites").is_operator);
    let promoted = NewAccount { is_operator: true, ..promoted };
    assert!(invite(&promoted, new_link(LinkPurpose::Enter)).await.expect("invites again").is_operator);
    assert_eq!(
        store.accounts.find_link(&first.digest).await.expect("looks"),
        None,
        "it would open an operator's account"
    );

    let disable = AccountChange { disabled: Some(true), ..AccountChange::default() };
    let disabled = store.accounts.update(here, viewer.id, disable).await.expect("disables");
    let link = new_link(LinkPurpose::Welcome);
    let again =
        NewAccount { organization: here, email: disabled.email, role: Role::Viewer, is_operator: true };
    let again = invite(&again, link).await.expect("invites again");
    assert!(again.disabled_at.is_some() && again.disabled_at == disabled.disabled_at);
    assert_eq!(store.accounts.find_link(&link.digest).await.expect("looks"), None, "nobody gets in");
}

async fn a_session_is_found_until_it_is_ended(store: &Store) {
    let account = join(store, organization(store).await, Role::Viewer).await;
    let new = new_session();
    let session = begin(store, &account, new.clone()).await;
    let find = async || store.accounts.find_session(&new.digest).await.expect("looks");
    assert_eq!(find().await.map(|(found, _)| found), Some(session.clone()));
    let later = session.last_seen_at + Duration::seconds(59);
    store.accounts.touch_session(session.id, later).await.expect("touches");
    assert_eq!(find().await.map(|(found, _)| found.last_seen_at), Some(session.last_seen_at));
    let later = session.last_seen_at + Duration::seconds(60);
    store.accounts.touch_session(session.id, later).await.expect("touches");
    assert_eq!(
        find().await.map(|(found, of)| (found.last_seen_at, of.last_seen_at)),
        Some((later, Some(later)))
    );
    let other = join(store, account.organization, Role::Viewer).await;
    assert_error_kind(store.accounts.end_session(other.id, session.id).await, StoreErrorKind::NotFound);
    store.accounts.end_session(account.id, session.id).await.expect("ends");
    assert_eq!(find().await, None);
    assert_error_kind(store.accounts.end_session(account.id, session.id).await, StoreErrorKind::NotFound);
}

async fn another_password_ends_links_and_other_sessions(store: &Store) {
    let account = join(store, organization(store).await, Role::Owner).await;
    let kept = begin(store, &account, new_session()).await;
    let make_link = async |purpose: LinkPurpose| {
        let link = new_link(purpose);
        store.accounts.make_link(account.id, link).await.expect("makes a link");
        link
    };
    let has_ended =
        async |link: NewLink| store.accounts.find_link(&link.digest).await.expect("looks").is_none();
    let before = [make_link(LinkPurpose::Enter).await, make_link(LinkPurpose::Reset).await];
    store.accounts.set_password(account.id, "another hash".into(), kept.id).await.expect("sets");
    for link in before {
        assert!(has_ended(link).await, "a link that was made before: {link:?}");
    }
    let ids = async || -> Vec<SessionId> {
        let sessions = store.accounts.list_sessions(account.id).await.expect("lists");
        sessions.into_iter().map(|session| session.id).collect()
    };
    assert_eq!(ids().await, [kept.id]);
    let (enter, reset) = (make_link(LinkPurpose::Enter).await, make_link(LinkPurpose::Reset).await);
    let usage = LinkUse { digest: enter.digest, password: None, name: None, session: new_session() };
    store.accounts.use_link(usage).await.expect("enters");
    assert!(!has_ended(reset).await && ids().await.contains(&kept.id), "without a password nothing ends");
    let enter = make_link(LinkPurpose::Enter).await;
    let password = Some("a third".into());
    let usage = LinkUse { digest: reset.digest, password, name: None, session: new_session() };
    store.accounts.use_link(usage).await.expect("uses the link");
    assert!(has_ended(enter).await, "a reset ends all links");
    assert!(!ids().await.contains(&kept.id), "a reset ends all sessions");
}

async fn a_session_begins_only_with_the_password_that_the_account_has(store: &Store) {
    let account = join(store, organization(store).await, Role::Organizer).await;
    let kept = begin(store, &account, new_session()).await;
    let begin_with =
        async |hash: &str| store.accounts.begin_session(account.id, hash, new_session()).await.expect("asks");
    let count = async || store.accounts.list_sessions(account.id).await.expect("lists").len();
    // As while a password is compared with the hash that was read before.
    store.accounts.set_password(account.id, "another hash".into(), kept.id).await.expect("sets");
    let at = from_now(Duration::ZERO);
    let mut until = at;
    for _ in 0..6 {
        until = store.accounts.record_failure(&account.email, at).await.expect("records");
    }
    assert_eq!((begin_with(HASH).await, count().await), (None, 1));
    let blocked_until = store.accounts.blocked_until(&account.email).await.expect("looks");
    assert!(until > at && blocked_until == until, "wrong passwords are not forgotten");
    assert!(begin_with("another hash").await.is_some());
    let disable = AccountChange { disabled: Some(true), ..AccountChange::default() };
    store.accounts.update(account.organization, account.id, disable).await.expect("disables");
    assert_eq!((begin_with("another hash").await, count().await), (None, 0));
}

async fn wrong_passwords_block_for_a_while(store: &Store) {
    let account = join(store, organization(store).await, Role::Viewer).await;
    let at = from_now(Duration::ZERO);
    let fail = async |email: &str, at| store.accounts.record_failure(email, at).await.expect("records");
    let stranger = format!("{}@nobody.example", uuid::Uuid::new_v4());
    for email in [&account.email, &stranger] {
        for _ in 0..5 {
            assert_eq!(fail(email, at).await, at);
        }
        assert_eq!(fail(email, at).await - at, Duration::SECOND);
        let until = fail(&email.to_uppercase(), at).await;
        assert_eq!(until - at, Duration::seconds(2));
        assert_eq!(store.accounts.blocked_until(email).await.expect("looks"), until);
    }
    begin(store, &account, new_session()).await;
    assert_eq!(fail(&account.email, at).await, at, "forgotten");
    let tomorrow = at + Duration::hours(25);
    assert_eq!(fail(&stranger, tomorrow).await, tomorrow, "forgotten after a day");
    let (source, hour) = (random_digest(), 500_000);
    assert_eq!(store.accounts.failures_from(&source, hour).await.expect("counts"), 0);
    assert_eq!(store.accounts.count_failure(&source, hour).await.expect("counts"), 1);
    assert_eq!(store.accounts.count_failure(&source, hour).await.expect("counts"), 2);
    assert_eq!(store.accounts.failures_from(&source, hour).await.expect("counts"), 2);
    assert_eq!(store.accounts.failures_from(&source, hour + 1).await.expect("counts"), 0);
}

async fn an_organization_keeps_an_owner(store: &Store) {
    let here = organization(store).await;
    let invited = store.accounts.invite(new_account(here, Role::Owner), new_link(LinkPurpose::Enter)).await;
    let invited = invited.expect("invites");
    let disable = AccountChange { disabled: Some(true), ..AccountChange::default() };
    store
        .accounts
        .update(here, invited.id, disable.clone())
        .await
        .expect("no owner could sign in before either");
    let owner = join(store, here, Role::Owner).await;
    let demote = AccountChange { role: Some(Role::Viewer), ..AccountChange::default() };
    for change in [demote.clone(), disable.clone()] {
        assert_error_kind(store.accounts.update(here, owner.id, change).await, StoreErrorKind::Conflict);
    }
    let second = join(store, here, Role::Owner).await;
    let demoted = store.accounts.update(here, owner.id, demote).await.expect("another owner is there");
    assert_eq!(demoted.role, Role::Viewer);
    let disabled = store.accounts.update(here, owner.id, disable.clone()).await.expect("disables");
    assert!(disabled.disabled_at.is_some());
    assert!(store.accounts.list_sessions(owner.id).await.expect("lists").is_empty());
    assert_error_kind(store.accounts.update(here, second.id, disable).await, StoreErrorKind::Conflict);
    let elsewhere = organization(store).await;
    let rename = AccountChange {
        name: Some("Zoë".into()),
        language: Some(Some("fr".into())),
        ..AccountChange::default()
    };
    let refused = store.accounts.update(elsewhere, second.id, rename.clone()).await;
    assert_error_kind(refused, StoreErrorKind::NotFound);
    let renamed = store.accounts.update(here, second.id, rename).await.expect("renames");
    assert_eq!((renamed.name.as_str(), renamed.language.as_deref()), ("Zoë", Some("fr")));
    let forget = AccountChange { language: Some(None), ..AccountChange::default() };
    assert_eq!(store.accounts.update(here, second.id, forget).await.expect("changes").language, None);
}

async fn an_erased_organization_leaves_receipts_and_numbers(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let organization = fixture.tenant.organization;
    fixture.add_ready_photo(vec![face([1.0, 0.0, 0.0, 0.0])], vec![text("1207", 0.99)]).await;
    let account = join(store, organization, Role::Owner).await;
    let other = join(store, self::organization(store).await, Role::Owner).await;
    let refused = store.erasures.erase_organization(organization, LedgerFate::KeepNumbers).await;
    assert_error_kind(refused, StoreErrorKind::Conflict);
    let id =
        store.erasures.begin_album(&fixture.tenant, fixture.album, fixture.key.id).await.expect("begins");
    store.erasures.remove_objects(id).await.expect("removes the objects");
    assert_eq!(store.erasures.finish(&[id]).await.expect("finishes"), 1);
    for (removed, times) in [(1, "once"), (0, "again: its receipt was lost")] {
        let receipt =
            store.erasures.erase_organization(organization, LedgerFate::KeepNumbers).await.expect(times);
        assert_eq!((receipt.removed["account"], receipt.scan.left), (removed, 0));
        let by_id = store.keys.find_organization(&organization.to_string()).await.expect("looks");
        assert_eq!(by_id, Some(organization));
    }
    store.erasures.forget_organization(organization).await.expect("forgets");
    assert_eq!(store.keys.find_organization(&organization.to_string()).await.expect("looks"), None);
    let keys = store.keys.list().await.expect("lists keys");
    assert!(keys.iter().all(|key| key.tenant.organization != organization));
    assert_eq!(store.accounts.find(&account.email).await.expect("looks"), None);
    assert!(store.accounts.find(&other.email).await.expect("looks").is_some());
    let receipt = store.erasures.get(&fixture.tenant, id).await.expect("the receipt is there");
    assert!(receipt.receipt.is_some());
    let usage = UsageQuery {
        from: Date::MIN,
        to: Date::MAX,
        by_day: false,
        by_album: false,
        by_operation: false,
        limit: 10,
    };
    let rows = store.credits.usage(&fixture.tenant, usage).await.expect("reads the ledger");
    assert!(rows.is_empty(), "{rows:?}");
}
