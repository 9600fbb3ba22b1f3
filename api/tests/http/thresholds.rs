//! Which threshold of faces an album has: one that was chosen, or the default, which depends on whether bibs are read.

use photofinish_store::model::album::{AlbumChange, Tenant};
use photofinish_store::model::ids::AlbumId;
use photofinish_store::model::key::KeyMode;
use serde_json::{Value, json};

use crate::support::{Partner, TestService};

fn create(partner: &Partner, config: Value) -> Value {
    partner.call("/albums/create", &json!({ "title": "Trail", "config": config })).ok()
}

/// Changes the configuration of an album; returns what the operation answers.
fn update(partner: &Partner, album: &Value, config: Value) -> Value {
    partner.call("/albums/update", &json!({ "albumId": album["id"], "config": config })).ok()
}

fn threshold(album: &Value) -> Value {
    album["config"]["face"]["confidenceThreshold"].clone()
}

/// Switches the reading of bibs, and returns the threshold of faces that the album has then.
fn switch_bibs(partner: &Partner, album: &Value, enabled: bool) -> Value {
    threshold(&update(partner, album, json!({ "text": { "enabled": enabled } })))
}

#[test]
fn an_album_that_reads_no_bibs_has_a_higher_face_threshold_by_default() {
    let service = TestService::start();
    let partner = service.partner();
    assert_eq!(threshold(&create(&partner, json!({}))), json!(50.0));
    let without_bibs = create(&partner, json!({ "text": { "enabled": false } }));
    assert_eq!(threshold(&without_bibs), json!(60.0));
    let chosen =
        create(&partner, json!({ "text": { "enabled": false }, "face": { "confidenceThreshold": 35 } }));
    assert_eq!(threshold(&chosen), json!(35.0));
    // The default follows when bibs are switched on, a threshold that was chosen stays.
    assert_eq!(switch_bibs(&partner, &without_bibs, true), json!(50.0));
    assert_eq!(switch_bibs(&partner, &chosen, true), json!(35.0));
    assert_eq!(switch_bibs(&partner, &without_bibs, false), json!(60.0));
    let set = update(&partner, &without_bibs, json!({ "face": { "confidenceThreshold": 50 } }));
    assert_eq!(threshold(&set), json!(50.0));
}

#[test]
fn a_chosen_threshold_that_is_the_default_of_the_moment_stays_when_bibs_are_switched() {
    let service = TestService::start();
    let partner = service.partner();
    let chosen = json!({ "confidenceThreshold": 50 });
    let created = create(&partner, json!({ "face": chosen }));
    let updated = create(&partner, json!({}));
    update(&partner, &updated, json!({ "face": chosen }));
    for album in [created, updated] {
        assert_eq!(switch_bibs(&partner, &album, false), json!(50.0));
        assert_eq!(switch_bibs(&partner, &album, true), json!(50.0));
    }
    let chosen = json!({ "confidenceThreshold": 60 });
    let without_bibs = create(&partner, json!({ "text": { "enabled": false }, "face": chosen }));
    assert_eq!(switch_bibs(&partner, &without_bibs, true), json!(60.0));
}

#[test]
fn whether_a_threshold_was_chosen_is_neither_shown_nor_a_reason_to_process_photos_again() {
    let service = TestService::start();
    let partner = service.partner();
    let album = create(&partner, json!({}));
    let updated = update(&partner, &album, json!({ "face": { "confidenceThreshold": 50 } }));
    assert_eq!(updated["reprocessingNeeded"], json!(false));
    assert_eq!(updated["config"], album["config"]);
}

/// Stores the configuration of an album as a version did that did not record whether the threshold was chosen.
fn forget_choice(service: &TestService, partner: &Partner, album: &Value) {
    let id: AlbumId = album["id"].as_str().unwrap().parse().unwrap();
    service.block_on(async {
        let tenant = Tenant { organization: partner.organization_id(service).await, mode: KeyMode::Live };
        let mut config = service.store.albums.get(&tenant, id).await.unwrap().config;
        config.face.threshold_chosen = None;
        let change = AlbumChange { config: Some(config), ..AlbumChange::default() };
        service.store.albums.update(&tenant, id, change).await.unwrap();
    });
}

#[test]
fn where_no_choice_was_recorded_what_differs_from_the_default_was_chosen() {
    let service = TestService::start();
    let partner = service.partner();
    let by_default = create(&partner, json!({ "text": { "enabled": false } }));
    let chosen =
        create(&partner, json!({ "text": { "enabled": false }, "face": { "confidenceThreshold": 50 } }));
    forget_choice(&service, &partner, &by_default);
    forget_choice(&service, &partner, &chosen);
    assert_eq!(switch_bibs(&partner, &by_default, true), json!(50.0));
    assert_eq!(switch_bibs(&partner, &by_default, false), json!(60.0));
    // With bibs it is the default, and still the one that was chosen.
    assert_eq!(switch_bibs(&partner, &chosen, true), json!(50.0));
    assert_eq!(switch_bibs(&partner, &chosen, false), json!(50.0));
}
