//! Erasures in a whole service: nothing comes back, and a service that is killed in the middle leaves a true receipt or none.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use photofinish_kernels::quantised::BLOCK_ROWS;
use photofinish_models::fakes::person_vector;
use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{NpmProgram, Partner, Service, ServiceOptions, run_command, wait_until};
use serde_json::{Value, json};

use crate::end_to_end::finish_photo;

/// The longest stop.
const STOP: Duration = Duration::from_secs(60);

/// Asks for what would be erased, then erases it; returns the receipt.
pub(crate) fn erase(partner: &Partner, path: &str, mut request: Value) -> Value {
    request["dryRun"] = json!(true);
    let shown = partner.call_ok(path, &request);
    request["dryRun"] = json!(false);
    request["confirm"] = shown["confirm"].clone();
    partner.call_ok(path, &request)
}

fn selfie() -> Vec<u8> {
    TestPhoto::selfie(1).to_jpeg()
}

#[test]
fn an_erased_face_stays_away_when_its_photos_are_processed_again() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Erased");
    let photo = partner.upload_photo(&album, "a.jpg", &finish_photo().to_jpeg());
    partner.wait_until_idle(&album);
    assert_eq!(partner.search_by_selfie(&album, &selfie()).len(), 1);
    let image = partner.upload_selfie(&album, &selfie());
    let receipt = erase(&partner, "/faces/erase", json!({ "albumId": album, "imageId": image }));
    assert_eq!((&receipt["state"], &receipt["removed"]["vectors"]), (&json!("done"), &json!(1)), "{receipt}");
    assert_eq!(partner.search_by_selfie(&album, &selfie()), Vec::<Value>::new());

    partner.call_ok("/albums/reprocess", &json!({ "albumId": album }));
    partner.wait_until_idle(&album);
    assert_eq!(partner.search_by_selfie(&album, &selfie()), Vec::<Value>::new());
    let faces = partner.get_photo(&album, &photo)["faces"].clone();
    assert!(faces.as_array().unwrap().iter().any(|face| face["reason"] == "ERASED"), "{faces}");
    assert_eq!(partner.search_by_bib(&album, "1204").len(), 1, "the bib was not asked for");
    let receipt = erase(&partner, "/people/erase", json!({ "albumId": album, "bib": "1204" }));
    assert_eq!((&receipt["state"], &receipt["removed"]["texts"]), (&json!("done"), &json!(1)), "{receipt}");
    partner.call_ok("/albums/reprocess", &json!({ "albumId": album }));
    partner.wait_until_idle(&album);
    assert_eq!(partner.search_by_bib(&album, "1204"), Vec::<Value>::new());
}

/// How much memory is read at once.
const MEMORY_CHUNK: usize = 1 << 20;
/// Codes of a vector that are side by side in the face index.
const CODES_TOGETHER: usize = 4;
/// What the face index keeps for a component of 0.
const CODE_OF_ZERO: u8 = 128;

/// What a vector looks like in memory: pieces, each so many bytes after the beginning of the one before.
struct Trace {
    pieces: Vec<Vec<u8>>,
    distance: usize,
}

impl Trace {
    /// A vector as numbers; as codes of 8 bits, in the face index; and as codes alone, as they are before they get there. Of each
    /// the first 16 bytes.
    fn all_of(vector: &[f32]) -> [Self; 3] {
        let numbers: Vec<u8> = vector.iter().take(4).flat_map(|value| value.to_le_bytes()).collect();
        let largest = vector.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        let code = |value: &f32| ((value * (127.0 / largest)).round_ties_even() as i8).cast_unsigned();
        let codes: Vec<u8> = vector.iter().take(16).map(code).collect();
        let kept: Vec<u8> = codes.iter().map(|code| code.wrapping_add(CODE_OF_ZERO)).collect();
        // Those of all faces of a block take turns.
        let in_index = kept.chunks(CODES_TOGETHER).map(<[u8]>::to_vec).collect();
        [
            Self { pieces: vec![numbers], distance: 0 },
            Self { pieces: in_index, distance: CODES_TOGETHER * BLOCK_ROWS },
            Self { pieces: vec![codes], distance: 0 },
        ]
    }

    fn bytes(&self) -> usize {
        let last = self.pieces.len() - 1;
        last * self.distance + self.pieces[last].len()
    }

    /// Counts where it begins in the first [`MEMORY_CHUNK`] of these bytes.
    fn count(&self, bytes: &[u8]) -> usize {
        let is_whole = |at: &usize| {
            let places = (*at..).step_by(self.distance.max(1));
            let mut pieces = self.pieces.iter().zip(places);
            pieces.all(|(piece, at)| bytes.get(at..).is_some_and(|rest| rest.starts_with(piece)))
        };
        let begins = memchr::memmem::find_iter(bytes, &self.pieces[0]);
        begins.take_while(|at| *at < MEMORY_CHUNK).filter(is_whole).count()
    }
}

