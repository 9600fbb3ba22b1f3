//! The candidates of a pass against scores in `f32`: no answer is missing, and bounds hold.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::codes::Codes;
use super::*;
use crate::cosine::Cosine;
use crate::device::Device;

fn unit(mut vector: Vec<f32>) -> Vec<f32> {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    vector.iter_mut().for_each(|value| *value /= length);
    vector
}

fn random_unit(random: &mut StdRng, dimension: usize) -> Vec<f32> {
    unit((0..dimension).map(|_| random.random_range(-1.0..1.0)).collect())
}

/// Vectors of the kinds that searches meet, and of those that should break the bounds.
fn make_rows(random: &mut StdRng, count: usize, dimension: usize) -> Vec<Vec<f32>> {
    let centres: Vec<Vec<f32>> = (0..5).map(|_| random_unit(random, dimension)).collect();
    let mut rows: Vec<Vec<f32>> = Vec::new();
    for number in 0..count {
        let row = match number % 8 {
            0 | 1 => random_unit(random, dimension),
            // Clusters from very tight to wide.
            2 | 3 => {
                let spread = 10.0_f32.powi(-(random.random_range(1..6)));
                let centre = &centres[random.random_range(0..centres.len())];
                unit(centre.iter().map(|value| value + spread * random.random_range(-1.0..1.0)).collect())
            }
            // Duplicates.
            4 if number > 8 => rows[random.random_range(0..number)].clone(),
            // One large component: the others are rounded worst.
            5 => {
                let mut spike: Vec<f32> =
                    (0..dimension).map(|_| random.random_range(-0.004..0.004)).collect();
                spike[random.random_range(0..dimension)] = 1.0;
                unit(spike)
            }
            // Components exactly between two codes.
            6 => {
                let mut halves: Vec<f32> =
                    (0..dimension).map(|_| random.random_range(-126_i32..126) as f32 + 0.5).collect();
                halves[0] = 127.0;
                unit(halves)
            }
            _ => {
                let length = 10.0_f32.powi(random.random_range(-3..4));
                random_unit(random, dimension).iter().map(|value| value * length).collect()
            }
        };
        rows.push(row);
    }
    rows
}

fn quantise(rows: &[Vec<f32>]) -> QuantisedRows {
    let mut quantised = QuantisedRows::new(rows[0].len());
    for row in rows {
        quantised.push(&QuantisedRow::new(row));
    }
    quantised
}

fn scan(scanner: Scanner, probes: &[Vec<f32>], rows: &QuantisedRows, min_score: f32) -> Vec<Candidate> {
    let probes: Vec<&[f32]> = probes.iter().map(Vec::as_slice).collect();
    let mut found = Vec::new();
    let mut min_scores = vec![min_score; probes.len()];
    scanner.scan(&ProbeBatch::new(&probes), rows, &mut min_scores, |candidate| {
        found.push(candidate);
        min_score
    });
    found
}

#[test]
fn every_score_is_within_its_bounds_and_no_row_that_scores_enough_is_missing() {
    let cosine = Cosine::new(&Device::Cpu);
    for (seed, dimension) in [(1, 256), (2, 512), (3, 128), (4, 17), (5, 1), (6, 250)] {
        let mut random = StdRng::seed_from_u64(seed);
        let rows = make_rows(&mut random, 1500, dimension);
        let mut probes = make_rows(&mut random, 8, dimension);
        probes.push(rows[3].clone());
        let quantised = quantise(&rows);
        for min_score in [-2.0_f32, 0.0, 0.3, 0.9] {
            let mut expected = Vec::new();
            for scanner in Scanner::list_supported() {
                let mut found = scan(scanner, &probes, &quantised, min_score);
                found.sort_by_key(|candidate| (candidate.probe, candidate.row));
                for Candidate { probe, row, lower, upper } in &found {
                    let score = cosine.score(&probes[*probe], &rows[*row]);
                    let what = format!("seed {seed}, probe {probe}, row {row}");
                    assert!(*lower <= score && score <= *upper, "{what}: {score} is not in {lower}..{upper}");
                }
                let near: Vec<(usize, usize)> = (0..probes.len())
                    .flat_map(|probe| (0..rows.len()).map(move |row| (probe, row)))
                    .filter(|(probe, row)| cosine.score(&probes[*probe], &rows[*row]) >= min_score)
                    .collect();
                let listed: std::collections::BTreeSet<(usize, usize)> =
                    found.iter().map(|candidate| (candidate.probe, candidate.row)).collect();
                assert!(near.iter().all(|pair| listed.contains(pair)), "seed {seed}, at least {min_score}");
                if expected.is_empty() {
                    expected = found;
                } else {
                    assert_eq!(found, expected, "{} and portable code", scanner.name());
                }
            }
        }
    }
}

