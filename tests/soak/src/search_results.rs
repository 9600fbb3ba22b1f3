//! What the searches of an event find: by every bib, and by a selfie of every person, through one API.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use photofinish_client::{Client, ClientError, Hit};
use photofinish_tests::harness::test_photo::TestPhoto;

use crate::event::{COMMON_BIB, COMMON_PERSON, Event, ExpectedOutcome, OTHER_PERSONS};

/// For each search, the names of the files found with their confidence as text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchResults {
    files: BTreeMap<String, BTreeSet<(String, String)>>,
    /// A line for each hit that is no confirmed photo, and for each photo that one search found twice.
    pub invalid_hits: Vec<String>,
}

impl SearchResults {
    /// Searches an album by everything that the event shows. `names` are the file names of the confirmed photos by id.
    ///
    /// # Errors
    /// When a search fails.
    pub fn search_everything(
        client: &Client,
        album: &str,
        event: &Event,
        names: &HashMap<String, String>,
    ) -> Result<Self, ClientError> {
        let mut results = Self::default();
        for bib in searched_bibs(event) {
            let hits = client.search_text(album, &bib, true)?;
            results.record_hits(format!("bib {bib}"), &hits, names);
        }
        for person in searched_persons() {
            let selfie = TestPhoto::selfie(person).to_jpeg();
            let image = client.upload_selfie(album, "image/jpeg", &selfie)?;
            results.record_hits(format!("person {person}"), &client.search_face(album, &image)?, names);
        }
        Ok(results)
    }

    fn record_hits(&mut self, search: String, hits: &[Hit], names: &HashMap<String, String>) {
        let mut found = BTreeSet::new();
        for hit in hits {
            match names.get(&hit.id) {
                Some(name) if found.insert((name.clone(), hit.confidence.to_string())) => {}
                Some(name) => self.invalid_hits.push(format!("{search}: {name} is found twice")),
                None => {
                    self.invalid_hits.push(format!("{search}: finds {}, which was never confirmed", hit.id))
                }
            }
        }
        self.files.insert(search, found);
    }

    /// Where these results differ from others, a line for each search.
    pub fn differences(&self, others: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        let searches: BTreeSet<&String> = self.files.keys().chain(others.files.keys()).collect();
        for search in searches {
            let (mine, theirs) = (self.files.get(search), others.files.get(search));
            if mine == theirs {
                continue;
            }
            let none = BTreeSet::new();
            let (mine, theirs) = (mine.unwrap_or(&none), theirs.unwrap_or(&none));
            let missing: Vec<_> = theirs.difference(mine).collect();
            let added: Vec<_> = mine.difference(theirs).collect();
            differences.push(format!("{search}: without {missing:?}, with {added:?}"));
        }
        differences
    }

    /// Where these results differ from what was painted, a line for each search.
    pub fn mistakes(&self, event: &Event) -> Vec<String> {
        let mut mistakes = Vec::new();
        for (search, expected) in expected_hits(event) {
            let found: BTreeSet<&str> =
                self.files.get(&search).into_iter().flatten().map(|(name, _)| name.as_str()).collect();
            if found != expected {
                let missing: Vec<_> = expected.difference(&found).collect();
                let added: Vec<_> = found.difference(&expected).collect();
                mistakes.push(format!("{search}: without {missing:?}, with {added:?}"));
            }
        }
        mistakes
    }
}

fn searched_bibs(event: &Event) -> Vec<String> {
    let own = event.photos.iter().filter_map(|photo| match &photo.expected {
        ExpectedOutcome::Ready { bib, .. } => Some(bib.clone()),
        ExpectedOutcome::Blank | ExpectedOutcome::Failed(_) => None,
    });
    own.chain([COMMON_BIB.to_owned()]).collect()
}

fn searched_persons() -> impl Iterator<Item = u16> {
    COMMON_PERSON..=COMMON_PERSON + OTHER_PERSONS
}

/// The files that each search must find.
fn expected_hits(event: &Event) -> BTreeMap<String, BTreeSet<&str>> {
    let mut expected: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for photo in &event.photos {
        let ExpectedOutcome::Ready { bib, person } = &photo.expected else { continue };
        let bibs = [format!("bib {bib}"), format!("bib {COMMON_BIB}")];
        for search in bibs.into_iter().chain([COMMON_PERSON, *person].map(|p| format!("person {p}"))) {
            expected.entry(search).or_default().insert(&photo.name);
        }
    }
    expected
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results_with(pairs: &[(&str, &str)]) -> SearchResults {
        let mut results = SearchResults::default();
        for (search, name) in pairs {
            let found = results.files.entry((*search).to_owned()).or_default();
            found.insert(((*name).to_owned(), "99".to_owned()));
        }
        results
    }

    #[test]
    fn a_missing_hit_and_one_too_many_are_differences() {
        let whole = results_with(&[("bib 1", "a.jpg"), ("bib 2", "b.jpg")]);
        assert!(whole.differences(&whole).is_empty());
        assert_eq!(results_with(&[("bib 1", "a.jpg")]).differences(&whole).len(), 1);
        assert_eq!(whole.differences(&results_with(&[("bib 1", "a.jpg")])).len(), 1);
        assert_eq!(results_with(&[("bib 1", "b.jpg"), ("bib 2", "b.jpg")]).differences(&whole).len(), 1);
    }

    #[test]
    fn missing_expected_hits_are_reported() {
        let event = Event::paint(7);
        // Six good photos, each with its own bib; photo 5 is bad.
        assert_eq!(searched_bibs(&event).len(), 7);
        let mistakes = SearchResults::default().mistakes(&event);
        assert_eq!(mistakes.len(), 7 + 4, "{mistakes:?}");
        assert!(mistakes.iter().all(|mistake| !mistake.contains("0005.jpg")), "{mistakes:?}");
    }
}
