//! Tests of galleries in a database file: the plans of their statements, and what is deleted of their visitors.

use super::credits::ledger::day_of;
use super::credits::task::REMOVE_VISITORS;
use super::galleries::{COUNT_CONSENTS, WITHDRAW_CONSENT};
use super::tests::{explain_plan, open_store};
use crate::conformance::AlbumFixture;
use crate::model::encoding::now_micros;
use crate::model::ids::ProcessId;
use crate::model::process::Task;

#[tokio::test]
async fn statements_of_visitors_read_an_index() {
    let (_folder, _store, database) = open_store().await;
    for (statement, index) in [
        (COUNT_CONSENTS, "gallery_consent_by_probe (probe=? AND album=?)"),
        (WITHDRAW_CONSENT, "gallery_consent_by_probe (probe=? AND album=?)"),
        (REMOVE_VISITORS.sqlite_text(), "gallery_visitor_by_day (day<?)"),
    ] {
        let plan = explain_plan(&database, statement).await;
        assert!(plan.contains(index) && !plan.contains("SCAN"), "{statement}:\n{plan}");
    }
}

#[tokio::test]
async fn searches_of_visitors_on_earlier_days_are_deleted() {
    let (_folder, store, database) = open_store().await;
    let fixture = AlbumFixture::create(&store).await;
    assert!(!store.ledger_task.is_due().await.unwrap());
    let today = day_of(now_micros());
    for day in [today - 3, today - 2, today] {
        sqlx::query("insert into gallery_visitor (album, visitor, day, searches) values ($1, x'01', $2, 1)")
            .bind(fixture.album)
            .bind(day)
            .execute(&database.writer)
            .await
            .unwrap();
    }
    assert!(store.ledger_task.is_due().await.unwrap());
    let hour = std::time::Duration::from_secs(3600);
    let lease = store.tasks.take(Task::Ledger, ProcessId::generate(), hour).await.unwrap().unwrap();
    store.ledger_task.run(lease).await.unwrap();
    assert!(!store.ledger_task.is_due().await.unwrap());
    let kept: Vec<i64> =
        sqlx::query_scalar("select day from gallery_visitor").fetch_all(&database.reader).await.unwrap();
    assert_eq!(kept, [today]);
}
