//! Passes a file on to its client as fast as that reads it, and ends what is read too slowly: others wait for its place.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::DownloadPlace;

/// How long a client may let its download wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadPace {
    /// However little it has read.
    base_wait: Duration,
    /// The wait grows by a second for each so many bytes that it has read.
    bytes_per_second: u64,
}

impl ReadPace {
    /// The pace of uploads. Waits for the storage do not count.
    pub(crate) const SERVICE: Self = Self { base_wait: Duration::from_secs(60), bytes_per_second: 32_000 };

    fn wait_limit(self, bytes_read: u64) -> Duration {
        self.base_wait.saturating_add(Duration::from_secs(bytes_read / self.bytes_per_second))
    }
}

/// Returns the pieces of a file. Its place is free when the last one is taken, when the client has gone, and when it has let
/// the download wait for longer than its pace permits: then the file ends early.
pub(crate) fn send_in_time(
    mut pieces: mpsc::Receiver<io::Result<Bytes>>,
    place: DownloadPlace,
    pace: ReadPace,
) -> mpsc::Receiver<io::Result<Bytes>> {
    let (client, received) = mpsc::channel(1);
    tokio::spawn(async move {
        let _place = place;
        let (mut waited, mut bytes_read) = (Duration::ZERO, 0);
        loop {
            let piece = tokio::select! {
                piece = pieces.recv() => piece,
                () = client.closed() => None,
            };
            let Some(piece) = piece else { return };
            let bytes = piece.as_ref().map_or(0, |piece| piece.len() as u64);
            let begun = Instant::now();
            let left = pace.wait_limit(bytes_read).saturating_sub(waited);
            match timeout(left, client.send(piece)).await {
                Ok(Ok(())) => {}
                Ok(Err(_gone)) => return,
                Err(_elapsed) => {
                    tracing::info!(bytes_read, "ended a download that was read too slowly");
                    return;
                }
            }
            waited += begun.elapsed();
            bytes_read += bytes;
        }
    });
    received
}

#[cfg(test)]
mod tests {
    use photofinish_store::model::ids::OrganizationId;

    use super::*;
    use crate::downloads::DownloadPlaces;

    const PIECE: &[u8] = &[0; 1000];

    /// Pieces of a file of so many.
    fn pieces(count: usize) -> mpsc::Receiver<io::Result<Bytes>> {
        let (sender, pieces) = mpsc::channel(1);
        tokio::spawn(async move {
            for _ in 0..count {
                if sender.send(Ok(Bytes::from_static(PIECE))).await.is_err() {
                    return;
                }
            }
        });
        pieces
    }

    async fn wait_until_free(places: &DownloadPlaces) {
        let is_free = async {
            while !places.taken().is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), is_free).await.expect("a place is never given back");
    }

    #[tokio::test]
    async fn clients_that_read_too_slowly_lose_their_places_and_keep_nobody_else() {
        let places = DownloadPlaces::default();
        let (slow, other) = (OrganizationId::generate(), OrganizationId::generate());
        // Their time is over as soon as one piece waits for them and another one behind it.
        let at_once = ReadPace { base_wait: Duration::ZERO, bytes_per_second: 1_000_000 };
        let first = places.take_place([1; 32], slow).unwrap();
        let second = places.take_place([2; 32], slow).unwrap();
        let third = places.take_place([3; 32], slow).unwrap();
        assert!(places.take_place([4; 32], slow).is_err(), "all places");
        drop(places.take_place([4; 32], other).unwrap());
        let mut unread = [first, second, third].map(|place| send_in_time(pieces(1000), place, at_once));
        wait_until_free(&places).await;
        for received in &mut unread {
            let mut left = 0;
            while received.recv().await.is_some() {
                left += 1;
            }
            assert!(left < 1000, "a file that was not read is whole");
        }
    }

    #[tokio::test]
    async fn a_client_that_reads_at_the_pace_gets_its_whole_file() {
        let places = DownloadPlaces::default();
        let place = places.take_place([1; 32], OrganizationId::generate()).unwrap();
        let mut received = send_in_time(pieces(1000), place, ReadPace::SERVICE);
        for _ in 0..1000 {
            assert_eq!(received.recv().await.unwrap().unwrap(), PIECE);
        }
        assert!(received.recv().await.is_none());
        wait_until_free(&places).await;
    }

    #[test]
    fn the_wait_grows_with_what_was_read() {
        let limits = [0, 31_999, 32_000, 2_000_000_000].map(|bytes| ReadPace::SERVICE.wait_limit(bytes));
        assert_eq!(limits.map(|limit| limit.as_secs()), [60, 60, 61, 62_560]);
    }

    #[tokio::test]
    async fn a_client_that_leaves_gives_its_place_back() {
        let places = DownloadPlaces::default();
        let place = places.take_place([1; 32], OrganizationId::generate()).unwrap();
        // The storage never answers.
        let (_sender, silent) = mpsc::channel(1);
        drop(send_in_time(silent, place, ReadPace::SERVICE));
        wait_until_free(&places).await;
    }
}
