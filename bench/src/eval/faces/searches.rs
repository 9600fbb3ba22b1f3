//! Searches an album with probes. The photo of a probe is deleted for its searches and uploaded again afterwards: in the
//! album it would be the surest hit of all, and lend its face and its bib to the search for the others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use photofinish_client::{Client, ClientError, Hit};
use serde_json::json;

use super::people::Probe;
use super::probe_picture::make_picture;
use crate::service::album::UploadedAlbum;

/// The results of one probe, without its own photo, best first.
#[derive(Clone, Debug)]
pub struct ProbeSearch {
    /// Name of the probe in lists.
    pub name: String,
    /// Files that show the same person, without the probe's own.
    pub right: BTreeSet<String>,
    /// Files that show the person without a label: right when found, not counted when missed.
    pub unlabelled: BTreeSet<String>,
    /// Files with their confidence, 0 to 100.
    pub hits: Vec<(String, f64)>,
}

impl ProbeSearch {
    /// Whether a file shows somebody else.
    pub fn is_wrong(&self, file: &str) -> bool {
        !self.right.contains(file) && !self.unlabelled.contains(file)
    }
}

/// An album that is searched.
pub struct AlbumUnderTest<'a> {
    client: &'a Client,
    folder: &'a Path,
    album: UploadedAlbum,
}

impl<'a> AlbumUnderTest<'a> {
    /// Creates an album of photos. Its threshold is 0, so that one search has the hits for every threshold.
    ///
    /// # Errors
    /// When a photo cannot be processed.
    pub fn ingest(client: &'a Client, folder: &'a Path, files: &[String]) -> anyhow::Result<Self> {
        let config = json!({ "face": { "confidenceThreshold": 0 } });
        let album = UploadedAlbum::ingest(client, Some(&config), folder, files)?;
        Ok(Self { client, folder, album })
    }

    /// Searches with every probe and every seed from 1 on; returns the searches of each seed.
    ///
    /// # Errors
    /// When a photo or the service fails.
    pub fn search(&mut self, probes: &[Probe], seeds: u32) -> anyhow::Result<Vec<Vec<ProbeSearch>>> {
        let mut by_seed = vec![Vec::new(); seeds as usize];
        let mut by_photo: BTreeMap<&str, Vec<&Probe>> = BTreeMap::new();
        for probe in probes {
            by_photo.entry(&probe.file).or_default().push(probe);
        }
        for (file, probes) in by_photo {
            self.album.remove(self.client, file)?;
            for probe in probes {
                for (seed, searches) in (1..).zip(&mut by_seed) {
                    let picture = make_picture(self.folder, probe, seed)?;
                    searches.push(ProbeSearch {
                        name: probe.name.clone(),
                        right: probe.right.clone(),
                        unlabelled: probe.unlabelled.clone(),
                        hits: self.find_files(&picture)?,
                    });
                }
            }
            self.album.add(self.client, self.folder, file)?;
        }
        Ok(by_seed)
    }

    /// Returns the hits of a picture as file and confidence; none for one without a face.
    fn find_files(&self, picture: &[u8]) -> anyhow::Result<Vec<(String, f64)>> {
        let image = self.client.upload_selfie(&self.album.id, "image/jpeg", picture)?;
        let hits = match self.client.search_face(&self.album.id, &image) {
            Ok(hits) => hits,
            Err(ClientError::Refused { error, .. }) if error.data["declineCode"] == "NO_FACE" => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(error.into()),
        };
        let with_file = |hit: &Hit| Some((self.album.find_file(&hit.id)?.to_owned(), hit.confidence));
        Ok(hits.iter().filter_map(with_file).collect())
    }
}
