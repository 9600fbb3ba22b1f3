//! Text boxes with a GPU: a launch for the binary maps, one for the scores of the rectangles that the host finds in
//! them.

use super::{BITS, MapTexts, SCORES, TextMap};
use crate::gpu::{Gpu, GpuError, MAX_GROUPS, Program, to_floats, to_words};
use crate::regions::{Bitmap, Candidate, DbParameters, DbPostprocess};

pub(super) fn find_all(
    gpu: &dyn Gpu,
    maps: &[TextMap<'_>],
    parameters: &DbParameters,
    postprocess: &mut DbPostprocess,
) -> Result<Vec<MapTexts>, GpuError> {
    let limit = gpu.max_buffer_bytes();
    let mut found = Vec::with_capacity(maps.len());
    while found.len() < maps.len() {
        let rest = &maps[found.len()..];
        let sizes = rest.iter().scan(0, |bytes, map| {
            *bytes += map.map.size().area() * 4;
            Some(*bytes)
        });
        let count = sizes.take_while(|bytes| *bytes <= limit).count().min(MAX_GROUPS);
        if count == 0 {
            return Err(GpuError::TooLarge { bytes: rest[0].map.size().area() * 4, limit });
        }
        found.extend(find_part(gpu, &rest[..count], parameters, postprocess)?);
    }
    Ok(found)
}

fn find_part(
    gpu: &dyn Gpu,
    maps: &[TextMap<'_>],
    parameters: &DbParameters,
    postprocess: &mut DbPostprocess,
) -> Result<Vec<MapTexts>, GpuError> {
    let (bitmaps, highest) = binarise(gpu, maps, parameters.bin_thresh)?;
    let candidates: Vec<Vec<Candidate>> =
        bitmaps.iter().map(|bitmap| postprocess.find_candidates(bitmap, parameters)).collect();
    let mut scores = score(gpu, maps, &candidates)?.into_iter();
    let results = candidates.into_iter().zip(highest).map(|(candidates, max_probability)| {
        let scored = candidates.into_iter().zip(&mut scores);
        let boxes = scored.filter_map(|(candidate, score)| candidate.accept(score, parameters)).collect();
        MapTexts { boxes, max_probability }
    });
    Ok(results.collect())
}

/// Returns the binary maps, and the highest probability in the columns of each.
fn binarise(
    gpu: &dyn Gpu,
    maps: &[TextMap<'_>],
    threshold: f32,
) -> Result<(Vec<Bitmap>, Vec<f32>), GpuError> {
    let (mut table, mut values, mut words) = (Vec::new(), 0_usize, 0_usize);
    let mut bytes = Vec::new();
    for TextMap { map, columns } in maps {
        let size = map.size();
        let range = [columns.start, columns.end].map(|column| column.min(size.width as usize) as u32);
        let [first, bits] = [values, words].map(|value| value as u32);
        table.extend([first, size.width, size.height, bits, range[0], range[1], threshold.to_bits(), 0]);
        values += size.area();
        words += Bitmap::words(size);
        bytes.extend_from_slice(bytemuck::cast_slice(map.values()));
    }
    let largest = |side: fn(&TextMap<'_>) -> u32| maps.iter().map(side).max().unwrap_or(0) as usize;
    let mut program = Program::default();
    let bindings = [
        program.input(bytes),
        program.words(&table),
        program.output(words * 4),
        program.output(maps.len() * 4),
    ];
    let threads = [largest(|map| map.map.size().width).div_ceil(32), largest(|map| map.map.size().height)];
    program.launch(&BITS, &bindings, [threads[0], threads[1], maps.len()]);
    let outputs = gpu.run(&program)?;
    let [bits, highest] = outputs.as_slice() else { return Ok((Vec::new(), Vec::new())) };
    let bits = to_words(bits);
    let mut first = 0;
    let bitmaps = maps.iter().map(|map| {
        let count = Bitmap::words(map.map.size());
        first += count;
        Bitmap::new(bits[first - count..first].to_vec(), map.map.size())
    });
    Ok((bitmaps.collect(), to_floats(highest)))
}

/// Returns the mean probability in each candidate of each map.
fn score(gpu: &dyn Gpu, maps: &[TextMap<'_>], candidates: &[Vec<Candidate>]) -> Result<Vec<f32>, GpuError> {
    let (mut bytes, mut values) = (Vec::<u8>::new(), 0);
    let (mut rows, mut boxes, mut pixels) = (Vec::new(), Vec::new(), Vec::new());
    for (TextMap { map, .. }, candidates) in maps.iter().zip(candidates) {
        if candidates.is_empty() {
            continue;
        }
        let width = map.size().width as usize;
        for candidate in candidates {
            let spans = candidate.spans(map.size());
            boxes.extend([(rows.len() / 2) as u32, spans.len() as u32]);
            pixels.push(spans.iter().map(|span| span.columns.len()).sum::<usize>());
            for span in spans {
                rows.extend(
                    [values + span.row * width + span.columns.start, span.columns.len()].map(|v| v as u32),
                );
            }
        }
        values += map.size().area();
        bytes.extend_from_slice(bytemuck::cast_slice(map.values()));
    }
    let mut sums = Vec::with_capacity(pixels.len());
    for part in boxes.chunks(2 * MAX_GROUPS) {
        let mut program = Program::default();
        let bindings = [
            program.input(bytes.as_slice()),
            program.words(&rows),
            program.words(part),
            program.output(part.len() / 2 * 4),
        ];
        program.launch(&SCORES, &bindings, [part.len() / 2 * 64, 1, 1]);
        sums.extend(gpu.run(&program)?.first().map(|bytes| to_floats(bytes)).unwrap_or_default());
    }
    let mean = |(sum, count): (f32, usize)| if count == 0 { 0.0 } else { sum / count as f32 };
    Ok(sums.into_iter().zip(pixels).map(mean).collect())
}
