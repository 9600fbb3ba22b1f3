//! Settings of what processing costs.

use photofinish_api::context::CostPrices;

/// Settings of costs.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Costs (roles all, serve)")]
pub struct CostArguments {
    /// What an hour of CPU, an hour of a device and a gigabyte stored for a month cost, in any currency; what is not named
    /// costs nothing, and device_hour is another name of gpu_hour [default: costs are shown without money]
    #[arg(long, env = "PHOTOFINISH_COST_PRICES", value_name = "PRICES", value_parser = prices)]
    pub cost_prices: Option<CostPrices>,
}

fn prices(text: &str) -> Result<CostPrices, String> {
    let refused =
        || "must be prices separated by commas, such as cpu_hour=0.04,gpu_hour=2.5,gb_month=0.02".to_owned();
    let (mut cpu_hour, mut gpu_hour, mut gb_month) = (None, None, None);
    for part in text.split(',') {
        let (name, price) = part.trim().split_once('=').ok_or_else(refused)?;
        let price: f64 = price.parse().map_err(|_| refused())?;
        if !(0.0..=1e6).contains(&price) {
            return Err(refused());
        }
        let named = match name {
            "cpu_hour" => &mut cpu_hour,
            "gpu_hour" | "device_hour" => &mut gpu_hour,
            "gb_month" => &mut gb_month,
            _ => return Err(refused()),
        };
        // Of two prices for one thing neither is meant more than the other.
        if named.replace(price).is_some() {
            return Err(refused());
        }
    }
    let [cpu_hour, gpu_hour, gb_month] = [cpu_hour, gpu_hour, gb_month].map(Option::unwrap_or_default);
    Ok(CostPrices { cpu_hour, gpu_hour, gb_month })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{config, problems};

    #[test]
    fn prices_are_named_and_not_negative() {
        let prices = |text| {
            let given = config(&[("PHOTOFINISH_COST_PRICES", text)]).unwrap();
            let CostPrices { cpu_hour, gpu_hour, gb_month } = given.settings.costs.cost_prices.unwrap();
            (cpu_hour, gpu_hour, gb_month)
        };
        assert_eq!(prices("cpu_hour=0.04, gpu_hour=2.5,gb_month=0.02"), (0.04, 2.5, 0.02));
        assert_eq!(prices("gb_month=0.02"), (0.0, 0.0, 0.02));
        assert_eq!(prices("device_hour=2.5"), (0.0, 2.5, 0.0), "as it was called before");
        let twice = "gpu_hour=1,device_hour=1";
        for wrong in ["", "0.04", "cpu_hour", "cpu_hour=-1", "cpu_hour=NaN", "cpu_minute=1", twice] {
            assert_eq!(problems(&[("PHOTOFINISH_COST_PRICES", wrong)]).len(), 1, "{wrong}");
        }
    }
}