/// Counts each of these in the memory that a process can write.
fn count_in_memory<const N: usize>(process: u32, traces: &[Trace; N]) -> [usize; N] {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).expect("a process");
    let memory = std::fs::File::open(format!("/proc/{process}/mem")).expect("its memory");
    let longest = traces.iter().map(Trace::bytes).max().expect("something to look for");
    // What begins at the end of one chunk ends in the next.
    let mut bytes = vec![0; MEMORY_CHUNK + longest - 1];
    let mut counts = [0; N];
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (range, _) = line.split_once(' ').expect("a range and what it is");
        let parse = |text| u64::from_str_radix(text, 16).expect("an address");
        let (from, to) = range.split_once('-').map(|(from, to)| (parse(from), parse(to))).expect("a range");
        for at in (from..to).step_by(MEMORY_CHUNK) {
            let wanted = usize::try_from(to - at).expect("fits").min(bytes.len());
            // What was given back since the list was read.
            let Ok(read) = memory.read_at(&mut bytes[..wanted], at) else { continue };
            for (count, trace) in counts.iter_mut().zip(traces) {
                *count += trace.count(&bytes[..read]);
            }
        }
    }
    counts
}

/// Freed memory keeps what was in it until it is used again, so each look is at a process that has just started.
#[test]
fn the_memory_of_a_process_has_no_erased_vector() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Erased");
    partner.upload_photo(&album, "a.jpg", &finish_photo().to_jpeg());
    partner.wait_until_idle(&album);
    let traces = Trace::all_of(&person_vector(1));
    let count = || count_in_memory(service.process_id(), &traces);
    let count_after_restart = || {
        service.terminate(STOP);
        service.restart();
        // Loads the face index of the album without the person's own selfie.
        partner.search_by_selfie(&album, &TestPhoto::selfie(900).to_jpeg());
        count()
    };
    let [numbers, in_index, _] = count_after_restart();
    assert!(numbers > 0 && in_index > 0, "the index has it: {numbers} and {in_index}");
    let image = partner.upload_selfie(&album, &selfie());
    let receipt = erase(&partner, "/faces/erase", json!({ "albumId": album, "imageId": image }));
    assert_eq!(receipt["state"], "done", "{receipt}");
    assert_eq!(count_after_restart(), [0; 3], "read from the files");
    partner.call_ok("/albums/reprocess", &json!({ "albumId": album }));
    partner.wait_until_idle(&album);
    partner.search_by_selfie(&album, &TestPhoto::selfie(900).to_jpeg());
    assert_eq!(count(), [0; 3], "computed again");
}

/// What is erased while the service is killed.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Bib,
    Face,
    Photo,
    Album,
}

impl Asked {
    /// Returns the request, confirmed where that is needed.
    fn prepare(self, partner: &Partner, album: &str, photo: &str) -> (&'static str, Value) {
        let (path, mut request) = match self {
            Self::Bib => ("/people/erase", json!({ "albumId": album, "bib": "1204" })),
            Self::Face => {
                let image = partner.upload_selfie(album, &selfie());
                ("/faces/erase", json!({ "albumId": album, "imageId": image }))
            }
            Self::Photo => return ("/photos/photo/delete", json!({ "albumId": album, "photoId": photo })),
            Self::Album => return ("/albums/delete", json!({ "albumId": album })),
        };
        (request["photos"], request["dryRun"]) = (json!("delete"), json!(true));
        let shown = partner.call_ok(path, &request);
        (request["dryRun"], request["confirm"]) = (json!(false), shown["confirm"].clone());
        (path, request)
    }

    /// Returns whether a search still finds it.
    fn is_found(self, partner: &Partner, album: &str) -> bool {
        match self {
            Self::Album => partner.call("/albums/get", &json!({ "albumId": album })).status == 200,
            Self::Face => !partner.search_by_selfie(album, &selfie()).is_empty(),
            Self::Bib | Self::Photo => !partner.search_by_bib(album, "1204").is_empty(),
        }
    }
}

