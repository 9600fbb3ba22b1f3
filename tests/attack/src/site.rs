//! The service that is attacked, its tenants, and the photos that they send.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{ALL_SCOPES, Partner, Service, ServiceOptions, variable_or_installed_path};
use photofinish_tests::scenes::event;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;

use crate::wire::{self, Endpoint, Reaction};

/// How long a hostile request may wait for its response: longer than anything that the service does.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How much of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// What fits into the tests of a change: a few seconds on a debug build with fake models.
    Quick,
    /// What fits into a minute on a release build with real models.
    Long,
}

impl Extent {
    /// The first number for [`Extent::Quick`], the second for [`Extent::Long`].
    pub fn pick<T>(self, quick: T, long: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Long => long,
        }
    }
}

/// The photos of an honest event, which the models of the service can read.
#[derive(Clone, Debug)]
pub struct Material {
    /// JPEG files.
    pub photos: Vec<Vec<u8>>,
    /// A selfie of somebody in the photos.
    pub selfie: Vec<u8>,
    /// A bib in the photos.
    pub bib: String,
}

impl Material {
    /// Photos with painted marks, for the fake models.
    pub fn paint() -> Self {
        let photo = |person: u16| {
            let scene = TestPhoto::new(1000, 750).with_face(1, [100, 100, 140]);
            scene.with_face(person, [600, 100, 140]).with_bib("4242", [100, 500]).to_jpeg()
        };
        let selfie = TestPhoto::selfie(1).to_jpeg();
        Self { photos: (2..6).map(photo).collect(), selfie, bib: "4242".to_owned() }
    }

    /// Photos of 6 to 12 megapixels drawn with portraits, for the real models.
    ///
    /// # Errors
    /// When the portraits or the font are missing.
    pub fn draw() -> anyhow::Result<Self> {
        let portraits = variable_or_installed_path("PHOTOFINISH_TEST_PORTRAITS", "portraits");
        anyhow::ensure!(
            portraits.is_dir(),
            "no portraits in {}: run `cargo xtask setup --all`",
            portraits.display()
        );
        let folder = tempfile::tempdir()?;
        let truth = event::write_event(folder.path(), &portraits, 6)?;
        let read = |kind: &str, file: &str| std::fs::read(folder.path().join(kind).join(file));
        let photos: Result<_, _> =
            truth.photos.iter().map(|photo| read(event::PHOTOS_FOLDER, &photo.file)).collect();
        let selfie = read(event::SELFIES_FOLDER, &truth.runners[0].selfie)?;
        Ok(Self { photos: photos?, selfie, bib: truth.runners[0].bib.clone() })
    }

    /// The photo of this number; photos repeat.
    pub fn photo(&self, number: usize) -> &[u8] {
        &self.photos[number % self.photos.len()]
    }

    /// The largest file, which takes longest to read.
    pub fn largest_photo(&self) -> &[u8] {
        self.photos.iter().max_by_key(|photo| photo.len()).map_or(&[], Vec::as_slice)
    }
}

/// A running service under attack.
pub struct Site {
    /// The service.
    pub service: Service,
    /// How it was started.
    pub options: ServiceOptions,
    /// Honest photos.
    pub material: Arc<Material>,
    /// How much to do.
    pub extent: Extent,
    seed: u64,
    /// The attack is repeated: each round has its own random numbers and its own organizations.
    round: AtomicU64,
}

impl Site {
    /// Starts a service. The same seed makes the same attacks.
    ///
    /// # Panics
    /// When it does not become ready.
    pub fn start(options: ServiceOptions, material: Arc<Material>, extent: Extent, seed: u64) -> Self {
        let service = Service::start(options.clone());
        Self { service, options, material, extent, seed, round: AtomicU64::new(0) }
    }

    /// Begins another round of the same attack.
    pub fn next_round(&self) {
        self.round.fetch_add(1, Ordering::SeqCst);
    }

