//! The searches of the demonstration: what was searched, what was found, and, for the sample event, whether it is right.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use anyhow::Context;
use photofinish_client::{Client, Hit, Photo, PhotoDetail, PhotoState};

use super::event::{Runner, SampleEvent};

/// Links printed for each search.
const LINKS_PER_SEARCH: usize = 2;

/// Photos in which a bib and a face to search for are sought.
const MAX_EXAMINED_PHOTOS: usize = 100;

/// Searches the sample event by every bib and every selfie, and compares the hits with the truth.
pub fn search_sample_event(client: &Client, album: &str, sample: &SampleEvent) -> anyhow::Result<()> {
    let names = file_names_by_id(client.list_photos(album)?);
    for runner in sample.runners() {
        let mut hits = client.search_text(album, &runner.bib, false)?;
        hits.retain(|hit| hit.matched_text.as_ref() == Some(&runner.bib));
        println!("  bib {}: {}", runner.bib, describe_accuracy(&hits, &names, &runner));
        print_links(&hits);
    }
    for runner in sample.runners() {
        let selfie = std::fs::read(&runner.selfie)
            .with_context(|| format!("cannot read {}", runner.selfie.display()))?;
        let hits = search_by_selfie(client, album, &selfie)?;
        let kind = if runner.selfie_is_another_photograph {
            "another photograph than those in the photos"
        } else {
            "the same portrait, mirrored and relit"
        };
        let accuracy = describe_accuracy(&hits, &names, &runner);
        println!("  selfie of {} ({kind}): {accuracy}", runner.name);
        print_links(&hits);
    }
    Ok(())
}

/// Searches the user's own photos by the bib that was read most often, and by a face of one photo as the selfie, whose
/// picture is kept in `folder`. Returns the bib.
pub fn search_own_photos(client: &Client, album: &str, folder: &Path) -> anyhow::Result<Option<String>> {
    let photos = load_ready_photos(client, album)?;
    let bib = most_frequent_bib(&photos);
    match &bib {
        Some(bib) => {
            let hits = client.search_text(album, bib, false)?;
            println!("  bib {bib}, the one read most often: {} photos", hits.len());
            print_links(&hits);
        }
        None => println!("  no bib was read in these photos, so there is none to search"),
    }
    let Some(detail) = photo_with_largest_face(&photos) else {
        println!("  no face was found in these photos, so there is none to search");
        return Ok(bib);
    };
    let url = detail.photo.url.as_deref().context("a ready photo has a preview")?;
    let preview = client.raw("GET", url, &[], b"")?;
    anyhow::ensure!(preview.status == 200, "the preview {url}: status {}", preview.status);
    std::fs::write(folder.join("probe.jpg"), &preview.body).context("cannot write probe.jpg")?;
    let hits = search_by_selfie(client, album, &preview.body)?;
    let name = &detail.photo.filename;
    println!("  the largest face of {name}, as if it were a selfie: {} photos", hits.len());
    print_links(&hits);
    println!("  With a selfie of your own: see the curl lines below.");
    Ok(bib)
}

fn search_by_selfie(client: &Client, album: &str, jpeg: &[u8]) -> anyhow::Result<Vec<Hit>> {
    let image = client.upload_selfie(album, "image/jpeg", jpeg)?;
    Ok(client.search_face(album, &image)?)
}

fn describe_accuracy(hits: &[Hit], names: &HashMap<String, String>, runner: &Runner) -> String {
    let found: BTreeSet<&String> = hits.iter().filter_map(|hit| names.get(&hit.id)).collect();
    let right = found.iter().filter(|name| runner.photos.contains(**name)).count();
    let wrong = found.len() - right;
    format!("{right} of {} photos found, {wrong} wrong", runner.photos.len())
}

fn print_links(hits: &[Hit]) {
    for hit in hits.iter().take(LINKS_PER_SEARCH) {
        println!("      {:>3.0} %  {}", hit.confidence, hit.url);
    }
    if hits.len() > LINKS_PER_SEARCH {
        println!("      and {} more", hits.len() - LINKS_PER_SEARCH);
    }
}

/// The first ready photos with everything that was detected in them.
fn load_ready_photos(client: &Client, album: &str) -> anyhow::Result<Vec<PhotoDetail>> {
    let photos = client.list_photos(album)?;
    let ready = photos.iter().filter(|photo| photo.state == PhotoState::Ready).take(MAX_EXAMINED_PHOTOS);
    ready.map(|photo| Ok(client.get_photo(album, &photo.id)?)).collect()
}

fn file_names_by_id(photos: Vec<Photo>) -> HashMap<String, String> {
    photos.into_iter().map(|photo| (photo.id, photo.filename)).collect()
}

/// The bib that most texts show, of those that exact searches find.
fn most_frequent_bib(photos: &[PhotoDetail]) -> Option<String> {
    let mut counts = BTreeMap::<&str, usize>::new();
    for text in photos.iter().flat_map(|photo| &photo.texts).filter(|text| text.indexed) {
        *counts.entry(&text.text).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(bib, _)| bib.to_owned())
}

/// The photo with the widest face, as a fraction of its photo, of those that searches find.
fn photo_with_largest_face(photos: &[PhotoDetail]) -> Option<&PhotoDetail> {
    let width = |photo: &&PhotoDetail| {
        let faces = photo.faces.iter().filter(|face| face.indexed);
        faces.map(|face| face.bounding_box.width).fold(0.0, f64::max)
    };
    photos.iter().filter(|photo| width(photo) > 0.0).max_by(|a, b| width(a).total_cmp(&width(b)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn photo(contents: Value) -> PhotoDetail {
        let mut photo = json!({ "id": "x", "state": "ready" });
        photo.as_object_mut().unwrap().extend(contents.as_object().unwrap().clone());
        serde_json::from_value(photo).unwrap()
    }

    #[test]
    fn the_commonest_bib_is_one_that_can_be_searched() {
        let text = |text: &str, indexed: bool| json!({ "text": text, "indexed": indexed });
        let photos = [
            photo(json!({ "texts": [text("12", false), text("77", true)] })),
            photo(json!({ "texts": [text("12", false), text("77", true), text("80", true)] })),
            photo(json!({ "texts": [text("12", false)] })),
        ];
        assert_eq!(most_frequent_bib(&photos).as_deref(), Some("77"));
        assert_eq!(most_frequent_bib(&[]), None);
    }

    #[test]
    fn a_photo_without_an_indexed_face_is_no_probe() {
        let face = |width: f64, indexed: bool| {
            let bounding_box = json!({ "top": 0.1, "left": 0.1, "width": width, "height": 0.1 });
            json!({ "boundingBox": bounding_box, "indexed": indexed })
        };
        let photos = [
            photo(json!({ "id": "a", "faces": [face(0.9, false)] })),
            photo(json!({ "id": "b", "faces": [face(0.1, true), face(0.3, true)] })),
            photo(json!({ "id": "c", "faces": [face(0.2, true)] })),
        ];
        assert_eq!(photo_with_largest_face(&photos).unwrap().photo.id, "b");
        assert!(photo_with_largest_face(&photos[..1]).is_none());
    }
}
