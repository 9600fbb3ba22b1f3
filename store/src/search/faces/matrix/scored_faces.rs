//! The faces of one model as a selfie search asks for them.

use photofinish_kernels::cosine::{Cosine, VectorQuery};

use super::model_faces::ModelFaces;
use crate::model::ids::PhotoId;
use crate::model::photo::BoundingBox;
use crate::search::selfie::{AlbumFaces, ScoredRow, WornBib};

/// Faces and what scores them.
pub(super) struct ScoredFaces<'a> {
    pub(super) faces: &'a ModelFaces,
    pub(super) scorer: &'a Cosine,
}

impl AlbumFaces for ScoredFaces<'_> {
    fn count(&self) -> usize {
        self.faces.len()
    }

    fn nearest(&self, query: &[f32], k: usize, min_cosine: f32) -> Vec<ScoredRow> {
        let mut found: Vec<ScoredRow> = Vec::new();
        // Rises to the k-th best cosine so far whenever twice as many were found.
        let mut least = min_cosine;
        let keep_best = |found: &mut Vec<ScoredRow>| {
            found.select_nth_unstable_by(k - 1, |a, b| b.cosine.total_cmp(&a.cosine));
            found.truncate(k);
            found[k - 1].cosine
        };
        let search = VectorQuery { probe: query, min_score: min_cosine };
        self.faces.for_each_hit(self.scorer, &search, |cosine, row| {
            if cosine >= least {
                found.push(ScoredRow { row, cosine });
                if found.len() >= k.saturating_mul(2) {
                    least = keep_best(&mut found);
                }
            }
        });
        if found.len() > k {
            keep_best(&mut found);
        }
        found
    }

    fn wearers(&self, bib: &str) -> Vec<usize> {
        self.faces.wearers(bib)
    }

    fn cosine(&self, query: &[f32], row: usize) -> f32 {
        self.scorer.score(query, self.faces.vector(row))
    }

    fn vector(&self, row: usize) -> &[f32] {
        self.faces.vector(row)
    }

    fn photo(&self, row: usize) -> PhotoId {
        self.faces.face(row).photo
    }

    fn bounding_box(&self, row: usize) -> BoundingBox {
        self.faces.face(row).bounding_box
    }

    fn bib(&self, row: usize) -> Option<WornBib<'_>> {
        self.faces.bib(row)
    }
}
