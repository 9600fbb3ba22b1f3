//! Plans and writes ZIP files of photos. Photos are stored as they are: compressing JPEG files gains nothing. The length is
//! computed before the first byte is sent: of a file of this form it depends on names and sizes alone.

use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use photofinish_store::model::download::Download;
use photofinish_store::model::object_key::ObjectKey;
use photofinish_store::model::photo::Photo;
use photofinish_store::traits::Blobs;
use time::OffsetDateTime;
use tokio::sync::mpsc;
use zip::result::ZipResult;
use zip::write::{SimpleFileOptions, ZipWriter};
use zip::{CompressionMethod, DateTime};

use super::names::FileNames;
use super::{load_sizes, select_photos};
use crate::context::Context;
use crate::errors::ApiError;

/// Bytes that are sent at once, and how many of these pieces wait for the client.
const PIECE_BYTES: usize = 64 << 10;
const PIECES: usize = 4;
/// The name of the note on photos that are not there any more.
const NOTE: &str = "MISSING.txt";

/// A file of the archive.
#[derive(Clone, Debug)]
struct Entry {
    key: ObjectKey,
    name: String,
    bytes: u64,
    modified: DateTime,
}

/// A ZIP file that can be written.
#[derive(Clone, Debug)]
pub(crate) struct Archive {
    entries: Vec<Entry>,
    /// Says how many photos are missing.
    note: Option<String>,
    /// Of the whole file.
    pub(crate) bytes: u64,
}

/// Plans the archive of a download: what is there now.
pub(crate) async fn plan(ctx: &Context, download: &Download) -> Result<Archive, ApiError> {
    let photos = select_photos(ctx, download).await?;
    let mut names = FileNames::beside(NOTE);
    let role = download.file.role();
    let key = |photo: &Photo| ObjectKey::photo(download.organization, download.album, photo.id, role);
    let sizes = load_sizes(&ctx.store.blobs, photos.iter().map(key).collect()).await?;
    let entry = |(photo, bytes): (&Photo, Option<u64>)| {
        let (key, name) = (key(photo), names.name(photo, download.file));
        let modified = photo.taken_at.and_then(zip_time).unwrap_or_default();
        Some(Entry { key, name, bytes: bytes?, modified })
    };
    let entries: Vec<Entry> = photos.iter().zip(sizes).filter_map(entry).collect();
    let missing = download.photos.len() - entries.len();
    let note = (missing > 0)
        .then(|| format!("{missing} of {} photos are not there any more.\n", download.photos.len()));
    let bytes = measure(&entries, note.as_deref());
    Ok(Archive { entries, note, bytes })
}

/// As ZIP files have it: from 1980 on, without a time zone.
fn zip_time(time: OffsetDateTime) -> Option<DateTime> {
    let year = u16::try_from(time.year()).ok()?;
    let (month, day) = (u8::from(time.month()), time.day());
    DateTime::from_date_and_time(year, month, day, time.hour(), time.minute(), time.second()).ok()
}

/// Writes an archive, from a thread of its own, into the stream that is returned. An error ends the stream, and with it the
/// connection before the announced length is sent: no client takes the file for whole.
pub(crate) fn send(archive: Archive, blobs: Arc<dyn Blobs>) -> mpsc::Receiver<io::Result<Bytes>> {
    let (pieces, received) = mpsc::channel(PIECES);
    let (photos, mut read) = mpsc::channel(1);
    let keys: Vec<(ObjectKey, u64)> =
        archive.entries.iter().map(|entry| (entry.key.clone(), entry.bytes)).collect();
    let client = pieces.clone();
    tokio::spawn(async move {
        // Three photos are in memory: one is read, one waits, one is written.
        for (key, bytes) in keys {
            let photo = tokio::select! {
                photo = blobs.read_into(&key, bytes, Vec::new()) => photo,
                // Reading takes minutes from a slow storage: it ends with the client, and when writing has failed.
                () = client.closed() => return,
                () = photos.closed() => return,
            };
            let photo = photo.map(Bytes::from).map_err(io::Error::other);
            if photos.send(photo).await.is_err() {
                // The client has gone.
                return;
            }
        }
    });
    tokio::task::spawn_blocking(move || {
        let mut output = PieceWriter { pieces: pieces.clone(), piece: Vec::with_capacity(PIECE_BYTES) };
        let write_photo = |entry: &Entry, file: &mut dyn Write| {
            let photo: Bytes = read.blocking_recv().ok_or(io::ErrorKind::UnexpectedEof)??;
            let is_whole = photo.len() as u64 == entry.bytes;
            if is_whole { file.write_all(&photo) } else { Err(io::ErrorKind::InvalidData.into()) }
        };
        let written = write(&archive.entries, archive.note.as_deref(), &mut output, write_photo);
        if let Err(error) = written.map_err(io::Error::from).and_then(|()| output.flush()) {
            tracing::warn!(%error, "a download ended early");
            // Fails if the client has gone, which may be why.
            drop(pieces.blocking_send(Err(error)));
        }
    });
    received
}

