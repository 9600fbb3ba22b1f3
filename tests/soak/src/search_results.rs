//! What searches say of an event: by every bib, and by a selfie of every person, from every API.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use photofinish_tests::harness::test_photo::TestPhoto;
use serde_json::Value;

use crate::client::{Client, text};
use crate::event::{COMMON_BIB, COMMON_PERSON, Event, ExpectedOutcome, OTHER_PERSONS};

/// For each question the names of the files found, each with how sure the service is of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchResults(BTreeMap<String, BTreeSet<(String, String)>>);

impl SearchResults {
    /// Asks everything. `names` are the files of the photos by id; a hit of none of them, and a second hit of the same
    /// photo, are told in a line each.
    ///
    /// # Errors
    /// When a search is not answered.
    pub fn search_everything(
        (client, album): (&Client, &str),
        event: &Event,
        names: &HashMap<String, String>,
    ) -> anyhow::Result<(Self, Vec<String>)> {
        let mut answers = Self::default();
        let mut wrong = Vec::new();
        for bib in searched_bibs(event) {
            wrong.extend(answers.record_hits(&format!("bib {bib}"), &client.by_bib(album, &bib)?, names)?);
        }
        for person in searched_persons() {
            let found = client.by_selfie(album, &TestPhoto::selfie(person).to_jpeg())?;
            wrong.extend(answers.record_hits(&format!("person {person}"), &found, names)?);
        }
        Ok((answers, wrong))
    }

    fn record_hits(
        &mut self,
        question: &str,
        hits: &[Value],
        names: &HashMap<String, String>,
    ) -> anyhow::Result<Vec<String>> {
        let mut found = BTreeSet::new();
        let mut wrong = Vec::new();
        for hit in hits {
            let id = text(hit, "id")?;
            match names.get(&id) {
                Some(name) if found.insert((name.clone(), hit["confidence"].to_string())) => {}
                Some(name) => wrong.push(format!("{question}: {name} is found twice")),
                None => wrong.push(format!("{question}: finds {id}, which nobody was promised")),
            }
        }
        self.0.insert(question.to_owned(), found);
        Ok(wrong)
    }

    /// Where these answers are not the others, a line each.
    pub fn differences(&self, others: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        let questions: BTreeSet<&String> = self.0.keys().chain(others.0.keys()).collect();
        for question in questions {
            let (mine, theirs) = (self.0.get(question), others.0.get(question));
            if mine == theirs {
                continue;
            }
            let none = BTreeSet::new();
            let (mine, theirs) = (mine.unwrap_or(&none), theirs.unwrap_or(&none));
            let missing: Vec<_> = theirs.difference(mine).collect();
            let added: Vec<_> = mine.difference(theirs).collect();
            differences.push(format!("{question}: without {missing:?}, with {added:?}"));
        }
        differences
    }

    /// Where these answers are not what was painted, a line each.
    pub fn mistakes(&self, event: &Event) -> Vec<String> {
        let mut mistakes = Vec::new();
        for (question, painted) in expected_hits(event) {
            let found: BTreeSet<&str> =
                self.0.get(&question).into_iter().flatten().map(|(name, _)| name.as_str()).collect();
            if found != painted {
                let missing: Vec<_> = painted.difference(&found).collect();
                let added: Vec<_> = found.difference(&painted).collect();
                mistakes.push(format!("{question}: without {missing:?}, with {added:?}"));
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

/// The files that each question must find.
fn expected_hits(event: &Event) -> BTreeMap<String, BTreeSet<&str>> {
    let mut painted: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for photo in &event.photos {
        let ExpectedOutcome::Ready { bib, person } = &photo.expected else { continue };
        let shown = [format!("bib {bib}"), format!("bib {COMMON_BIB}")];
        for question in shown.into_iter().chain([COMMON_PERSON, *person].map(|p| format!("person {p}"))) {
            painted.entry(question).or_default().insert(&photo.name);
        }
    }
    painted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results_with(pairs: &[(&str, &str)]) -> SearchResults {
        let mut answers = SearchResults::default();
        for (question, name) in pairs {
            let found = answers.0.entry((*question).to_owned()).or_default();
            found.insert(((*name).to_owned(), "99".to_owned()));
        }
        answers
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