#[test]
fn a_service_that_is_killed_while_it_erases_leaves_a_true_receipt_or_none() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let (mut erased, mut not_erased) = (0, 0);
    let kills = [
        (Asked::Bib, [0, 4, 11, 60]),
        (Asked::Face, [2, 7, 16, 60]),
        (Asked::Photo, [0, 2, 4, 11]),
        (Asked::Album, [2, 7, 16, 25]),
    ];
    let moments =
        |(asked, delays): (Asked, [u64; 4])| delays.map(|delay| (asked, Duration::from_millis(delay)));
    for (asked, delay) in kills.into_iter().flat_map(moments) {
        let album = partner.create_album("Killed");
        let photo = partner.upload_photo(&album, "a.jpg", &finish_photo().to_jpeg());
        partner.wait_until_idle(&album);
        let (path, request) = asked.prepare(&partner, &album, &photo);
        std::thread::scope(|scope| {
            let answer = scope.spawn(|| partner.call(path, &request));
            std::thread::sleep(delay);
            service.kill();
            // Fails if there was no response any more.
            drop(answer.join());
        });
        service.restart();
        let erasures = || partner.call_ok("/erasures/list", &json!({ "albumId": album }))["erasures"].clone();
        if erasures().as_array().unwrap().is_empty() {
            assert!(asked.is_found(&partner, &album), "nothing was erased: {asked:?}");
            not_erased += 1;
            continue;
        }
        assert!(!asked.is_found(&partner, &album), "at once: {asked:?}");
        wait_until("the erasure is done", || erasures()[0]["state"] == "done");
        let receipt = erasures()[0].clone();
        let checked = partner.call_ok("/erasures/verify", &json!({ "receiptId": receipt["receiptId"] }));
        assert_eq!(checked["left"], 0, "{asked:?}: {checked}");
        erased += 1;
    }
    eprintln!("killed {erased} times after and {not_erased} times before the erasure was committed");
    assert!(erased > 0, "an erasure that was committed is finished");
}

#[test]
fn an_api_waits_for_the_face_index_of_another() {
    let options = ServiceOptions::with_fake_models();
    let api = Service::start(options.clone().with_role("serve"));
    let _worker = api.start_beside(options.clone().with_role("work"));
    let other = api.start_beside(options.with_role("serve"));
    let (partner, beside) = (api.partner(), other.partner());
    let album = partner.create_album("Two processes");
    partner.upload_photo(&album, "a.jpg", &finish_photo().to_jpeg());
    partner.wait_until_idle(&album);
    let found = |partner: &Partner| partner.search_by_selfie(&album, &selfie()).len();
    assert_eq!((found(&partner), found(&beside)), (1, 1));
    let image = partner.upload_selfie(&album, &selfie());
    let receipt = erase(&partner, "/faces/erase", json!({ "albumId": album, "imageId": image }));
    assert_eq!(receipt["state"], "done", "{receipt}");
    let stores = receipt["scan"]["stores"].as_array().unwrap();
    let indexes = stores.iter().find(|store| store["store"] == "face indexes").unwrap();
    // The index of the process that answers, and those that two processes report, of which it is one.
    assert_eq!(indexes["looked"], 3, "{receipt}");
    assert_eq!((found(&partner), found(&beside)), (0, 0));
}

#[test]
fn an_album_for_bibs_alone_has_no_vector_and_takes_no_selfie() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let settings = json!({ "title": "Bibs", "config": { "face": { "enabled": false } } });
    let album = partner.create_album_with(&settings);
    let photo = partner.upload_photo(&album, "a.jpg", &finish_photo().to_jpeg());
    partner.wait_until_idle(&album);
    assert_eq!(partner.search_by_bib(&album, "1204").len(), 1);
    assert_eq!(partner.get_photo(&album, &photo)["faces"], json!([]));
    let refused =
        partner.call("/photos/search/face/signed", &json!({ "albumId": album })).expect_defined_error(422);
    assert_eq!(refused["declineCode"], "FACE_SEARCH_DISABLED");
    let page = partner.get(&format!("{}/metrics", service.origin())).text();
    for line in ["{album_kind=\"bibs_only\"} 0", "{album_kind=\"faces\"} 0"] {
        let line = format!("photofinish_faces_embedded_total{line}");
        assert!(page.lines().any(|shown| shown == line), "no {line} in {page}");
    }
}

#[test]
fn receipts_are_verified_by_a_library_of_others() {
    const TEST: &str = "receipts_are_verified_by_a_library_of_others";
    let Some(program) = NpmProgram::prepare(TEST, "jose", &["receipts.mjs"]) else { return };
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Receipts");
    let photo = TestPhoto::new(200, 150).to_jpeg();
    let photos: Vec<String> =
        (0..100).map(|number| partner.upload_photo(&album, &format!("{number}.jpg"), &photo)).collect();
    partner.wait_until_idle(&album);
    let erase = |photo: &String| {
        let request = json!({ "albumId": album, "photoId": photo });
        partner.call_ok("/photos/photo/delete", &request)["receipt"].clone()
    };
    let erasures: Vec<Value> = photos.iter().map(erase).collect();
    let get =
        |erasure: &Value| partner.call_ok("/erasures/get", &json!({ "receiptId": erasure["receiptId"] }));
    // A deletion does not wait for its receipt.
    wait_until("all receipts are signed", || erasures.iter().all(|erasure| get(erasure)["state"] == "done"));
    let receipts: Vec<Value> = erasures.iter().map(get).collect();
    let keys = partner.get(&format!("{}/.well-known/photofinish-keys.json", service.origin())).text();
    let write = |name: &str, text: &str| {
        let path = program.folder().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let output = run_command(
        program
            .command()
            .env("RECEIPTS", write("receipts.json", &json!(receipts).to_string()))
            .env("KEYS", write("keys.json", &keys)),
    );
    assert!(output.expect_success().contains("verified 100 receipts"));
}
