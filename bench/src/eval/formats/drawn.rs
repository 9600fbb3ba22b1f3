//! Measures the format of drawn events in a store: what exact searches find and what they would answer wrongly.

use photofinish_store::Store;
use photofinish_store::conformance::{AlbumFixture, test_settings, text};
use photofinish_store::model::ids::ProcessId;
use photofinish_store::model::photo::{DetectedText, TextIndexState};
use photofinish_store::model::process::Task;

use super::events::{EVENTS, EventKind, Shown, draw};
use crate::report::goals::Goal;
use crate::report::{Report, Table};

/// Runners, and most photos of each.
const SIZES: [(usize, u64); 3] = [(150, 5), (400, 1), (400, 5)];

const LEASE: std::time::Duration = std::time::Duration::from_secs(3600);

/// What exact searches answer.
#[derive(Clone, Copy, Default)]
struct Answers {
    shown: usize,
    right: usize,
    wrong: usize,
}

impl Answers {
    fn recall(self) -> f64 {
        self.right as f64 / self.shown.max(1) as f64
    }

    fn precision(self) -> f64 {
        self.right as f64 / (self.right + self.wrong).max(1) as f64
    }

    fn add(&mut self, other: Self) {
        self.shown += other.shown;
        self.right += other.right;
        self.wrong += other.wrong;
    }
}

/// Adds the table of drawn events, and its goals.
///
/// # Errors
/// When the store returns an error.
pub(super) fn add_to(report: &mut Report, seeds: u64) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let caption = format!(
        "Drawn events, {seeds} of each row: a reading in a photo; 6 % lose characters at an end, 1 % have a wrong one."
    );
    let columns = [
        "bibs",
        "runners",
        "most photos of one",
        "recall without",
        "recall with",
        "precision without",
        "precision with",
    ];
    let mut table = Table::new(&caption, &columns);
    let (mut least_gain, mut most_lost) = (f64::INFINITY, f64::NEG_INFINITY);
    for kind in &EVENTS {
        for (runners, most_photos) in SIZES {
            let [without, with] = runtime.block_on(measure(kind, runners, most_photos, seeds))?;
            let figures = [without.recall(), with.recall(), without.precision(), with.precision()];
            let mut row = vec![kind.name.to_owned(), runners.to_string(), most_photos.to_string()];
            row.extend(figures.map(|figure| format!("{figure:.3}")));
            table.add_row(row);
            most_lost = most_lost.max(without.recall() - with.recall());
            if kind.has_format {
                least_gain = least_gain.min(with.precision() - without.precision());
            }
        }
        println!("{}: done", kind.name);
    }
    report.tables.push(table);
    report.goals.push(Goal::at_least(
        "precision gained where there is a format, the least",
        least_gain,
        0.03,
    ));
    report.goals.push(Goal::at_most("recall lost by a format, the most", most_lost, 0.003));
    Ok(())
}

/// Answers without the format and with it, over all seeds.
async fn measure(
    kind: &EventKind,
    runners: usize,
    most_photos: u64,
    seeds: u64,
) -> anyhow::Result<[Answers; 2]> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(test_settings(folder.path())).await?;
    let mut answers = [Answers::default(); 2];
    for seed in 1..=seeds {
        let fixture = AlbumFixture::create(&store).await;
        let shown = draw(kind, runners, most_photos, seed);
        // Several runners in a photo say the same, faster.
        let mut photos = Vec::new();
        for photo in group(&shown) {
            let texts = photo.iter().map(|it| text(&it.read, 0.97)).collect();
            photos.push((fixture.add_ready_photo(Vec::new(), texts).await, photo));
        }
        let mut before = Answers::default();
        for it in &shown {
            before.add(answer(it, true));
        }
        answers[0].add(before);
        judge_all(&store).await?;
        for (id, photo) in &photos {
            let (_, texts) = store.photos.get_detections(fixture.album, *id).await?;
            for (it, text) in photo.iter().zip(&texts) {
                answers[1].add(answer(it, is_indexed(text)));
            }
        }
    }
    store.close().await;
    Ok(answers)
}

/// Puts readings into photos of some, each bib once in a photo.
fn group(shown: &[Shown]) -> Vec<Vec<&Shown>> {
    let mut photos: Vec<Vec<&Shown>> = Vec::new();
    for it in shown {
        let is_full =
            |photo: &Vec<&Shown>| photo.len() >= 8 || photo.iter().any(|other| other.read == it.read);
        match photos.last_mut().filter(|photo| !is_full(photo)) {
            Some(photo) => photo.push(it),
            None => photos.push(vec![it]),
        }
    }
    photos
}

fn is_indexed(text: &DetectedText) -> bool {
    text.index_state == TextIndexState::Indexed
}

fn answer(shown: &Shown, is_indexed: bool) -> Answers {
    let is_right = shown.read == shown.bib;
    Answers {
        shown: 1,
        right: usize::from(is_right && is_indexed),
        wrong: usize::from(!is_right && is_indexed),
    }
}

/// Learns and judges as the service's task does, until nothing is left.
async fn judge_all(store: &Store) -> anyhow::Result<()> {
    let lease = store.tasks.take(Task::Judging, ProcessId::generate(), LEASE).await?;
    let lease = lease.ok_or_else(|| anyhow::anyhow!("another process has the task"))?;
    while store.judging.is_due().await? {
        store.judging.judge(lease).await?;
    }
    store.tasks.release(lease).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_takes_wrong_answers_away_and_no_right_ones() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let [without, with] = runtime.block_on(measure(&EVENTS[1], 150, 5, 1)).unwrap();
        assert_eq!((without.shown, without.right), (with.shown, with.right));
        assert!(without.wrong > 10 && with.wrong < without.wrong / 2, "{} {}", without.wrong, with.wrong);
    }
}
