//! Builds the pages of the console and of the galleries: esbuild bundles `api/console/web`, each file is put beside itself
//! compressed with Brotli. Builds of the program embed the result, so this comes before them.
//!
//! The same sources give the same bytes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::packages::{self, PackageFormat, PinnedPackage};
use crate::digest;
use crate::layout::Layout;
use crate::process::capture_output;
use crate::report::StepOutcome;

/// The bundler, for this machine.
#[cfg(not(target_arch = "aarch64"))]
const ESBUILD: PinnedPackage = PinnedPackage {
    name: "@esbuild/linux-x64",
    version: "0.28.2",
    file: "esbuild-linux-x64-0.28.2.tgz",
    sha256: "9573bb2233aab0f9ea7647d5cca9726113cc1768de61d66b17267f4db84488f6",
    format: PackageFormat::Npm,
};

/// The bundler, for this machine.
#[cfg(target_arch = "aarch64")]
const ESBUILD: PinnedPackage = PinnedPackage {
    name: "@esbuild/linux-arm64",
    version: "0.28.2",
    file: "esbuild-linux-arm64-0.28.2.tgz",
    sha256: "a96dbfa41d3ef5dbd1ef22b1c10d5187be9267e86093a870f06402a7ec931596",
    format: PackageFormat::Npm,
};

const PREACT: PinnedPackage = PinnedPackage {
    name: "preact",
    version: "11.2.0",
    file: "preact-11.2.0.tgz",
    sha256: "3c4456766bd32b6b534d52bf4e9c2a29b33e7eedf6e96ed479300ba1a7888ebf",
    format: PackageFormat::Npm,
};

const SIGNALS: PinnedPackage = PinnedPackage {
    name: "@preact/signals",
    version: "2.11.4",
    file: "preact-signals-2.11.4.tgz",
    sha256: "66ea8221dd8aaa0da2365d49c3f116b071d56cfb63b2e16c072c6b4e08a928b7",
    format: PackageFormat::Npm,
};

const SIGNALS_CORE: PinnedPackage = PinnedPackage {
    name: "@preact/signals-core",
    version: "1.14.5",
    file: "preact-signals-core-1.14.5.tgz",
    sha256: "94c421ac996214c94f532fb4c43d8ede048a16df0cd9538ffb965174dbe8daba",
    format: PackageFormat::Npm,
};

const LIBRARIES: [&PinnedPackage; 3] = [&PREACT, &SIGNALS, &SIGNALS_CORE];

/// The programs in the browser, each with a page of its name.
const ENTRIES: [&str; 2] = ["console", "gallery"];

/// How large a first visit to each may be, compressed, bytes.
const BUDGETS: [usize; 2] = [60 << 10, 30 << 10];
/// The words of the console are longer than this, those of galleries shorter, bytes.
const LONG_WORDS: usize = 20_000;

/// Where the sources are.
const SOURCES: &str = "api/console/web";
/// Raised when the same sources are built in another way.
const RECIPE: &str = "1";
/// What Brotli does at most: the files are compressed once and sent often.
const BROTLI_QUALITY: i32 = 11;
/// The window of Brotli, bits.
const BROTLI_WINDOW: i32 = 22;

/// Builds the pages, unless they were built of these sources.
pub fn install(layout: &Layout) -> anyhow::Result<StepOutcome> {
    let target = layout.state_path("console");
    let recipe = recipe(layout)?;
    if digest::has_stamp(&target, &recipe) {
        return Ok(StepOutcome::Present);
    }
    let tools = install_tools(layout)?;
    let files = build(layout, &tools)?;
    ensure!(files == build(layout, &tools)?, "two builds of the same sources differ");
    let compressed: BTreeMap<&str, Vec<u8>> = files
        .iter()
        .map(|(name, content)| Ok((name.as_str(), compress(content)?)))
        .collect::<anyhow::Result<_>>()?;
    check_budgets(&files, &compressed)?;
    digest::recreate_folder(&target)?;
    let folder = target.join("files");
    std::fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut bytes = 0;
    for (name, content) in &files {
        std::fs::write(folder.join(name), content)?;
        let compressed = &compressed[name.as_str()];
        bytes += compressed.len();
        std::fs::write(folder.join(format!("{name}.br")), compressed)?;
    }
    digest::write_stamp(&target, &recipe)?;
    Ok(StepOutcome::Done(format!("{} files, {} KB compressed", files.len(), bytes.div_ceil(1024))))
}

/// Checks that no page has become large: on a phone every kilobyte is waited for.
fn check_budgets(
    files: &BTreeMap<String, Vec<u8>>,
    compressed: &BTreeMap<&str, Vec<u8>>,
) -> anyhow::Result<()> {
    for (entry, budget) in ENTRIES.into_iter().zip(BUDGETS) {
        let page = files.get(&format!("{entry}.html")).context("the page was built")?;
        let page = String::from_utf8_lossy(page);
        let mut bytes = 0;
        // What a first visit loads: what the page names, the parts that several programs share, and one language.
        for (name, content) in files {
            let is_loaded = page.contains(name.as_str()) || name.starts_with("chunk-");
            if is_loaded || name.starts_with("en-") && (content.len() > LONG_WORDS) == (entry == "console") {
                bytes += compressed[name.as_str()].len();
            }
        }
        ensure!(bytes <= budget, "{entry} has {bytes} bytes compressed, {budget} are allowed");
    }
    Ok(())
}

