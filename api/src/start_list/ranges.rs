//! Ranges of bibs: `1001` to `1500`, `A100` to `A299`, `001` to `120`.

use photofinish_store::model::start_list::StartListEntry;

use super::parse_bib;

/// Bibs from one to another, both included.
#[derive(Clone, Debug)]
pub(crate) struct BibRange {
    prefix: String,
    from: u64,
    to: u64,
    /// Digits of the first bib: leading zeros are printed.
    width: usize,
    wave: Option<String>,
    team: Option<String>,
}

impl BibRange {
    /// Returns the range; an error says what is wrong with it.
    pub(crate) fn new(from: &str, to: &str) -> Result<Self, &'static str> {
        let split = |text: &str| {
            let bib = parse_bib(text)?;
            let at = bib.find(|character: char| character.is_ascii_digit())?;
            let number = bib[at..].parse::<u64>().ok()?;
            Some((bib[..at].to_owned(), number, bib.len() - at))
        };
        let (Some((prefix, from, width)), Some((other_prefix, to, other_width))) = (split(from), split(to))
        else {
            return Err("must be letters, if any, and digits");
        };
        if prefix != other_prefix || from > to || other_width < width {
            return Err("must begin and end with the same letters, and not end before it begins");
        }
        Ok(Self { prefix, from, to, width, wave: None, team: None })
    }

    /// The same bibs with their wave and team.
    pub(crate) fn with_labels(self, wave: Option<String>, team: Option<String>) -> Self {
        let label = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        Self { wave: label(wave), team: label(team), ..self }
    }

    /// How many bibs it has.
    pub(crate) fn len(&self) -> u64 {
        (self.to - self.from).saturating_add(1)
    }

    /// An entry for each bib.
    pub(crate) fn entries(&self) -> impl Iterator<Item = StartListEntry> {
        (self.from..=self.to).map(|number| StartListEntry {
            wave: self.wave.clone(),
            team: self.team.clone(),
            ..StartListEntry::of(format!("{}{number:0width$}", self.prefix, width = self.width))
        })
    }
}
