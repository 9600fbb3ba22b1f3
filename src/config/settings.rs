//! All settings as typed command-line arguments. Each argument names its flag, its environment variable, its default and
//! what is allowed, once; `--help`, `photofinish config` and the table in `docs/OPERATIONS.md` are made from them.
//!
//! Wrong values do not end the parsing, as they would with clap alone: they are collected, so that an operator sees all of
//! them at once.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use clap::builder::{PossibleValue, Resettable, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::api::ApiArguments;
use super::console::ConsoleArguments;
use super::costs::CostArguments;
use super::credits::CreditArguments;
use super::database::DatabaseArguments;
#[cfg(feature = "fakes")]
use super::fakes::FakeArguments;
use super::gc::GcArguments;
use super::models::ModelArguments;
use super::pipeline::PipelineArguments;
use super::queue::QueueArguments;
use super::redact::{redact_credentials, redact_servers};
use super::secrets::SecretArguments;
use super::service::ServiceArguments;
use super::storage::StorageArguments;
use super::webhooks::WebhookArguments;

/// Flags and `PHOTOFINISH_*` variables, as types.
#[derive(Args, Clone, Debug)]
pub struct Settings {
    #[command(flatten)]
    pub service: ServiceArguments,
    #[command(flatten)]
    pub database: DatabaseArguments,
    #[command(flatten)]
    pub storage: StorageArguments,
    #[command(flatten)]
    pub queue: QueueArguments,
    #[command(flatten)]
    pub models: ModelArguments,
    #[command(flatten)]
    pub api: ApiArguments,
    #[command(flatten)]
    pub console: ConsoleArguments,
    #[command(flatten)]
    pub credits: CreditArguments,
    #[command(flatten)]
    pub costs: CostArguments,
    #[command(flatten)]
    pub secrets: SecretArguments,
    #[command(flatten)]
    pub webhooks: WebhookArguments,
    #[command(flatten)]
    pub pipeline: PipelineArguments,
    #[command(flatten)]
    pub gc: GcArguments,
    #[cfg(feature = "fakes")]
    #[command(flatten)]
    pub fakes: FakeArguments,
}

/// The texts of the settings that were given, by environment variable.
pub type GivenTexts = BTreeMap<String, OsString>;

/// Typed settings; each wrong value has its default and is described in `problems`.
pub struct CheckedSettings {
    pub settings: Settings,
    pub problems: Vec<String>,
}

impl Settings {
    /// Adds all settings to `command` as global arguments. They accept any text: [`Self::check`] checks them.
    pub fn add_to(command: Command) -> Command {
        let names: Vec<_> = Self::arguments().iter().map(|arg| arg.get_id().clone()).collect();
        // The doc comment of this type would replace it.
        let about = command.get_about().cloned().unwrap_or_default();
        Self::augment_args(command).about(about).mut_args(|arg| {
            if !names.contains(arg.get_id()) {
                return arg;
            }
            let possible_values = arg.get_possible_values();
            arg.global(true).value_parser(AnyText { possible_values })
        })
    }

    /// Returns the texts given as flags or variables in the matches of a command made by [`Self::add_to`].
    pub fn given_texts(matches: &ArgMatches) -> GivenTexts {
        let mut texts = GivenTexts::new();
        for arg in Self::arguments() {
            let id = arg.get_id().as_str();
            let is_given = matches.value_source(id).is_some_and(|source| source != ValueSource::DefaultValue);
            if let Some(text) = matches.get_raw(id).and_then(|mut values| values.next()).filter(|_| is_given)
            {
                texts.insert(variable(&arg), text.to_owned());
            }
        }
        texts
    }

    /// Turns texts into types.
    ///
    /// # Errors
    /// None for wrong values, which are collected; clap's own error should valid values not parse together.
    pub fn check(texts: &GivenTexts) -> Result<CheckedSettings, clap::Error> {
        let mut problems = Vec::new();
        let mut valid = Vec::new();
        for arg in Self::arguments() {
            let name = variable(&arg);
            let Some(text) = texts.get(&name) else { continue };
            match check_one(&arg, text) {
                Ok(flag) => valid.push(flag),
                Err(reason) => {
                    let text = text.to_string_lossy();
                    let is_secret = arg.is_hide_env_values_set();
                    let text = if is_secret { redact_servers(&text) } else { redact_credentials(&text) };
                    problems.push(format!("{name}={text}: {reason}"));
                }
            }
        }
        let command = Command::new("settings")
            .no_binary_name(true)
            .args(Self::arguments().into_iter().map(without_environment));
        let settings = Self::from_arg_matches(&command.try_get_matches_from(valid)?)?;
        Ok(CheckedSettings { settings, problems })
    }

    /// Every setting in its order, without the value of its environment variable in this process.
    pub fn arguments() -> Vec<Arg> {
        let command = Self::augment_args(Command::new("settings"));
        command.get_arguments().cloned().collect()
    }
}

/// The environment variable of a setting.
pub fn variable(arg: &Arg) -> String {
    arg.get_env().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the flag with its value, or what is wrong with the value.
pub fn check_one(arg: &Arg, text: &OsStr) -> Result<OsString, String> {
    let mut flag = OsString::from(format!("--{}=", arg.get_long().unwrap_or_default()));
    flag.push(text);
    let command = Command::new("setting").no_binary_name(true).arg(without_environment(arg.clone()));
    match command.try_get_matches_from([&flag]) {
        Ok(_) => Ok(flag),
        Err(error) => {
            let reason = std::error::Error::source(&error).map(ToString::to_string);
            Err(reason.unwrap_or_else(|| "must be UTF-8 and not empty".to_owned()))
        }
    }
}

/// The same argument, read from flags only.
fn without_environment(arg: Arg) -> Arg {
    arg.env(Resettable::Reset)
}

/// Accepts every text, and names the values that are allowed in `--help`.
#[derive(Clone)]
struct AnyText {
    possible_values: Vec<PossibleValue>,
}

impl TypedValueParser for AnyText {
    type Value = OsString;

    fn parse_ref(&self, _: &Command, _: Option<&Arg>, value: &OsStr) -> Result<OsString, clap::Error> {
        Ok(value.to_owned())
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let is_list = !self.possible_values.is_empty();
        is_list.then(|| Box::new(self.possible_values.iter().cloned()) as Box<dyn Iterator<Item = _>>)
    }
}