/// From here on a length or a place does not fit into 32 bits: ZIP64 has it elsewhere.
const ZIP64_FROM: u64 = u32::MAX as u64;

/// Returns the length of the archive that [`write`] writes (APPNOTE 4.3): each file has a header, its bytes and a descriptor, and
/// an entry in the directory at the end.
fn measure(entries: &[Entry], note: Option<&str>) -> u64 {
    const LOCAL_HEADER: u64 = 30;
    const DIRECTORY_ENTRY: u64 = 46;
    const DIRECTORY_END: u64 = 22;
    const ZIP64_DIRECTORY_END: u64 = 56 + 20;
    let photos = entries.iter().map(|entry| (entry.name.len() as u64, entry.bytes));
    let files = photos.chain(note.map(|note| (NOTE.len() as u64, note.len() as u64)));
    let (mut start, mut directory, mut count) = (0_u64, 0_u64, 0_usize);
    for (name, bytes) in files {
        let is_large = bytes >= ZIP64_FROM;
        let fields = if is_large { 16 } else { 0 } + if start >= ZIP64_FROM { 8 } else { 0 };
        let extra = if fields > 0 { 4 + fields } else { 0 };
        directory += DIRECTORY_ENTRY + name + extra;
        let (local_extra, descriptor) = if is_large { (20, 24) } else { (0, 16) };
        start += LOCAL_HEADER + name + local_extra + bytes + descriptor;
        count += 1;
    }
    let is_zip64 = count > usize::from(u16::MAX) || directory.max(start) > ZIP64_FROM;
    start + directory + DIRECTORY_END + if is_zip64 { ZIP64_DIRECTORY_END } else { 0 }
}

/// Writes an archive. `write_photo` writes all bytes of an entry.
fn write(
    entries: &[Entry],
    note: Option<&str>,
    output: &mut impl Write,
    mut write_photo: impl FnMut(&Entry, &mut dyn Write) -> io::Result<()>,
) -> ZipResult<()> {
    let mut zip = ZipWriter::new_stream(output);
    let options =
        SimpleFileOptions::default().compression_method(CompressionMethod::Stored).unix_permissions(0o644);
    for entry in entries {
        let options = options.last_modified_time(entry.modified).large_file(entry.bytes >= ZIP64_FROM);
        zip.start_file(entry.name.as_str(), options)?;
        write_photo(entry, &mut zip)?;
    }
    if let Some(note) = note {
        zip.start_file(NOTE, options.last_modified_time(DateTime::default()))?;
        zip.write_all(note.as_bytes())?;
    }
    zip.finish()?;
    Ok(())
}

