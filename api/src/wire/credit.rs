//! Requests and responses of `credits/*` and `usage/*`.

use photofinish_store::model::cost::CostQuery;
use photofinish_store::model::credit::{self as stored, Credits, UsageQuery};
use photofinish_store::model::key::KeyMode;
use serde::Serialize;
use serde_json::{Value, json};
use time::Date;
use time::format_description::BorrowedFormatItem;
use time::macros::{date, format_description};
use utoipa::ToSchema;
use uuid::Uuid;

use super::Output;
use crate::validate::input::{Fields, Input};
use crate::validate::issues::{PathSegment, code};
use crate::validate::validators::{ListOf, Number, OneOf, Text, formatted};

/// Rows of one report at most.
pub(crate) const MAX_USAGE_ROWS: u32 = 10_000;

/// The longest report, days.
const MAX_DAYS: i64 = 366;

const DAY_FORMAT: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day]");
const DAY_PATTERN: &str = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$";

/// The largest balance that a partner may set.
const MAX_MOCK_CREDITS: f64 = 1e9;

/// What an organization has.
#[derive(Serialize, ToSchema)]
pub(crate) struct CreditReport {
    /// `live` or `test`: the mode of the key, whose balances are apart.
    #[schema(example = "live")]
    pub(crate) mode: &'static str,
    /// What can still be used: granted, less spent and held.
    #[schema(value_type = f64)]
    pub(crate) balance: Credits,
    /// Held for photos that are queued or being processed: spent when they are ready, given back when they fail.
    #[schema(value_type = f64)]
    pub(crate) held: Credits,
    /// All that was ever granted.
    #[schema(value_type = f64)]
    pub(crate) granted: Credits,
    /// All that was ever spent.
    #[schema(value_type = f64, minimum = 0)]
    pub(crate) spent: Credits,
    /// Whether nothing is declined, whatever the balance.
    pub(crate) unlimited: bool,
    pub(crate) prices: CreditPrices,
}

/// What things cost, in credits.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CreditPrices {
    /// A photo that becomes ready. Failures, retries and reprocessing of a paid photo cost nothing.
    #[schema(value_type = f64, minimum = 0)]
    photo: Credits,
    /// All searches with one selfie.
    #[schema(value_type = f64, minimum = 0)]
    face_search: Credits,
    /// A bib search with all its pages.
    #[schema(value_type = f64, minimum = 0)]
    text_search: Credits,
    /// A download of many photos.
    #[schema(value_type = f64, minimum = 0)]
    download: Credits,
}

impl From<stored::Prices> for CreditPrices {
    fn from(prices: stored::Prices) -> Self {
        let stored::Prices { photo, face_search, text_search, download } = prices;
        Self { photo, face_search, text_search, download }
    }
}

impl Output for CreditReport {
    fn example() -> Self {
        Self {
            mode: KeyMode::Live.as_str(),
            balance: Credits::whole(8520),
            held: Credits::whole(3),
            granted: Credits::whole(10_000),
            spent: Credits::whole(1477),
            unlimited: false,
            prices: stored::Prices::default().into(),
        }
    }
}

/// Body of `credits/get`.
pub(crate) struct GetCredits;

impl Input for GetCredits {
    const NAME: &'static str = "GetCredits";

    fn read(_: &mut Fields<'_>) -> Option<Self> {
        Some(Self)
    }

    fn example() -> Value {
        json!({})
    }
}

/// Body of `credits/mock/set`.
pub(crate) struct SetMockCredits {
    pub(crate) balance: Credits,
}

impl Input for SetMockCredits {
    const NAME: &'static str = "SetMockCredits";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let balance = Number { min: 0.0, max: MAX_MOCK_CREDITS };
        let description =
            "What test keys can use from now on, until the refill at 00:00 UTC; rounded to three decimals.";
        let balance = fields.required("balance", description, balance);
        Some(Self { balance: Credits::from_f64(balance?)? })
    }

    fn example() -> Value {
        json!({ "balance": 0.5 })
    }
}

/// What rows of usage are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UsageKey {
    Day,
    Album,
    Operation,
}

impl UsageKey {
    const ALL: [Self; 3] = [Self::Day, Self::Album, Self::Operation];

    fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Album => "album",
            Self::Operation => "operation",
        }
    }
}

/// Body of `usage/get`.
pub(crate) struct GetUsage {
    /// Without its limit.
    pub(crate) query: UsageQuery,
    /// Whose usage; the caller's own if `None`.
    pub(crate) mode: Option<KeyMode>,
}

impl Input for GetUsage {
    const NAME: &'static str = "GetUsage";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let days = read_days(fields);
        let key = OneOf { choices: &UsageKey::ALL, to_name: UsageKey::as_str };
        let by = fields.optional(
            "by",
            "What each row is of; `day` and `operation` if missing.",
            ListOf { item: key, min: 1, max: UsageKey::ALL.len() },
        );
        let by = by.unwrap_or_else(|| vec![UsageKey::Day, UsageKey::Operation]);
        let mode = OneOf { choices: &[KeyMode::Test, KeyMode::Live], to_name: KeyMode::as_str };
        let description = "Whose usage: the key's own if missing. A key sees no other.";
        let mode = fields.optional("mode", description, mode);
        let (from, to) = days?;
        let query = UsageQuery {
            from,
            to,
            by_day: by.contains(&UsageKey::Day),
            by_album: by.contains(&UsageKey::Album),
            by_operation: by.contains(&UsageKey::Operation),
            limit: 0,
        };
        Some(Self { query, mode })
    }

    fn example() -> Value {
        json!({ "from": "2026-10-01", "to": "2026-10-31", "by": ["day", "operation"] })
    }
}

