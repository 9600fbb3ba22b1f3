//! Tenants x scopes x operations: every operation, with every kind of key and of session, with ids of its own tenant, of
//! another one, of nobody, and mixed. Each answer is the contract's, and none has anything of another tenant. Beside them what
//! visitors of galleries may call, with every kind of link.

mod callers;
mod console;
mod scene;
mod visitors;

use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use serde_json::json;

use self::callers::{Caller, Standing, make_callers};
use self::console::CONSOLE_OPERATIONS;
use self::scene::Scene;
use self::visitors::VISITOR_OPERATIONS;
use super::class::{Class, Setting};
use super::hooks::ALLOW_HOOK;
use super::operations::{Accounts, Ids, Names, Operation, check_complete};
use crate::findings::Findings;
use crate::site::{Extent, Site};
use crate::wire::Answer;

pub(super) const MATRIX: Class = Class {
    name: "matrix",
    description: "every operation with every kind of key (none, malformed, unknown, revoked, expired, each scope, all, \
                  another organization's, another mode's) and of session (none, unknown, ended, disabled, each role, an \
                  operator's, another organization's, another mode's), those of galleries with every kind of link, and own, \
                  foreign, mixed, unknown and malformed ids",
    settings,
    stops_service: false,
    run,
};

const OWNER: &str = "Matrix Timing";
const VICTIM: &str = "Victim Timing";
const VICTIMS_TITLE: &str = "An album that nobody else may see";

fn settings(_: Extent) -> Vec<Setting> {
    vec![ALLOW_HOOK]
}

/// Whose ids a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Own,
    Foreign,
    /// The own album, or the own webhook of a delivery, with what is another tenant's.
    Mixed,
    Unknown,
    Malformed,
}

const TARGETS: [Target; 5] =
    [Target::Own, Target::Foreign, Target::Mixed, Target::Unknown, Target::Malformed];
/// Of partners' operations in the console, in a quick attack: keys try the same handlers with all of them.
const QUICK_TARGETS: [Target; 2] = [Target::Own, Target::Foreign];

struct Matrix<'a> {
    site: &'a Site,
    findings: &'a Findings,
    owner: Scene,
    foreign: Ids,
    /// Texts that only the victim may see.
    secrets: Vec<String>,
}

fn run(site: &Site, findings: &Findings) -> anyhow::Result<()> {
    check_complete(site)?;
    let owner = Scene::prepare(site, OWNER, "The owner's album")?;
    let victim = Scene::prepare(site, VICTIM, VICTIMS_TITLE)?;
    let before = victim.describe(site)?;
    let organization = before[0]["organizationId"].as_str().context("an organization")?.to_owned();
    let secrets = vec![VICTIMS_TITLE.to_owned(), organization, victim.owner.email.clone()];
    let callers = make_callers(site, OWNER, &owner.owner)?;
    let matrix = Matrix { site, findings, owner, foreign: victim.ids.clone(), secrets };
    matrix.try_others_paths();
    let waiting = Mutex::new(callers.iter());
    std::thread::scope(|scope| {
        for _ in 0..site.extent.pick(2, 6) {
            scope.spawn(|| {
                let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
                while let Some(caller) = next() {
                    matrix.try_caller(caller);
                }
            });
        }
    });
    let after = victim.describe(site)?;
    findings.check(after == before, || format!("the victim has {after} in place of {before}"));
    let is_in = matrix.owner.is_bystander_signed_in(site);
    findings.check(is_in, || "the session of another account has ended".to_owned());
    visitors::run(site, findings)
}

