//! The boxes of a HEIF file, counted before `heifer` makes lists of them: a few bytes can claim millions of entries there.

use heifer::heifer_isobmff::{BoxIter, Error, HeifFile};
use photofinish_store::model::photo::FailureReason;

use crate::engine::fault::Poison;

/// The most items. A phone's photo of 200 megapixels has about 800, of 12 megapixels about 60.
const MAX_ITEMS: usize = 1_000;
/// The most parts in which the bytes of all items lie. Phones write one an item.
const MAX_EXTENTS: usize = 8_000;
/// The most bytes of the tables: 1,000 items take about 100 kilobytes, the largest colour profiles a megabyte.
const MAX_TABLE_BYTES: usize = 2 << 20;

/// Parses the tables of a file. Bytes behind the last whole box are left out: some cameras append their own.
///
/// # Errors
/// When they are damaged, above the limits, or not those of a still picture.
pub(super) fn open(file: &[u8]) -> Result<HeifFile<'_>, Poison> {
    let (mut whole_bytes, mut has_tables, mut is_film) = (0, false, false);
    for part in BoxIter::new(file) {
        let Ok(part) = part else { break };
        match &part.header.box_type.0 {
            b"meta" => {
                check_tables(part.content)?;
                has_tables = true;
            }
            b"moov" => is_film = true,
            _ => {}
        }
        whole_bytes = part.offset + part.header.header_size as usize + part.content.len();
    }
    if is_film && !has_tables {
        return Err(unsupported("a sequence without a still picture"));
    }
    HeifFile::parse(&file[..whole_bytes]).map_err(|error| to_poison(&error))
}

/// A failure because of something that is allowed in the format and not read.
pub(super) fn unsupported(what: &str) -> Poison {
    Poison::new(FailureReason::UnsupportedFormat, format!("heic: {what}"))
}

/// A failure because of damage.
pub(super) fn corrupt(what: &str) -> Poison {
    Poison::new(FailureReason::CorruptImage, format!("heic: {what}"))
}

/// A failure of `heifer` to read the tables.
pub(super) fn to_poison(error: &Error) -> Poison {
    match error {
        Error::Unimplemented(_) => unsupported(&error.to_string()),
        _ => corrupt(&error.to_string()),
    }
}

fn check_tables(tables: &[u8]) -> Result<(), Poison> {
    if tables.len() > MAX_TABLE_BYTES {
        return Err(unsupported(&format!(
            "{} bytes of tables, the limit is {MAX_TABLE_BYTES}",
            tables.len()
        )));
    }
    // Version and flags come before the boxes.
    for part in BoxIter::new(tables.get(4..).unwrap_or_default()) {
        let part = part.map_err(|error| to_poison(&error))?;
        match &part.header.box_type.0 {
            b"iinf" => check_items(count_items(part.content))?,
            b"iloc" => check_locations(part.content)?,
            b"iprp" => check_associations(part.content)?,
            _ => {}
        }
    }
    Ok(())
}

fn check_items(count: usize) -> Result<(), Poison> {
    if count > MAX_ITEMS {
        return Err(unsupported(&format!("{count} items, the limit is {MAX_ITEMS}")));
    }
    Ok(())
}

/// The entries that are there: the count in front of them may claim any other number.
fn count_items(table: &[u8]) -> usize {
    let count_bytes = if table.first() == Some(&0) { 2 } else { 4 };
    BoxIter::new(table.get(4 + count_bytes..).unwrap_or_default()).map_while(Result::ok).count()
}

/// Entries without any field take no bytes, so their number is bounded here alone.
fn check_locations(table: &[u8]) -> Result<(), Poison> {
    let mut reader = Reader(table);
    let Some(locations) = Locations::read_header(&mut reader) else { return Ok(()) };
    check_items(locations.count as usize)?;
    let mut extents = 0;
    for _ in 0..locations.count {
        // `heifer` refuses a table that ends early.
        let Some(count) = locations.skip_entry(&mut reader) else { break };
        extents += count;
        if extents > MAX_EXTENTS {
            return Err(unsupported(&format!("more than {MAX_EXTENTS} parts of items")));
        }
    }
    Ok(())
}

fn check_associations(properties: &[u8]) -> Result<(), Poison> {
    let mut count = 0_usize;
    for part in BoxIter::new(properties).map_while(Result::ok) {
        if part.header.box_type.0 == *b"ipma" {
            let mut reader = Reader(part.content);
            let claimed = reader.skip(4).and_then(|()| reader.read(4)).unwrap_or(0);
            count = count.saturating_add(claimed as usize);
        }
    }
    check_items(count)
}

/// How the entries of the table of locations are stored.
struct Locations {
    version: u64,
    count: u64,
    base_bytes: usize,
    extent_bytes: usize,
}

impl Locations {
    fn read_header(reader: &mut Reader<'_>) -> Option<Self> {
        let version = reader.read(1)?;
        reader.skip(3)?;
        let [offset_and_length, base_and_index] = [reader.read(1)? as usize, reader.read(1)? as usize];
        let index_bytes = if version == 0 { 0 } else { base_and_index & 15 };
        let count = reader.read(if version < 2 { 2 } else { 4 })?;
        let extent_bytes = (offset_and_length >> 4) + (offset_and_length & 15) + index_bytes;
        Some(Self { version, count, base_bytes: base_and_index >> 4, extent_bytes })
    }

    /// Skips an entry; returns the number of its extents.
    fn skip_entry(&self, reader: &mut Reader<'_>) -> Option<usize> {
        let id_bytes = if self.version < 2 { 2 } else { 4 };
        let method_bytes = if self.version == 0 { 0 } else { 2 };
        // The data reference has two bytes.
        reader.skip(id_bytes + method_bytes + 2 + self.base_bytes)?;
        let extents = reader.read(2)? as usize;
        reader.skip(extents * self.extent_bytes)?;
        Some(extents)
    }
}

/// Reads big-endian numbers.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
    }

    fn read(&mut self, bytes: usize) -> Option<u64> {
        let value = self.0.get(..bytes)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        self.skip(bytes)?;
        Some(value)
    }
}
