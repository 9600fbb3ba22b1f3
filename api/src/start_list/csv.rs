//! Reads start lists as timing software exports them: RFC 4180 with `,`, `;` or a tab between the fields, and a header
//! that says in some language which column has the bibs. Columns that nobody asks for are dropped.

use super::RawEntry;

/// Names of columns, by what is left of them in lower case without spaces and punctuation, those first that say most: a
/// column of the last five may as well count the rows.
const BIB_NAMES: [&str; 18] = [
    "bib",
    "bibnumber",
    "bibno",
    "startnummer",
    "startnr",
    "startnumber",
    "racenumber",
    "raceno",
    "dossard",
    "numerodossard",
    "dorsal",
    "pettorale",
    "rugnummer",
    "numero",
    "nr",
    "no",
    "number",
    "num",
];
const WAVE_NAMES: [&str; 10] =
    ["wave", "startwave", "block", "startblock", "corral", "welle", "vague", "sas", "oleada", "griglia"];
const TEAM_NAMES: [&str; 8] =
    ["team", "teamname", "club", "verein", "mannschaft", "equipe", "equipo", "squadra"];
const START_NAMES: [&str; 6] = ["startat", "starttime", "startzeit", "start", "heuredepart", "horasalida"];

/// The names of the columns to read, as the header has them; those that are not named are guessed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns {
    pub(crate) bib: Option<String>,
    pub(crate) wave: Option<String>,
    pub(crate) team: Option<String>,
    pub(crate) start_at: Option<String>,
}

/// A row with the line on which it begins.
struct Record {
    line: usize,
    fields: Vec<String>,
}

/// Returns the rows; an error says why there are none.
pub(crate) fn parse(text: &str, columns: &Columns) -> Result<Vec<RawEntry>, String> {
    // Every other character of a file in UTF-16, such as Excel's "Unicode text", that was read as something else. Names of
    // columns and bibs would be found without it, and PostgreSQL cannot store the waves and teams.
    if text.contains('\0') {
        return Err("contains U+0000, as a file in UTF-16 does: save it as UTF-8".to_owned());
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // Old spreadsheets end lines with CR alone.
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut records = read_records(&text, find_delimiter(&text))?.into_iter().peekable();
    let header: Vec<String> = records.peek().map(|record| record.fields.clone()).unwrap_or_default();
    let named = |name: &Option<String>, guesses: &[&str]| match name {
        Some(name) => match header.iter().position(|field| simplify(field) == simplify(name)) {
            Some(at) => Ok(Some(at)),
            None => Err(format!("there is no column '{name}'")),
        },
        None => Ok(guess_column(&header, guesses)),
    };
    let wave = named(&columns.wave, &WAVE_NAMES)?;
    let team = named(&columns.team, &TEAM_NAMES)?;
    let start_at = named(&columns.start_at, &START_NAMES)?;
    let bib = match named(&columns.bib, &BIB_NAMES)? {
        Some(at) => {
            records.next();
            at
        }
        // A list of bibs and nothing else needs no header.
        None if header.len() == 1 && super::parse_bib(&header[0]).is_some() => 0,
        None => return Err("has no column of bibs: name it by `columns.bib`".to_owned()),
    };
    let entries = records.map(|Record { line, fields }| {
        let field = |at: Option<usize>| at.and_then(|at| fields.get(at)).cloned();
        let bib = field(Some(bib)).unwrap_or_default();
        RawEntry { line, bib, wave: field(wave), team: field(team), start_at: field(start_at) }
    });
    Ok(entries.collect())
}

/// The first column that has the first of the names which any has.
fn guess_column(header: &[String], guesses: &[&str]) -> Option<usize> {
    let names: Vec<String> = header.iter().map(|field| simplify(field)).collect();
    guesses.iter().find_map(|guess| names.iter().position(|name| name == guess))
}

fn simplify(name: &str) -> String {
    let fold = |character: char| match character {
        'é' | 'è' | 'ê' => 'e',
        'ú' => 'u',
        other => other,
    };
    name.chars()
        .flat_map(char::to_lowercase)
        .map(fold)
        .filter(|character| character.is_alphanumeric())
        .collect()
}

/// The character that separates most fields of the first line.
fn find_delimiter(text: &str) -> char {
    let mut counts = [(',', 0), (';', 0), ('\t', 0)];
    let mut is_quoted = false;
    for character in text.trim_start().chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            '\n' if !is_quoted => break,
            other if !is_quoted => {
                for (_, count) in counts.iter_mut().filter(|(delimiter, _)| *delimiter == other) {
                    *count += 1;
                }
            }
            _ => {}
        }
    }
    // The first of those that are equally frequent, so that a single column is read by commas.
    counts.iter().rev().max_by_key(|(_, count)| *count).map_or(',', |(delimiter, _)| *delimiter)
}

