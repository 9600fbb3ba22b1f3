//! Huffman tables kept from file to file: many cameras write the same tables into every file.

use crate::huffman::spec::{Class, HuffmanSpec};
use crate::huffman::table::HuffmanTable;

/// Tables that are kept. A file has at most six, so at least the tables of the last file stay.
const MAX_TABLES: usize = 12;

/// Most tables of a file: DC and AC of three components.
const MAX_FILE_TABLES: usize = 6;

/// The numbers of a component's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableNumbers {
    dc: usize,
    ac: usize,
}

/// A component's tables.
#[derive(Clone, Copy)]
pub(crate) struct TablePair<'t> {
    pub(crate) dc: &'t HuffmanTable,
    pub(crate) ac: &'t HuffmanTable,
}

/// Tables by what files say about them.
#[derive(Default)]
pub(crate) struct TableCache {
    tables: Vec<CachedTable>,
}

struct CachedTable {
    class: Class,
    counts: [u8; 16],
    symbols: Vec<u8>,
    /// Of a DC table, the number of the AC table that its entries continue with.
    after: Option<usize>,
    table: Box<HuffmanTable>,
}

impl TableCache {
    /// Most bytes that the cache keeps.
    pub(crate) const MAX_BYTES: usize = MAX_TABLES * (HuffmanTable::BYTES + 512);

    /// Makes room for the tables of one more file. Numbers of tables are valid until then.
    pub(crate) fn begin_file(&mut self) {
        if self.tables.len() + MAX_FILE_TABLES > MAX_TABLES {
            self.tables.clear();
        }
    }

    /// Finds or makes the tables of a component.
    pub(crate) fn prepare(&mut self, dc: HuffmanSpec<'_>, ac: HuffmanSpec<'_>) -> TableNumbers {
        let ac = self.find_or_make(ac, None);
        TableNumbers { dc: self.find_or_make(dc, Some(ac)), ac }
    }

    pub(crate) fn get(&self, numbers: TableNumbers) -> TablePair<'_> {
        TablePair { dc: &self.tables[numbers.dc].table, ac: &self.tables[numbers.ac].table }
    }

    fn find_or_make(&mut self, spec: HuffmanSpec<'_>, after: Option<usize>) -> usize {
        let is_same = |cached: &CachedTable| {
            cached.class == spec.class
                && cached.after == after
                && cached.counts == spec.counts
                && cached.symbols == spec.symbols
        };
        if let Some(number) = self.tables.iter().position(is_same) {
            return number;
        }
        let table = HuffmanTable::new(spec, after.map(|number| &*self.tables[number].table));
        let HuffmanSpec { class, counts, symbols } = spec;
        self.tables.push(CachedTable { class, counts, symbols: symbols.to_vec(), after, table });
        self.tables.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(class: Class, symbols: &[u8]) -> HuffmanSpec<'_> {
        let mut counts = [0; 16];
        counts[0] = 1;
        HuffmanSpec::new(class, counts, symbols).unwrap()
    }

    #[test]
    fn equal_tables_are_found_again_and_their_number_is_limited() {
        let mut cache = TableCache::default();
        let first = cache.prepare(spec(Class::Dc, &[1]), spec(Class::Ac, &[1]));
        assert_eq!(cache.prepare(spec(Class::Dc, &[1]), spec(Class::Ac, &[1])), first);
        // The same DC table continues with another AC table.
        assert_ne!(cache.prepare(spec(Class::Dc, &[1]), spec(Class::Ac, &[2])).dc, first.dc);
        for symbol in 0..10 {
            cache.begin_file();
            cache.prepare(spec(Class::Dc, &[symbol]), spec(Class::Ac, &[symbol]));
            assert!(cache.tables.len() <= MAX_TABLES);
        }
    }
}
