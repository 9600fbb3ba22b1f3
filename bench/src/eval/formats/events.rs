//! Drawn events: runners with bibs of a numbering, their photos, and what is read in them.

use crate::photos::random::SplitMix;

/// An event to draw.
pub(super) struct EventKind {
    pub(super) name: &'static str,
    /// Whether a format can be told from its bibs.
    pub(super) has_format: bool,
    draw_bib: fn(&mut SplitMix) -> String,
}

/// What is read in one photo of a runner.
pub(super) struct Shown {
    pub(super) bib: String,
    pub(super) read: String,
}

fn number(random: &mut SplitMix, from: u64, to: u64) -> String {
    (from + random.next() % (to - from + 1)).to_string()
}

fn one_of(random: &mut SplitMix, choices: &[&'static str]) -> &'static str {
    choices[(random.next() % choices.len() as u64) as usize]
}

fn one_in(random: &mut SplitMix, count: u64) -> bool {
    random.next().is_multiple_of(count)
}

/// Events with a format, with two at once, whose numbers are counted from one, and without any.
pub(super) const EVENTS: [EventKind; 12] = [
    EventKind { name: "1000 to 4999", has_format: true, draw_bib: |random| number(random, 1000, 4999) },
    EventKind { name: "10000 to 32000", has_format: true, draw_bib: |random| number(random, 10_000, 32_000) },
    EventKind {
        name: "KM or HM and 10000 to 29999",
        has_format: true,
        draw_bib: |random| format!("{}{}", one_of(random, &["KM", "HM"]), number(random, 10_000, 29_999)),
    },
    EventKind {
        name: "M or W and 1000 to 4999",
        has_format: true,
        draw_bib: |random| format!("{}{}", one_of(random, &["M", "W"]), number(random, 1000, 4999)),
    },
    EventKind { name: "200 to 950", has_format: true, draw_bib: |random| number(random, 200, 950) },
    EventKind {
        name: "100 to 399 and a letter",
        has_format: true,
        draw_bib: |random| format!("{}{}", number(random, 100, 399), one_of(random, &["A", "C", "D", "E"])),
    },
    EventKind {
        name: "two: 1000 to 2999, relay 100A to 250D",
        has_format: true,
        draw_bib: |random| match one_in(random, 10) {
            true => format!("{}{}", number(random, 100, 250), one_of(random, &["A", "B", "C", "D"])),
            false => number(random, 1000, 2999),
        },
    },
    EventKind {
        name: "two: 10000 to 19999, children 100 to 399",
        has_format: true,
        draw_bib: |random| match one_in(random, 15) {
            true => number(random, 100, 399),
            false => number(random, 10_000, 19_999),
        },
    },
    EventKind { name: "1 to 1800", has_format: false, draw_bib: |random| number(random, 10, 1800) },
    EventKind { name: "1 to 3500", has_format: false, draw_bib: |random| number(random, 10, 3500) },
    EventKind { name: "1 to 9999", has_format: false, draw_bib: |random| number(random, 10, 9999) },
    EventKind {
        name: "no numbering",
        has_format: false,
        draw_bib: |random| {
            let length = 2 + (random.next() % 4) as u32;
            let number = number(random, 10_u64.pow(length - 1), 10_u64.pow(length) - 1);
            let (before, after) = (one_of(random, &["", "A", "KX"]), one_of(random, &["", "B"]));
            format!("{before}{number}{after}")
        },
    },
];

/// Draws the photos of so many runners, one to `most_photos` of each. Of the readings 6 % lose one to three characters
/// at an end, as on the labelled photos, and 1 % have a wrong character.
pub(super) fn draw(kind: &EventKind, runners: usize, most_photos: u64, seed: u64) -> Vec<Shown> {
    let mut random = SplitMix(seed);
    let mut shown = Vec::new();
    for _ in 0..runners {
        let bib = (kind.draw_bib)(&mut random);
        for _ in 0..=random.next() % most_photos {
            let read = misread(&bib, &mut random);
            shown.push(Shown { bib: bib.clone(), read });
        }
    }
    random.shuffle(&mut shown);
    shown
}

fn misread(bib: &str, random: &mut SplitMix) -> String {
    let cut = [1, 1, 1, 1, 1, 1, 2, 2, 2, 3][(random.next() % 10) as usize];
    match random.next() % 100 {
        0..3 if bib.len() >= cut + 2 => bib[cut..].to_owned(),
        3..6 if bib.len() >= cut + 2 => bib[..bib.len() - cut].to_owned(),
        6 => {
            let at = (random.next() % bib.len() as u64) as usize;
            let wrong = match &bib[at..=at] {
                "0" => "O",
                "1" => "I",
                "5" => "S",
                "8" => "B",
                "6" => "G",
                _ => "4",
            };
            format!("{}{wrong}{}", &bib[..at], &bib[at + 1..])
        }
        _ => bib.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_readings_are_right_and_some_are_parts() {
        for kind in &EVENTS {
            let shown = draw(kind, 300, 5, 1);
            let wrong: Vec<&Shown> = shown.iter().filter(|it| it.read != it.bib).collect();
            let share = wrong.len() as f64 / shown.len() as f64;
            assert!((0.005..0.12).contains(&share), "{}: {share}", kind.name);
            assert!(shown.iter().all(|it| it.read.len() >= 2), "{}", kind.name);
        }
    }
}
