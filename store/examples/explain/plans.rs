//! The plans that the server sends, and the report of them.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event as LogEvent, Metadata, Subscriber};

/// Collects the plans that the server sends, in order.
#[derive(Clone, Default)]
pub struct Plans(Arc<Mutex<Vec<String>>>);

impl Plans {
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Subscriber for Plans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "sqlx::postgres::notice"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &LogEvent<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Visit for Plans {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(value.to_owned());
        }
    }
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

/// The report to print: a table with a line per statement, then each statement with its plan.
pub struct PlanReport {
    pub plans: Plans,
    summary: String,
    body: String,
    /// Steps that read a whole table or sort, with their statements.
    suspects: Vec<String>,
}

impl PlanReport {
    /// An empty report of these plans.
    pub fn new(plans: Plans) -> Self {
        Self { plans, summary: String::new(), body: String::new(), suspects: Vec::new() }
    }

    /// Adds the plan with the most rows among those whose statement contains the text.
    pub fn add_plan(&mut self, plans: &[String], what: &str, contains: &str) {
        let is_it = |plan: &&String| {
            plan.lines().any(|line| line.starts_with("Query Text") && line.contains(contains))
        };
        let plan = plans.iter().filter(is_it).max_by_key(|plan| max_rows(plan));
        let plan = plan.unwrap_or_else(|| panic!("no plan of a statement with `{contains}`"));
        let milliseconds = between(plan, "duration: ", " ms").unwrap_or_default();
        let pages = between(plan, "Buffers: shared hit=", "\n").unwrap_or_default();
        let hit = pages.split(' ').next().unwrap_or_default();
        let read = between(pages, "read=", " ").unwrap_or("0");
        self.summary += &format!("| {what} | {} | {milliseconds} | {hit} | {read} |\n", max_rows(plan));
        let is_suspect = |line: &&str| line.contains("Seq Scan on") || line.contains("Sort Key:");
        let steps = plan.lines().filter(is_suspect);
        self.suspects.extend(steps.map(|step| format!("{what}: {}", step.trim())));
        self.body += &format!("\n## {what}\n\n```\n{}\n```\n", shorten_lists(plan.trim_end()));
    }

    pub fn print(&self) {
        println!("\n| statement | rows | ms | pages from memory | pages from disk |\n|---|---|---|---|---|");
        print!("{}{}", self.summary, self.body);
        for suspect in &self.suspects {
            eprintln!("{suspect}");
        }
    }
}

fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    let rest = text.split_once(before)?.1;
    Some(rest.split(after).next().unwrap_or(rest))
}

/// The largest row count of any step of the plan: the top line does not count the rows that a statement changes.
fn max_rows(plan: &str) -> u64 {
    let steps = plan.split("(actual time=").skip(1);
    steps.filter_map(|step| between(step, "rows=", " ")?.parse().ok()).max().unwrap_or(0)
}

/// Shortens long lists of values to the first few.
fn shorten_lists(plan: &str) -> String {
    const KEPT: usize = 3;
    let mut text = String::new();
    for (number, part) in plan.split("'{").enumerate() {
        if number == 0 {
            text += part;
            continue;
        }
        let (list, rest) = part.split_once("}'").unwrap_or((part, ""));
        let values: Vec<&str> = list.split(',').collect();
        let kept = values[..KEPT.min(values.len())].join(",");
        let more = values.len().saturating_sub(KEPT);
        let left_out = if more > 0 { format!(", and {more} more") } else { String::new() };
        text += &format!("'{{{kept}{left_out}}}'{rest}");
    }
    text
}
