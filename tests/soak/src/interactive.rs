//! The cluster to try by hand: what is where, a key, lines to paste, and an end by Ctrl-C. What it kept goes with it.

use std::process::ExitCode;

use anyhow::Context as _;
use photofinish_servers::BUCKET;
use photofinish_soak::cluster::{Cluster, ClusterOptions};
use photofinish_tests::harness::{Service, ServiceOptions as Settings, binary_path};

use crate::missing_server_error;

/// Lines for a shell. The words in capitals are put in.
const NEXT_STEPS: &str = r#"
  base=FRONT
  key=KEY
  post() { curl -s "$base/openapi/$1" -H "x-api-key: $key" -H 'content-type: application/json' -d "$2"; echo; }

  album=$(post albums/create '{"title": "Trial"}' | sed 's/.*"id":"\([^"]*\)".*/\1/')
  PHOTOFINISH_KEY=$key BINARY upload --url "$base" --album "$album" FOLDER
  post albums/progress "{\"albumId\": \"$album\"}"
  post photos/search/text/list "{\"albumId\": \"$album\", \"text\": \"4711\"}"
"#;

/// Which networks.
#[derive(clap::Args)]
pub struct Options {
    /// Networks that read painted marks in place of faces and bibs; also where the real ones were not set up.
    #[arg(long, conflicts_with = "real")]
    fake: bool,
    /// The real networks, or an error; the default where they were set up.
    #[arg(long)]
    real: bool,
}

/// Starts it, says what is where, and waits for Ctrl-C.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let there = Settings::with_real_models();
    if let (true, Err(why)) = (options.real, &there) {
        anyhow::bail!("{why}");
    }
    let real_networks = !options.fake && there.is_ok();
    let usual = ClusterOptions {
        lease_seconds: 60,
        attempt_limit: 3,
        read_delay: std::time::Duration::ZERO,
        ..ClusterOptions::default()
    };
    let cluster = Cluster::start(&ClusterOptions { real_models: real_networks, ..usual })?
        .ok_or_else(missing_server_error)?;
    print_addresses(&cluster, real_networks);
    let stopped = cluster.block_on(tokio::signal::ctrl_c());
    stopped.context("waiting for Ctrl-C")?;
    println!("\nStopping.");
    Ok(ExitCode::SUCCESS)
}

fn print_addresses(cluster: &Cluster, real_networks: bool) {
    let front = format!("http://{}", cluster.load_balancer().address());
    let places = |processes: &[Service], path: &str| {
        let places: Vec<String> = processes.iter().map(|process| process.origin() + path).collect();
        places.join(", ")
    };
    let ways = cluster.proxies();
    println!("API, through the proxy   {front}/openapi, its description {front}/openapi/docs");
    println!("APIs                     {}", places(cluster.apis(), ""));
    println!("workers' metrics         {}", places(cluster.workers(), "/metrics"));
    println!("Postgres                 {}", cluster.postgres().address());
    println!("NATS                     nats://{}", cluster.nats().address());
    println!("S3                       http://{}, bucket {BUCKET}", ways.s3.address());
    let networks = if real_networks { "real" } else { "fake: they read painted marks only" };
    println!("networks                 {networks}");
    let lines = NEXT_STEPS.replace("FRONT", &front).replace("BINARY", &binary_path().to_string_lossy());
    println!("\nTo go on, in another shell:\n{}", lines.replace("KEY\n", &format!("{}\n", cluster.key())));
    println!("Everything lies in temporary folders and goes at the end. Ctrl-C ends it.");
}
