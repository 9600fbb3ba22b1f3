//! Settings of credits and of rate limits.

use photofinish_api::context::Environment;
use photofinish_store::model::credit::{CreditSettings, Credits, Prices};
use photofinish_store::model::rate::{RateClass, RateLimits};

use super::parsers::{self, ON_OFF};

/// The largest limit: more than any process answers.
const MAX_LIMIT: u32 = 1_000_000;

/// Settings of credits and of rate limits.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Credits and limits (roles all, serve)")]
pub struct CreditArguments {
    /// Whether what a balance does not cover is declined; it is counted in any case
    #[arg(long, env = "PHOTOFINISH_CREDITS", value_name = "ON_OFF", default_value = "off")]
    #[arg(value_parser = ON_OFF, action = clap::ArgAction::Set)]
    pub credits: bool,
    /// Credits that a ready photo, the searches with one selfie, a bib search and a download of many photos cost
    #[arg(long, env = "PHOTOFINISH_PRICES", value_name = "PRICES", value_parser = prices)]
    #[arg(default_value = "photo=1,face_search=0,text_search=0,download=0")]
    pub prices: Prices,
    /// Credits of the test keys of an organization at the beginning of each day
    #[arg(long, env = "PHOTOFINISH_MOCK_CREDITS", value_name = "CREDITS", default_value = "10000")]
    #[arg(value_parser = amount)]
    pub mock_credits: Credits,
    /// With credits on, share of the last grant below which organizations are told that their credits are low, percent; 0 for never
    #[arg(long, env = "PHOTOFINISH_CREDITS_LOW", value_name = "PERCENT", default_value = "10")]
    #[arg(value_parser = percent)]
    pub credits_low: u32,
    /// Units that a key may spend in a minute, by class; 0 for no limit [default: read=600,manage=120,upload=6000,search=1200, and none in the environment local]
    #[arg(long, env = "PHOTOFINISH_RATE_LIMITS", value_name = "LIMITS", value_parser = rate_limits)]
    pub rate_limits: Option<RateLimits>,
}

impl CreditArguments {
    /// The settings of the store.
    pub fn credit_settings(&self) -> CreditSettings {
        CreditSettings {
            prices: self.prices,
            is_enforced: self.credits,
            mock_credits: self.mock_credits,
            low_percent: self.credits_low,
        }
    }

    /// The limits of keys without their own.
    pub fn rate_limits(&self, environment: Environment) -> RateLimits {
        let given = self.rate_limits.unwrap_or_default();
        if environment == Environment::Local { given } else { given.or(&RateLimits::SERVICE) }
    }
}

/// Writes limits as the setting has them.
pub fn limits_to_text(limits: &RateLimits) -> String {
    let entries = RateClass::ALL.into_iter().filter_map(|class| {
        let limit = limits.get(class)?;
        Some(format!("{}={limit}", class.as_str()))
    });
    entries.collect::<Vec<_>>().join(",")
}

/// Parses the limit of a class, such as `search=6000`.
pub fn rate_limit(text: &str) -> Result<(RateClass, u32), String> {
    let refused = || {
        format!(
            "must be limits separated by commas, such as read=600,search=1200, with classes read, manage, upload, search \
             and numbers to {MAX_LIMIT}"
        )
    };
    let (name, number) = text.trim().split_once('=').ok_or_else(refused)?;
    let class = RateClass::ALL.into_iter().find(|class| class.as_str() == name).ok_or_else(refused)?;
    let limit = number.parse().ok().filter(|limit| *limit <= MAX_LIMIT).ok_or_else(refused)?;
    Ok((class, limit))
}

fn rate_limits(text: &str) -> Result<RateLimits, String> {
    let mut limits = RateLimits::default();
    for entry in text.split(',') {
        let (class, limit) = rate_limit(entry)?;
        limits.set(class, limit);
    }
    Ok(limits)
}

fn prices(text: &str) -> Result<Prices, String> {
    let refused = || {
        "must be prices separated by commas, such as photo=1,face_search=0.2,text_search=0, with at most three decimals"
            .to_owned()
    };
    let mut prices = Prices::default();
    for entry in text.split(',') {
        let (name, price) = entry.trim().split_once('=').ok_or_else(refused)?;
        let price = amount(price).map_err(|_| refused())?;
        match name {
            "photo" => prices.photo = price,
            "face_search" => prices.face_search = price,
            "text_search" => prices.text_search = price,
            "download" => prices.download = price,
            _ => return Err(refused()),
        }
    }
    Ok(prices)
}

/// Parses an amount that is not negative.
fn amount(text: &str) -> Result<Credits, String> {
    let amount = text.parse().ok().filter(|amount| *amount >= Credits::ZERO);
    amount.ok_or_else(|| "must be a number from 0 to a billion with at most three decimals".to_owned())
}

fn percent(text: &str) -> Result<u32, String> {
    parsers::integer(text, 0, 100).map(|percent| percent as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{config, problems};

    #[test]
    fn prices_that_are_not_named_keep_their_defaults() {
        let settings = config(&[("PHOTOFINISH_PRICES", "text_search=0.125, photo=0,download=2")]).unwrap();
        let prices = settings.settings.credits.credit_settings().prices;
        assert_eq!(prices.photo, Credits::ZERO);
        assert_eq!(prices.text_search, Credits::from_thousandths(125));
        assert_eq!((prices.face_search, prices.download), (Credits::ZERO, Credits::whole(2)));
        for wrong in ["", "photo", "photo=-1", "photo=0.0001", "video=1", "photo=1,"] {
            assert_eq!(problems(&[("PHOTOFINISH_PRICES", wrong)]).len(), 1, "{wrong}");
        }
    }

    #[test]
    fn limits_are_the_services_unless_given_and_none_in_the_environment_local() {
        let limits = |environment: &str, given: Option<&str>| {
            let mut settings = vec![
                ("PHOTOFINISH_ENVIRONMENT", environment),
                ("PHOTOFINISH_PUBLIC_URL", "https://photos.example"),
            ];
            settings.extend(given.map(|given| ("PHOTOFINISH_RATE_LIMITS", given)));
            let config = config(&settings).unwrap();
            let lines = config.lines();
            let line = lines.iter().find(|(name, _)| name == "PHOTOFINISH_RATE_LIMITS").unwrap().1.clone();
            let limits = config.settings.credits.rate_limits(config.settings.service.environment);
            assert_eq!(line, limits_to_text(&limits));
            line
        };
        assert_eq!(limits("local", None), "");
        assert_eq!(limits("local", Some("search=3")), "search=3");
        assert_eq!(limits("production", None), "read=600,manage=120,upload=6000,search=1200");
        assert_eq!(limits("production", Some("read=0, search=7")), "read=0,manage=120,upload=6000,search=7");
        for wrong in ["", "read", "read=x", "write=1", "read=-1", "read=1000001"] {
            assert_eq!(problems(&[("PHOTOFINISH_RATE_LIMITS", wrong)]).len(), 1, "{wrong}");
        }
    }
}
