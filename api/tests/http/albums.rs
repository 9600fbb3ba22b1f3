//! Creating, listing, updating, deleting and reprocessing albums.

use photofinish_store::model::album::{AlbumChange, RetentionConfig};
use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use crate::support::{TestService, bib, face};

#[test]
fn a_new_album_has_the_defaults_of_the_contract_and_the_settings() {
    let service = TestService::start();
    let album = service.partner().call("/albums/create", &json!({ "title": "Lake Marathon" })).ok();
    let recognition = |threshold: f64| json!({ "confidenceThreshold": threshold, "enabled": true, "grid": null, "mode": "photo" });
    let config = json!({
        "face": recognition(50.0), "text": recognition(0.0),
        "preview": { "maxDimension": 2048, "watermarked": false }, "thumbnail": { "maxDimension": 512 },
        "bibPattern": "^[A-Z]{0,2}[0-9]{2,5}[A-Z]?$",
        "startList": { "enabled": true, "offListShare": 0.05 },
        "bibFormat": "auto",
        "retention": { "photosDays": null, "facesDays": null },
    });
    assert_eq!(album["config"], config);
    for id in ["id", "organizationId", "createdBy"] {
        let id: uuid::Uuid = album[id].as_str().unwrap().parse().unwrap();
        assert_eq!(id.get_version_num(), 7);
    }
    assert_eq!(album["title"], json!("Lake Marathon"));
    assert_eq!(album["coverUrl"], json!(null));
    assert_eq!(album["tags"], json!([]));
    assert_eq!(album["createdAt"], album["updatedAt"]);
    assert!(album["createdAt"].as_str().unwrap().ends_with('Z'));
}

#[test]
fn an_album_can_be_created_with_every_field() {
    let service = TestService::start();
    let partner = service.partner();
    let grid = json!({ "rows": 2, "columns": 16, "cellWidth": 64, "cellHeight": 1024 });
    let body = json!({
        "title": "Night Run", "coverUrl": "https://night.example/cover.jpg", "tags": ["night", "10 km"],
        "config": {
            "face": { "mode": "grid", "grid": grid, "confidenceThreshold": 82.5 },
            "text": { "enabled": false }, "thumbnail": { "maxDimension": 64 }, "bibPattern": "^[0-9]{3}$",
        },
    });
    let made = partner.call("/albums/create", &body).ok();
    assert_eq!(made["coverUrl"], body["coverUrl"]);
    assert_eq!(made["tags"], body["tags"]);
    assert_eq!(made["config"]["face"]["grid"], grid);
    assert_eq!(made["config"]["face"]["confidenceThreshold"], json!(82.5));
    assert_eq!(made["config"]["text"]["enabled"], json!(false));
    assert_eq!(made["config"]["text"]["mode"], json!("photo"));
    assert_eq!(made["config"]["thumbnail"]["maxDimension"], json!(64));
    assert_eq!(made["config"]["preview"]["maxDimension"], json!(2048));
    let mut shown = made.clone();
    shown["bibFormat"] = json!({ "learned": null, "share": 0.0, "readings": 0 });
    shown["expiring"] = json!([]);
    assert_eq!(partner.call("/albums/get", &json!({ "albumId": made["id"] })).ok(), shown);
}

#[test]
fn an_album_says_when_its_retention_erases_what() {
    let service = TestService::start();
    let partner = service.partner();
    let retention = json!({ "photosDays": 30, "facesDays": 10 });
    let body = json!({ "title": "Night Run", "config": { "retention": retention } });
    let album = partner.call("/albums/create", &body).ok();
    let shown = partner.call("/albums/get", &json!({ "albumId": album["id"] })).ok()["expiring"].clone();
    let parse = |time: &Value| OffsetDateTime::parse(time.as_str().unwrap(), &Rfc3339).unwrap();
    let created = parse(&album["createdAt"]);
    for (n, what, days) in [(0, "faces", 10), (1, "photos", 30)] {
        assert_eq!(shown[n]["what"], what);
        assert_eq!(parse(&shown[n]["at"]), created + Duration::days(days));
    }
    assert_eq!(shown.as_array().unwrap().len(), 2);
}

#[test]
fn an_album_says_what_the_operator_keeps_for_no_longer() {
    let limit = RetentionConfig { photos_days: Some(10), faces_days: None };
    let service = TestService::start_with(|settings| settings.retention_max = limit);
    let partner = service.partner();
    let album = partner.call("/albums/create", &json!({ "title": "Night Run" })).ok();
    let shown = partner.call("/albums/get", &json!({ "albumId": album["id"] })).ok()["expiring"].clone();
    let parse = |time: &Value| OffsetDateTime::parse(time.as_str().unwrap(), &Rfc3339).unwrap();
    assert_eq!((shown.as_array().unwrap().len(), &shown[0]["what"]), (1, &json!("photos")));
    assert_eq!(parse(&shown[0]["at"]), parse(&album["createdAt"]) + Duration::days(10));
}

