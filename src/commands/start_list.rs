//! `photofinish start-list`: imports, checks, shows and deletes the start list of an album, through the partner API.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use photofinish_client::{Client, ClientOptions};
use serde_json::{Value, json};
use url::Url;
use uuid::Uuid;

/// Windows-1252 where it is not Latin-1: the characters of the bytes from 0x80 to 0x9f. Five of them have none.
const WINDOWS_1252: [char; 32] = [
    '€', '\u{fffd}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{fffd}', 'Ž', '\u{fffd}',
    '\u{fffd}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{fffd}', 'ž', 'Ÿ',
];

/// What to do with the start list of an album.
#[derive(Subcommand)]
pub enum StartListCommand {
    /// Imports a CSV file; photos are judged by it, and not read again
    Import(ImportArguments),
    /// Shows what an import would change, and changes nothing
    Check(ImportArguments),
    /// Shows how many bibs the list has and how many photos are judged by it
    Show(AlbumArguments),
    /// Removes the list: every text becomes what was read
    Delete(AlbumArguments),
}

/// An album of a service.
#[derive(Args)]
pub struct AlbumArguments {
    /// The service's address, for example http://127.0.0.1:8080
    #[arg(long)]
    url: Url,
    /// An API key with the scope album:manage
    #[arg(long, env = "PHOTOFINISH_KEY", hide_env_values = true)]
    key: String,
    /// The album
    #[arg(long)]
    album: Uuid,
}

/// A list to import.
#[derive(Args)]
pub struct ImportArguments {
    #[command(flatten)]
    of: AlbumArguments,
    /// What becomes of the bibs that the album has
    #[arg(long, value_enum, default_value = "replace")]
    mode: Mode,
    /// The name of the column of bibs, where the service does not guess it
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// The file: fields separated by commas, semicolons or tabs, with a header; UTF-8 or Windows-1252
    file: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    Replace,
    Merge,
}

impl ImportArguments {
    fn to_body(&self) -> anyhow::Result<Value> {
        let bytes = std::fs::read(&self.file).with_context(|| format!("reading {}", self.file.display()))?;
        let mode = if self.mode == Mode::Merge { "merge" } else { "replace" };
        let mut body = json!({ "albumId": self.of.album, "mode": mode, "csv": decode(bytes) });
        if let Some(column) = &self.column {
            body["columns"] = json!({ "bib": column });
        }
        Ok(body)
    }
}

/// The text of a file: UTF-8, or Windows-1252 where it is none.
fn decode(bytes: Vec<u8>) -> String {
    let to_char = |byte: u8| match byte {
        0x80..=0x9f => WINDOWS_1252[usize::from(byte - 0x80)],
        other => char::from(other),
    };
    String::from_utf8(bytes)
        .unwrap_or_else(|error| error.as_bytes().iter().map(|&byte| to_char(byte)).collect())
}

/// Runs a command and prints what the service says of it.
///
/// # Errors
/// When the file cannot be read, or the service refuses the key, the album or the list.
pub fn run(command: &StartListCommand) -> anyhow::Result<ExitCode> {
    let at = match command {
        StartListCommand::Import(import) | StartListCommand::Check(import) => &import.of,
        StartListCommand::Show(album) | StartListCommand::Delete(album) => album,
    };
    let client = Client::new(at.url.as_str(), &at.key, ClientOptions::default());
    let call = |operation: &str, body: Value| -> anyhow::Result<Value> {
        let answer = client.call(&format!("albums/startlist/{operation}"), &body);
        answer.with_context(|| format!("albums/startlist/{operation}"))
    };
    match command {
        StartListCommand::Import(import) => print_import(&call("import", import.to_body()?)?),
        StartListCommand::Check(import) => print_check(&call("check", import.to_body()?)?),
        StartListCommand::Show(album) => {
            let list = call("get", json!({ "albumId": album.album }))?;
            println!("{} bibs; {} photos judged, {} left", list["entries"], list["judged"], list["left"]);
            if list["withoutLattice"] != 0 {
                println!(
                    "{} photos were read before lattices were stored: `albums/reprocess` reads them again",
                    list["withoutLattice"]
                );
            }
        }
        StartListCommand::Delete(album) => {
            call("delete", json!({ "albumId": album.album }))?;
            println!("deleted");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print_import(imported: &Value) {
    let (entries, added, removed) = (&imported["entries"], &imported["added"], &imported["removed"]);
    println!("{entries} bibs: {added} added, {removed} removed");
    println!("{} photos are judged again", imported["judging"]["photos"]);
    for line in describe_refused(imported) {
        println!("{line}");
    }
    print_warnings(imported);
}

/// A line for each refused row that the service names, and one for the others, of which it gives the number.
fn describe_refused(imported: &Value) -> Vec<String> {
    let rows = imported["refused"].as_array().map(Vec::as_slice).unwrap_or_default();
    let describe =
        |row: &Value| format!("line {}: {}", row["line"], row["message"].as_str().unwrap_or_default());
    let mut lines: Vec<String> = rows.iter().map(describe).collect();
    let others = imported["refusedCount"].as_u64().unwrap_or_default().saturating_sub(rows.len() as u64);
    if others > 0 {
        lines.push(format!("... and {others} more rows were refused"));
    }
    lines
}

fn print_check(checked: &Value) {
    println!(
        "{} photos: {} texts found by exact searches now, {} then, {} changed, {} rows refused",
        checked["photos"],
        checked["indexedNow"],
        checked["indexedThen"],
        checked["changed"],
        checked["refusedCount"]
    );
    for text in checked["examples"].as_array().into_iter().flatten() {
        let after = text["after"].as_str().unwrap_or("no answer");
        println!("{}: {} becomes {after}", text["photoId"].as_str().unwrap_or_default(), text["before"]);
    }
    print_warnings(checked);
}

fn print_warnings(answer: &Value) {
    for warning in answer["warnings"].as_array().into_iter().flatten() {
        println!("warning: {}", warning["message"].as_str().unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_utf_8_or_what_spreadsheets_write() {
        assert_eq!(decode("Équipe;1".as_bytes().to_vec()), "Équipe;1");
        assert_eq!(decode(b"\xc9quipe;\x80".to_vec()), "Équipe;€");
    }

    #[test]
    fn refused_rows_that_are_not_named_are_counted() {
        let row = json!({ "line": 3, "code": "not_a_bib", "message": "'DNS' is no bib" });
        let answer = |count: u64| json!({ "refused": [&row], "refusedCount": count });
        assert_eq!(describe_refused(&answer(1)), ["line 3: 'DNS' is no bib"]);
        let lines = describe_refused(&answer(142));
        assert_eq!(lines, ["line 3: 'DNS' is no bib", "... and 141 more rows were refused"]);
        assert!(describe_refused(&json!({ "refused": [], "refusedCount": 0 })).is_empty());
    }
}
