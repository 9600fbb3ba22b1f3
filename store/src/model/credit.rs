//! Credits: what organizations pay with, in thousandths, so that sums are exact.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Neg, Sub};
use std::str::FromStr;

use serde::{Serialize, Serializer};
use time::Date;

use crate::model::album::Tenant;
use crate::model::ids::{AlbumId, ProbeId};

/// An amount of credits with three decimals.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Credits(i64);

impl Credits {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The largest amount that can be given: a JSON number that has three exact decimals.
    pub const MAX: Self = Self(1_000_000_000 * 1000);

    /// So many whole credits.
    pub const fn whole(credits: i64) -> Self {
        Self(credits.saturating_mul(1000))
    }

    /// So many thousandths.
    pub const fn from_thousandths(thousandths: i64) -> Self {
        Self(thousandths)
    }

    /// The amount in thousandths.
    pub const fn thousandths(self) -> i64 {
        self.0
    }

    /// The nearest amount to a number; `None` beyond [`Self::MAX`] on either side.
    pub fn from_f64(credits: f64) -> Option<Self> {
        let thousandths = (credits * 1000.0).round();
        #[expect(clippy::cast_possible_truncation, reason = "checked")]
        let amount = Self(thousandths as i64);
        (thousandths.abs() <= Self::MAX.0 as f64).then_some(amount)
    }

    /// The amount as a number.
    pub fn to_f64(self) -> f64 {
        self.0 as f64 / 1000.0
    }

    /// How many things of this price the amount covers.
    pub fn covers(self, price: Self) -> usize {
        if price.0 <= 0 {
            return usize::MAX;
        }
        usize::try_from(self.0.max(0) / price.0).unwrap_or(usize::MAX)
    }
}

impl Add for Credits {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Credits {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Neg for Credits {
    type Output = Self;
    fn neg(self) -> Self {
        Self(self.0.saturating_neg())
    }
}

impl Sum for Credits {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Self::add)
    }
}

/// At most three decimals, none that are zero at the end.
impl fmt::Display for Credits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (whole, rest) = (self.0.unsigned_abs() / 1000, self.0.unsigned_abs() % 1000);
        if rest == 0 {
            return write!(f, "{sign}{whole}");
        }
        let decimals = format!("{rest:03}");
        write!(f, "{sign}{whole}.{}", decimals.trim_end_matches('0'))
    }
}

impl fmt::Debug for Credits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credits({self})")
    }
}

/// The text is no amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a number with at most three decimals, up to a billion")]
pub struct NoAmount;

impl FromStr for Credits {
    type Err = NoAmount;

    fn from_str(text: &str) -> Result<Self, NoAmount> {
        let (digits, is_negative) = text.strip_prefix('-').map_or((text, false), |digits| (digits, true));
        let (whole, decimals) = digits.split_once('.').unwrap_or((digits, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(decimals) || decimals.len() > 3 {
            return Err(NoAmount);
        }
        let whole: i64 = whole.parse().map_err(|_| NoAmount)?;
        let decimals: i64 = format!("{decimals:0<3}").parse().map_err(|_| NoAmount)?;
        let amount = whole.checked_mul(1000).and_then(|whole| whole.checked_add(decimals)).ok_or(NoAmount)?;
        if amount > Self::MAX.0 {
            return Err(NoAmount);
        }
        Ok(Self(if is_negative { -amount } else { amount }))
    }
}

/// A JSON number, without decimals where there are none.
impl Serialize for Credits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 % 1000 == 0 {
            serializer.serialize_i64(self.0 / 1000)
        } else {
            serializer.serialize_f64(self.to_f64())
        }
    }
}

/// What things cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prices {
    /// A photo that became ready.
    pub photo: Credits,
    /// The searches with one selfie.
    pub face_search: Credits,
    /// A bib search, with all its pages.
    pub text_search: Credits,
    /// A download of many photos.
    pub download: Credits,
}

impl Default for Prices {
    fn default() -> Self {
        let free = Credits::ZERO;
        Self { photo: Credits::whole(1), face_search: free, text_search: free, download: free }
    }
}

/// How credits are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditSettings {
    /// What things cost.
    pub prices: Prices,
    /// Whether what the balance does not cover is declined. It is counted in any case.
    pub is_enforced: bool,
    /// What test keys have at the beginning of each day (UTC).
    pub mock_credits: Credits,
    /// The balance is low below this share of the last grant, percent; 0 for never.
    pub low_percent: u32,
}

impl Default for CreditSettings {
    fn default() -> Self {
        Self {
            prices: Prices::default(),
            is_enforced: false,
            mock_credits: Credits::whole(10_000),
            low_percent: 10,
        }
    }
}

/// What a tenant has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// The sum of its grants.
    pub granted: Credits,
    /// What it has spent.
    pub spent: Credits,
    /// What is held for photos that are queued or being processed.
    pub held: Credits,
}

