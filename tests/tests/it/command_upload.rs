//! `photofinish upload`, as a partner types it.

use photofinish_tests::harness::pictures::Picture;
use photofinish_tests::harness::{Options, Service};

#[test]
fn an_upload_sends_what_is_missing_and_reconciles() {
    let service = Service::start(Options::fakes());
    let partner = service.partner();
    let album = partner.album("Folder");
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, bytes).expect("a file");
    };
    for number in 0..20 {
        let bib = format!("{}", 300 + number);
        write(&format!("day 1/IMG_{number}.JPG"), &Picture::new(600, 400).bib(&bib, [150, 150]).jpeg());
    }
    write("start.png", &Picture::new(600, 400).bib("901", [150, 150]).png());
    write("notes.txt", b"not a photo");
    write("broken.jpg", b"not a photo either");
    let upload = || {
        service.run(&[
            "upload",
            "--url",
            &service.origin(),
            "--key",
            partner.key(),
            "--album",
            &album,
            &folder.path().to_string_lossy(),
        ])
    };
    let first = upload();
    let summary = first.success();
    assert!(summary.contains("22 photos in the folder"), "{summary}");
    assert!(summary.contains("22 sent and confirmed"), "{summary}");
    assert!(summary.contains("1 other files were left out"), "{summary}");
    let progress = partner.wait_idle(&album);
    assert_eq!((&progress["ready"], &progress["failed"]), (&21.into(), &1.into()), "{progress}");
    assert_eq!(partner.find_text_exactly(&album, "317").len(), 1);
    assert_eq!(partner.find_text_exactly(&album, "901").len(), 1);

    write("late.jpg", &Picture::new(600, 400).bib("902", [150, 150]).jpeg());
    // Left behind by a run that broke off, of a file that is not there yet and of one that is.
    let stale = [("half.jpg", "image/jpeg"), ("start.png", "image/png")]
        .map(|(name, content_type)| partner.signed(&album, name, content_type).id);
    write("half.jpg", &Picture::new(600, 400).bib("903", [150, 150]).jpeg());
    let second = upload();
    let summary = second.success();
    assert!(summary.contains("22 were in the album already"), "{summary}");
    assert!(summary.contains("2 sent and confirmed"), "{summary}");
    let progress = partner.wait_idle(&album);
    assert_eq!((&progress["ready"], &progress["awaitingUpload"]), (&23.into(), &0.into()), "{progress}");
    assert_eq!(partner.find_text_exactly(&album, "903").len(), 1);
    let is_stale = |photo: &serde_json::Value| stale.iter().any(|id| photo["id"] == **id);
    assert!(!partner.photos(&album).iter().any(is_stale), "what was left behind is removed");
    assert!(upload().success().contains("0 sent and confirmed"));
}

#[test]
fn an_upload_that_is_refused_says_so() {
    let service = Service::start(Options::fakes());
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("a.jpg"), Picture::new(64, 64).jpeg()).expect("a file");
    let album = service.partner().album("Refused");
    let reader = service.key(&["search:read"], "test");
    let place = folder.path().to_string_lossy().into_owned();
    let cases = [
        (service.origin(), "svc_test_nonsense".to_owned(), album.clone(), place.clone(), "401"),
        (service.origin(), reader, album.clone(), place.clone(), "403"),
        (
            service.origin(),
            service.partner().key().to_owned(),
            "01890000-0000-7000-8000-000000000000".into(),
            place.clone(),
            "404",
        ),
        (
            service.origin(),
            service.partner().key().to_owned(),
            album,
            "/no/such/folder".into(),
            "/no/such/folder",
        ),
    ];
    for (url, key, album, place, word) in cases {
        let output = service.run(&["upload", "--url", &url, "--key", &key, "--album", &album, &place]);
        assert_eq!(output.code, Some(1), "{}", output.everything());
        assert!(output.stderr.contains(word), "does not speak of {word}: {}", output.stderr);
        assert!(
            !output.everything().contains(&key[12..]) && !output.stderr.contains("panicked"),
            "{}",
            output.stderr
        );
    }
}

#[test]
fn an_upload_goes_on_after_the_service_was_cut_off() {
    let service = Service::start(Options::fakes());
    let partner = service.partner();
    let album = partner.album("Cut off");
    let folder = tempfile::tempdir().expect("a folder");
    for number in 0..64 {
        let picture = Picture::new(1200, 900).bib(&format!("{}", 5000 + number * 11), [300, 300]);
        std::fs::write(folder.path().join(format!("{number:02}.jpg")), picture.jpeg()).expect("a file");
    }
    let place = folder.path().to_string_lossy().into_owned();
    let arguments = [
        "upload",
        "--url",
        &service.origin(),
        "--key",
        partner.key(),
        "--album",
        &album,
        "--parallel",
        "2",
        &place,
    ];
    std::thread::scope(|scope| {
        let upload = scope.spawn(|| service.run(&arguments));
        while partner.progress(&album)["total"].as_u64().unwrap_or(0) < 16 {
            assert!(!upload.is_finished(), "the upload ended before anything was confirmed");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        service.kill9();
        service.restart();
        upload.join().expect("the upload ends");
    });
    service.run(&arguments).success();
    let progress = partner.wait_idle(&album);
    assert_eq!(
        (&progress["ready"], &progress["total"]),
        (&64.into(), &64.into()),
        "each photo once: {progress}"
    );
}