    /// How often the attack was repeated before.
    pub fn round(&self) -> u64 {
        self.round.load(Ordering::SeqCst)
    }

    /// A generator of random numbers that depends on the seed, the round and what it is for.
    pub fn rng(&self, purpose: &str) -> StdRng {
        let purpose = format!("{purpose} {}", self.round());
        StdRng::seed_from_u64(self.seed ^ u64::from(crc32fast::hash(purpose.as_bytes())))
    }

    /// A partner of an organization of its own, with a test key of every scope.
    pub fn tenant(&self, organization: &str) -> Partner {
        self.service.partner_with(&self.create_key(organization, &ALL_SCOPES, "test"))
    }

    /// Creates a key of an organization of this round.
    pub fn create_key(&self, organization: &str, scopes: &[&str], mode: &str) -> String {
        self.service.create_key_for(&self.in_this_round(organization), scopes, mode)
    }

    /// Does something in several threads at once, each with its number and with random numbers of its own.
    pub fn in_threads(&self, purpose: &str, threads: usize, act: impl Fn(usize, StdRng) + Sync) {
        let mut rng = self.rng(purpose);
        let seeds: Vec<u64> = (0..threads).map(|_| rng.random_range(0..u64::MAX)).collect();
        std::thread::scope(|scope| {
            for (thread, seed) in seeds.into_iter().enumerate() {
                let act = &act;
                scope.spawn(move || act(thread, StdRng::seed_from_u64(seed)));
            }
        });
    }

    /// The name of an organization of this round.
    pub fn in_this_round(&self, name: &str) -> String {
        format!("{name} {}", self.round())
    }

    /// The service as an attacker with this number sees it. Honest clients call it from 127.0.0.1.
    pub fn endpoint(&self, attacker: u8) -> Endpoint {
        let service = SocketAddr::from((Ipv4Addr::LOCALHOST, self.service.port()));
        Endpoint { service, source: Ipv4Addr::new(127, 0, 1, attacker.max(1)) }
    }

    /// Calls an operation as an attacker; `key` may be empty.
    pub fn call(&self, path: &str, key: &str, input: &Value) -> Reaction {
        self.endpoint(1).send(&wire::call(path, key, input.to_string().as_bytes()), PATIENCE)
    }

    /// Sends a request to a path or presigned URL of the service as an attacker.
    pub fn request(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Reaction {
        self.endpoint(1).send(&wire::request(method, target, headers, body), PATIENCE)
    }

    /// A presigned URL of the service without its origin.
    pub fn target_of(&self, url: &str) -> String {
        url.strip_prefix(&self.service.origin()).unwrap_or(url).to_owned()
    }

    /// Creates a key of an organization of this round, with further arguments of the command line.
    ///
    /// # Panics
    /// When the command fails.
    pub fn create_labelled_key(&self, organization: &str, label: &str, more: &[&str]) -> String {
        let (organization, label) = (self.in_this_round(organization), self.in_this_round(label));
        let mut arguments = vec!["key", "create", "--organization", &organization, "--label", &label];
        for scope in ALL_SCOPES {
            arguments.extend(["--scope", scope]);
        }
        arguments.extend(["--mode", "test"]);
        arguments.extend(more);
        self.service.run(&arguments).expect_success().to_owned()
    }

    /// Revokes the key with this label.
    ///
    /// # Panics
    /// When there is none.
    pub fn revoke_key(&self, label: &str) {
        let listed = self.service.run(&["key", "list"]);
        let label = self.in_this_round(label);
        let line = listed.expect_success().lines().find(|line| line.ends_with(&label));
        let id = line.and_then(|line| line.split_whitespace().next()).expect("a key with this label");
        self.service.run(&["key", "revoke", id]).expect_success();
    }

    /// How often the service has panicked so far, by its log.
    pub fn panics(&self) -> usize {
        self.service.log().matches("panicked at").count()
    }
}
