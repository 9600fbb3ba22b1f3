//! What a start list that a partner sends is made of: rows of a CSV file or of JSON, ranges of numbers, numbers that
//! nobody wears. Every bib once, and what is no bib is refused with its line. Names of people are never taken.

pub(crate) mod csv;
mod ranges;

use std::collections::{BTreeSet, HashMap};

use photofinish_store::model::start_list::{ImportMode, StartListEntry};
use photofinish_store::search::variants::normalise_bib;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::errors::ApiError;
use crate::errors::table::DeclineCode;
use crate::validate::input::count_units;
use crate::validate::issues::{Issue, PathSegment, code};

pub(crate) use self::ranges::BibRange;

/// Most bibs of an album, with ranges spelled out, and most numbers that are excluded.
pub(crate) const MAX_ENTRIES: u64 = 100_000;

/// Most numbers in the ranges of one request, which may overlap each other, the rows and the excluded numbers: bounds the work of
/// spelling them out.
const MAX_IN_RANGES: u64 = 500_000;

/// Bibs that cost a unit of a key's limit. Most lists have fewer; the longest costs a sixth of what a key usually has.
const BIBS_PER_UNIT: usize = 5000;

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
    /// Returns what it costs of the limit of a key, by its bibs and numbers, with the ranges spelled out.
    pub(crate) fn units(&self) -> u32 {
        let rows = match &self.csv {
            Some(csv) => count_rows(csv),
            None => self.entries.len(),
        };
        // Where there are too many, none is spelled out.
        let in_ranges = Some(count_in_ranges(&self.ranges)).filter(|numbers| *numbers <= MAX_IN_RANGES);
        let in_ranges = in_ranges.map_or(0, |numbers| usize::try_from(numbers).unwrap_or(usize::MAX));
        count_units(rows + self.exclude.len() + in_ranges, BIBS_PER_UNIT)
    }

    /// Returns what of it is a start list.
    ///
    /// # Errors
    /// 400 when the file has no column of bibs, or when no row of what would replace a list has one; 422 when there are
    /// too many entries.
    pub(crate) fn accept(self, mode: ImportMode) -> Result<AcceptedStartList, ApiError> {
        let mut accepted = AcceptedStartList::default();
        let mut known: HashMap<String, usize> = HashMap::new();
        let (source, times) = match (&self.csv, &self.columns.start_at) {
            (Some(_), None) => ("csv", StartTimes::Guessed),
            (Some(_), Some(_)) => ("csv", StartTimes::Named),
            (None, _) => ("entries", StartTimes::Named),
        };
        let rows = match &self.csv {
            Some(csv) => csv::parse(csv, &self.columns)
                .map_err(|message| invalid(source, code::INVALID_FORMAT, message))?,
            None => self.entries,
        };
        for row in rows {
            let line = row.line;
            match accept_entry(row, times) {
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
        // A list of which nothing was understood would delete the one that is there.
        if let (ImportMode::Replace, true, Some(first)) =
            (mode, accepted.entries.is_empty(), accepted.refused.first())
        {
            let RefusedEntry { line, message, .. } = first;
            let message =
                format!("would replace the list by nothing: no row was taken; line {line}: {message}");
            return Err(invalid(source, code::INVALID_VALUE, message));
        }
        let excluded = read_excluded(&self.exclude, &mut accepted.refused);
        // Excluded numbers take the place of entries.
        accepted.entries.retain(|entry| !excluded.contains(&entry.bib));
        spell_out(&self.ranges, &mut known, &excluded, &mut accepted.entries)?;
        let excluded =
            excluded.into_iter().map(|bib| StartListEntry { excluded: true, ..StartListEntry::of(bib) });
        accepted.entries.extend(excluded);
        Ok(accepted)
    }
}

fn read_excluded(numbers: &[String], refused: &mut Vec<RefusedEntry>) -> BTreeSet<String> {
    let mut excluded = BTreeSet::new();
    for (at, number) in numbers.iter().enumerate() {
        match parse_bib(number) {
            Some(bib) => {
                excluded.insert(bib);
            }
            None => refused.push(not_a_bib(at + 1, number)),
        }
    }
    excluded
}

/// Adds the bibs of ranges that are not known yet, nor excluded.
fn spell_out(
    ranges: &[BibRange],
    known: &mut HashMap<String, usize>,
    excluded: &BTreeSet<String>,
    entries: &mut Vec<StartListEntry>,
) -> Result<(), ApiError> {
    let too_large = || ApiError::declined(DeclineCode::StartListTooLarge);
    if count_in_ranges(ranges) > MAX_IN_RANGES || entries.len() as u64 > MAX_ENTRIES {
        return Err(too_large());
    }
    for entry in ranges.iter().flat_map(BibRange::entries) {
        if known.contains_key(&entry.bib) || excluded.contains(&entry.bib) {
            continue;
        }
        if entries.len() as u64 == MAX_ENTRIES {
            return Err(too_large());
        }
        known.insert(entry.bib.clone(), 0);
        entries.push(entry);
    }
    Ok(())
}

/// The lines of a CSV file after its header. Old spreadsheets end them with CR alone.
fn count_rows(csv: &str) -> usize {
    let count = |end: u8| csv.bytes().filter(|byte| *byte == end).count();
    count(b'\n').max(count(b'\r')).saturating_sub(1)
}

fn count_in_ranges(ranges: &[BibRange]) -> u64 {
    ranges.iter().map(BibRange::len).sum()
}

fn invalid(field: &'static str, code: &'static str, message: String) -> ApiError {
    ApiError::invalid(&[Issue { path: vec![PathSegment::Field(field)], code, message }])
}

/// A bib in upper case without spaces and punctuation: letters and digits, one digit at least.
pub(crate) fn parse_bib(text: &str) -> Option<String> {
    let bib = normalise_bib(without_fraction(text));
    let is_bib = (1..=MAX_BIB).contains(&bib.len())
        && bib.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && bib.bytes().any(|byte| byte.is_ascii_digit());
    is_bib.then_some(bib)
}

/// A number without the fraction that columns of floats have: `123.0` and `123,00` are 123. Three zeros are a thousand:
/// `1.000` stays 1000.
fn without_fraction(text: &str) -> &str {
    let text = text.trim();
    let is_number = |whole: &str| !whole.is_empty() && whole.bytes().all(|byte| byte.is_ascii_digit());
    match text.rsplit_once(['.', ',']) {
        Some((whole, "0" | "00")) if is_number(whole) => whole,
        _ => text,
    }
}

fn not_a_bib(line: usize, text: &str) -> RefusedEntry {
    let shown: String = text.trim().chars().take(40).collect();
    RefusedEntry { line, code: "not_a_bib", message: format!("'{shown}' is no bib") }
}

/// Where the start times of rows are from.
#[derive(Clone, Copy)]
enum StartTimes {
    /// The caller says that they are times.
    Named,
    /// A column whose name may mean them. What is no time there is something else, `Block A` or `09:30:00`, and no reason
    /// to refuse a row.
    Guessed,
}

fn accept_entry(row: RawEntry, times: StartTimes) -> Result<StartListEntry, RefusedEntry> {
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
    let start_at = row.start_at.filter(|text| !text.trim().is_empty()).map(parse_time).transpose();
    let start_at = match times {
        StartTimes::Named => start_at?,
        StartTimes::Guessed => start_at.unwrap_or_default(),
    };
    Ok(StartListEntry { bib, wave: label(row.wave)?, team: label(row.team)?, start_at, excluded: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept_csv(csv: &str) -> AcceptedStartList {
        sent_csv(csv).accept(ImportMode::Replace).unwrap()
    }

    fn sent_csv(csv: &str) -> SentStartList {
        SentStartList { csv: Some(csv.to_owned()), ..SentStartList::default() }
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
        let accepted = sent.accept(ImportMode::Replace).unwrap();
        assert_eq!(bibs(&accepted), ["A8", "A7", "A9", "A11", "008", "009", "010"]);
        assert_eq!(accepted.entries[0].wave.as_deref(), Some("Elite"), "an entry of its own says more");
        let excluded: Vec<&str> =
            accepted.entries.iter().filter(|entry| entry.excluded).map(|entry| entry.bib.as_str()).collect();
        assert_eq!(excluded, ["999", "A10"]);
        assert_eq!(refused(&accepted), [(3, "not_a_bib")]);
        let huge = SentStartList { ranges: vec![range("1", "999999999")], ..SentStartList::default() };
        assert!(huge.accept(ImportMode::Replace).is_err());
    }

    #[test]
    fn a_list_is_as_long_as_it_has_different_bibs() {
        let range = |from: &str, to: &str| BibRange::new(from, to).unwrap();
        let accept = |sent: SentStartList| sent.accept(ImportMode::Replace);
        let rows: String = (1..=60_000).map(|bib| format!("{bib}\n")).collect();
        let with_ranges = |ranges: Vec<BibRange>| {
            let exclude = vec!["7".into(), "60001".into()];
            SentStartList { ranges, exclude, ..sent_csv(&format!("bib\n{rows}")) }
        };
        let accepted = accept(with_ranges(vec![range("1", "50000")])).unwrap();
        assert_eq!((bibs(&accepted).len(), accepted.entries.len()), (59_999, 60_001));
        let accepted = accept(with_ranges(vec![range("60001", "100002")])).unwrap();
        assert_eq!(bibs(&accepted).len(), 100_000, "two of them are excluded");
        assert!(accept(with_ranges(vec![range("60001", "100003")])).is_err());
        let overlapping = |count| vec![range("1", "50000"); count];
        assert!(accept(with_ranges(overlapping(10))).is_ok());
        assert!(accept(with_ranges(overlapping(11))).is_err(), "however few they are in the end");
    }

    #[test]
    fn the_fraction_of_a_number_is_no_digits_of_a_bib() {
        let accepted =
            accept_csv("Bib;Name\n123.0;Ada\n124,00;Bob\n 125.0 ;Cid\n1.000;Dan\n1.207;Eve\nA1.0;Fay\n");
        assert_eq!(bibs(&accepted), ["123", "124", "125", "1000", "1207", "A10"]);
        let excluded = SentStartList { exclude: vec!["2024.0".into()], ..SentStartList::default() };
        assert_eq!(excluded.accept(ImportMode::Replace).unwrap().entries[0].bib, "2024");
    }

    #[test]
    fn a_row_is_taken_without_what_is_no_time_in_a_column_that_was_guessed() {
        let csv = "Startnummer;Startzeit\n12;09:30:00\n13;Block A\n14;2026-10-04T09:00:00Z\n";
        let accepted = accept_csv(csv);
        assert_eq!(bibs(&accepted), ["12", "13", "14"]);
        let has_time: Vec<bool> = accepted.entries.iter().map(|entry| entry.start_at.is_some()).collect();
        assert_eq!(has_time, [false, false, true]);
        let columns = csv::Columns { start_at: Some("Startzeit".into()), ..csv::Columns::default() };
        let named = SentStartList { columns, ..sent_csv(csv) }.accept(ImportMode::Replace).unwrap();
        assert_eq!(refused(&named), [(2, "not_a_time"), (3, "not_a_time")], "the caller says what it is");
    }

    #[test]
    fn a_list_of_which_no_row_is_taken_replaces_none() {
        let nothing = || sent_csv("Bib\nDNS\nDNF\n");
        assert!(nothing().accept(ImportMode::Replace).is_err());
        assert_eq!(nothing().accept(ImportMode::Merge).unwrap().refused.len(), 2);
        let row = RawEntry { line: 1, bib: "DNS".into(), ..RawEntry::default() };
        let entries = SentStartList { entries: vec![row], ..SentStartList::default() };
        assert!(entries.accept(ImportMode::Replace).is_err());
        assert!(sent_csv("Bib\n").accept(ImportMode::Replace).is_ok(), "a list without rows says so");
    }
}
