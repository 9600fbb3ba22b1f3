//! Every kind of instructions gives the dot products of a plain loop, bit for bit: over all lengths around the sizes that
//! the vector code works in, over all numbers of probes around its tiles, and at the largest sums.

use std::collections::BTreeMap;

use photofinish_dot::{BLOCK_ROWS, DotProducts, GROUP, Line, Lines, Probes, Visit, ZERO};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Dot products by block and probe; a block that is visited twice with a probe fails the test.
#[derive(Default)]
struct Collected(BTreeMap<(usize, usize), [i32; BLOCK_ROWS]>);

impl Visit for Collected {
    fn visit(&mut self, block: usize, probe: usize, dots: &[i32; BLOCK_ROWS]) {
        assert!(self.0.insert((block, probe), *dots).is_none(), "block {block} and probe {probe} came twice");
    }
}

fn lay_out(rows: &[Vec<i8>], dimension: usize) -> Vec<Line> {
    let groups = dimension.div_ceil(GROUP);
    let mut lines = vec![Line::ZERO; groups * rows.len().div_ceil(BLOCK_ROWS)];
    for (row, vector) in rows.iter().enumerate() {
        for (place, component) in vector.iter().enumerate() {
            let line = &mut lines[row / BLOCK_ROWS * groups + place / GROUP];
            line.0[row % BLOCK_ROWS][place % GROUP] = component.cast_unsigned().wrapping_add(ZERO);
        }
    }
    lines
}

fn multiply_plainly(probes: &[Vec<i8>], rows: &[Vec<i8>]) -> BTreeMap<(usize, usize), [i32; BLOCK_ROWS]> {
    let mut expected = BTreeMap::new();
    for (row, vector) in rows.iter().enumerate() {
        for (probe, factors) in probes.iter().enumerate() {
            let dot = vector.iter().zip(factors).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
            expected.entry((row / BLOCK_ROWS, probe)).or_insert([0; BLOCK_ROWS])[row % BLOCK_ROWS] = dot;
        }
    }
    expected
}

fn check(probes: &[Vec<i8>], rows: &[Vec<i8>], dimension: usize) {
    let expected = multiply_plainly(probes, rows);
    let lines = lay_out(rows, dimension);
    let slices: Vec<&[i8]> = probes.iter().map(Vec::as_slice).collect();
    for dots in DotProducts::list_supported() {
        let mut found = Collected::default();
        dots.for_each_block(&Probes::new(&slices), &lines, &mut found);
        let what = format!("{}: {} rows, {} probes of {dimension}", dots.name(), rows.len(), probes.len());
        assert_eq!(found.0, expected, "{what}");
    }
}

fn random_vectors(random: &mut StdRng, count: usize, dimension: usize) -> Vec<Vec<i8>> {
    (0..count).map(|_| (0..dimension).map(|_| random.random_range(-127..=127)).collect()).collect()
}

#[test]
fn all_variants_give_the_dot_products_of_a_plain_loop() {
    let mut random = StdRng::seed_from_u64(1);
    let (dimensions, probe_counts): (&[usize], &[usize]) = if cfg!(miri) {
        (&[1, 6, 16], &[1, 9])
    } else {
        (
            &[1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 20, 31, 64, 100, 128, 255, 256, 257, 512],
            &[1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 32],
        )
    };
    for &dimension in dimensions {
        for &count in probe_counts {
            for rows in [1, 16, 17, 48, 70] {
                let probes = random_vectors(&mut random, count, dimension);
                check(&probes, &random_vectors(&mut random, rows, dimension), dimension);
            }
        }
    }
}

#[test]
fn the_largest_sums_do_not_saturate() {
    for dimension in [4, 256, 2048] {
        for (a, b) in [(127, 127), (-127, 127), (127, -127), (-127, -127)] {
            check(&vec![vec![a; dimension]; 3], &vec![vec![b; dimension]; 20], dimension);
        }
        let alternating = |first: i8| -> Vec<i8> { [first, -first].repeat(dimension / 2) };
        check(&[alternating(127)], &[alternating(127), alternating(-127)], dimension);
    }
}

#[test]
fn no_rows_and_no_probes_visit_nothing() {
    check(&[vec![1; 8]], &[], 8);
    check(&[], &[], 1);
}

#[test]
fn lines_keep_their_content_while_they_grow_across_the_size_of_a_huge_page() {
    let mut lines = Lines::new();
    let mut expected = Vec::new();
    let steps = if cfg!(miri) { [0, 1, 15, 40, 1] } else { [1, 31_000, 1_767, 1, 40_000] };
    for (step, count) in steps.into_iter().enumerate() {
        lines.reserve_exact(count);
        assert!(lines.capacity() >= expected.len() + count);
        lines.extend_with_zeros(count);
        for line in &mut lines[expected.len()..] {
            assert_eq!(*line, Line::ZERO);
            *line = Line([[step as u8; GROUP]; BLOCK_ROWS]);
        }
        expected.resize(lines.len(), Line([[step as u8; GROUP]; BLOCK_ROWS]));
        assert!(*lines == *expected);
        assert_eq!(lines.as_ptr().addr() % size_of::<Line>(), 0);
    }
    lines.truncate(2);
    assert!(*lines == expected[..2]);
    // The memory of the others is used again.
    lines.reserve_exact(1);
    lines.extend_with_zeros(1);
    assert_eq!(lines[2], Line::ZERO);
}

#[test]
#[should_panic(expected = "no room for 2 lines")]
fn lines_never_grow_beyond_their_memory() {
    let mut lines = Lines::new();
    lines.reserve_exact(1);
    lines.extend_with_zeros(2);
}
