//! The operations of a base path. A request costs one look into a table, however many operations there are; a filter for
//! each would be asked in turn.

use std::collections::HashMap;
use std::sync::Arc;

use warp::path::FullPath;
use warp::{Filter, Rejection, reject};

use crate::operation::Operation;

/// Operations by their paths. Cheap to clone.
#[derive(Clone)]
pub(super) struct OperationTable(Arc<HashMap<String, Arc<Operation>>>);

impl OperationTable {
    pub(super) fn new(operations: impl IntoIterator<Item = Operation>) -> Self {
        let by_path = operations.into_iter().map(|operation| (operation.info.path(), Arc::new(operation)));
        Self(Arc::new(by_path.collect()))
    }

    /// Returns the operation of a path below its base, with or without a trailing slash.
    pub(super) fn get(&self, path: &str) -> Option<Arc<Operation>> {
        self.0.get(path.strip_suffix('/').unwrap_or(path)).map(Arc::clone)
    }

    /// Matches the paths of the operations below `base`.
    pub(super) fn below(
        self,
        base: &'static str,
    ) -> impl Filter<Extract = (Arc<Operation>,), Error = Rejection> + Clone {
        warp::path::full().and_then(move |path: FullPath| {
            let operation = path.as_str().strip_prefix(base).and_then(|path| self.get(path));
            async move { operation.ok_or_else(reject::not_found) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::catalog;

    #[test]
    fn an_operation_is_found_by_its_whole_path() {
        let table = OperationTable::new(catalog::all_operations());
        let id = |path| table.get(path).map(|operation| operation.info.id);
        assert_eq!(id("/albums/get"), Some("albums.get"));
        assert_eq!(id("/albums/get/"), Some("albums.get"));
        assert_eq!(id("/albums/get//"), None);
        assert_eq!(id("/albums"), None);
        assert_eq!(id(""), None);
    }
}