#[test]
fn an_inconsistent_config_is_refused() {
    let service = TestService::start();
    let partner = service.partner();
    let issues = |config: Value| {
        let issues = partner.call("/albums/create", &json!({ "title": "T", "config": config })).issues();
        issues.into_iter().map(|(path, code)| format!("{path} {code}")).collect::<Vec<_>>()
    };
    assert_eq!(issues(json!({ "face": { "mode": "grid" } })), [r#"["config","face","grid"] required"#]);
    let grid = json!({ "rows": 0, "columns": 17, "cellWidth": 63 });
    assert_eq!(
        issues(json!({ "text": { "grid": grid } })),
        [
            r#"["config","text","grid","rows"] too_small"#,
            r#"["config","text","grid","columns"] too_big"#,
            r#"["config","text","grid","cellWidth"] too_small"#,
            r#"["config","text","grid","cellHeight"] required"#,
        ]
    );
    for pattern in ["[", "(", "a)|(?:b", "\\p{L}{1000}{1000}"] {
        assert_eq!(issues(json!({ "bibPattern": pattern })), [r#"["config","bibPattern"] invalid_format"#]);
    }
    assert_eq!(issues(json!({ "face": null })), [r#"["config","face"] invalid_type"#]);
    let body = json!({ "title": "", "config": { "text": { "mode": "grid", "grid": null } } });
    let both = partner.call("/albums/create", &body).issues();
    assert_eq!(
        both,
        [
            (r#"["title"]"#.to_owned(), "too_small".to_owned()),
            (r#"["config","text","grid"]"#.to_owned(), "required".to_owned()),
        ]
    );
}

#[test]
fn a_cover_url_is_an_absolute_http_uri() {
    let service = TestService::start();
    let partner = service.partner();
    let create = |cover: &str| partner.call("/albums/create", &json!({ "title": "T", "coverUrl": cover }));
    for accepted in
        ["https://a.example/x?y=1#z", "http://127.0.0.1:8080/", "HTTPS://a.example", "https://a.example?x"]
    {
        assert_eq!(create(accepted).ok()["coverUrl"], json!(accepted));
    }
    for refused in
        ["", "/cover.jpg", "cover.jpg", "a.example/x", " https://a.example", "https://a b.example/"]
    {
        create(refused).issues();
    }
    let refused = [(r#"["coverUrl"]"#.to_owned(), "invalid_format".to_owned())];
    for unsafe_or_hostless in [
        "javascript:alert(1)",
        "JavaScript://a.example/%0Aalert(1)",
        "data:text/html,x",
        "vbscript:x",
        "file:///etc/passwd",
        "ftp://a.example/x",
        "blob:https://a.example/x",
        "s3://bucket/key",
        "urn:isbn:0451450523",
        "http:a.example",
        "http:/a.example",
        "https:///a.example",
        "https://?x",
        "https://",
    ] {
        assert_eq!(create(unsafe_or_hostless).issues(), refused, "{unsafe_or_hostless}");
        let album = create("https://a.example/x").ok();
        let body = json!({ "albumId": album["id"], "coverUrl": unsafe_or_hostless });
        assert_eq!(partner.call("/albums/update", &body).issues(), refused, "{unsafe_or_hostless}");
    }
    let long = |length: usize| format!("https://a.example/{}", "x".repeat(length - 18));
    create(&long(2048)).ok();
    assert_eq!(create(&long(2049)).issues(), [(r#"["coverUrl"]"#.to_owned(), "too_big".to_owned())]);
    for escaped in ["https://a.example/L%C3%A4ufer.jpg", "https://[2001:db8::1]/x"] {
        assert_eq!(create(escaped).ok()["coverUrl"], json!(escaped));
    }
    for unescaped in [
        "https://a.example/Läufer.jpg",
        "http:\\\\a.example\\x",
        "https://a.example/<x>",
        "https://a.example/%2",
    ] {
        assert_eq!(create(unescaped).issues(), refused);
    }
}

#[test]
fn albums_are_listed_newest_first_page_by_page() {
    let service = TestService::start();
    let partner = service.partner();
    for title in ["Lake 10", "River 20", "Lake 30", "lake 40", "Hill 50"] {
        partner.create_album_with(json!({ "title": title }));
    }
    let titles = |page: &Value| {
        let albums = page["albums"].as_array().unwrap();
        albums.iter().map(|album| album["title"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = partner.call("/albums/list", &json!({})).ok();
    assert_eq!(titles(&all), ["Hill 50", "lake 40", "Lake 30", "River 20", "Lake 10"]);
    assert_eq!((&all["total"], &all["nextCursor"]), (&json!(5), &json!(null)));

    let first = partner.call("/albums/list", &json!({ "title": "LAKE", "limit": 2 })).ok();
    assert_eq!(
        (titles(&first), &first["total"]),
        (vec!["lake 40".to_owned(), "Lake 30".to_owned()], &json!(3))
    );
    // Later pages repeat what the first one counted.
    partner.create_album_with(json!({ "title": "Lake 60" }));
    let body = json!({ "title": "LAKE", "limit": 2, "cursor": first["nextCursor"] });
    let second = partner.call("/albums/list", &body).ok();
    assert_eq!((titles(&second), &second["nextCursor"]), (vec!["Lake 10".to_owned()], &json!(null)));
    assert_eq!(second["total"], json!(3));
}

#[test]
fn a_page_has_fifty_albums_where_no_limit_is_given() {
    let service = TestService::start();
    let partner = service.partner();
    for number in 0..51 {
        partner.create_album_with(json!({ "title": format!("Lake {number}") }));
    }
    let list = |body: Value| {
        let page = partner.call("/albums/list", &body).ok();
        (page["albums"].as_array().unwrap().len(), page["nextCursor"].clone())
    };
    let (albums, cursor) = list(json!({}));
    assert_eq!(albums, 50);
    assert_eq!(list(json!({ "cursor": cursor })), (1, json!(null)));
}

#[test]
fn invalid_limits_and_cursors_are_refused() {
    let service = TestService::start();
    let partner = service.partner();
    for body in [
        json!({ "limit": 0 }),
        json!({ "limit": 201 }),
        json!({ "limit": "5" }),
        json!({ "limit": 1.5 }),
        json!({ "cursor": "elsewhere" }),
        json!({ "cursor": null }),
        json!({ "cursor": "0000000301932C0793A17C408B1F2D5E6F708192" }),
    ] {
        assert_eq!(partner.call("/albums/list", &body).issues().len(), 1, "{body}");
    }
}

#[test]
fn an_update_changes_only_the_fields_it_contains() {
    let service = TestService::start();
    let partner = service.partner();
    let body = json!({ "title": "Old", "coverUrl": "https://a.example/x", "tags": ["a"] });
    let (album, _) = partner.create_album_with(body);
    let update = |mut body: Value| {
        body["albumId"] = album.clone();
        partner.call("/albums/update", &body).ok()
    };
    let renamed = update(json!({ "title": "New" }));
    assert_eq!((&renamed["title"], &renamed["tags"]), (&json!("New"), &json!(["a"])));
    assert_eq!(renamed["coverUrl"], json!("https://a.example/x"));
    assert_eq!(update(json!({ "coverUrl": null }))["coverUrl"], json!(null));
    assert_eq!(update(json!({ "tags": [] }))["tags"], json!([]));
    let config = update(json!({ "config": { "face": { "confidenceThreshold": 90 } } }))["config"].clone();
    assert_eq!(config["face"]["confidenceThreshold"], json!(90.0));
    assert_eq!(config["face"]["enabled"], json!(true));
    let unchanged = update(json!({}));
    assert_eq!((&unchanged["config"], &unchanged["title"]), (&config, &json!("New")));
}

#[test]
fn concurrent_updates_of_different_fields_both_persist() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let config = |text: Value| json!({ "albumId": album, "config": text });
    for round in 0..20 {
        let (face, text) = (f64::from(round), f64::from(100 - round));
        std::thread::scope(|scope| {
            let update = |body: Value| scope.spawn(|| partner.call("/albums/update", &{ body }).ok());
            let both = [
                update(config(json!({ "face": { "confidenceThreshold": face } }))),
                update(config(json!({ "text": { "confidenceThreshold": text } }))),
            ];
            for update in both {
                update.join().unwrap();
            }
        });
        let after = partner.call("/albums/get", &json!({ "albumId": album })).ok()["config"].clone();
        let thresholds = (&after["face"]["confidenceThreshold"], &after["text"]["confidenceThreshold"]);
        assert_eq!(thresholds, (&json!(face), &json!(text)));
    }
}

#[test]
fn an_update_reports_whether_reprocessing_is_needed() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let needed = |config: Value| {
        let body = json!({ "albumId": album, "config": config });
        partner.call("/albums/update", &body).ok()["reprocessingNeeded"].as_bool().unwrap()
    };
    assert!(!needed(json!({ "face": { "confidenceThreshold": 80 } })));
    assert!(!needed(json!({ "text": { "enabled": false } })));
    assert!(needed(json!({ "text": { "enabled": true } })));
    let grid = json!({ "rows": 2, "columns": 2, "cellWidth": 1024, "cellHeight": 1024 });
    assert!(!needed(json!({ "face": { "grid": grid } })));
    assert!(needed(json!({ "face": { "mode": "grid" } })));
    assert!(!needed(json!({ "face": { "mode": "grid" } })));
    assert!(needed(json!({ "preview": { "maxDimension": 1024 } })));
    assert!(needed(json!({ "bibPattern": "^[0-9]+$" })));
    assert!(!needed(json!({})));
    let body = json!({ "albumId": album, "config": { "face": { "grid": null } } });
    let issues = partner.call("/albums/update", &body).issues();
    assert_eq!(issues, [(r#"["config","face","grid"]"#.to_owned(), "required".to_owned())]);
}

#[test]
fn a_deleted_album_is_gone_with_all_its_bytes() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photo = service.ready_photo(&partner, album_id, vec![face(0.9)], vec![bib("1207")]);
    let body = json!({ "albumId": album, "photoId": photo });
    let url = partner.call("/photos/photo/get", &body).ok()["url"].as_str().unwrap().to_owned();
    assert_eq!(partner.send(&format!("GET {url}"), &[], "").status, 200);

    assert_eq!(partner.call("/albums/delete", &json!({ "albumId": album })).ok()["success"], json!(true));
    for path in ["/albums/get", "/albums/delete", "/albums/progress", "/photos/photo/list"] {
        partner.call(path, &json!({ "albumId": album })).defined_error(404, "NOT_FOUND");
    }
    partner.call("/photos/photo/get", &body).defined_error(404, "NOT_FOUND");
    assert_eq!(partner.send(&format!("GET {url}"), &[], "").status, 404);
}

#[test]
fn reprocessing_queues_ready_and_failed_photos() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let ready = service.ready_photo(&partner, album_id, vec![], vec![]);
    let failed = service.failed_photo(&partner, album_id);
    let on_album = json!({ "albumId": album });
    assert_eq!(partner.call("/albums/reprocess", &on_album).ok()["queued"], json!(2));
    for (photo, has_pictures) in [(json!(ready), true), (json!(failed), false)] {
        let body = json!({ "albumId": album, "photoId": photo });
        let shown = partner.call("/photos/photo/get", &body).ok();
        let urls = (shown["url"].is_string(), shown["thumbnailUrl"].is_string());
        assert_eq!(
            (&shown["state"], urls),
            (&json!("queued"), (has_pictures, has_pictures)),
            "those of before"
        );
    }
    assert_eq!(partner.call("/albums/progress", &on_album).ok()["queued"], json!(2));
    assert_eq!(partner.call("/albums/reprocess", &on_album).ok()["queued"], json!(0));
}

/// During a rolling update the version before changes the albums of the next one.
#[test]
fn members_of_a_configuration_that_this_version_does_not_know_are_kept() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let tenant = service.block_on(async {
        let key = photofinish_api::key::KeyText::parse(partner.key.as_ref().unwrap()).unwrap();
        service.store.keys.find(&key.digest()).await.unwrap().unwrap().tenant
    });
    let stored = || service.block_on(service.store.albums.get(&tenant, album_id)).unwrap().config;
    let mut config = stored();
    config.rest.insert("of_tomorrow".to_owned(), json!({ "days": 30 }));
    for part in ["face", "text", "start_list", "retention"] {
        config.rest.insert(part.to_owned(), json!({ "of_tomorrow": { "part": part } }));
    }
    let change = AlbumChange { config: Some(config.clone()), ..AlbumChange::default() };
    service.block_on(service.store.albums.update(&tenant, album_id, change)).unwrap();
    assert_eq!(stored(), config);
    let change = json!({
        "face": { "confidenceThreshold": 80 }, "text": { "enabled": false }, "startList": { "offListShare": 0.2 },
        "retention": { "photosDays": 30 }, "preview": { "maxDimension": 1024 },
    });
    let updated = partner.call("/albums/update", &json!({ "albumId": album, "config": change })).ok();
    assert!(!updated.to_string().contains("of_tomorrow"), "{updated}");
    config.face.confidence_threshold = 80.0;
    config.face.threshold_chosen = Some(true);
    config.text.enabled = false;
    config.start_list.off_list_share = 0.2;
    config.retention.photos_days = Some(30);
    config.preview_max_dimension = 1024;
    assert_eq!(stored(), config, "what it knows has changed, and nothing else");
}
