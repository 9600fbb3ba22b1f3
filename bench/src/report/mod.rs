//! Reports of measurements: tables, goals and notes. Prints a report, writes it into its section of the results page, or
//! saves it as JSON. Does not measure.

pub mod goals;
pub mod machine;
pub mod statistics;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use crate::paths;
use crate::report::goals::{Goal, format_number};
use crate::report::machine::RunEnvironment;

/// Where to save a report.
#[derive(Clone, Debug, clap::Args)]
pub struct OutputOptions {
    /// Rewrites this command's section of `bench/RESULTS.md`.
    #[arg(long)]
    pub write: bool,
    /// Writes the figures as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Exits with 1 when a goal is missed.
    #[arg(long)]
    pub strict: bool,
}

/// The results of one measurement.
#[derive(Clone, Serialize)]
pub struct Report {
    /// Name of its section in the results page.
    pub section: String,
    /// Heading.
    pub title: String,
    /// Versions of other programs that took part.
    #[serde(skip)]
    pub versions: Vec<String>,
    /// Tables, in order.
    pub tables: Vec<Table>,
    /// Goals, met or missed.
    pub goals: Vec<Goal>,
    /// Notes below the tables.
    pub notes: Vec<String>,
    /// Lines that are printed and saved as JSON, but not written into the page.
    pub details: Vec<String>,
}

/// A table of text cells.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// Caption; may be empty.
    pub caption: String,
    /// Column names.
    pub columns: Vec<String>,
    /// Rows, with one cell per column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates an empty table.
    pub fn new(caption: &str, columns: &[&str]) -> Self {
        Self {
            caption: caption.to_owned(),
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn add_row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Formats it as Markdown with padded columns, which is readable on a terminal too.
    pub fn to_markdown(&self) -> String {
        let width = |i: usize| {
            let cells = self.rows.iter().map(|row| row.get(i).map_or(0, |cell| cell.chars().count()));
            cells.chain([self.columns[i].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |cells: &[String]| {
            let padded = widths.iter().enumerate().map(|(i, &width)| {
                let cell = cells.get(i).map_or("", String::as_str);
                format!(" {cell:<width$} ")
            });
            format!("|{}|\n", padded.collect::<Vec<_>>().join("|"))
        };
        let rule: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
        let mut text = if self.caption.is_empty() { String::new() } else { format!("{}\n\n", self.caption) };
        text += &line(&self.columns);
        text += &line(&rule);
        for row in &self.rows {
            text += &line(row);
        }
        text
    }
}

impl Report {
    /// Creates an empty report.
    pub fn new(section: impl Into<String>, title: &str) -> Self {
        Self {
            section: section.into(),
            title: title.to_owned(),
            versions: Vec::new(),
            tables: Vec::new(),
            goals: Vec::new(),
            notes: Vec::new(),
            details: Vec::new(),
        }
    }

    /// Prints it to standard output.
    pub fn print(&self) {
        println!("{}", self.to_markdown(&RunEnvironment::detect(&paths::root(), &self.versions)));
        for line in &self.details {
            println!("{line}");
        }
    }

    /// Prints the report and saves it as the options say.
    ///
    /// # Errors
    /// When it cannot be saved, and with `--strict` when a goal is missed.
    pub fn publish(self, output: &OutputOptions) -> anyhow::Result<()> {
        self.print();
        self.save(output)?;
        if output.strict && !self.goals.iter().all(goals::Goal::is_met) {
            anyhow::bail!("a goal was missed");
        }
        Ok(())
    }

    /// Saves it as the options say.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn save(&self, output: &OutputOptions) -> anyhow::Result<()> {
        let environment = RunEnvironment::detect(&paths::root(), &self.versions);
        if let Some(path) = &output.json {
            self.write_json(path, &environment)?;
        }
        if output.write {
            write_section(&paths::results_page(), &self.section, &self.to_markdown(&environment))?;
        }
        Ok(())
    }

    /// Writes it as JSON and as Markdown, under a path without its ending, and returns the path of the latter.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn keep(&self, path: &Path) -> anyhow::Result<PathBuf> {
        let environment = RunEnvironment::detect(&paths::root(), &self.versions);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        }
        self.write_json(&path.with_extension("json"), &environment)?;
        let page = path.with_extension("md");
        std::fs::write(&page, self.to_markdown(&environment))
            .with_context(|| format!("writing {}", page.display()))?;
        Ok(page)
    }

    fn write_json(&self, path: &Path, environment: &RunEnvironment) -> anyhow::Result<()> {
        let value = serde_json::json!({ "setting": environment.line, "command": environment.command, "report": self });
        std::fs::write(path, serde_json::to_vec_pretty(&value)?)
            .with_context(|| format!("writing {}", path.display()))
    }

    fn to_markdown(&self, environment: &RunEnvironment) -> String {
        let mut text =
            format!("## {}\n\n{}.\n\n```\n{}\n```\n\n", self.title, environment.line, environment.command);
        for table in &self.tables {
            text += &table.to_markdown();
            text.push('\n');
        }
        if !self.goals.is_empty() {
            text += &self.goal_table().to_markdown();
            text.push('\n');
        }
        for note in &self.notes {
            writeln!(text, "- {note}").expect("writing to a string cannot fail");
        }
        text
    }

    fn goal_table(&self) -> Table {
        let mut table = Table::new("", &["goal", "target", "measured", "met"]);
        for goal in &self.goals {
            let met = if goal.is_met() { "yes" } else { "NO" };
            table.add_row([
                goal.what.clone(),
                goal.describe_target(),
                format_number(goal.figure),
                met.to_owned(),
            ]);
        }
        table
    }
}

/// Replaces the text between the section's markers in `page`, or appends it with its markers.
fn write_section(page: &Path, section: &str, text: &str) -> anyhow::Result<()> {
    let old = match std::fs::read_to_string(page) {
        Ok(old) => old,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("reading {}", page.display())),
    };
    std::fs::write(page, replace_section(&old, section, text))
        .with_context(|| format!("writing {}", page.display()))
}