/// Splits a text into rows that have anything in them.
///
/// A field that merely begins with a quote takes what follows for its own, up to the next quote, which then ends no field, or
/// to the end of the text: that is an error, as the rows in between would be missing.
fn read_records(text: &str, delimiter: char) -> Result<Vec<Record>, String> {
    let mut records = Vec::new();
    let (mut fields, mut field) = (Vec::new(), String::new());
    let (mut line, mut begun, mut opened, mut is_quoted) = (1, 1, 1, false);
    let unclosed = |opened: usize| Err(format!("has a quote on line {opened} that is not closed"));
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\n' {
            line += 1;
        }
        match character {
            '"' if is_quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' if is_quoted => {
                let ends_field =
                    characters.peek().is_none_or(|next| *next == delimiter || next.is_whitespace());
                if line > opened && !ends_field {
                    return unclosed(opened);
                }
                is_quoted = false;
            }
            '"' if field.trim().is_empty() => {
                field.clear();
                (is_quoted, opened) = (true, line);
            }
            other if is_quoted => field.push(other),
            other if other == delimiter => fields.push(std::mem::take(&mut field)),
            '\n' => {
                fields.push(std::mem::take(&mut field));
                end_record(&mut records, begun, std::mem::take(&mut fields));
                begun = line;
            }
            other => field.push(other),
        }
    }
    if is_quoted {
        return unclosed(opened);
    }
    fields.push(field);
    end_record(&mut records, begun, fields);
    Ok(records)
}