/// Watches the sources and builds them whenever they change, until it is stopped.
///
/// # Errors
/// When the tools cannot be fetched. A mistake in the sources is printed, and watching goes on.
pub fn watch(layout: &Layout) -> anyhow::Result<()> {
    let mut last = None;
    loop {
        let now = recipe(layout)?;
        if last.as_ref() != Some(&now) {
            match install(layout) {
                Ok(_) => println!("built {}", layout.state_path("console/files").display()),
                Err(error) => eprintln!("{error:#}"),
            }
            last = Some(now);
        }
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
}

/// What the result depends on.
fn recipe(layout: &Layout) -> anyhow::Result<String> {
    let mut text = RECIPE.to_owned();
    for package in LIBRARIES.into_iter().chain([&ESBUILD]) {
        text.push_str(&package.recipe());
    }
    let mut sources = Vec::new();
    list_files(&layout.checkout_path(SOURCES), &mut sources)?;
    sources.sort();
    for path in sources {
        let hash = digest::hash_file(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.strip_prefix(layout.root()).unwrap_or(&path);
        text.push_str(&format!("{} {hash}\n", name.display()));
    }
    Ok(digest::hash_text(&text))
}

fn list_files(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() { list_files(&path, files)? } else { files.push(path) }
    }
    Ok(())
}

/// Unpacks bundler and libraries; returns their folder.
fn install_tools(layout: &Layout) -> anyhow::Result<PathBuf> {
    let folder = layout.state_path("console-tools");
    let packages: Vec<&PinnedPackage> = LIBRARIES.into_iter().chain([&ESBUILD]).collect();
    let recipe: String = packages.iter().map(|package| package.recipe()).collect();
    if digest::has_stamp(&folder, &recipe) {
        return Ok(folder);
    }
    digest::recreate_folder(&folder)?;
    for package in packages {
        let archive = packages::fetch(layout, package)?;
        let target = folder.join("node_modules").join(package.name);
        std::fs::create_dir_all(&target)?;
        let mut unpack = Command::new("tar");
        unpack.arg("-xzf").arg(&archive).arg("--strip-components=1").arg("-C").arg(&target);
        capture_output(&mut unpack)?;
    }
    digest::write_stamp(&folder, &recipe)?;
    Ok(folder)
}

/// Bundles the sources; returns the files by name.
fn build(layout: &Layout, tools: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let output = layout.state_path("console-build");
    digest::recreate_folder(&output)?;
    let metafile = output.join("meta.json");
    let mut esbuild = Command::new(tools.join("node_modules").join(ESBUILD.name).join("bin/esbuild"));
    for entry in ENTRIES {
        esbuild.arg(format!("{SOURCES}/{entry}.tsx"));
    }
    esbuild.args([
        "--bundle",
        "--minify",
        "--splitting",
        "--format=esm",
        "--target=es2022,chrome120,firefox121,safari17.2",
    ]);
    esbuild.args([
        "--jsx=automatic",
        "--jsx-import-source=preact",
        "--entry-names=[name]-[hash]",
        "--log-level=warning",
    ]);
    esbuild.arg(format!("--outdir={}", output.join("files").display()));
    esbuild.arg(format!("--metafile={}", metafile.display()));
    esbuild.current_dir(layout.root()).env("NODE_PATH", tools.join("node_modules"));
    capture_output(&mut esbuild)?;
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(output.join("files"))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).context("esbuild names files in UTF-8")?;
        files.insert(name.to_owned(), std::fs::read(&path)?);
    }
    let meta: Value = serde_json::from_slice(&std::fs::read(&metafile)?).context("esbuild's metafile")?;
    for entry in ENTRIES {
        let page = fill_page(layout, entry, &meta)?;
        files.insert(format!("{entry}.html"), page.into_bytes());
    }
    Ok(files)
}

/// Writes the names of its files into a page.
fn fill_page(layout: &Layout, entry: &str, meta: &Value) -> anyhow::Result<String> {
    let source = layout.checkout_path(SOURCES).join(format!("{entry}.html"));
    let page =
        std::fs::read_to_string(&source).with_context(|| format!("cannot read {}", source.display()))?;
    let outputs = meta["outputs"].as_object().context("esbuild's metafile has no outputs")?;
    let of_entry = format!("{SOURCES}/{entry}.tsx");
    let built = outputs.iter().find(|(_, output)| output["entryPoint"] == of_entry.as_str());
    let (script, output) = built.with_context(|| format!("esbuild built no {entry}"))?;
    let url = |path: &str| format!("/assets/{}", path.rsplit('/').next().unwrap_or(path));
    let style = output["cssBundle"].as_str().with_context(|| format!("{entry} has no styles"))?;
    let filled = page
        .replace(&format!("{{{{{entry}.js}}}}"), &url(script))
        .replace(&format!("{{{{{entry}.css}}}}"), &url(style));
    if filled.contains("{{") {
        bail!("{} names a file that was not built", source.display());
    }
    Ok(filled)
}

fn compress(content: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut compressed = Vec::new();
    let parameters = brotli::enc::BrotliEncoderParams {
        quality: BROTLI_QUALITY,
        lgwin: BROTLI_WINDOW,
        size_hint: content.len(),
        ..Default::default()
    };
    brotli::BrotliCompress(&mut &content[..], &mut compressed, &parameters)?;
    Ok(compressed)
}
