//! Selects waiting photos in a fair order: organizations take turns, within an organization its albums do, and within an
//! album the photos come in the order in which they were queued. What a turn gives is cost, not photos ([`FairClock`]).
//!
//! Each process decides by what it has served itself: if every process is fair, all together are. Costs a statement for the
//! organizations, one for each organization served and one for each batch of photos, all of them index probes.

use std::collections::{HashMap, VecDeque};

use uuid::Uuid;

use crate::model::album::AlbumConfig;
use crate::model::ids::{AlbumId, OrganizationId, PhotoId};
use crate::sql::database::Transaction;
use crate::sql::queue::cost::{count_cells, estimate_cost};
use crate::sql::queue::fair_share::FairClock;
use crate::sql::row_types::from_json;
use crate::sql::statement::{FromAnyRow, Query, Statement, query};
use crate::traits::{PhotoRef, Result};

/// How many organizations, and how many albums of each, one call considers. With more than these waiting, the next call
/// goes on after the last of them.
const KEYS_PER_CALL: usize = 16;

const OPERATION: &str = "select waiting photos";

/// The statements that find waiting photos.
pub(crate) struct WaitingPhotos {
    /// The organizations after `$1`, `$2` at most.
    pub(crate) organizations: Statement,
    /// The open albums of organization `$3` after `$1`, `$2` at most, with their configurations, by which photos cost.
    pub(crate) albums: Statement,
    /// The photos of organization `$1` and album `$2` after photo `$4` queued at `$3`, `$5` at most.
    pub(crate) photos: Statement,
}

/// One index probe per organization, however many photos wait.
macro_rules! organizations_with_photos {
    ($condition:literal) => {
        concat!(
            "with recursive waiting (organization) as (select * from (select organization from photo where ",
            $condition,
            " and organization > $1 order by organization limit 1) as first union all \
             select (select photo.organization from photo where ",
            $condition,
            " and photo.organization > waiting.organization order by photo.organization limit 1) \
             from waiting where waiting.organization is not null) \
             select organization from waiting where organization is not null limit $2"
        )
    };
}
pub(crate) use organizations_with_photos;

/// One index probe per album, however many photos wait.
macro_rules! albums_with_photos {
    ($condition:literal) => {
        concat!(
            "with recursive waiting (album) as (select * from (select album from photo where ",
            $condition,
            " and organization = $3 and album > $1 order by album limit 1) as first union all \
             select (select photo.album from photo where ",
            $condition,
            " and photo.organization = $3 and photo.album > waiting.album order by photo.album limit 1) \
             from waiting where waiting.album is not null) \
             select album, (select config from album where album.id = waiting.album) from waiting where album is not null \
             and (select closed_at from album where album.id = waiting.album) is null limit $2"
        )
    };
}
pub(crate) use albums_with_photos;

macro_rules! oldest_photos {
    ($condition:literal) => {
        concat!(
            "select id, confirmed_at, size_bytes from photo where ",
            $condition,
            " and organization = $1 and album = $2 and (confirmed_at, id) > ($3, $4) \
             order by confirmed_at, id limit $5"
        )
    };
}
pub(crate) use oldest_photos;

/// How much to select.
#[derive(Clone, Copy)]
pub(crate) enum Quota {
    /// So many photos.
    Photos(usize),
    /// Photos until they cost so much.
    Cost(u64),
}

/// Whose turn it is, from call to call.
#[derive(Default)]
pub(crate) struct Turns {
    organizations: FairClock<OrganizationId>,
    last_organization: Option<OrganizationId>,
    albums: HashMap<OrganizationId, AlbumTurns>,
}

#[derive(Default)]
struct AlbumTurns {
    albums: FairClock<AlbumId>,
    last_album: Option<AlbumId>,
}

/// The selected photos, in the order in which they are served.
#[derive(Default)]
pub(crate) struct Selection {
    pub(crate) photos: Vec<SelectedPhoto>,
    pub(crate) cost: u64,
}

pub(crate) struct SelectedPhoto {
    pub(crate) photo: PhotoRef,
    pub(crate) confirmed_at: i64,
}