/// Sends what is written in pieces, and waits for the client.
struct PieceWriter {
    pieces: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

impl Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        if self.piece.len() == PIECE_BYTES {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        self.pieces.blocking_send(Ok(piece.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use async_trait::async_trait;
    use photofinish_store::model::ids::{AlbumId, OrganizationId, PhotoId};
    use photofinish_store::model::object_key::ObjectRole;
    use photofinish_store::traits::{Result, UploadConditions};
    use url::Url;

    use super::*;

    /// Counts bytes.
    struct Counter(u64);

    impl Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn entries(sizes: &[u64]) -> Vec<Entry> {
        let key = ObjectKey::photo(
            OrganizationId::generate(),
            AlbumId::generate(),
            PhotoId::generate(),
            ObjectRole::Original,
        );
        let name = |at: usize| format!("Läufer {}.jpg", "x".repeat(at % 40));
        let entry = |(at, bytes): (usize, &u64)| Entry {
            key: key.clone(),
            name: format!("{at}{}", name(at)),
            bytes: *bytes,
            modified: DateTime::default(),
        };
        sizes.iter().enumerate().map(entry).collect()
    }

    #[test]
    fn the_computed_length_is_that_of_what_is_written() {
        let largest = 1 << 30;
        let zeros = vec![0; largest as usize];
        let many = vec![1; 70_000];
        for (sizes, note) in [
            (&[][..], None),
            (&[0, 1, 4_000_000][..], None),
            (&[17][..], Some("1 of 2 photos are not there any more.\n")),
            // More files than 16 bits count.
            (&many[..], None),
            // Photos that begin where 32 bits do not reach.
            (&[largest, largest, largest, largest, 5, 6][..], Some("note")),
        ] {
            let entries = entries(sizes);
            let mut counter = Counter(0);
            let write_photo =
                |entry: &Entry, file: &mut dyn Write| file.write_all(&zeros[..entry.bytes as usize]);
            write(&entries, note, &mut counter, write_photo).unwrap();
            assert_eq!(measure(&entries, note), counter.0, "{} files", sizes.len());
        }
    }

    /// Zeros that are written at once.
    static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

    /// Keeps what is around the bytes of large photos, which come in pieces of [`ZEROS`].
    #[derive(Default)]
    struct Frame {
        kept: Vec<u8>,
        bytes: u64,
    }

    impl Write for Frame {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if bytes.len() < ZEROS.len() {
                self.kept.extend_from_slice(bytes);
            }
            self.bytes += bytes.len() as u64;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Reads numbers as ZIP files have them: the lowest byte first.
    struct Numbers<'a>(&'a [u8]);

    impl Numbers<'_> {
        /// Reads numbers of so many bytes each.
        fn read<const COUNT: usize>(&mut self, lengths: [usize; COUNT]) -> [u64; COUNT] {
            lengths.map(|length| {
                let (number, rest) = self.0.split_at(length);
                self.0 = rest;
                number.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
            })
        }

        fn skip(&mut self, length: usize) {
            self.0 = &self.0[length..];
        }
    }

    /// Writes two files, the first of so many pieces of [`ZEROS`]; returns what is around its bytes.
    fn write_around(entries: &[Entry], pieces: u64) -> Vec<u8> {
        let mut frame = Frame::default();
        let write_photo = |entry: &Entry, file: &mut dyn Write| {
            if entry.bytes < ZEROS.len() as u64 {
                return file.write_all(&ZEROS[..entry.bytes as usize]);
            }
            (0..pieces).try_for_each(|_| file.write_all(&ZEROS))
        };
        write(entries, None, &mut frame, write_photo).unwrap();
        assert_eq!(measure(entries, None), frame.bytes);
        frame.kept
    }

    #[test]
    fn a_file_above_four_gigabytes_has_its_length_and_the_next_its_place_in_64_bits() {
        const PIECES: u64 = 4097;
        const ENTRY: [usize; 17] = [4, 2, 2, 2, 2, 2, 2, 4, 4, 4, 2, 2, 2, 2, 2, 4, 4];
        const ELSEWHERE: u64 = u32::MAX as u64;
        let large = PIECES * ZEROS.len() as u64;
        let mut crc = crc32fast::Hasher::new();
        crc.update(&ZEROS);
        for _ in 0..12 {
            let half = crc.clone();
            crc.combine(&half);
        }
        crc.update(&ZEROS);
        let crc = u64::from(crc.finalize());
        let entries = entries(&[large, 7]);
        let names = [entries[0].name.len(), entries[1].name.len()];
        let second = 30 + names[0] as u64 + 20 + large + 24;
        let directory = second + 30 + names[1] as u64 + 7 + 16;
        let kept = write_around(&entries, PIECES);
        let mut numbers = Numbers(&kept);

        let [signature, version, flags, .., extra] = numbers.read([4, 2, 2, 2, 2, 2, 4, 4, 4, 2, 2]);
        assert_eq!((signature, version, flags & 8, extra), (0x0403_4b50, 45, 8, 20));
        numbers.skip(names[0]);
        assert_eq!(numbers.read([2, 2, 8, 8]), [1, 16, 0, 0], "the length follows the bytes");
        assert_eq!(numbers.read([4, 4, 8, 8]), [0x0807_4b50, crc, large, large]);
        numbers.skip(30 + names[1] + 7 + 16);

        let [signature, _, version, _, _, _, _, sum, packed, bytes, _, extra, .., start] =
            numbers.read(ENTRY);
        assert_eq!((signature, version, sum), (0x0201_4b50, 45, crc));
        assert_eq!((packed, bytes, extra, start), (ELSEWHERE, ELSEWHERE, 20, 0));
        numbers.skip(names[0]);
        assert_eq!(numbers.read([2, 2, 8, 8]), [1, 16, large, large]);
        let [_, _, _, _, _, _, _, _, packed, bytes, _, extra, .., start] = numbers.read(ENTRY);
        assert_eq!((packed, bytes, extra, start), (7, 7, 12, ELSEWHERE));
        numbers.skip(names[1]);
        assert_eq!(numbers.read([2, 2, 8]), [1, 8, second]);

        let directory_bytes = 46 + names[0] as u64 + 20 + 46 + names[1] as u64 + 12;
        let end = numbers.read([4, 8, 2, 2, 4, 4, 8, 8, 8, 8]);
        assert_eq!((end[0], end[3]), (0x0606_4b50, 45));
        assert_eq!(end[6..], [2, 2, directory_bytes, directory]);
        assert_eq!(numbers.read([4, 4, 8, 4]), [0x0706_4b50, 0, directory + directory_bytes, 1]);
        assert_eq!(numbers.read([4]), [0x0605_4b50]);
        assert_eq!(numbers.0.len(), 22 - 4);
    }

    /// Storage that gives the same photo for every key, or lets who asks wait for ever.
    #[derive(Default)]
    struct OnePhoto {
        photo: Vec<u8>,
        is_hanging: bool,
        reads: AtomicUsize,
    }

    #[async_trait]
    impl Blobs for OnePhoto {
        async fn read(&self, _: &ObjectKey, _: u64) -> Result<Bytes> {
            self.reads.fetch_add(1, Ordering::SeqCst);
            if self.is_hanging {
                std::future::pending::<()>().await;
            }
            Ok(self.photo.clone().into())
        }

        async fn write(&self, _: &ObjectKey, _: &str, _: Bytes) -> Result<()> {
            unreachable!("a download writes nothing")
        }

        async fn upload_url(&self, _: &ObjectKey, _: UploadConditions<'_>) -> Result<Url> {
            unreachable!("a download uploads nothing")
        }

        async fn download_url(&self, _: &ObjectKey, _: Duration) -> Result<Url> {
            unreachable!("a download reads bytes")
        }

        async fn head(&self, _: &ObjectKey) -> Result<Option<u64>> {
            unreachable!("the sizes are known")
        }

        async fn delete(&self, _: &ObjectKey) -> Result<()> {
            unreachable!("a download deletes nothing")
        }

        async fn delete_album(&self, _: OrganizationId, _: AlbumId) -> Result<()> {
            unreachable!("a download deletes nothing")
        }
    }

    /// Waits until nobody but the test has the storage.
    async fn wait_until_unused(storage: &Arc<OnePhoto>) {
        let is_unused = async {
            while Arc::strong_count(storage) > 1 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), is_unused).await.expect("photos are read for nobody");
    }

    fn archive_of_eight() -> Archive {
        let entries = entries(&[1 << 20; 8]);
        Archive { bytes: measure(&entries, None), entries, note: None }
    }

    #[tokio::test]
    async fn a_client_that_leaves_ends_the_reading_of_its_photos() {
        let storage = Arc::new(OnePhoto { photo: vec![0; 1 << 20], ..OnePhoto::default() });
        let mut pieces = send(archive_of_eight(), Arc::<OnePhoto>::clone(&storage));
        pieces.recv().await.unwrap().unwrap();
        drop(pieces);
        wait_until_unused(&storage).await;
        assert!(storage.reads.load(Ordering::SeqCst) <= 3, "more photos than three are in memory");
    }

    #[tokio::test]
    async fn a_client_that_leaves_while_the_storage_hangs_ends_the_reading() {
        let storage = Arc::new(OnePhoto { is_hanging: true, ..OnePhoto::default() });
        let pieces = send(archive_of_eight(), Arc::<OnePhoto>::clone(&storage));
        while storage.reads.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(pieces);
        wait_until_unused(&storage).await;
    }
}
