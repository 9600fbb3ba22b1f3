//! `photofinish-bench`: measures Photofinish against named baselines and compares its results with labelled
//! photos. It drives the service from outside, as a partner would, and knows nothing of how the service is built;
//! only `eval calibrate`, `reading`, `judging` and `gpu-check` use the networks directly.
//!
//! `cargo xtask eval ...` and `cargo xtask bench ...` pass through to it; `bench/RESULTS.md` keeps what it printed.

#![forbid(unsafe_code)]

mod browser;
mod cpu;
mod eval;
mod events;
mod gpu;
mod gpu_model;
mod jpeg;
mod judging;
mod load;
mod networks;
mod photos;
mod python;
mod rates;
mod reading;
mod requests;
mod search;
mod service;
mod store;
mod turns;

use clap::{Parser, Subcommand};
use photofinish_bench::{paths, process, prometheus, report};

/// That of the service, so that what runs its parts in this process has the service's memory: the system's keeps what
/// threads have freed.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(name = "photofinish-bench", about = "Measures Photofinish against named baselines.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compares the results of the service with labelled photos.
    #[command(subcommand)]
    Eval(eval::Evaluation),
    /// Makes 24 megapixel photos from the labelled ones, with sensor-like noise and a truth file beside them.
    #[command(name = "make-24mp")]
    Make24mp(photos::enlarge::EnlargeOptions),
    /// CPU per photo and per stage and peak memory, compared with the peer, plain and tuned, in one run.
    Cpu(cpu::CpuOptions),
    /// Thousands of small photos into one album while others search: latencies and memory.
    Load(load::LoadOptions),
    /// The store alone: confirmations, the work queue, the face index of 1.5 million faces; SQLite and Postgres.
    Store(store::StoreOptions),
    /// Erasures in an album of 100,000 photos; SQLite and Postgres.
    Erasures(store::StoreOptions),
    /// Confirmations and the work queue with credits enforced beside those without, in pairs; SQLite and Postgres.
    Credits(store::StoreOptions),
    /// What rate limits cost a request: services with and without them in turn; SQLite and Postgres.
    Rates(rates::RateOptions),
    /// CPU of the service a request, beside another build of it.
    Requests(requests::RequestOptions),
    /// Events of photos that become ready at a fixed rate: how long until a webhook's receiver has them; SQLite and Postgres.
    Events(events::EventOptions),
    /// Bytes of lattices by real readings, and the time of judging photos by start lists of three sizes; SQLite and Postgres.
    Judging(judging::JudgingOptions),
    /// The pages in a real browser: a search on a slow phone, sizes, a grid of 50,000 photos, uploads of a folder.
    Browser(browser::BrowserOptions),
    /// The kernel of face search over a million vectors: time and bandwidth, one probe and 32, beside faiss.
    Search(search::SearchOptions),
    /// CPU of our JPEG decoder and of libjpeg-turbo, by sampling and scale, and whether their pixels are the same.
    Jpeg(jpeg::JpegOptions),
    /// CPU of each step of a photo, in this process, one photo after the other.
    Reading(reading::ReadingOptions),
    /// On a machine with a GPU: whether results on CUDA equal those on the CPU, and the speed of the pipeline.
    GpuCheck(gpu::GpuCheckOptions),
    /// How fast the pipeline would be with a GPU, by a model of the device: derived, not measured.
    GpuModel(gpu_model::GpuModelOptions),
    /// Whether memory stays flat over 100,000 photos with a device that lacks memory and is lost at times: simulated.
    GpuMemory(gpu_model::memory::GpuMemoryOptions),
    /// Writes the results of the networks on one device as JSON: a part of `gpu-check`.
    #[command(hide = true)]
    Observe(gpu::observe::ObserveOptions),
}

fn main() -> anyhow::Result<()> {
    report::machine::note_load();
    match Arguments::parse().command {
        Command::Eval(evaluation) => eval::run(evaluation),
        Command::Make24mp(options) => photos::enlarge::run(&options),
        Command::Cpu(options) => cpu::run(&options)?.publish(&options.output),
        Command::Load(options) => load::run(&options)?.publish(&options.output),
        Command::Store(options) => store::run(&options)?.publish(&options.output),
        Command::Erasures(options) => store::run_erasures(&options)?.publish(&options.output),
        Command::Credits(options) => store::run_credits(&options)?.publish(&options.output),
        Command::Events(options) => events::run(&options)?.publish(&options.output),
        Command::Rates(options) => rates::run(&options)?.publish(&options.output),
        Command::Requests(options) => requests::run(&options)?.publish(&options.output),
        Command::Judging(options) => judging::run(&options)?.publish(&options.output),
        Command::Browser(options) => browser::run(&options)?.publish(&options.output),
        Command::Search(options) => search::run(&options)?.publish(&options.output),
        Command::Jpeg(options) => jpeg::run(&options)?.publish(&options.output),
        Command::Reading(options) => reading::run(&options)?.publish(&options.output),
        Command::GpuCheck(options) => match gpu::run(&options)? {
            Some(report) => report.publish(&options.output),
            None => Ok(()),
        },
        Command::GpuModel(options) => gpu_model::run(&options)?.publish(&options.output),
        Command::GpuMemory(options) => gpu_model::memory::run(&options)?.publish(&options.output),
        Command::Observe(options) => gpu::observe::run(&options),
    }
}
