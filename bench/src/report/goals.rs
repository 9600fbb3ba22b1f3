//! Goals: measured figures with their targets.

use serde::Serialize;

/// A figure with its target.
#[derive(Clone, Debug, Serialize)]
pub struct Goal {
    /// What was measured.
    pub what: String,
    /// Measured value.
    pub figure: f64,
    /// Target value.
    pub target: GoalTarget,
}

/// Target of a figure.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GoalTarget {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Goal {
    /// Creates a goal that is met from `target` upwards.
    pub fn at_least(what: &str, figure: f64, target: f64) -> Self {
        Self { what: what.to_owned(), figure, target: GoalTarget::AtLeast(target) }
    }

    /// Creates a goal that is met up to `target`.
    pub fn at_most(what: &str, figure: f64, target: f64) -> Self {
        Self { what: what.to_owned(), figure, target: GoalTarget::AtMost(target) }
    }

    /// Whether the goal is met; a figure that is NaN never meets it.
    pub fn is_met(&self) -> bool {
        match self.target {
            GoalTarget::AtLeast(target) => self.figure >= target,
            GoalTarget::AtMost(target) => self.figure <= target,
        }
    }

    /// Returns the target in words.
    pub fn describe_target(&self) -> String {
        match self.target {
            GoalTarget::AtLeast(target) => format!("at least {}", format_number(target)),
            GoalTarget::AtMost(target) => format!("at most {}", format_number(target)),
        }
    }
}

/// Formats a number with three decimals below 10, one above, none for whole numbers.
pub fn format_number(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 1e12 {
        format!("{number:.0}")
    } else if number.abs() < 10.0 {
        format!("{number:.3}")
    } else {
        format!("{number:.1}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_on_its_edge_and_never_by_a_missing_figure() {
        assert!(Goal::at_least("recall", 0.94, 0.94).is_met());
        assert!(!Goal::at_least("recall", 0.939, 0.94).is_met());
        assert!(Goal::at_most("memory", 800.0, 800.0).is_met());
        assert!(!Goal::at_least("recall", f64::NAN, 0.94).is_met());
        assert!(!Goal::at_most("memory", f64::NAN, 800.0).is_met());
    }

    #[test]
    fn numbers_are_formatted_briefly() {
        assert_eq!(format_number(0.95512), "0.955");
        assert_eq!(format_number(148.26), "148.3");
        assert_eq!(format_number(7.0), "7");
    }
}
