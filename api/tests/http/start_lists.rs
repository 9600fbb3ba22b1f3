//! Start lists and formats of bibs: what is taken of a file, and what photos and searches say of it.

use std::task::Poll;

use photofinish_store::conformance::reading;
use photofinish_store::model::ids::ProcessId;
use photofinish_store::model::key::{KeyMode, Scope};
use photofinish_store::model::photo::{DetectedText, TextIndexState, UnindexedReason};
use photofinish_store::model::process::Task;
use serde_json::{Value, json};

use crate::support::{DEADLINE, Partner, TestService, bib, text};

fn import(partner: &Partner, mut body: Value, album: &Value) -> Value {
    body["albumId"] = album.clone();
    partner.call("/albums/startlist/import", &body).ok()
}

/// Judges as the service's task does.
fn judge(service: &TestService) {
    service.block_on(async {
        let holder = ProcessId::generate();
        let lease = service.store.tasks.take(Task::Judging, holder, DEADLINE).await.unwrap().unwrap();
        while service.store.judging.is_due().await.unwrap() {
            service.store.judging.judge(lease).await.unwrap();
        }
        service.store.tasks.release(lease).await.unwrap();
    });
}

#[test]
fn a_file_is_imported_and_rows_without_a_bib_are_refused() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let csv =
        "\u{feff}Startnummer;Name;Startblock\r\n1207;Ada Lovelace;B\r\nDNS;Bob;C\r\n1208;\"Cid; jr.\";C\r\n";
    let imported = import(&partner, json!({ "csv": csv }), &album);
    assert_eq!((&imported["entries"], &imported["added"]), (&json!(2), &json!(2)));
    let refused = json!([{ "line": 3, "code": "not_a_bib", "message": "'DNS' is no bib" }]);
    assert_eq!((&imported["refused"], &imported["refusedCount"]), (&refused, &json!(1)));
    let page = partner.call("/albums/startlist/entries", &json!({ "albumId": album, "limit": 1 })).ok();
    let entry = json!({ "bib": "1207", "wave": "B", "team": null, "startAt": null });
    assert_eq!((&page["entries"], &page["total"]), (&json!([entry]), &json!(2)));
    let next = json!({ "albumId": album, "cursor": page["nextCursor"] });
    let page = partner.call("/albums/startlist/entries", &next).ok();
    assert_eq!((&page["entries"][0]["bib"], &page["nextCursor"]), (&json!("1208"), &Value::Null));
    let list = partner.call("/albums/startlist/get", &json!({ "albumId": album })).ok();
    let waves = json!([{ "wave": "B", "entries": 1 }, { "wave": "C", "entries": 1 }]);
    assert_eq!((&list["entries"], &list["waves"], &list["version"]), (&json!(2), &waves, &json!(1)));
    // Names are nowhere.
    for path in ["/albums/startlist/get", "/albums/startlist/entries", "/albums/get"] {
        let answer = partner.call(path, &json!({ "albumId": album })).ok().to_string();
        assert!(!answer.contains("Ada") && !answer.contains("Cid"), "{answer}");
    }
    assert_eq!(imported["warnings"], json!([]));
    let odd = json!({ "entries": [{ "bib": "ELITE1" }] });
    let (odd_album, _) = partner.create_album();
    let warnings = import(&partner, odd, &odd_album)["warnings"].clone();
    assert_eq!(warnings[0]["code"], json!("pattern_matches_no_entry"), "{warnings}");
    let more = json!({ "mode": "merge", "ranges": [{ "from": "1300", "to": "1399" }], "exclude": ["1313"] });
    let merged = import(&partner, more, &album);
    assert_eq!(
        (&merged["entries"], &merged["added"], &merged["version"]),
        (&json!(101), &json!(99), &json!(2))
    );
}