impl Balance {
    /// What it can still use.
    pub fn available(&self) -> Credits {
        self.granted - self.spent - self.held
    }
}

/// Credits for a tenant.
#[derive(Clone, Debug)]
pub struct NewGrant {
    /// Who gets them.
    pub tenant: Tenant,
    /// How many; negative to correct an earlier grant.
    pub amount: Credits,
    /// Why, for people.
    pub note: String,
    /// Who grants them, for people.
    pub granted_by: String,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UsageOperation {
    /// Photos that became ready for the first time.
    Photo,
    /// Photos that failed.
    PhotoFailed,
    /// Selfies that were searched with.
    FaceSearch,
    /// Bib searches.
    TextSearch,
    /// Selfies that visitors of galleries searched with.
    GalleryFaceSearch,
    /// Bib searches of visitors of galleries.
    GalleryTextSearch,
    /// Downloads of many photos.
    Download,
}

impl UsageOperation {
    /// Its name on the wire and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Photo => "photo",
            Self::PhotoFailed => "photo_failed",
            Self::FaceSearch => "face_search",
            Self::TextSearch => "text_search",
            Self::GalleryFaceSearch => "gallery_face_search",
            Self::GalleryTextSearch => "gallery_text_search",
            Self::Download => "download",
        }
    }
}

/// Who makes a request that is counted or charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOrigin {
    /// A key, or an account.
    Partner,
    /// A visitor of a gallery, for whom the owner of the album pays.
    Gallery,
}

/// A request to charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChargedRequest {
    /// A search with a selfie: charged once.
    FaceSearch(ProbeId, RequestOrigin),
    /// A search for a bib.
    TextSearch(RequestOrigin),
    /// A download of many photos.
    Download,
}

impl ChargedRequest {
    /// What is counted of it.
    pub fn operation(self) -> UsageOperation {
        match self {
            Self::FaceSearch(_, RequestOrigin::Partner) => UsageOperation::FaceSearch,
            Self::FaceSearch(_, RequestOrigin::Gallery) => UsageOperation::GalleryFaceSearch,
            Self::TextSearch(RequestOrigin::Partner) => UsageOperation::TextSearch,
            Self::TextSearch(RequestOrigin::Gallery) => UsageOperation::GalleryTextSearch,
            Self::Download => UsageOperation::Download,
        }
    }

    /// What it costs.
    pub fn price(self, prices: &Prices) -> Credits {
        match self {
            Self::FaceSearch(..) => prices.face_search,
            Self::TextSearch(_) => prices.text_search,
            Self::Download => prices.download,
        }
    }
}

/// Which usage to sum up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageQuery {
    /// The first day (UTC).
    pub from: Date,
    /// The last day.
    pub to: Date,
    /// A row for each day.
    pub by_day: bool,
    /// A row for each album.
    pub by_album: bool,
    /// A row for each operation.
    pub by_operation: bool,
    /// At most this many rows.
    pub limit: u32,
}

/// A sum of usage; what it is of is `None` where the query does not tell it apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// The day.
    pub day: Option<Date>,
    /// The album, which may be deleted.
    pub album: Option<AlbumId>,
    /// A name of [`UsageOperation`], or of one that a newer version counts.
    pub operation: Option<String>,
    /// How often.
    pub count: u64,
    /// What it cost.
    pub credits: Credits,
}

/// The balance of a tenant, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantBalance {
    /// The organization's name.
    pub organization: String,
    /// Whose it is.
    pub tenant: Tenant,
    /// What it has.
    pub balance: Balance,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_at_most_three_decimals_and_are_exact() {
        for (text, thousandths) in
            [("1", 1000), ("0.5", 500), ("-3.25", -3250), ("0.001", 1), ("12.340", 12_340)]
        {
            assert_eq!(text.parse(), Ok(Credits(thousandths)), "{text}");
        }
        for refused in
            ["", "-", "1.", ".5", "0.0001", "1e3", "+1", "1,5", "1000000000.001", "99999999999999999999"]
        {
            assert_eq!(refused.parse::<Credits>(), Err(NoAmount), "{refused}");
        }
        for text in ["0", "1", "0.5", "-3.25", "1477", "0.001", "1000000000", "999999999.999"] {
            let amount: Credits = text.parse().unwrap();
            assert_eq!(amount.to_string(), text);
            assert_eq!(serde_json::to_string(&amount).unwrap(), text);
            assert_eq!(Credits::from_f64(amount.to_f64()), Some(amount));
        }
        assert_eq!(Credits::from_f64(1e15), None);
        assert_eq!(Credits::from_f64(f64::NAN), None);
    }

    #[test]
    fn an_amount_covers_whole_things_only() {
        let amount = |text: &str| text.parse::<Credits>().unwrap();
        assert_eq!(amount("2.999").covers(amount("1")), 2);
        assert_eq!(amount("-5").covers(amount("1")), 0);
        assert_eq!(amount("-5").covers(Credits::ZERO), usize::MAX);
    }
}
