//! Watermarks and downloads by a running service: photos that are processed get the mark, photos that were get it later, and
//! what is downloaded is a file that other programs open.

use std::io::Write;
use std::process::{Command, Stdio};

use image::{ImageFormat, Rgba, RgbaImage};
use photofinish_tests::harness::test_photo::{TestPhoto, decode_jpeg};
use photofinish_tests::harness::{
    Partner, ServiceOptions, SharedService, expect_string, skip_or_fail, wait_until,
};
use serde_json::{Value, json};

static GROUP: SharedService = SharedService::new();

/// A watermark of one colour, which covers all that is below it.
fn png(colour: [u8; 3]) -> Vec<u8> {
    let [red, green, blue] = colour;
    let mut file = std::io::Cursor::new(Vec::new());
    let picture = RgbaImage::from_pixel(80, 40, Rgba([red, green, blue, 255]));
    picture.write_to(&mut file, ImageFormat::Png).expect("a PNG is encoded");
    file.into_inner()
}

fn set_watermark(partner: &Partner, album: &str, colour: [u8; 3]) {
    let ticket = partner.call_ok("/albums/watermark/signed", &json!({ "albumId": album }));
    let uploaded = partner.put(&expect_string(&ticket["uploadUrl"]), "image/png", &png(colour));
    assert_eq!(uploaded.status, 200, "{}", uploaded.text());
    let watermark = json!({ "imageId": ticket["imageId"], "position": "center", "opacity": 1, "scale": 0.5 });
    partner.call_ok("/albums/watermark/set", &json!({ "albumId": album, "watermark": watermark }));
}

/// Waits until all photos show the watermark.
fn wait_until_marked(partner: &Partner, album: &str, photos: u64) -> Value {
    let get = || partner.call_ok("/albums/watermark/get", &json!({ "albumId": album }));
    wait_until("all photos are marked", || {
        let marks = get();
        marks["photosLeft"] == 0 && marks["photosMarked"] == photos
    });
    get()
}

/// The colour in the middle of the picture at a URL.
fn middle(partner: &Partner, url: &Value) -> [u8; 3] {
    let picture = decode_jpeg(&partner.get(&expect_string(url)).body);
    picture.get_pixel(picture.width() / 2, picture.height() / 2).0
}

fn is_near(colour: [u8; 3], expected: [u8; 3]) -> bool {
    colour.iter().zip(expected).all(|(a, b)| a.abs_diff(b) < 24)
}

#[test]
fn photos_before_and_after_a_watermark_show_it_and_a_new_one_replaces_it() {
    let service = GROUP.get_or_start(ServiceOptions::with_fake_models);
    let partner = service.partner();
    let album = partner.create_album("Marked");
    let jpeg = TestPhoto::new(1200, 800).with_bib("1204", [100, 100]).to_jpeg();
    let before = partner.upload_photo(&album, "before.jpg", &jpeg);
    partner.wait_until_idle(&album);
    const RED: [u8; 3] = [250, 10, 10];
    set_watermark(&partner, &album, RED);
    let after = partner.upload_photo(&album, "after.jpg", &jpeg);
    partner.wait_until_idle(&album);
    wait_until_marked(&partner, &album, 2);
    let clean = partner.get_photo(&album, &before);
    assert!(!is_near(middle(&partner, &clean["url"]), RED), "partners get the clean preview");
    let marked = json!({ "albumId": album, "config": { "preview": { "watermarked": true } } });
    partner.call_ok("/albums/update", &marked);
    let all_are = |colour| {
        [&before, &after].iter().all(|photo| {
            let photo = partner.get_photo(&album, photo);
            is_near(middle(&partner, &photo["url"]), colour)
        })
    };
    assert!(all_are(RED), "the task and the stage draw the same");
    const BLUE: [u8; 3] = [10, 10, 250];
    set_watermark(&partner, &album, BLUE);
    wait_until_marked(&partner, &album, 2);
    assert!(all_are(BLUE));
    partner.call_ok("/albums/reprocess", &json!({ "albumId": album }));
    partner.wait_until_idle(&album);
    wait_until_marked(&partner, &album, 2);
    assert!(all_are(BLUE), "processing them again keeps it");
    partner.call_ok("/albums/watermark/set", &json!({ "albumId": album, "watermark": null }));
    assert!(!all_are(BLUE), "a removed one is not shown");
}

/// Python's own reader checks the names, the sizes and the checksums.
const CHECK: &str = "import io, sys, zipfile\n\
    archive = zipfile.ZipFile(io.BytesIO(sys.stdin.buffer.read()))\n\
    assert archive.testzip() is None\n\
    print(sorted((file.filename, file.file_size) for file in archive.infolist()))";

/// Tests a ZIP file with the programs that people open it with.
fn test_with_archivers(zip: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("photos.zip");
    std::fs::write(&file, zip).expect("writes the file");
    for (program, test, package) in [("unzip", "-tqq", "unzip"), ("7z", "t", "p7zip-full")] {
        let Ok(tested) = Command::new(program).arg(test).arg(&file).output() else {
            skip_or_fail("ZIP", &format!("there is no {program} (Debian's package {package})"));
            continue;
        };
        // Both warn of what they do not expect with another status than 0.
        let said = [tested.stdout, tested.stderr].concat();
        assert!(tested.status.success(), "{program}: {}", String::from_utf8_lossy(&said));
    }
}

#[test]
fn a_download_is_opened_by_another_program() {
    let service = GROUP.get_or_start(ServiceOptions::with_fake_models);
    let partner = service.partner();
    let album = partner.create_album("Läufer");
    let jpeg = TestPhoto::new(600, 400).with_bib("1204", [100, 100]).to_jpeg();
    for name in ["start.jpg", "zieleinlauf-ß.jpg"] {
        partner.upload_photo(&album, name, &jpeg);
    }
    partner.wait_until_idle(&album);
    let asked = json!({ "albumId": album, "bib": "1204", "size": "original" });
    let ticket = partner.call_ok("/photos/download/create", &asked);
    assert_eq!((&ticket["files"], &ticket["bytes"]), (&json!(2), &json!(2 * jpeg.len())));
    let zip = partner.get(&expect_string(&ticket["url"]));
    assert_eq!(zip.header("content-length"), Some(zip.body.len().to_string().as_str()));
    let mut python = Command::new("python3");
    let mut python = python
        .args(["-c", CHECK])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs");
    python.stdin.take().expect("its input").write_all(&zip.body).expect("it reads");
    let output = python.wait_with_output().expect("it ends");
    let size = jpeg.len();
    let expected = format!("[('start.jpg', {size}), ('zieleinlauf-ß.jpg', {size})]\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    test_with_archivers(&zip.body);
}
