//! Finds the spellings of a bib: with as many leading zeros as the start list of its album takes for that bib alone. Readers of
//! bibs lose zeros, and timing software does.

use crate::bibs::start_list::StartList;
use crate::model::album::AlbumConfig;
use crate::model::ids::AlbumId;
use crate::model::start_list::StartListEntry;
use crate::sql::database::Transaction;
use crate::sql::row_types::from_json;
use crate::sql::statement::{Statement, query};
use crate::traits::Result;

/// The longest bib of a start list.
const MAX_LENGTH: usize = 12;

const ENTRIES_OF_BIBS: Statement = Statement::PerDialect {
    sqlite: "select bib, excluded from start_list_entry \
             where album = $1 and bib in (select value from json_each($2))",
    postgres: "select bib, excluded from start_list_entry where album = $1 and bib = any($2)",
};

/// Returns a bib and what else its album's start list takes for it; the bib alone without a list, or where the list does not say
/// which bib it is.
pub(super) async fn find_spellings(
    transaction: &mut Transaction,
    operation: &'static str,
    album: AlbumId,
    bib: &str,
) -> Result<Vec<String>> {
    let mut spellings = vec![bib.to_owned()];
    let padded = pad_with_zeros(bib);
    let config: Option<(String,)> = query(operation, "select config from album where id = $1")
        .bind(album)
        .fetch_optional(&mut *transaction)
        .await?;
    let Some((config,)) = config.filter(|_| !padded.is_empty()) else { return Ok(spellings) };
    let config: AlbumConfig = from_json(&config)?;
    // No other entry has a say in which bib these are.
    let rows: Vec<(String, i64)> =
        query(operation, ENTRIES_OF_BIBS).bind(album).bind(padded.clone()).fetch_all(transaction).await?;
    let to_entry = |(bib, excluded): (String, i64)| StartListEntry {
        excluded: excluded != 0,
        ..StartListEntry::of(bib)
    };
    let entries: Vec<StartListEntry> = rows.into_iter().map(to_entry).collect();
    let Some(list) = StartList::new(&entries, &config) else { return Ok(spellings) };
    if let Some(meant) = list.find(bib) {
        let is_same = |spelling: &String| spelling != bib && list.find(spelling) == Some(meant);
        spellings.extend(padded.into_iter().filter(is_same));
    }
    Ok(spellings)
}

/// A bib with every number of leading zeros that a bib of a list can have.
fn pad_with_zeros(bib: &str) -> Vec<String> {
    let short = bib.trim_start_matches('0');
    if short.is_empty() {
        return Vec::new();
    }
    let zeros = 0..=MAX_LENGTH.saturating_sub(short.chars().count());
    zeros.map(|zeros| format!("{}{short}", "0".repeat(zeros))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bibs_have_as_many_zeros_as_fit() {
        assert_eq!(pad_with_zeros("0012345678AB"), ["12345678AB", "012345678AB", "0012345678AB"]);
        assert_eq!(pad_with_zeros("123456789ABCDE"), ["123456789ABCDE"], "longer than any of a list");
        assert!(pad_with_zeros("000").is_empty());
    }
}