/// Reads the days of a report; reports what is wrong with them.
pub(crate) fn read_days(fields: &mut Fields<'_>) -> Option<(Date, Date)> {
    let from = fields.required("from", "The first day (UTC).", day());
    let to = fields.required("to", "The last day (UTC), 366 days at most from the first to the last.", day());
    let parse = |text: Option<String>| text.and_then(|text| Date::parse(&text, DAY_FORMAT).ok());
    let (from, to) = (parse(from), parse(to));
    if let (Some(from), Some(to)) = (from, to) {
        fields.check_together(|report| {
            let days = (to - from).whole_days() + 1;
            report.within(PathSegment::Field("to"), |report| match days {
                ..=0 => report.add(code::TOO_SMALL, "must not be before `from`"),
                1..=MAX_DAYS => {}
                _ => report.add(code::TOO_BIG, format!("must be within {MAX_DAYS} days from `from`")),
            });
        });
    }
    Some((from?, to?))
}

/// Reads days that may be open at both ends.
pub(crate) fn read_open_days(fields: &mut Fields<'_>) -> Option<(Date, Date)> {
    let from = fields.optional("from", "The first day (UTC); all that is kept if missing.", day());
    let to = fields.optional("to", "The last day (UTC); today if missing.", day());
    let parse = |text: String| Date::parse(&text, DAY_FORMAT).ok();
    let (from, to) = (from.and_then(parse), to.and_then(parse));
    if let (Some(from), Some(to)) = (from, to) {
        fields.check_together(|report| {
            report.within(PathSegment::Field("to"), |report| {
                if to < from {
                    report.add(code::TOO_SMALL, "must not be before `from`");
                }
            });
        });
    }
    Some((from.unwrap_or(CostQuery::FIRST_DAY), to.unwrap_or(CostQuery::LAST_DAY)))
}

/// A day as `2026-10-04`.
fn day() -> Text {
    formatted(10, DAY_PATTERN, |text| match Date::parse(text, DAY_FORMAT) {
        Ok(_) if text.len() == 10 => Ok(()),
        _ => Err("must be a day, such as 2026-10-04".to_owned()),
    })
}

/// What was used.
#[derive(Serialize, ToSchema)]
pub(crate) struct UsageReport {
    /// `live` or `test`: whose usage it is.
    #[schema(example = "live")]
    mode: &'static str,
    /// Days without usage have no rows.
    rows: Vec<UsageRow>,
    total: UsageTotal,
}

/// How often something was done.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UsageRow {
    /// With `by` `day`.
    #[schema(nullable = false, value_type = String, format = "date")]
    #[serde(skip_serializing_if = "Option::is_none")]
    day: Option<String>,
    /// With `by` `album`; also albums that were deleted.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    album_id: Option<Uuid>,
    /// With `by` `operation`: `photo` (became ready), `photo_failed`, `face_search`, `text_search`, the same of visitors
    /// of galleries as `gallery_face_search` and `gallery_text_search`, and `download`; may grow.
    #[schema(nullable = false, example = "photo")]
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<String>,
    #[schema(value_type = f64, minimum = 0)]
    count: u64,
    #[schema(value_type = f64)]
    credits: Credits,
}

/// The sums of all rows.
#[derive(Serialize, ToSchema)]
pub(crate) struct UsageTotal {
    #[schema(value_type = f64, minimum = 0)]
    count: u64,
    #[schema(value_type = f64)]
    credits: Credits,
}

impl UsageReport {
    pub(crate) fn new(mode: KeyMode, rows: Vec<stored::UsageRow>) -> Self {
        let total = UsageTotal {
            count: rows.iter().map(|row| row.count).sum(),
            credits: rows.iter().map(|row| row.credits).sum(),
        };
        Self { mode: mode.as_str(), rows: rows.into_iter().map(UsageRow::from).collect(), total }
    }
}

impl From<stored::UsageRow> for UsageRow {
    fn from(row: stored::UsageRow) -> Self {
        Self {
            // Days of the database have this format.
            day: row.day.and_then(|day| day.format(DAY_FORMAT).ok()),
            album_id: row.album.map(|album| album.0),
            operation: row.operation,
            count: row.count,
            credits: row.credits,
        }
    }
}

impl Output for UsageReport {
    fn example() -> Self {
        let row = |operation: stored::UsageOperation, count: u64, credits: i64| stored::UsageRow {
            day: Some(date!(2026 - 10 - 04)),
            album: None,
            operation: Some(operation.as_str().to_owned()),
            count,
            credits: Credits::whole(credits),
        };
        let rows = vec![
            row(stored::UsageOperation::Photo, 1477, 1477),
            row(stored::UsageOperation::PhotoFailed, 3, 0),
        ];
        Self::new(KeyMode::Live, rows)
    }
}
