//! `soak cluster`: the cluster to try by hand, with its addresses, a key and lines for a shell. Ctrl-C ends it and removes
//! its data.

use std::process::ExitCode;

use anyhow::Context as _;
use photofinish_servers::BUCKET;
use photofinish_soak::cluster::{Cluster, ClusterOptions, missing_server_error};
use photofinish_tests::harness::{Service, ServiceOptions, binary_path};

/// Lines for a shell. The words in capitals are replaced.
const NEXT_STEPS: &str = r#"
  base=ADDRESS
  key=KEY
  post() { curl -s "$base/openapi/$1" -H "x-api-key: $key" -H 'content-type: application/json' -d "$2"; echo; }

  album=$(post albums/create '{"title": "Trial"}' | sed 's/.*"id":"\([^"]*\)".*/\1/')
  PHOTOFINISH_KEY=$key BINARY upload --url "$base" --album "$album" FOLDER
  post albums/progress "{\"albumId\": \"$album\"}"
  post photos/search/text/list "{\"albumId\": \"$album\", \"text\": \"4711\"}"
"#;

/// Options of `soak cluster`.
#[derive(clap::Args)]
pub struct Options {
    /// Fake models, which read painted marks in place of faces and bibs; the default where the real ones are missing
    #[arg(long, conflicts_with = "real")]
    fake: bool,
    /// The real models, or an error; the default where they were set up
    #[arg(long)]
    real: bool,
}

/// Starts it, prints its addresses, and waits for Ctrl-C.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let models = ServiceOptions::with_real_models();
    if let (true, Err(why)) = (options.real, &models) {
        anyhow::bail!("{why}");
    }
    let real_models = !options.fake && models.is_ok();
    let usual = ClusterOptions {
        real_models,
        lease_seconds: 60,
        attempt_limit: 3,
        read_delay: std::time::Duration::ZERO,
        ..ClusterOptions::default()
    };
    let cluster = Cluster::start(&usual)?.ok_or_else(missing_server_error)?;
    print_addresses(&cluster, real_models);
    let stopped = cluster.block_on(tokio::signal::ctrl_c());
    stopped.context("waiting for Ctrl-C")?;
    println!("\nStopping.");
    Ok(ExitCode::SUCCESS)
}

fn print_addresses(cluster: &Cluster, real_models: bool) {
    let address = format!("http://{}", cluster.load_balancer().address());
    let addresses = |processes: &[Service], path: &str| {
        let addresses: Vec<String> = processes.iter().map(|process| process.origin() + path).collect();
        addresses.join(", ")
    };
    println!("API, load balanced       {address}/openapi, its documentation {address}/openapi/docs");
    println!("APIs                     {}", addresses(cluster.apis(), ""));
    println!("workers' metrics         {}", addresses(cluster.workers(), "/metrics"));
    println!("Postgres                 {}", cluster.postgres().address());
    println!("NATS                     nats://{}", cluster.nats().address());
    println!("S3                       http://{}, bucket {BUCKET}", cluster.proxies().s3.address());
    let models = if real_models { "real" } else { "fake: they read painted marks only" };
    println!("models                   {models}");
    let lines = NEXT_STEPS.replace("ADDRESS", &address).replace("BINARY", &binary_path().to_string_lossy());
    println!("\nTo continue, in another shell:\n{}", lines.replace("KEY\n", &format!("{}\n", cluster.key())));
    println!("All data is in temporary folders and is removed at the end. Ctrl-C ends it.");
}
