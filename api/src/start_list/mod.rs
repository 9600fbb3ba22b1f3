//! What a start list that a partner sends is made of: rows of a CSV file or of JSON, ranges of numbers, numbers that
//! nobody wears. Every bib once, and what is no bib is refused with its line. Names of people are never taken.

pub(crate) mod csv;
mod ranges;

use std::collections::HashMap;

use photofinish_store::model::start_list::StartListEntry;
use photofinish_store::search::variants::normalise_bib;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::errors::ApiError;
use crate::errors::table::DeclineCode;
use crate::validate::issues::{Issue, PathSegment, code};

pub(crate) use self::ranges::BibRange;

/// Most entries of an album, with ranges spelled out.
pub(crate) const MAX_ENTRIES: u64 = 100_000;

/// Longest bib, wave and team.
const MAX_BIB: usize = 12;
pub(crate) const MAX_LABEL: usize = 100;

/// A row as it was sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RawEntry {
    pub(crate) line: usize,
    pub(crate) bib: String,
    pub(crate) wave: Option<String>,
    pub(crate) team: Option<String>,
    pub(crate) start_at: Option<String>,
}

/// Why a row was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusedEntry {
    /// Line of the file, or number of the entry, from 1.
    pub(crate) line: usize,
    /// `not_a_bib`, `not_a_time`, `duplicate` or `too_long`.
    pub(crate) code: &'static str,
    /// For people.
    pub(crate) message: String,
}

/// A start list as a partner sends it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SentStartList {
    pub(crate) csv: Option<String>,
    pub(crate) columns: csv::Columns,
    pub(crate) entries: Vec<RawEntry>,
    pub(crate) ranges: Vec<BibRange>,
    pub(crate) exclude: Vec<String>,
}

/// What of it can be imported.
#[derive(Debug, Default)]
pub(crate) struct AcceptedStartList {
    pub(crate) entries: Vec<StartListEntry>,
    pub(crate) refused: Vec<RefusedEntry>,
}

impl SentStartList {
    /// Returns what of it is a start list.
    ///
    /// # Errors
    /// 400 when the file has no column of bibs, 422 when there are too many entries.
    pub(crate) fn accept(self) -> Result<AcceptedStartList, ApiError> {
        let mut accepted = AcceptedStartList::default();
        let mut known: HashMap<String, usize> = HashMap::new();
        let rows = match &self.csv {
            Some(csv) => csv::parse(csv, &self.columns).map_err(|message| invalid_csv(&message))?,
            None => self.entries,
        };
        for row in rows {
            let line = row.line;
            match accept_entry(row) {
                Ok(entry) if known.contains_key(&entry.bib) => {
                    let message = format!("{} is line {} already", entry.bib, known[&entry.bib]);
                    accepted.refused.push(RefusedEntry { line, code: "duplicate", message });
                }
                Ok(entry) => {
                    known.insert(entry.bib.clone(), line);
                    accepted.entries.push(entry);
                }
                Err(refused) => accepted.refused.push(refused),
            }
        }
        let in_ranges: u64 = self.ranges.iter().map(BibRange::len).sum();
        if accepted.entries.len() as u64 + in_ranges > MAX_ENTRIES {
            return Err(ApiError::declined(DeclineCode::StartListTooLarge));
        }
        for entry in self.ranges.iter().flat_map(BibRange::entries) {
            if !known.contains_key(&entry.bib) {
                known.insert(entry.bib.clone(), 0);
                accepted.entries.push(entry);
            }
        }
        exclude(&mut accepted, &self.exclude);
        Ok(accepted)
    }
}

/// Excluded numbers take the place of entries.
fn exclude(accepted: &mut AcceptedStartList, numbers: &[String]) {
    let mut excluded: Vec<String> = Vec::new();
    for (at, number) in numbers.iter().enumerate() {
        match parse_bib(number) {
            Some(bib) => excluded.push(bib),
            None => accepted.refused.push(not_a_bib(at + 1, number)),
        }
    }
    excluded.sort_unstable();
    excluded.dedup();
    accepted.entries.retain(|entry| excluded.binary_search(&entry.bib).is_err());
    let excluded =
        excluded.into_iter().map(|bib| StartListEntry { excluded: true, ..StartListEntry::of(bib) });
    accepted.entries.extend(excluded);
}

