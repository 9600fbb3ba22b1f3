//! An event whose runners are nobody: their heads are drawn. For pictures that are published.

use std::path::Path;

use anyhow::Context;

use crate::canvas::Color;
use crate::event::TruthPhoto;
use crate::head::{DrawnHead, Hair, Head, Headwear};
use crate::jpeg::{self, CameraExif};
use crate::noise::Rng;
use crate::photo::{Entrant, PhotoPlan, PhotoRenderer};

/// Runners of the event.
const RUNNERS: usize = 10;

const SKINS: [Color; 5] = [
    [236.0, 190.0, 160.0],
    [222.0, 172.0, 140.0],
    [190.0, 138.0, 104.0],
    [146.0, 98.0, 70.0],
    [98.0, 64.0, 48.0],
];
const HAIRS: [Color; 5] = [
    [38.0, 28.0, 24.0],
    [82.0, 54.0, 34.0],
    [168.0, 122.0, 66.0],
    [120.0, 52.0, 28.0],
    [150.0, 146.0, 142.0],
];
const EYES: [Color; 4] = [[84.0, 54.0, 34.0], [84.0, 118.0, 148.0], [92.0, 116.0, 78.0], [60.0, 42.0, 34.0]];
const SHIRTS: [Color; 7] = [
    [226.0, 96.0, 42.0],
    [44.0, 92.0, 164.0],
    [58.0, 142.0, 96.0],
    [178.0, 44.0, 74.0],
    [240.0, 200.0, 70.0],
    [92.0, 72.0, 150.0],
    [50.0, 150.0, 170.0],
];
const KINDS: [Hair; 3] = [Hair::Short, Hair::Long, Hair::Bun];

/// How many runners are in a photo, and its width and height; photos cycle through the lists, whose lengths have no common
/// factor.
const GROUPS: [usize; 7] = [1, 2, 1, 3, 1, 2, 4];
const FORMATS: [(u32, u32); 3] = [(1800, 1200), (1200, 1600), (2000, 1333)];

struct Runner {
    bib: String,
    shirt: Color,
    head: DrawnHead,
}

/// Draws runners who differ in all that a seed can change.
fn make_runners() -> Vec<Runner> {
    let mut rng = Rng::new(2026);
    let mut pick = |count: usize| (rng.uniform(0.0, count as f32) as usize).min(count - 1);
    (0..RUNNERS)
        .map(|index| {
            let headwear = match pick(5) {
                0 => Headwear::Cap(SHIRTS[pick(SHIRTS.len())]),
                1 => Headwear::Band(SHIRTS[pick(SHIRTS.len())]),
                _ => Headwear::None,
            };
            let head = DrawnHead {
                skin: SKINS[pick(SKINS.len())],
                hair_color: HAIRS[pick(HAIRS.len())],
                hair: KINDS[pick(KINDS.len())],
                eyes: EYES[pick(EYES.len())],
                headwear,
                seed: index as u64,
            };
            Runner {
                bib: (1000 + 173 * index + pick(90)).to_string(),
                shirt: SHIRTS[index % SHIRTS.len()],
                head,
            }
        })
        .collect()
}

/// Writes `count` photos into `folder`; returns who is in them.
///
/// # Errors
/// When the font of the bibs is missing, or the folder cannot be written.
pub fn write_drawn_photos(folder: &Path, count: usize) -> anyhow::Result<Vec<TruthPhoto>> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let (renderer, runners) = (PhotoRenderer::new()?, make_runners());
    let mut first = 0;
    (0..count)
        .map(|index| {
            let group: Vec<&Runner> =
                (0..GROUPS[index % GROUPS.len()]).map(|place| &runners[(first + place) % RUNNERS]).collect();
            // The next photo begins within the group of this one: everybody is in several.
            first += group.len().div_ceil(2);
            write_photo(&renderer, folder, index, &group)
        })
        .collect()
}

fn write_photo(
    renderer: &PhotoRenderer,
    folder: &Path,
    index: usize,
    group: &[&Runner],
) -> anyhow::Result<TruthPhoto> {
    let entrant = |runner: &&'_ Runner| -> (DrawnHead, String, Color) {
        (runner.head, runner.bib.clone(), runner.shirt)
    };
    let who: Vec<(DrawnHead, String, Color)> = group.iter().map(entrant).collect();
    let entrants: Vec<Entrant<'_>> = who
        .iter()
        .map(|(head, bib, shirt)| Entrant { head: Head::Drawn(head), bib: Some(bib), shirt: *shirt })
        .collect();
    let (width, height) = FORMATS[index % FORMATS.len()];
    let picture =
        renderer.draw_photo(&PhotoPlan { width, height, entrants: &entrants, seed: 7000 + index as u64 });
    let taken_at = format!("2026:05:17 09:{:02}:{:02}", 20 + index / 4, index * 13 % 60);
    let file = format!("LAKE_{:04}.jpg", 1 + index);
    let exif = CameraExif { taken_at: &taken_at, orientation: 1 };
    let path = folder.join(&file);
    std::fs::write(&path, jpeg::encode(&picture, exif)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    let bibs: Vec<String> = group.iter().map(|runner| runner.bib.clone()).collect();
    Ok(TruthPhoto { file, runners: bibs.clone(), bibs, taken_at })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn runners_differ() {
        let runners = make_runners();
        let bibs: BTreeSet<&str> = runners.iter().map(|runner| runner.bib.as_str()).collect();
        assert_eq!(bibs.len(), RUNNERS);
        let skins: BTreeSet<String> =
            runners.iter().map(|runner| format!("{:?}", runner.head.skin)).collect();
        assert!(skins.len() > 2, "{skins:?}");
    }

    #[test]
    fn photos_show_their_runners_several_times() {
        let folder = std::env::temp_dir().join(format!("drawn-{}", std::process::id()));
        let photos = write_drawn_photos(&folder, 4).unwrap();
        for photo in &photos {
            let picture = jpeg::decode(&std::fs::read(folder.join(&photo.file)).unwrap()).unwrap();
            assert!(picture.width() >= 1200 && !photo.bibs.is_empty());
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