#[test]
fn a_list_that_says_nothing_or_too_much_is_refused() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let call = |mut body: Value| {
        body["albumId"] = album.clone();
        partner.call("/albums/startlist/import", &body)
    };
    assert_eq!(call(json!({})).issues().len(), 1);
    let both = partner.call("/albums/startlist/import", &json!({ "albumId": "x" })).issues();
    assert_eq!([&both[0].0, &both[1].0], [r#"["albumId"]"#, "[]"], "another issue hides none");
    assert_eq!(call(json!({ "csv": 7 })).issues(), [(r#"["csv"]"#.to_owned(), "invalid_type".to_owned())]);
    assert_eq!(call(json!({ "csv": "Name\nAda" })).issues().len(), 1);
    assert_eq!(call(json!({ "csv": "bib\n1", "entries": [] })).issues().len(), 1);
    let nothing = (r#"["csv"]"#.to_owned(), "invalid_value".to_owned());
    assert_eq!(call(json!({ "csv": "Bib\nDNS" })).issues(), [nothing], "no row is taken");
    assert_eq!(call(json!({ "csv": "Bib\nDNS", "mode": "merge" })).ok()["refusedCount"], json!(1));
    // "Wave;Bib" and so on in UTF-16, read as UTF-8.
    let wide: String = "Wave;Bib\nA;12".chars().flat_map(|character| [character, '\0']).collect();
    let issue = (r#"["csv"]"#.to_owned(), "invalid_format".to_owned());
    assert_eq!(call(json!({ "csv": wide })).issues(), [issue]);
    assert_eq!(call(json!({ "ranges": [{ "from": "9", "to": "1" }] })).issues().len(), 1);
    let huge = call(json!({ "ranges": [{ "from": "1", "to": "100001" }] }));
    let declined = huge.defined_error(422, "UNPROCESSABLE_CONTENT");
    assert_eq!(declined["data"], json!({ "declineCode": "START_LIST_TOO_LARGE" }));
    assert_eq!(call(json!({ "ranges": [{ "from": "1", "to": "100000" }] })).ok()["entries"], json!(100_000));
    let excluding = json!({ "mode": "merge", "exclude": ["100001"] });
    assert_eq!(call(excluding).ok()["entries"], json!(100_000), "a number that nobody wears is no bib");
    let list = json!({ "albumId": album, "mode": "merge", "entries": [{ "bib": "X1" }] });
    partner.call("/albums/startlist/import", &list).defined_error(422, "UNPROCESSABLE_CONTENT");
    let rows: String = (1..=60_000).map(|bib| format!("{bib}\n")).collect();
    let twice = json!({ "csv": format!("bib\n{rows}"), "ranges": [{ "from": "1", "to": "50000" }] });
    assert_eq!(call(twice).ok()["entries"], json!(60_000), "a bib of the file and of a range is one");
}

#[test]
fn photos_and_hits_say_what_the_list_says() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photo = |number| json!(service.ready_photo(&partner, album_id, vec![], vec![bib(number)]));
    let (listed, stranger) = (photo("1207"), photo("4711"));
    let search = |text: &str| {
        let found = partner.call("/photos/search/text/list", &json!({ "albumId": album, "text": text })).ok();
        found["photos"].as_array().unwrap().clone()
    };
    assert_eq!(search("1207")[0]["onStartList"], Value::Null);
    let body = json!({ "entries": [{ "bib": "1207", "wave": "B", "team": "SC Lake" }] });
    let mut check = body.clone();
    check["albumId"] = album.clone();
    let checked = partner.call("/albums/startlist/check", &check).ok();
    assert_eq!(
        (&checked["indexedNow"], &checked["indexedThen"], &checked["changed"]),
        (&json!(2), &json!(1), &json!(1))
    );
    assert_eq!(checked["examples"][0]["photoId"], stranger);
    assert_eq!(import(&partner, body, &album)["judging"]["photos"], json!(2));
    let list = partner.call("/albums/startlist/get", &json!({ "albumId": album })).ok();
    assert_eq!(
        (&list["judged"], &list["withoutLattice"]),
        (&json!(0), &json!(2)),
        "texts of tests have none"
    );
    let left = || partner.call("/albums/startlist/get", &json!({ "albumId": album })).ok()["left"].clone();
    assert_eq!(left(), json!(2));
    judge(&service);
    assert_eq!(left(), json!(0));
    let hit = &search("1207")[0];
    assert_eq!(
        (&hit["id"], &hit["onStartList"], &hit["wave"], &hit["team"]),
        (&listed, &json!(true), &json!("B"), &json!("SC Lake"))
    );
    let hit = &search("4711")[0];
    assert_eq!((&hit["id"], &hit["onStartList"], &hit["wave"]), (&stranger, &json!(false), &Value::Null));
    assert!(search("4712").is_empty(), "what is on no list is no other runner's");
    let get = |photo: &Value| {
        partner.call("/photos/photo/get", &json!({ "albumId": album, "photoId": photo })).ok()["texts"][0]
            .clone()
    };
    assert_eq!((&get(&listed)["onStartList"], &get(&listed)["wave"]), (&json!(true), &json!("B")));
    let text = get(&stranger);
    assert_eq!(text["wave"], Value::Null);
    assert_eq!(
        (&text["indexed"], &text["reason"], &text["readAs"], &text["onStartList"]),
        (&json!(false), &json!("NOT_ON_START_LIST"), &Value::Null, &json!(false))
    );
    let off = json!({ "albumId": album, "config": { "startList": { "enabled": false } } });
    let updated = partner.call("/albums/update", &off).ok();
    assert_eq!(updated["config"]["startList"], json!({ "enabled": false, "offListShare": 0.05 }));
    assert_eq!(updated["reprocessingNeeded"], json!(false), "photos are judged again, not read");
    judge(&service);
    assert_eq!(get(&stranger)["indexed"], json!(true));
    assert_eq!(search("4711")[0]["onStartList"], Value::Null);
    partner.call("/albums/startlist/delete", &json!({ "albumId": album })).ok();
    let list = partner.call("/albums/startlist/get", &json!({ "albumId": album })).ok();
    assert_eq!((&list["version"], &list["importedAt"]), (&json!(0), &Value::Null));
}

#[test]
fn a_text_shows_what_else_it_may_be_by_the_list() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let unsure = || reading("7207", '1', 0.85);
    let small = DetectedText { max_confidence: 0.89, ..unsure() };
    let photo = json!(service.ready_photo(&partner, album_id, vec![], vec![unsure()]));
    let of_small = json!(service.ready_photo(&partner, album_id, vec![], vec![small]));
    let get = |photo: &Value| {
        partner.call("/photos/photo/get", &json!({ "albumId": album, "photoId": photo })).ok()["texts"][0]
            .clone()
    };
    assert_eq!(get(&photo)["alternatives"], json!([]), "nothing is known of the event");
    import(&partner, json!({ "entries": [{ "bib": "1207" }, { "bib": "33" }] }), &album);
    judge(&service);
    let text = get(&photo);
    assert_eq!(
        (&text["text"], &text["readAs"], &text["indexed"]),
        (&json!("1207"), &json!("7207"), &json!(true))
    );
    let alternatives = text["alternatives"].as_array().unwrap();
    let texts: Vec<&Value> = alternatives.iter().map(|alternative| &alternative["text"]).collect();
    assert_eq!(texts[0], &json!("1207"));
    assert_eq!(alternatives[0]["confidence"], text["confidence"]);
    let sum: f64 = alternatives.iter().map(|alternative| alternative["confidence"].as_f64().unwrap()).sum();
    assert!((99.0..100.5).contains(&sum), "{text}");
    let text = get(&of_small);
    assert_eq!(
        (&text["text"], &text["indexed"], &text["reason"], &text["confidence"]),
        (&json!("1207"), &json!(false), &json!("LOW_CONFIDENCE"), &json!(89.0)),
        "characters that are too small are no answer, whatever the list says"
    );
    let list = partner.call("/albums/startlist/get", &json!({ "albumId": album })).ok();
    assert_eq!((&list["judged"], &list["withoutLattice"]), (&json!(2), &json!(0)));
}

/// The process has the rules of the album in memory, with the pattern of before.
#[test]
fn a_narrower_pattern_judges_like_one_that_the_album_had_from_the_start() {
    let service = TestService::start();
    let partner = service.partner();
    let config = json!({ "bibPattern": "^[A-Z][0-9]{3}$" });
    // Of a text that matches the pattern the reader knew that it is no bib. What does not match may be one of the list.
    let add = |album| {
        let texts = vec![text("1207", 0.97, TextIndexState::Unindexed(UnindexedReason::NotABib))];
        json!(service.ready_photo(&partner, album, vec![], texts))
    };
    let texts = |album: &Value, photo: &Value| {
        partner.call("/photos/photo/get", &json!({ "albumId": album, "photoId": photo })).ok()["texts"]
            .clone()
    };
    let list = || json!({ "entries": [{ "bib": "1207" }, { "bib": "33" }] });
    let (album, album_id) = partner.create_album();
    import(&partner, list(), &album);
    let before = add(album_id);
    judge(&service);
    assert_eq!(texts(&album, &before)[0]["reason"], json!("NOT_A_BIB"));
    partner.call("/albums/update", &json!({ "albumId": album, "config": config })).ok();
    let after = add(album_id);
    judge(&service);

    let (fresh, fresh_id) = partner.create_album_with(json!({ "title": "Fresh", "config": config }));
    import(&partner, list(), &fresh);
    let photo = add(fresh_id);
    judge(&service);
    let expected = texts(&fresh, &photo);
    assert_eq!((&expected[0]["text"], &expected[0]["indexed"]), (&json!("1207"), &json!(true)));
    assert_eq!(texts(&album, &before), expected, "read before the change");
    assert_eq!(texts(&album, &after), expected, "read after it");
}

#[test]
fn an_album_shows_the_format_of_its_bibs_and_parts_of_bibs_are_no_answers() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let part = json!(service.ready_photo(&partner, album_id, vec![], vec![bib("203")]));
    for four in 0..20 {
        let bibs = (0..4).map(|at| bib(&(2001 + 7 * (4 * four + at)).to_string())).collect();
        service.ready_photo(&partner, album_id, vec![], bibs);
    }
    judge(&service);
    let shown = partner.call("/albums/get", &json!({ "albumId": album })).ok();
    assert_eq!(shown["bibFormat"], json!({ "learned": "9999", "share": 0.988, "readings": 81 }));
    let text = || {
        partner.call("/photos/photo/get", &json!({ "albumId": album, "photoId": part })).ok()["texts"][0]
            .clone()
    };
    assert_eq!((&text()["indexed"], &text()["reason"]), (&json!(false), &json!("PARTIAL")));
    let search = |text: &str, exact: bool| {
        let body = json!({ "albumId": album, "text": text, "exact": exact });
        let found = partner.call("/photos/search/text/list", &body).ok();
        found["photos"].as_array().unwrap().iter().any(|hit| hit["id"] == part)
    };
    assert!(!search("203", true) && search("1203", false));
    let configure = |format: &str| {
        let body = json!({ "albumId": album, "config": { "bibFormat": format } });
        partner.call("/albums/update", &body)
    };
    let updated = configure("off").ok();
    assert_eq!(
        (&updated["config"]["bibFormat"], &updated["reprocessingNeeded"]),
        (&json!("off"), &json!(false))
    );
    judge(&service);
    assert!(search("203", true));
    assert_eq!(configure("9999|999").ok()["config"]["bibFormat"], json!("9999|999"));
    for refused in ["", "[0-9]+", "999|", "Auto"] {
        assert_eq!(configure(refused).issues().len(), 1, "{refused}");
    }
}

#[test]
fn lists_of_an_organization_wait_for_each_other_in_bounds_and_those_of_others_do_not() {
    let service = TestService::start();
    let partner = service.partner();
    let other = service.partner_with("River Timing", KeyMode::Live, &Scope::ALL);
    let [album, of_other] = [&partner, &other].map(|owner| owner.create_album().0);
    let list = |album: &Value| json!({ "albumId": album, "ranges": [{ "from": "1", "to": "9" }] });
    let organization = service.block_on(partner.organization_id(&service));
    let places = &service.context.list_places;
    let place = service.block_on(places.take_place(organization)).unwrap();
    let mut waiting = Vec::new();
    loop {
        let mut next = Box::pin(places.take_place(organization));
        let polled = service.block_on(async { futures_util::poll!(&mut next) });
        match polled {
            Poll::Pending => waiting.push(next),
            Poll::Ready(answer) => {
                drop(answer.unwrap_err());
                break;
            }
        }
    }
    for operation in ["import", "check"] {
        let refused = partner.call(&format!("/albums/startlist/{operation}"), &list(&album));
        let refused = refused.defined_error(429, "TOO_MANY_REQUESTS");
        assert!(refused["data"]["tryAgainIn"].as_f64().unwrap() > 0.0);
    }
    other.call("/albums/startlist/import", &list(&of_other)).ok();
    drop(waiting);
    drop(place);
    partner.call("/albums/startlist/import", &list(&album)).ok();
}
