//! Draws a sample event: `sample-event FOLDER --portraits FOLDER [--photos COUNT]`.

use std::path::PathBuf;

use clap::Parser;
use photofinish_scenes::event;

/// Draws photos of a race with numbers and faces, a selfie of each runner, and the ground truth.
#[derive(Parser)]
struct Arguments {
    /// Folder to write into
    folder: PathBuf,
    /// Folder of portraits that `cargo xtask setup` fetched
    #[arg(long, value_name = "FOLDER")]
    portraits: PathBuf,
    /// How many photos
    #[arg(long, value_name = "COUNT", default_value_t = 48)]
    photos: usize,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let truth = event::write_event(&arguments.folder, &arguments.portraits, arguments.photos)?;
    println!(
        "{} photos of {} runners in {}",
        truth.photos.len(),
        truth.runners.len(),
        arguments.folder.display()
    );
    Ok(())
}
