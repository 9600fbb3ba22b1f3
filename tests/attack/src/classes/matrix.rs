//! Tenants x scopes x operations: every operation, with every kind of key, with ids of its own tenant, of another one, of
//! nobody, and mixed. Each answer is the contract's, and none has anything of another tenant.

use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use photofinish_api::key::KeyText;
use photofinish_store::model::key::KeyMode;
use photofinish_tests::harness::{ALL_SCOPES, Partner};
use serde_json::{Value, json};

use super::class::{Class, no_settings};
use super::operations::{Ids, Names, OPERATIONS, Operation, check_complete};
use crate::findings::Findings;
use crate::site::Site;
use crate::wire::Answer;

pub(super) const MATRIX: Class = Class {
    name: "matrix",
    description: "every operation with every kind of key (none, malformed, unknown, revoked, expired, each scope, all, \
                  another organization's, another mode's) and own, foreign, mixed, unknown and malformed ids",
    settings: no_settings,
    stops_service: false,
    run,
};

const OWNER: &str = "Matrix Timing";
const VICTIM: &str = "Victim Timing";
const VICTIMS_TITLE: &str = "An album that nobody else may see";

/// What a key may do with the owner's album.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Nothing at all: 401.
    Refused,
    /// What these scopes permit.
    Scopes(&'static [&'static str]),
    /// It is valid, but sees another tenant.
    Stranger,
}

struct Caller {
    name: String,
    key: String,
    standing: Standing,
}

/// Whose ids a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Own,
    Foreign,
    /// The own album with the photo and the selfie of another tenant.
    Mixed,
    Unknown,
    Malformed,
}

const TARGETS: [Target; 5] =
    [Target::Own, Target::Foreign, Target::Mixed, Target::Unknown, Target::Malformed];

struct Matrix<'a> {
    site: &'a Site,
    findings: &'a Findings,
    owner: Partner,
    own: Ids,
    foreign: Ids,
    unknown: Value,
    /// Texts that only the victim may see.
    secrets: Vec<String>,
}

fn run(site: &Site, findings: &Findings) -> anyhow::Result<()> {
    check_complete(site)?;
    let (owner, victim) = (site.tenant(OWNER), site.tenant(VICTIM));
    let own = prepare(site, &owner, "The owner's album")?;
    let foreign = prepare(site, &victim, VICTIMS_TITLE)?;
    let victims_album = describe_album(&victim, &foreign);
    let organization = victims_album["organizationId"].as_str().context("an organization")?.to_owned();
    let matrix = Matrix {
        site,
        findings,
        owner,
        own,
        foreign,
        unknown: json!("01890000-0000-7000-8000-0000000000ff"),
        secrets: vec![VICTIMS_TITLE.to_owned(), organization],
    };
    let victims_photo = describe_photo(&victim, &matrix.foreign);
    let callers = make_callers(site);
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
    let album = describe_album(&victim, &matrix.foreign);
    findings.check(album == victims_album, || format!("the victim's album has changed: {album}"));
    let photo = describe_photo(&victim, &matrix.foreign);
    findings.check(photo == victims_photo, || format!("the victim's photo has changed: {photo}"));
    Ok(())
}

/// An album with a ready photo and a selfie.
fn prepare(site: &Site, partner: &Partner, title: &str) -> anyhow::Result<Ids> {
    let album = partner.create_album(title);
    let photo = partner.upload_photo(&album, "1.jpg", site.material.photo(0));
    let image = partner.upload_selfie(&album, &site.material.selfie);
    let progress = partner.wait_until_idle(&album);
    anyhow::ensure!(progress["ready"] == 1, "the photo of {title} is not ready: {progress}");
    Ok(Ids { album: json!(album), photo: json!(photo), image: json!(image) })
}

/// What must stay the same of an album: not what the service learns of its numbers a while after they were read.
fn describe_album(partner: &Partner, ids: &Ids) -> Value {
    let mut album = partner.call_ok("/albums/get", &json!({ "albumId": ids.album }));
    album["bibFormat"].take();
    album
}

/// What must stay the same of a photo; each response signs its URLs again.
fn describe_photo(partner: &Partner, ids: &Ids) -> Value {
    let input = json!({ "albumId": ids.album, "photoId": ids.photo });
    let photo = partner.call_ok("/photos/photo/get", &input);
    json!([photo["state"], photo["updatedAt"], photo["faces"], photo["texts"]])
}

