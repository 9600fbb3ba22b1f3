//! Searches of a demonstration: what was asked, what came, and, for the sample event, whether it is right.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use serde_json::Value;

use super::api::{Api, Hit};
use super::event::{Runner, SampleEvent};
use crate::process::capture_output;

/// Links printed per search.
const LINKS_PER_SEARCH: usize = 2;

/// Photos in which something to search for is looked for.
const MAX_EXAMINED_PHOTOS: usize = 100;

/// Every bib and every selfie of the sample event, judged by its truth.
pub fn search_sample_event(api: &Api, album: &str, sample: &SampleEvent) -> anyhow::Result<()> {
    let names = file_names_by_id(&api.photos(album)?);
    for runner in sample.runners() {
        let hits = api.by_bib(album, &runner.bib)?;
        let exact: Vec<&Hit> =
            hits.iter().filter(|hit| hit.matched_text.as_ref() == Some(&runner.bib)).collect();
        println!("  bib {}: {}", runner.bib, describe_accuracy(&exact, &names, &runner));
        print_links(&exact);
    }
    for runner in sample.runners() {
        let hits = api.by_selfie(album, &runner.selfie)?;
        let hits: Vec<&Hit> = hits.iter().collect();
        let kind = if runner.selfie_is_another_photograph {
            "another photograph than those in the photos"
        } else {
            "the same portrait, mirrored and relit"
        };
        println!("  selfie of {} ({kind}): {}", runner.name, describe_accuracy(&hits, &names, &runner));
        print_links(&hits);
    }
    Ok(())
}

/// The bib that was read most often, and a face of one of the photos as the selfie. Gives the bib.
pub fn search_own_photos(api: &Api, album: &str, folder: &Path) -> anyhow::Result<Option<String>> {
    let photos = load_ready_photos(api, album)?;
    let bib = most_frequent_bib(&photos);
    match &bib {
        Some(bib) => {
            let hits = api.by_bib(album, bib)?;
            println!("  bib {bib}, the one read most often: {} photos", hits.len());
            print_links(&hits.iter().collect::<Vec<_>>());
        }
        None => println!("  no bib was read in these photos, so there is none to search"),
    }
    let Some(photo) = photo_with_largest_face(&photos) else {
        println!("  no face was found in these photos, so there is none to search");
        return Ok(bib);
    };
    let preview = folder.join("probe.jpg");
    let url = photo["url"].as_str().context("a ready photo has a preview")?;
    capture_output(
        Command::new("curl").args(["--fail", "--silent", "--show-error", "--output"]).arg(&preview).arg(url),
    )?;
    let hits = api.by_selfie(album, &preview)?;
    let name = photo["filename"].as_str().unwrap_or_default();
    println!("  the largest face of {name}, as if it were a selfie: {} photos", hits.len());
    print_links(&hits.iter().collect::<Vec<_>>());
    println!("  With a selfie of your own: see the curl lines below.");
    Ok(bib)
}

fn describe_accuracy(hits: &[&Hit], names: &HashMap<String, String>, runner: &Runner) -> String {
    let found: BTreeSet<&String> = hits.iter().filter_map(|hit| names.get(&hit.photo)).collect();
    let right = found.iter().filter(|name| runner.photos.contains(**name)).count();
    let wrong = found.len() - right;
    format!("{right} of {} photos found, {wrong} wrong", runner.photos.len())
}

fn print_links(hits: &[&Hit]) {
    for hit in hits.iter().take(LINKS_PER_SEARCH) {
        println!("      {:>3.0} %  {}", hit.confidence, hit.url);
    }
    if hits.len() > LINKS_PER_SEARCH {
        println!("      and {} more", hits.len() - LINKS_PER_SEARCH);
    }
}

/// The first ready photos with everything that was seen in them.
fn load_ready_photos(api: &Api, album: &str) -> anyhow::Result<Vec<Value>> {
    let photos = api.photos(album)?;
    let ready = photos.iter().filter(|photo| photo["state"] == "ready").take(MAX_EXAMINED_PHOTOS);
    ready.map(|photo| api.photo(album, photo["id"].as_str().unwrap_or_default())).collect()
}

/// Photo id to file name.
fn file_names_by_id(photos: &[Value]) -> HashMap<String, String> {
    let text = |photo: &Value, field: &str| photo[field].as_str().unwrap_or_default().to_owned();
    photos.iter().map(|photo| (text(photo, "id"), text(photo, "filename"))).collect()
}

fn most_frequent_bib(photos: &[Value]) -> Option<String> {
    let mut counts = BTreeMap::<&str, usize>::new();
    for text in photos.iter().filter_map(|photo| photo["texts"].as_array()).flatten() {
        if text["indexed"] == true {
            *counts.entry(text["text"].as_str()?).or_default() += 1;
        }
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(bib, _)| bib.to_owned())
}

fn photo_with_largest_face(photos: &[Value]) -> Option<&Value> {
    let size = |photo: &&Value| {
        let faces = photo["faces"].as_array().into_iter().flatten();
        let widths = faces
            .filter(|face| face["indexed"] == true)
            .filter_map(|face| face["boundingBox"]["width"].as_f64());
        widths.fold(0.0, f64::max)
    };
    photos.iter().filter(|photo| size(photo) > 0.0).max_by(|one, other| size(one).total_cmp(&size(other)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_commonest_bib_is_one_that_can_be_searched() {
        let text = |text: &str, indexed: bool| json!({ "text": text, "indexed": indexed });
        let photos = [
            json!({ "texts": [text("12", false), text("77", true)] }),
            json!({ "texts": [text("12", false), text("77", true), text("80", true)] }),
            json!({ "texts": [text("12", false)] }),
        ];
        assert_eq!(most_frequent_bib(&photos).as_deref(), Some("77"));
        assert_eq!(most_frequent_bib(&[]), None);
    }

    #[test]
    fn a_photo_without_an_indexed_face_is_no_probe() {
        let face =
            |width: f64, indexed: bool| json!({ "boundingBox": { "width": width }, "indexed": indexed });
        let photos = [
            json!({ "id": "a", "faces": [face(0.9, false)] }),
            json!({ "id": "b", "faces": [face(0.1, true), face(0.3, true)] }),
            json!({ "id": "c", "faces": [face(0.2, true)] }),
        ];
        assert_eq!(photo_with_largest_face(&photos).unwrap()["id"], "b");
        assert!(photo_with_largest_face(&photos[..1]).is_none());
    }
}