impl Matrix<'_> {
    /// What only sessions or visitors may call is not there for keys.
    fn try_others_paths(&self) {
        let console = CONSOLE_OPERATIONS.iter().map(|operation| operation.path);
        for path in console.chain(VISITOR_OPERATIONS.iter().map(|operation| operation.path)) {
            let reaction = self.site.call(path, self.owner.partner.key(), &json!({}));
            self.findings.expect(&format!("{path} with a key"), reaction, &[404]);
        }
    }

    fn try_caller(&self, caller: &Caller) {
        for operation in caller.operations() {
            let mut refusals = Vec::new();
            for target in self.targets(caller, operation) {
                let case = format!("{} with {}, {target:?} ids", operation.path, caller.name);
                let ids = self.ids(operation, caller.standing, *target);
                let reaction = caller.call(self.site, operation.path, &(operation.input)(&ids));
                let statuses = expected(operation, caller.standing, *target);
                let Some(answer) = self.findings.expect(&case, reaction, &statuses) else { continue };
                self.check_answer(&case, operation, caller, &answer);
                if *target == Target::Mixed && operation.names == Names::Photos && answer.status == 200 {
                    let result = &answer.json()["results"][0];
                    let is_refused = result["success"] == false && result["error"]["status"] == 404;
                    self.findings.check(is_refused, || format!("{case}: {result}"));
                }
                if answer.status == 404 && matches!(target, Target::Foreign | Target::Unknown) {
                    refusals.push(answer.text());
                }
            }
            // Another tenant's object is exactly as if it did not exist.
            self.findings.check(refusals.windows(2).all(|pair| pair[0] == pair[1]), || {
                format!(
                    "{} with {}: foreign and unknown ids differ: {refusals:?}",
                    operation.path, caller.name
                )
            });
        }
    }

    fn targets(&self, caller: &Caller, operation: &Operation) -> &'static [Target] {
        let is_of_console = CONSOLE_OPERATIONS.iter().any(|known| known.path == operation.path);
        let is_again = caller.is_in_console() && !is_of_console;
        if is_again && self.site.extent == Extent::Quick { &QUICK_TARGETS } else { &TARGETS }
    }

    fn check_answer(&self, case: &str, operation: &Operation, caller: &Caller, answer: &Answer) {
        let text = answer.text();
        for secret in &self.secrets {
            self.findings.check(!text.contains(secret), || format!("{case}: contains {secret}"));
        }
        if answer.status == 403 {
            let code = &answer.json()["data"]["code"];
            // What only one kind of key may do refuses the other kind for that reason.
            let by_mode = operation.success.contains(&403) && code == "TEST_KEYS_ONLY";
            let usual = if caller.is_in_console() { "INSUFFICIENT_ROLE" } else { "INSUFFICIENT_SCOPE" };
            self.findings.check(by_mode || code == usual, || format!("{case}: code {code}"));
        }
        if operation.path == "/albums/list" && caller.standing == Standing::Stranger {
            let total = &answer.json()["total"];
            let own = answer.json()["albums"].as_array().map_or(0, Vec::len);
            self.findings.check(*total == own, || format!("{case}: a total of {total} for {own} albums"));
        }
    }

    fn ids(&self, operation: &Operation, standing: Standing, target: Target) -> Ids {
        let own = &self.owner.ids;
        // Only who may delete does.
        let is_destructive = operation.is_destructive && standing.permits(operation);
        match target {
            Target::Own if is_destructive => self.disposable_ids(),
            Target::Own => own.clone(),
            Target::Foreign => self.foreign.clone(),
            Target::Mixed if operation.names == Names::Delivery => {
                Ids { webhook: own.webhook.clone(), ..self.foreign.clone() }
            }
            Target::Mixed if is_destructive && operation.names == Names::Album => {
                Ids { album: self.disposable_ids().album, ..self.foreign.clone() }
            }
            Target::Mixed => Ids { album: own.album.clone(), ..self.foreign.clone() },
            Target::Unknown => Ids::of_all("01890000-0000-7000-8000-0000000000ff"),
            Target::Malformed => Ids::of_all("no-uuid"),
        }
    }

    /// Ids of an album and a photo that nobody else uses.
    fn disposable_ids(&self) -> Ids {
        let Scene { partner, ids, .. } = &self.owner;
        let album = partner.create_album("To be deleted");
        let photo = partner.sign_photo(&album, "1.jpg", "image/jpeg").photo_id;
        Ids { album: json!(album), photo: json!(photo), ..ids.clone() }
    }
}

/// The statuses that the contract permits.
fn expected(operation: &Operation, standing: Standing, target: Target) -> Vec<u16> {
    if !standing.permits(operation) {
        return vec![if standing == Standing::Refused { 401 } else { 403 }];
    }
    if operation.names == Names::Nothing || operation.accounts == Accounts::NotNeeded {
        return operation.success.to_vec();
    }
    let is_stranger = standing == Standing::Stranger;
    match target {
        Target::Malformed => vec![400],
        Target::Foreign | Target::Unknown => vec![404],
        Target::Own | Target::Mixed if is_stranger => vec![404],
        // What is in the own album in place of what is the other tenant's.
        Target::Mixed if !matches!(operation.names, Names::Album | Names::Photos) => vec![404],
        Target::Own | Target::Mixed => operation.success.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use photofinish_api::fuzzing::{Surface, served_operations};

    use super::*;
    use crate::classes::matrix::console::EXEMPT;
    use crate::classes::operations::OPERATIONS;

    #[test]
    fn every_operation_that_is_served_is_tried() {
        let served: BTreeSet<(Surface, String)> =
            served_operations().into_iter().map(|operation| (operation.surface, operation.path)).collect();
        let partners = OPERATIONS.iter().map(|operation| (Surface::Partners, operation.path));
        let console = CONSOLE_OPERATIONS.iter().map(|operation| (Surface::Console, operation.path));
        let exempt = EXEMPT.map(|(path, _)| (Surface::Console, path));
        let visitors = VISITOR_OPERATIONS.iter().map(|operation| (Surface::Visitors, operation.path));
        let tried = partners.chain(console).chain(exempt).chain(visitors);
        let tried: BTreeSet<(Surface, String)> =
            tried.map(|(surface, path)| (surface, path.to_owned())).collect();
        let missing: Vec<_> = served.difference(&tried).collect();
        assert!(missing.is_empty(), "served, and neither tried nor exempt: {missing:?}");
        let gone: Vec<_> = tried.difference(&served).collect();
        assert!(gone.is_empty(), "tried, and not served: {gone:?}");
    }

    #[test]
    fn every_kind_of_account_may_what_its_role_permits() {
        use super::callers::Role;

        let find = |path: &str| {
            let mut all = OPERATIONS.iter().chain(&CONSOLE_OPERATIONS);
            all.find(|operation| operation.path == path).expect("an operation")
        };
        let may = |role, is_operator, path| Standing::Account { role, is_operator }.permits(find(path));
        assert!(may(Role::Viewer, false, "/photos/photo/list") && may(Role::Viewer, false, "/albums/get"));
        assert!(!may(Role::Viewer, false, "/albums/update") && may(Role::Organizer, false, "/albums/update"));
        assert!(!may(Role::Organizer, false, "/people/erase") && may(Role::Owner, false, "/people/erase"));
        assert!(!may(Role::Owner, false, "/operator/get") && may(Role::Viewer, true, "/operator/get"));
        assert_eq!(expected(find("/session/get"), Standing::Refused, Target::Own), [401]);
    }
}