fn make_callers(site: &Site) -> Vec<Caller> {
    let caller = |name: &str, key: String, standing| Caller { name: name.to_owned(), key, standing };
    let revoked = site.create_labelled_key(OWNER, "matrix-revoked", &[]);
    site.revoke_key("matrix-revoked");
    let expired = site.create_labelled_key(OWNER, "matrix-expired", &["--expires-in-days", "0"]);
    let valid = site.create_key(OWNER, &ALL_SCOPES, "test");
    let mut malformed = valid.clone();
    malformed.pop();
    let mut callers = vec![
        caller("no key", String::new(), Standing::Refused),
        caller("a malformed key", malformed, Standing::Refused),
        caller("an unknown key", KeyText::generate(KeyMode::Test).reveal().to_owned(), Standing::Refused),
        caller("a revoked key", revoked, Standing::Refused),
        caller("an expired key", expired, Standing::Refused),
        caller("all scopes", valid, Standing::Scopes(&ALL_SCOPES)),
        caller("another organization", site.tenant("Stranger Timing").key().to_owned(), Standing::Stranger),
        caller("another mode", site.create_key(OWNER, &ALL_SCOPES, "live"), Standing::Stranger),
    ];
    for scope in &ALL_SCOPES {
        let key = site.create_key(OWNER, &[scope], "test");
        callers.push(caller(scope, key, Standing::Scopes(std::slice::from_ref(scope))));
    }
    callers
}

impl Matrix<'_> {
    fn try_caller(&self, caller: &Caller) {
        for operation in &OPERATIONS {
            let mut refusals = Vec::new();
            for target in TARGETS {
                let case = format!("{} with {}, {target:?} ids", operation.path, caller.name);
                let ids = self.ids(operation, target);
                let reaction = self.site.call(operation.path, &caller.key, &(operation.input)(&ids));
                let statuses = expected(operation, caller.standing, target);
                let Some(answer) = self.findings.expect(&case, reaction, &statuses) else { continue };
                self.check_answer(&case, operation, caller, &answer);
                if target == Target::Mixed && operation.names == Names::Photos && answer.status == 200 {
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

    fn check_answer(&self, case: &str, operation: &Operation, caller: &Caller, answer: &Answer) {
        let text = answer.text();
        for secret in &self.secrets {
            self.findings.check(!text.contains(secret), || format!("{case}: contains {secret}"));
        }
        if answer.status == 403 {
            let code = &answer.json()["data"]["code"];
            // What only one kind of key may do refuses the other kind for that reason.
            let by_mode = operation.success.contains(&403) && code == "TEST_KEYS_ONLY";
            self.findings.check(by_mode || code == "INSUFFICIENT_SCOPE", || format!("{case}: code {code}"));
        }
        if operation.path == "/albums/list" && caller.standing == Standing::Stranger {
            let total = &answer.json()["total"];
            let own = answer.json()["albums"].as_array().map_or(0, Vec::len);
            self.findings.check(*total == own, || format!("{case}: a total of {total} for {own} albums"));
        }
    }

    fn ids(&self, operation: &Operation, target: Target) -> Ids {
        match target {
            Target::Own if operation.is_destructive => self.disposable_ids(),
            Target::Own => self.own.clone(),
            Target::Foreign => self.foreign.clone(),
            Target::Mixed => Ids { album: self.own_album_of(operation), ..self.foreign.clone() },
            Target::Unknown => {
                let id = &self.unknown;
                Ids { album: id.clone(), photo: id.clone(), image: id.clone() }
            }
            Target::Malformed => {
                let id = json!("no-uuid");
                Ids { album: id.clone(), photo: id.clone(), image: id }
            }
        }
    }

    fn own_album_of(&self, operation: &Operation) -> Value {
        if operation.is_destructive && operation.names == Names::Album {
            self.disposable_ids().album
        } else {
            self.own.album.clone()
        }
    }

    /// Ids of an album and a photo that nobody else uses.
    fn disposable_ids(&self) -> Ids {
        let album = self.owner.create_album("To be deleted");
        let photo = self.owner.sign_photo(&album, "1.jpg", "image/jpeg").photo_id;
        Ids { album: json!(album), photo: json!(photo), image: self.own.image.clone() }
    }
}

/// The statuses that the contract permits.
fn expected(operation: &Operation, standing: Standing, target: Target) -> Vec<u16> {
    let is_permitted = |scopes: &[&str]| operation.scope.is_none_or(|scope| scopes.contains(&scope));
    match standing {
        Standing::Refused => return vec![401],
        Standing::Scopes(scopes) if !is_permitted(scopes) => return vec![403],
        Standing::Scopes(_) | Standing::Stranger => {}
    }
    if operation.names == Names::Nothing {
        return operation.success.to_vec();
    }
    let is_stranger = standing == Standing::Stranger;
    match target {
        Target::Malformed => vec![400],
        Target::Foreign | Target::Unknown => vec![404],
        Target::Own | Target::Mixed if is_stranger => vec![404],
        Target::Mixed if matches!(operation.names, Names::Photo | Names::Image) => vec![404],
        Target::Own | Target::Mixed => operation.success.to_vec(),
    }
}