/// Selects waiting photos and charges them to those whose turn it was. `max_cells`: see [`count_cells`].
pub(crate) async fn select_photos(
    transaction: &mut Transaction,
    waiting: &WaitingPhotos,
    quota: Quota,
    max_cells: u32,
    turns: &mut Turns,
) -> Result<Selection> {
    let mut selection = Selection::default();
    if quota.is_reached(&selection) {
        return Ok(selection);
    }
    let mut queues = load_organizations(transaction, waiting, turns).await?;
    while !quota.is_reached(&selection) {
        let Some(id) = turns.organizations.choose(queues.iter().map(|queue| queue.id)) else { break };
        let Some(position) = queues.iter().position(|queue| queue.id == id) else { break };
        let count = queues.len();
        let queue = &mut queues[position];
        let albums = turns.albums.entry(id).or_default();
        queue.load_albums(transaction, waiting, albums, max_cells).await?;
        let remaining = quota.remaining(&selection);
        match queue.next_photo(transaction, waiting, albums, remaining.shared_by(count)).await? {
            Some((photo, cost)) => {
                turns.organizations.charge(id, cost);
                selection.cost = selection.cost.saturating_add(cost);
                selection.photos.push(photo);
            }
            None => drop(queues.remove(position)),
        }
    }
    Ok(selection)
}

impl Quota {
    fn is_reached(self, selection: &Selection) -> bool {
        match self {
            Self::Photos(limit) => selection.photos.len() >= limit,
            Self::Cost(limit) => selection.cost >= limit,
        }
    }

    fn remaining(self, selection: &Selection) -> Self {
        match self {
            Self::Photos(limit) => Self::Photos(limit.saturating_sub(selection.photos.len())),
            Self::Cost(limit) => Self::Cost(limit.saturating_sub(selection.cost)),
        }
    }

    fn shared_by(self, count: usize) -> Share {
        Share { quota: self, count }
    }
}

/// A quota that several wait for.
#[derive(Clone, Copy)]
struct Share {
    quota: Quota,
    count: usize,
}

impl Share {
    /// How many photos of this cost to read at once: what probably is their share.
    fn batch_size(self, cost: u64) -> usize {
        let count = self.count as u64;
        let size = match self.quota {
            Quota::Photos(limit) if self.count == 1 => limit as u64,
            Quota::Photos(limit) => limit as u64 / count / cost,
            Quota::Cost(limit) => limit / count / cost,
        };
        usize::try_from(size).unwrap_or(usize::MAX).max(1)
    }
}

/// Returns the organizations with waiting photos, [`KEYS_PER_CALL`] at most, and forgets those without.
async fn load_organizations(
    transaction: &mut Transaction,
    waiting: &WaitingPhotos,
    turns: &mut Turns,
) -> Result<Vec<OrganizationQueue>> {
    let list_after = |after| query(OPERATION, waiting.organizations).bind(after).bind(KEYS_PER_CALL as i64);
    let ring = Ring { beginning: OrganizationId(Uuid::nil()), last: &mut turns.last_organization };
    let rows = ring.load(transaction, list_after, |(id,): &(OrganizationId,)| *id).await?;
    if rows.len() < KEYS_PER_CALL {
        turns.albums.retain(|id, _| rows.iter().any(|(waiting,)| waiting == id));
    }
    turns.organizations.forget_paid();
    Ok(rows.into_iter().map(|(id,)| OrganizationQueue { id, albums: None }).collect())
}

/// Keys in the order of an index, which calls read in parts, one after the other and again from the beginning.
struct Ring<'a, K> {
    beginning: K,
    /// The last key of the part that was read last.
    last: &'a mut Option<K>,
}

impl<K: Copy + Ord> Ring<'_, K> {
    /// Returns the next rows, [`KEYS_PER_CALL`] at most, each once.
    async fn load<R: FromAnyRow>(
        self,
        transaction: &mut Transaction,
        list_after: impl Fn(K) -> Query,
        key_of: impl Fn(&R) -> K,
    ) -> Result<Vec<R>> {
        let last = self.last.unwrap_or(self.beginning);
        let mut rows: Vec<R> = list_after(last).fetch_all(&mut *transaction).await?;
        if rows.len() < KEYS_PER_CALL && last != self.beginning {
            let missing = KEYS_PER_CALL - rows.len();
            let first: Vec<R> = list_after(self.beginning).fetch_all(transaction).await?;
            rows.extend(first.into_iter().take_while(|row| key_of(row) <= last).take(missing));
        }
        // After all keys, the next part begins anywhere.
        *self.last = if rows.len() < KEYS_PER_CALL { None } else { rows.last().map(key_of) };
        Ok(rows)
    }
}