fn end_record(records: &mut Vec<Record>, line: usize, fields: Vec<String>) {
    if fields.iter().any(|field| !field.trim().is_empty()) {
        records.push(Record { line, fields });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bibs(csv: &str) -> Vec<(usize, String)> {
        parse(csv, &Columns::default()).unwrap().into_iter().map(|row| (row.line, row.bib)).collect()
    }

    /// The console sends only the columns that are read here: it must guess them alike.
    #[test]
    fn the_console_guesses_columns_as_the_service_does() {
        let source = include_str!("../../console/web/pages/settings/csv.ts");
        let guesses = source.split_once("const GUESSES").unwrap().1.split_once("};").unwrap().0;
        let all = [&BIB_NAMES[..], &WAVE_NAMES, &TEAM_NAMES, &START_NAMES].concat();
        let texts = guesses.split('"').skip(1).step_by(2).flat_map(str::split_whitespace);
        assert_eq!(texts.collect::<Vec<&str>>(), all, "in order: the first of them wins");
    }

    #[test]
    fn files_of_every_dialect_are_read() {
        let expected = [(2, "12".to_owned()), (3, "13".to_owned())];
        for csv in [
            "bib,name\n12,Ada\n13,Bob",
            "\u{feff}Name;Dossard\r\nAda;12\r\nBob;13\r\n",
            "Nr.\tName\n12\tAda\n13\tBob\n\n",
            "\"Start-Nummer\",\"Name\"\n\"12\",\"Ada, the first\"\n\"13\",\"Bob \"\"B\"\"\"\n",
            "Place,Numéro\n1,12\n2,13\n",
            "dorsal\n12\n13\n",
            "Bib;Name\r12;Ada\r13;Bob",
            "Nr;Startnummer;Name\n1;12;Ada\n2;13;Bob\n",
            "No.,Bib,Name\n1,12,Ada\n2,13,Bob\n",
        ] {
            assert_eq!(bibs(csv), expected, "{csv}");
        }
        assert_eq!(bibs("12\n13\n"), [(1, "12".to_owned()), (2, "13".to_owned())], "no header");
        assert_eq!(bibs("bib,x\n12,\"a\nb\"\n13,c"), [(2, "12".to_owned()), (4, "13".to_owned())]);
    }

    #[test]
    fn further_columns_are_guessed_or_named_and_others_are_dropped() {
        let csv = "Bib;Name;Startblock;Verein;Start\n7;Ada;B;SC Lake;2026-10-04T09:00:00Z\n8;Bob";
        let rows = parse(csv, &Columns::default()).unwrap();
        let expected = RawEntry {
            line: 2,
            bib: "7".into(),
            wave: Some("B".into()),
            team: Some("SC Lake".into()),
            start_at: Some("2026-10-04T09:00:00Z".into()),
        };
        assert_eq!(rows[0], expected);
        assert_eq!(rows[1], RawEntry { line: 3, bib: "8".into(), ..RawEntry::default() });
        assert!(rows.iter().all(|row| !format!("{row:?}").contains("Ada")));
        let named = Columns { bib: Some("TIMING CHIP".into()), ..Columns::default() };
        assert_eq!(parse("Timing chip,Bib\n5,6", &named).unwrap()[0].bib, "5");
        let unknown = Columns { wave: Some("Gun".into()), ..Columns::default() };
        assert_eq!(parse("Bib\n5", &unknown).unwrap_err(), "there is no column 'Gun'");
    }

    #[test]
    fn a_file_without_bibs_is_refused() {
        for csv in ["", "Name,Age\nAda,36", "Name\nAda", "12,Ada\n13,Bob"] {
            assert!(parse(csv, &Columns::default()).is_err(), "{csv}");
        }
    }

    #[test]
    fn a_quote_that_is_not_closed_swallows_no_rows() {
        let refuse = |csv: &str| parse(csv, &Columns::default()).unwrap_err();
        let expected = "has a quote on line 3 that is not closed";
        assert_eq!(refuse("Bib;Name\n16;Ada\n17;\"Turbo Anna;LG\n18;Bob\n"), expected);
        assert_eq!(refuse("Bib;Name\n16;Ada\n17;\"Turbo Anna;LG\n18;\"Bob;LG\n"), expected, "two of them");
        assert_eq!(refuse("Bib;Name\r\n16;\"A\r\nB\"C\r\n"), "has a quote on line 2 that is not closed");
        assert_eq!(bibs("Bib;Name\n17;\"Turbo\" Anna\n18;Bob \"B\n").len(), 2, "on one line nothing is lost");
        assert_eq!(bibs("Bib;Name\r17;\"A\rB\"\r18;Bob"), [(2, "17".to_owned()), (4, "18".to_owned())]);
    }

    #[test]
    fn a_file_in_utf_16_is_refused() {
        let wide = |csv: &str| csv.chars().flat_map(|character| [character, '\0']).collect::<String>();
        // By a reader of UTF-8, and by one of Windows-1252, which reads the mark at the beginning too.
        let files = [wide("Wave;Bib\nA;12"), format!("ÿþ{}", wide("Bib\n12")), "Bib;Team\n12;A\0".to_owned()];
        for csv in files {
            let refused = parse(&csv, &Columns::default()).unwrap_err();
            assert!(refused.ends_with("save it as UTF-8"), "{csv:?}: {refused}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(csv: String) {
            drop(parse(&csv, &Columns::default()));
            drop(parse(&format!("bib;{csv}"), &Columns::default()));
        }
    }
}
