//! Start lists of a whole service: photos are judged again without being read again, whatever dies in between.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{Partner, Service, ServiceOptions, wait_until};
use serde_json::{Value, json};
use sqlx::{Connection, SqliteConnection};

/// What the photos show: a bib of the list, one with a letter that looks like its digit, and one of nobody.
const BIBS: [&str; 4] = ["1207", "I208", "4711", "1209"];
const PHOTOS: usize = 24;
const LIST: &str = "Startnummer;Startblock\n1207;A\n1208;B\n1209;B\n2501;C\n2502;C\n";

fn upload_event(partner: &Partner, album: &str) -> Vec<String> {
    let photo =
        |number: usize| TestPhoto::new(800, 600).with_bib(BIBS[number % BIBS.len()], [200, 300]).to_jpeg();
    (0..PHOTOS).map(|number| partner.upload_photo(album, &format!("{number}.jpg"), &photo(number))).collect()
}

fn import(partner: &Partner, album: &str) -> Value {
    partner.call_ok("/albums/startlist/import", &json!({ "albumId": album, "csv": LIST }))
}

/// The texts of each photo, without the ids that differ between two albums.
fn texts(partner: &Partner, album: &str, photos: &[String]) -> Vec<Value> {
    photos.iter().map(|photo| partner.get_photo(album, photo)["texts"].clone()).collect()
}

/// The stages that have done something since the service was started, each with its number of photos.
fn stages(partner: &Partner) -> BTreeSet<String> {
    let page = partner.get("/metrics").text();
    let lines = page.lines().filter_map(|line| line.strip_prefix("photofinish_stage_photos_total"));
    lines.filter(|line| !line.ends_with(" 0")).map(str::to_owned).collect()
}

/// How many photos of an album are still to be judged, by the database of a service that has ended.
fn count_unjudged(folder: &Path, album: &str) -> i64 {
    const ROWS: &str = "select count(*) from photo join album on photo.album = album.id \
        where hex(album.id) = upper($1) and photo.state = 'ready' and photo.list_version < album.list_version";
    let url = format!("sqlite:{}", folder.join("photofinish.sqlite").display());
    let read = async {
        let mut connection = SqliteConnection::connect(&url).await?;
        let album = album.replace('-', "");
        let row = sqlx::query_as::<_, (i64,)>(ROWS).bind(album).fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok::<_, sqlx::Error>(row)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (unjudged,) = runtime.block_on(read).expect("the rows of the database");
    unjudged
}

/// Imports the list and kills the service before it has judged all photos by it.
fn import_and_kill(service: &Service, album: &str) {
    let partner = service.partner();
    for _ in 0..5 {
        let before = stages(&partner);
        let imported = import(&partner, album);
        assert_eq!((&imported["entries"], &imported["judging"]["photos"]), (&json!(5), &json!(PHOTOS)));
        assert_eq!(stages(&partner), before, "photos were read again");
        service.kill();
        if count_unjudged(&service.data_dir(), album) > 0 {
            return;
        }
        // It looks for photos once a second, and did so just then: after the import of another list all are to be judged again.
        service.restart();
        service.partner().call_ok("/albums/startlist/delete", &json!({ "albumId": album }));
    }
    panic!("the service has judged all photos before it was killed, five times");
}

#[test]
fn an_interrupted_judging_ends_like_an_album_that_had_its_list_from_the_start() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let before = partner.create_album("List first");
    import(&partner, &before);
    let first = upload_event(&partner, &before);
    let after = partner.create_album("List later");
    let later = upload_event(&partner, &after);
    partner.wait_until_idle(&before);
    partner.wait_until_idle(&after);
    // Of the last stage the number rises when a photo is ready already.
    let read = ["read", "index"].map(|stage| format!("{{stage=\"{stage}\"}} {}", 2 * PHOTOS));
    wait_until("the stages have counted each photo", || {
        let stages = stages(&partner);
        read.iter().all(|stage| stages.contains(stage))
    });
    import_and_kill(&service, &after);
    for wait in [900, 1100] {
        service.restart();
        std::thread::sleep(Duration::from_millis(wait));
        assert_eq!(stages(&service.partner()), BTreeSet::new(), "photos were read again");
        service.kill();
    }
    service.restart();
    let partner = service.partner();
    wait_until("every photo is judged", || {
        let list = partner.call_ok("/albums/startlist/get", &json!({ "albumId": after }));
        list["left"] == 0 && list["judged"] == PHOTOS
    });
    assert_eq!(texts(&partner, &after, &later), texts(&partner, &before, &first));
    assert_eq!(stages(&partner), BTreeSet::new(), "photos were read again");
    let of = |bib: &str| partner.search_by_bib_exact(&after, bib).len();
    assert_eq!((of("1207"), of("1208"), of("I208"), of("4711")), (PHOTOS / 4, PHOTOS / 4, 0, 0));
    let text = &texts(&partner, &after, &later)[1][0];
    assert_eq!(
        (&text["text"], &text["readAs"], &text["onStartList"]),
        (&json!("1208"), &json!("I208"), &json!(true))
    );
    assert_eq!(partner.search_by_bib(&after, "4711").len(), PHOTOS / 4, "late registrations are found");
}

#[test]
fn an_album_that_is_processed_again_keeps_its_start_list() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Processed twice");
    import(&partner, &album);
    let photos = upload_event(&partner, &album);
    partner.wait_until_idle(&album);
    let on_album = json!({ "albumId": album });
    let list = || partner.call_ok("/albums/startlist/get", &on_album);
    let look = || {
        wait_until("every photo is judged", || list()["left"] == 0);
        let entries = partner.call_ok("/albums/startlist/entries", &on_album);
        (list(), entries, texts(&partner, &album, &photos))
    };
    let before = look();
    assert_eq!((&before.0["entries"], &before.0["judged"]), (&json!(5), &json!(PHOTOS)));
    assert_eq!(before.2[1][0]["text"], "1208", "judged by the list");
    let queued = partner.call_ok("/albums/reprocess", &on_album)["queued"].clone();
    assert_eq!(queued, PHOTOS);
    partner.wait_until_idle(&album);
    assert_eq!(look(), before, "the version of the list, its entries, and what it says of each photo");
    assert_eq!(partner.search_by_bib_exact(&album, "1208").len(), PHOTOS / 4);
}
