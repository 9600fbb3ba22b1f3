//! Reading whole albums of a file: one at a time, after everybody else.

use super::tests::open_store;

#[tokio::test]
async fn one_scan_runs_at_a_time_and_keeps_nobody_else_from_reading() {
    let (_folder, _store, database) = open_store().await;
    let scan = database.begin_scan().await.unwrap();
    let mut next = Box::pin(database.begin_scan());
    assert!(futures_util::poll!(&mut next).is_pending());
    let mut reader = database.begin_snapshot().await.unwrap();
    let (albums,): (i64,) =
        sqlx::query_as("select count(*) from album").fetch_one(&mut *reader).await.unwrap();
    assert_eq!(albums, 0);
    assert!(futures_util::poll!(&mut next).is_pending(), "a scan began beside another");
    drop(scan);
    next.await.unwrap();
}

/// The priority is a thread's own on Linux alone.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_thread_that_scans_has_a_lower_priority() {
    let (_folder, _store, database) = open_store().await;
    let mut scan = database.begin_scan().await.unwrap();
    let many = "with recursive n (i) as (select 1 union all select i + 1 from n where i < 10000) select count(*) from n";
    let (counted,): (i64,) = sqlx::query_as(many).fetch_one(&mut *scan).await.unwrap();
    assert_eq!(counted, 10_000);
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let priorities: Vec<i32> = threads
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok())
        .filter(|stat| stat.contains("(sqlx-sqlite-wor"))
        // The fields after the name begin with the state, the third; the nineteenth is the priority.
        .filter_map(|stat| stat.rsplit(") ").next()?.split(' ').nth(16)?.parse().ok())
        .collect();
    assert!(priorities.contains(&5) && priorities.contains(&0), "{priorities:?}");
}