#[test]
fn few_rows_besides_the_answers_are_candidates() {
    let mut random = StdRng::seed_from_u64(7);
    let rows: Vec<Vec<f32>> = (0..20_000).map(|_| random_unit(&mut random, 256)).collect();
    let probe = random_unit(&mut random, 256);
    let cosine = Cosine::new(&Device::Cpu);
    let near = |min: f32| rows.iter().filter(|row| cosine.score(&probe, row) >= min).count();
    let found = scan(Scanner::new(&Device::Cpu), std::slice::from_ref(&probe), &quantise(&rows), 0.15).len();
    // The bound is .01 wide for vectors of this kind.
    assert!((near(0.15)..=near(0.14)).contains(&found), "{found} of {} to {}", near(0.15), near(0.14));
}

#[test]
fn a_raised_minimum_leaves_out_what_is_below_it() {
    let rows: Vec<Vec<f32>> = (0..100).map(|row| vec![1.0 - row as f32 / 100.0, 0.0]).collect();
    let probes = ProbeBatch::new(&[&[1.0, 0.0]]);
    let mut found = Vec::new();
    Scanner::new(&Device::Cpu).scan(&probes, &quantise(&rows), &mut [-1.0], |candidate| {
        found.push(candidate.row);
        0.5
    });
    assert!(found.len() >= 51 && found.iter().all(|row| *row <= 52), "{found:?}");
}

#[test]
fn vectors_that_are_not_numbers_are_candidates_of_every_search() {
    let strange =
        [vec![f32::NAN, 0.0], vec![f32::INFINITY, 0.0], vec![0.0, f32::NEG_INFINITY], vec![1e-45, 1e-45]];
    let tiny_or_huge = [vec![f32::MAX, f32::MAX], vec![1e-30, 1e-30], vec![0.0, 0.0]];
    let rows: Vec<Vec<f32>> = strange.iter().chain(&tiny_or_huge).cloned().collect();
    let scanner = Scanner::new(&Device::Cpu);
    for probe in &rows {
        let found = scan(scanner, std::slice::from_ref(probe), &quantise(&rows), 0.5);
        let cosine = Cosine::new(&Device::Cpu);
        for (number, row) in rows.iter().enumerate() {
            let score = cosine.score(probe, row);
            let is_listed = found.iter().any(|candidate| candidate.row == number);
            assert!(is_listed || score < 0.5, "{probe:?} and {row:?}: {score}");
        }
    }
    let found = scan(scanner, &[vec![1.0, 0.0]], &quantise(&strange), 0.5);
    assert_eq!(found.len(), strange.len());
}

#[test]
fn rows_are_replaced_and_removed_like_those_of_a_list() {
    let mut random = StdRng::seed_from_u64(8);
    let rows = make_rows(&mut random, 40, 10);
    let mut quantised = quantise(&rows);
    assert!(quantised.bytes() >= QuantisedRows::bytes_of(40, 10));
    for (from, to) in [(39, 3), (38, 20)] {
        let last = quantised.pop();
        assert_eq!(last.0.codes, Codes::new(&rows[from]).codes);
        quantised.set(to, &last);
    }
    assert_eq!(quantised.len(), 38);
    assert_eq!(quantised.get(3).0.codes, Codes::new(&rows[39]).codes);
    assert_eq!(quantised.get(4).0.codes, Codes::new(&rows[4]).codes);
    // What was removed is overwritten, though its block is still there.
    let removed: Vec<u8> =
        quantised.lines().iter().rev().take(3).flat_map(|line| line.0[38 % BLOCK_ROWS]).collect();
    assert!(removed.iter().all(|component| *component == photofinish_dot::ZERO));
}