/// The waiting photos of an organization.
struct OrganizationQueue {
    id: OrganizationId,
    /// `None` until its first turn.
    albums: Option<Vec<AlbumQueue>>,
}

/// An album and its configuration.
type AlbumRow = (AlbumId, String);

/// A photo, when it was queued, and its bytes.
type PhotoRow = (PhotoId, i64, Option<i64>);

/// The waiting photos of an album.
struct AlbumQueue {
    id: AlbumId,
    cells: u64,
    /// Photos that were read and not served yet.
    photos: VecDeque<PhotoRow>,
    /// The place of the last photo that was read.
    last: (i64, PhotoId),
    has_more: bool,
}

impl OrganizationQueue {
    async fn load_albums(
        &mut self,
        transaction: &mut Transaction,
        waiting: &WaitingPhotos,
        turns: &mut AlbumTurns,
        max_cells: u32,
    ) -> Result<()> {
        if self.albums.is_some() {
            return Ok(());
        }
        let ring = Ring { beginning: AlbumId(Uuid::nil()), last: &mut turns.last_album };
        let list_after =
            |after| query(OPERATION, waiting.albums).bind(after).bind(KEYS_PER_CALL as i64).bind(self.id);
        let rows = ring.load(transaction, list_after, |(id, _): &AlbumRow| *id).await?;
        turns.albums.forget_paid();
        let albums = rows.into_iter().map(|row| AlbumQueue::new(row, max_cells));
        self.albums = Some(albums.collect::<Result<_>>()?);
        Ok(())
    }

    /// Returns the next photo of the album whose turn it is, with its cost; `None` when no album has one.
    async fn next_photo(
        &mut self,
        transaction: &mut Transaction,
        waiting: &WaitingPhotos,
        turns: &mut AlbumTurns,
        share: Share,
    ) -> Result<Option<(SelectedPhoto, u64)>> {
        let albums = self.albums.get_or_insert_default();
        loop {
            let open = albums.iter().filter(|album| album.has_more || !album.photos.is_empty());
            let count = open.clone().count();
            let Some(id) = turns.albums.choose(open.map(|album| album.id)) else { return Ok(None) };
            let Some(album) = albums.iter_mut().find(|album| album.id == id) else { return Ok(None) };
            if album.photos.is_empty() {
                let limit = Share { count: share.count * count, ..share }.batch_size(album.cells + 1);
                album.load_photos(transaction, waiting.photos, self.id, limit).await?;
            }
            if let Some((photo, confirmed_at, size_bytes)) = album.photos.pop_front() {
                let cost = estimate_cost(album.cells, size_bytes);
                turns.albums.charge(id, cost);
                return Ok(Some((
                    SelectedPhoto { photo: PhotoRef { album: id, photo }, confirmed_at },
                    cost,
                )));
            }
        }
    }
}

impl AlbumQueue {
    fn new(row: AlbumRow, max_cells: u32) -> Result<Self> {
        let (id, config) = row;
        let config: AlbumConfig = from_json(&config)?;
        let cells = count_cells(&config, max_cells);
        let last = (i64::MIN, PhotoId(Uuid::nil()));
        Ok(Self { id, cells, photos: VecDeque::new(), last, has_more: true })
    }

    /// `organization` is the one in the photos' rows, which need not be the owner.
    async fn load_photos(
        &mut self,
        transaction: &mut Transaction,
        statement: Statement,
        organization: OrganizationId,
        limit: usize,
    ) -> Result<()> {
        let (confirmed_at, photo) = self.last;
        let rows: Vec<PhotoRow> = query(OPERATION, statement)
            .bind(organization)
            .bind(self.id)
            .bind(confirmed_at)
            .bind(photo)
            .bind(limit as i64)
            .fetch_all(transaction)
            .await?;
        self.has_more = rows.len() == limit;
        if let Some((photo, confirmed_at, _)) = rows.last() {
            self.last = (*confirmed_at, *photo);
        }
        self.photos.extend(rows);
        Ok(())
    }
}
