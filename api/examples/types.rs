//! Prints the types that the pages compile with: `cargo run -p photofinish-api --example types > api/console/web/api.d.ts`.

#![allow(clippy::print_stdout)]

fn main() {
    print!("{}", photofinish_api::typescript_types());
}
