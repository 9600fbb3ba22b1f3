//! Draws a sample event: `sample-event FOLDER --portraits FOLDER [--photos COUNT]`, or with `--drawn` photos of runners who are
//! nobody.

use std::path::PathBuf;

use clap::Parser;
use photofinish_scenes::drawn_event::write_drawn_photos;
use photofinish_scenes::event;

/// Draws photos of a race with numbers and faces, a selfie of each runner, and the ground truth.
#[derive(Parser)]
struct Arguments {
    /// Folder to write into
    folder: PathBuf,
    /// Folder of portraits that `cargo xtask setup` fetched
    #[arg(long, value_name = "FOLDER", required_unless_present = "drawn")]
    portraits: Option<PathBuf>,
    /// Draw the heads too, in place of portraits; photos alone, without selfies
    #[arg(long)]
    drawn: bool,
    /// How many photos
    #[arg(long, value_name = "COUNT", default_value_t = 48)]
    photos: usize,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let Some(portraits) = arguments.portraits.filter(|_| !arguments.drawn) else {
        let photos = write_drawn_photos(&arguments.folder, arguments.photos)?;
        println!("{} photos in {}", photos.len(), arguments.folder.display());
        return Ok(());
    };
    let truth = event::write_event(&arguments.folder, &portraits, arguments.photos)?;
    println!(
        "{} photos of {} runners in {}",
        truth.photos.len(),
        truth.runners.len(),
        arguments.folder.display()
    );
    Ok(())
}