/// Reads the rows of the first table of a section of the results page; none where there is no such section.
///
/// # Errors
/// When the page cannot be read.
pub fn read_published_rows(section: &str) -> anyhow::Result<Vec<Vec<String>>> {
    let page = paths::results_page();
    let text = std::fs::read_to_string(&page).with_context(|| format!("reading {}", page.display()))?;
    Ok(find_rows(&text, section))
}

fn find_rows(page: &str, section: &str) -> Vec<Vec<String>> {
    let start = format!("<!-- bench {section} start -->");
    let end = format!("<!-- bench {section} end -->");
    let text = page.split_once(&start).map_or("", |(_, after)| after);
    let text = text.split_once(&end).map_or("", |(within, _)| within);
    let lines =
        text.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    // After the names of the columns and the rule below them.
    lines.skip(2).map(cells).collect()
}

fn replace_section(page: &str, section: &str, text: &str) -> String {
    let start = format!("<!-- bench {section} start -->");
    let end = format!("<!-- bench {section} end -->");
    let block = format!("{start}\n{}\n{end}", text.trim_end());
    match (page.find(&start), page.find(&end)) {
        (Some(from), Some(to)) if from < to => format!("{}{block}{}", &page[..from], &page[to + end.len()..]),
        _ => format!("{}\n\n{block}\n", page.trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_replaced_between_its_markers_and_nothing_else_is() {
        let page = replace_section("# Results\n", "cpu", "old");
        let page = replace_section(&page, "bibs", "recall");
        let page = replace_section(&page, "cpu", "new\n");
        assert!(page.starts_with("# Results\n"));
        assert!(page.contains("<!-- bench cpu start -->\nnew\n<!-- bench cpu end -->"));
        assert!(page.contains("<!-- bench bibs start -->\nrecall\n<!-- bench bibs end -->"));
        assert!(!page.contains("old"));
    }

    #[test]
    fn the_rows_of_a_published_table_are_read_again() {
        let mut table = Table::new("Caption", &["a", "figure"]);
        table.add_row(["longer", "1"]);
        table.add_row(["b", ""]);
        let page =
            replace_section("# Results\n", "soak", &format!("text\n\n{}\n- note\n", table.to_markdown()));
        assert_eq!(find_rows(&page, "soak"), table.rows);
        assert_eq!(find_rows(&page, "cpu"), Vec::<Vec<String>>::new());
    }

    #[test]
    fn a_report_is_kept_as_a_page_and_as_json() {
        let folder = tempfile::tempdir().unwrap();
        let mut report = Report::new("gpu-test", "A device");
        report.goals.push(Goal::at_most("minutes", 11.0, 10.0));
        let page = report.keep(&folder.path().join("new").join("gpu-check")).unwrap();
        assert!(page.ends_with("gpu-check.md"));
        let text = std::fs::read_to_string(&page).unwrap();
        assert!(text.contains("## A device") && text.contains("| NO "), "{text}");
        let json = std::fs::read(page.with_extension("json")).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json["report"]["goals"][0]["figure"], 11.0);
    }

    #[test]
    fn tables_line_up() {
        let mut table = Table::new("", &["a", "figure"]);
        table.add_row(["longer", "1"]);
        assert_eq!(table.to_markdown(), "| a      | figure |\n| ------ | ------ |\n| longer | 1      |\n");
    }
}