fn invalid_csv(message: &str) -> ApiError {
    let path = vec![PathSegment::Field("csv")];
    ApiError::invalid(&[Issue { path, code: code::INVALID_FORMAT, message: message.to_owned() }])
}

/// A bib in upper case without spaces and punctuation: letters and digits, one digit at least.
pub(crate) fn parse_bib(text: &str) -> Option<String> {
    let bib = normalise_bib(text);
    let is_bib = (1..=MAX_BIB).contains(&bib.len())
        && bib.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && bib.bytes().any(|byte| byte.is_ascii_digit());
    is_bib.then_some(bib)
}

fn not_a_bib(line: usize, text: &str) -> RefusedEntry {
    let shown: String = text.trim().chars().take(40).collect();
    RefusedEntry { line, code: "not_a_bib", message: format!("'{shown}' is no bib") }
}

fn accept_entry(row: RawEntry) -> Result<StartListEntry, RefusedEntry> {
    let line = row.line;
    let bib = parse_bib(&row.bib).ok_or_else(|| not_a_bib(line, &row.bib))?;
    let label = |text: Option<String>| match text.map(|text| text.trim().to_owned()) {
        Some(text) if text.chars().count() > MAX_LABEL => {
            let message = format!("more than {MAX_LABEL} characters");
            Err(RefusedEntry { line, code: "too_long", message })
        }
        text => Ok(text.filter(|text| !text.is_empty())),
    };
    let parse_time = |text: String| {
        let message = "a time is such as 2026-10-04T09:41:07Z".to_owned();
        OffsetDateTime::parse(text.trim(), &Rfc3339).map_err(|_| RefusedEntry {
            line,
            code: "not_a_time",
            message,
        })
    };
    let start_at = row.start_at.filter(|text| !text.trim().is_empty()).map(parse_time).transpose()?;
    Ok(StartListEntry { bib, wave: label(row.wave)?, team: label(row.team)?, start_at, excluded: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept_csv(csv: &str) -> AcceptedStartList {
        SentStartList { csv: Some(csv.to_owned()), ..SentStartList::default() }.accept().unwrap()
    }

    fn bibs(accepted: &AcceptedStartList) -> Vec<&str> {
        accepted.entries.iter().filter(|entry| !entry.excluded).map(|entry| entry.bib.as_str()).collect()
    }

    fn refused(accepted: &AcceptedStartList) -> Vec<(usize, &str)> {
        accepted.refused.iter().map(|refused| (refused.line, refused.code)).collect()
    }

    #[test]
    fn what_is_no_bib_is_refused_with_its_line() {
        let accepted =
            accept_csv("Startnummer;Name\n12;Ada\nDNS;Bob\n012;Cid\n 1 2 ;Dan\n1234567890123;Eve\n");
        assert_eq!(bibs(&accepted), ["12", "012"]);
        assert_eq!(refused(&accepted), [(3, "not_a_bib"), (5, "duplicate"), (6, "not_a_bib")]);
        assert_eq!(accepted.refused[0].message, "'DNS' is no bib");
    }

    #[test]
    fn ranges_are_spelled_out_and_excluded_numbers_are_none_of_them() {
        let range = |from: &str, to: &str| BibRange::new(from, to).unwrap();
        let sent = SentStartList {
            entries: vec![RawEntry {
                line: 1,
                bib: "A8".into(),
                wave: Some("Elite".into()),
                ..RawEntry::default()
            }],
            ranges: vec![range("A7", "A11"), range("008", "010")],
            exclude: vec!["a10".into(), "999".into(), "none".into()],
            ..SentStartList::default()
        };
        let accepted = sent.accept().unwrap();
        assert_eq!(bibs(&accepted), ["A8", "A7", "A9", "A11", "008", "009", "010"]);
        assert_eq!(accepted.entries[0].wave.as_deref(), Some("Elite"), "an entry of its own says more");
        let excluded: Vec<&str> =
            accepted.entries.iter().filter(|entry| entry.excluded).map(|entry| entry.bib.as_str()).collect();
        assert_eq!(excluded, ["999", "A10"]);
        assert_eq!(refused(&accepted), [(3, "not_a_bib")]);
        let huge = SentStartList { ranges: vec![range("1", "999999999")], ..SentStartList::default() };
        assert!(huge.accept().is_err());
    }
}
