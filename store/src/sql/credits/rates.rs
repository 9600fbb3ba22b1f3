//! The rate limits that processes of one database share: how much of a limit they have taken together in a minute.

use async_trait::async_trait;

use crate::model::rate::RateShare;
use crate::sql::database::Database;
use crate::sql::statement::query;
use crate::traits::{RateWindows, Result};

/// Adds to what was taken, unless that would be more than the limit.
pub(crate) const TAKE: &str = "insert into rate_window (api_key, class, begins, taken) \
     select $1, $2, $3, $4 where $4 <= $5 \
     on conflict (api_key, class, begins) do update set taken = rate_window.taken + excluded.taken \
     where rate_window.taken + excluded.taken <= $5 returning taken";

pub(crate) struct SqlRateWindows {
    database: Database,
}

impl SqlRateWindows {
    pub(crate) fn new(database: Database) -> Self {
        Self { database }
    }
}

#[async_trait]
impl RateWindows for SqlRateWindows {
    async fn take(&self, share: RateShare) -> Result<Option<u32>> {
        const OPERATION: &str = "take a share of a rate limit";
        let take = query(OPERATION, TAKE)
            .bind(share.key)
            .bind(share.class.as_str())
            .bind(share.begins)
            .bind(i64::from(share.units))
            .bind(i64::from(share.limit));
        let taken: Option<(i64,)> = self.database.write_alone(OPERATION, take).await?;
        Ok(taken.map(|(taken,)| u32::try_from(taken).unwrap_or(share.limit)))
    }
}
