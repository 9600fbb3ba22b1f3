//! Settings of what processing costs.

use photofinish_api::context::CostPrices;

/// Settings of costs.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Costs (roles all, serve)")]
pub struct CostArguments {
    /// What an hour of CPU and an hour of a device cost, in any currency [default: costs are shown without money]
    #[arg(long, env = "PHOTOFINISH_COST_PRICES", value_name = "PRICES", value_parser = prices)]
    pub cost_prices: Option<CostPrices>,
}

fn prices(text: &str) -> Result<CostPrices, String> {
    let refused = || "must be prices separated by commas, such as cpu_hour=0.04,device_hour=2.5".to_owned();
    let mut prices = CostPrices::default();
    for part in text.split(',') {
        let (name, price) = part.trim().split_once('=').ok_or_else(refused)?;
        let price: f64 = price.parse().map_err(|_| refused())?;
        if !(0.0..=1e6).contains(&price) {
            return Err(refused());
        }
        match name {
            "cpu_hour" => prices.cpu_hour = price,
            "device_hour" => prices.device_hour = price,
            _ => return Err(refused()),
        }
    }
    Ok(prices)
}

#[cfg(test)]
mod tests {
    use crate::config::tests::{config, problems};

    #[test]
    fn prices_are_named_and_not_negative() {
        let given = config(&[("PHOTOFINISH_COST_PRICES", "cpu_hour=0.04, device_hour=2.5")]).unwrap();
        let prices = given.settings.costs.cost_prices.unwrap();
        assert_eq!((prices.cpu_hour, prices.device_hour), (0.04, 2.5));
        for wrong in ["", "0.04", "cpu_hour", "cpu_hour=-1", "cpu_hour=NaN", "cpu_minute=1"] {
            assert_eq!(problems(&[("PHOTOFINISH_COST_PRICES", wrong)]).len(), 1, "{wrong}");
        }
    }
}
