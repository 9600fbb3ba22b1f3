//! Options of the end-to-end evaluations.

use std::path::PathBuf;

use crate::paths::InputPaths;
use crate::photos::damage::Damage;
use crate::photos::jitter::Change;
use crate::report::OutputOptions;

/// Options of the evaluation of bibs.
#[derive(Clone, Debug, clap::Args)]
pub struct BibOptions {
    /// Composes the photos into crowds of 4, 9 and 16 and compares with the same photos alone.
    #[arg(long)]
    pub crowds: bool,
    /// How many changes of each photo (scale, shift, brightness, JPEG quality), or arrangements of the crowds, to read.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub seeds: u32,
    /// Read each photo once, as it is, instead of changed by seeds.
    #[arg(long, conflicts_with = "crowds")]
    pub unchanged: bool,
    /// Judge the same readings by start lists, of a tenth and of half of all numbers, and without some of the runners.
    #[arg(long, conflicts_with_all = ["crowds", "only", "against", "against_binary"])]
    pub start_list: bool,
    /// With start lists: make the bibs of the photos harder to read first.
    #[arg(long, requires = "start_list")]
    pub damage: Option<Damage>,
    /// Judge the same readings by the format that the album shows, and without; and those of drawn events.
    #[arg(long, conflicts_with_all = ["crowds", "start_list", "only", "against", "against_binary"])]
    pub formats: bool,
    /// Change the photos in this way only: which change costs how much.
    #[arg(long, value_name = "CHANGE", conflicts_with_all = ["crowds", "unchanged"])]
    pub only: Option<Change>,
    /// Most photos, spread evenly over the labelled ones; all by default.
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<usize>,
    /// What to compare.
    #[command(flatten)]
    pub comparison: ComparisonOptions,
    #[command(flatten)]
    pub common: EvalOptions,
}

/// Options of the evaluation of faces.
#[derive(Clone, Debug, clap::Args)]
pub struct FaceOptions {
    /// How many jittered pictures of each face to search with.
    #[arg(long, default_value_t = 5)]
    pub seeds: u32,
    /// A setting of the service, `PHOTOFINISH_NAME=VALUE`; may be given several times.
    #[arg(long = "setting", value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub settings: Vec<Setting>,
    #[command(flatten)]
    pub common: EvalOptions,
}

/// A second variant of the service, which reads the same photos in the same run.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ComparisonOptions {
    /// A setting of the second variant, `PHOTOFINISH_NAME=VALUE`; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub against: Vec<Setting>,
    /// The binary of the second variant; that of the first by default.
    #[arg(long, value_name = "FILE")]
    pub against_binary: Option<PathBuf>,
}

/// A setting of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// `PHOTOFINISH_*`.
    pub name: String,
    /// Its value.
    pub value: String,
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

fn parse_setting(text: &str) -> Result<Setting, String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    if !name.starts_with("PHOTOFINISH_") {
        return Err(format!("{name}: names of settings begin with PHOTOFINISH_"));
    }
    Ok(Setting { name: name.to_owned(), value: value.to_owned() })
}

/// Options of the end-to-end evaluations.
#[derive(Clone, Debug, clap::Args)]
pub struct EvalOptions {
    /// Locations of the inputs.
    #[command(flatten)]
    pub paths: InputPaths,
    /// Where to save the report.
    #[command(flatten)]
    pub output: OutputOptions,
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        _options: BibOptions,
    }

    #[test]
    fn what_an_evaluation_would_ignore_is_refused() {
        Arguments::command().debug_assert();
        let parse = |words: &[&str]| Arguments::try_parse_from([&["bibs"], words].concat());
        for kind in ["--formats", "--start-list"] {
            assert!(parse(&[kind]).is_ok());
            for ignored in [
                ["--only", "scale"],
                ["--against", "PHOTOFINISH_MAX_RUNNERS=40"],
                ["--against-binary", "photofinish"],
            ] {
                assert!(parse(&[kind, ignored[0], ignored[1]]).is_err(), "{kind} {ignored:?}");
                assert!(parse(&ignored).is_ok(), "{ignored:?}");
            }
        }
    }

    #[test]
    fn a_setting_has_a_name_of_the_service_and_a_value() {
        let setting = parse_setting("PHOTOFINISH_MAX_RUNNERS=40").unwrap();
        assert_eq!((setting.name.as_str(), setting.value.as_str()), ("PHOTOFINISH_MAX_RUNNERS", "40"));
        assert!(parse_setting("PHOTOFINISH_MAX_RUNNERS").is_err());
        assert!(parse_setting("MAX_RUNNERS=40").is_err());
    }
}
