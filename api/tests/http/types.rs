//! The types that the pages compile with.

use std::path::Path;

#[test]
fn the_types_of_the_pages_are_those_of_the_operations() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("console/web/api.d.ts");
    let kept = std::fs::read_to_string(&file).unwrap();
    let generated = photofinish_api::typescript_types();
    let first = kept.lines().zip(generated.lines()).find(|(kept, generated)| kept != generated);
    assert!(
        kept == generated,
        "api.d.ts is not what the operations take and give, first at {first:?}: \
         cargo run -p photofinish-api --example types > api/console/web/api.d.ts"
    );
}
