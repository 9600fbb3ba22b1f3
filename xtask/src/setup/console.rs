//! Builds the pages of the console and of the galleries: esbuild bundles `api/console/web`, each file is put beside itself
//! compressed with Brotli. Builds of the program embed the result, so this comes before them.
//!
//! The same sources give the same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
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

/// What a first visit to each loads in English besides, of the folder of sources.
const WORDS: [&str; 2] = ["words/en.json", "words/gallery/en.json"];

/// How large a first visit to each may be, bytes of gzip.
const BUDGETS: [usize; 2] = [60_000, 30_000];

/// Where the sources are.
const SOURCES: &str = "api/console/web";
/// Raised when the same sources are built in another way.
const RECIPE: &str = "3";
/// What Brotli does at most: the files are compressed once and sent often.
const BROTLI_QUALITY: i32 = 11;
/// The window of Brotli, bits.
const BROTLI_WINDOW: i32 = 22;

/// What esbuild makes of the sources.
#[derive(PartialEq)]
struct Pages {
    /// Contents by name.
    files: BTreeMap<String, Vec<u8>>,
    /// The names of the files that a first visit to each entry loads.
    first_visits: Vec<BTreeSet<String>>,
}

/// The outputs in esbuild's metafile, by path.
type Outputs = serde_json::Map<String, Value>;

/// The paths of what was built of an entry itself.
struct EntryFiles<'a> {
    script: &'a str,
    style: &'a str,
}

/// Builds the pages, unless they were built of these sources.
pub fn install(layout: &Layout) -> anyhow::Result<StepOutcome> {
    let target = layout.state_path("console");
    let recipe = recipe(layout)?;
    if digest::has_stamp(&target, &recipe) {
        return Ok(StepOutcome::Present);
    }
    let tools = install_tools(layout)?;
    let pages = build(layout, &tools)?;
    ensure!(pages == build(layout, &tools)?, "two builds of the same sources differ");
    check_budgets(&pages)?;
    digest::recreate_folder(&target)?;
    let folder = target.join("files");
    std::fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut bytes = 0;
    for (name, content) in &pages.files {
        std::fs::write(folder.join(name), content)?;
        let compressed = compress(content)?;
        bytes += compressed.len();
        std::fs::write(folder.join(format!("{name}.br")), compressed)?;
    }
    digest::write_stamp(&target, &recipe)?;
    Ok(StepOutcome::Done(format!("{} files, {} KB compressed", pages.files.len(), bytes.div_ceil(1024))))
}

/// Checks that no page has become large: on a phone every kilobyte takes time. What is sent is compressed with Brotli,
/// which is smaller, or not at all.
fn check_budgets(pages: &Pages) -> anyhow::Result<()> {
    for ((entry, budget), loaded) in ENTRIES.into_iter().zip(BUDGETS).zip(&pages.first_visits) {
        let mut bytes = 0;
        for name in loaded {
            let content = pages.files.get(name).with_context(|| format!("{name} was not built"))?;
            let mut compressed = GzEncoder::new(Vec::new(), Compression::best());
            compressed.write_all(content)?;
            bytes += compressed.finish()?.len();
        }
        ensure!(
            bytes <= budget,
            "a first visit of the {entry} loads {bytes} bytes of gzip, {budget} are allowed"
        );
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

/// Bundles the sources.
fn build(layout: &Layout, tools: &Path) -> anyhow::Result<Pages> {
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
    let icon = std::fs::read(layout.checkout_path(SOURCES).join("icon.svg")).context("the icon")?;
    let icon_name = format!("icon-{}.svg", &digest::hash_text(&String::from_utf8_lossy(&icon))[..8]);
    files.insert(icon_name.clone(), icon);
    let meta: Value = serde_json::from_slice(&std::fs::read(&metafile)?).context("esbuild's metafile")?;
    let outputs = meta["outputs"].as_object().context("esbuild's metafile has no outputs")?;
    let mut first_visits = Vec::new();
    for (entry, words) in ENTRIES.into_iter().zip(WORDS) {
        let own = entry_files(outputs, entry)?;
        let scripts = find_imported(outputs, own.script);
        let page = fill_page(layout, entry, &own, &scripts)?.replace("{{icon}}", &asset_url(&icon_name));
        ensure!(!page.contains("{{"), "{entry}.html names a file that was not built");
        files.insert(format!("{entry}.html"), page.into_bytes());
        let (words, _) = find_output(outputs, words)?;
        let others = [words, own.style].map(file_name);
        first_visits.push(scripts.into_iter().chain(others).chain([format!("{entry}.html")]).collect());
    }
    check_styles(&files)?;
    Ok(Pages { files, first_visits })
}

/// Checks that each entry has one file of styles and nothing else has: browsers load none for parts of the program that
/// are loaded on demand, whose styles the entry therefore imports.
fn check_styles(files: &BTreeMap<String, Vec<u8>>) -> anyhow::Result<()> {
    for name in files.keys().filter(|name| name.ends_with(".css")) {
        let is_of_entry = ENTRIES.iter().any(|entry| name.starts_with(&format!("{entry}-")));
        ensure!(is_of_entry, "{name} is loaded by no page: import its styles in the entry");
    }
    Ok(())
}

fn entry_files<'a>(outputs: &'a Outputs, entry: &str) -> anyhow::Result<EntryFiles<'a>> {
    let (script, output) = find_output(outputs, &format!("{entry}.tsx"))?;
    let style = output["cssBundle"].as_str().with_context(|| format!("{entry} has no styles"))?;
    Ok(EntryFiles { script, style })
}

/// What was built of a source that is loaded by its name.
fn find_output<'a>(outputs: &'a Outputs, source: &str) -> anyhow::Result<(&'a str, &'a Value)> {
    let source = format!("{SOURCES}/{source}");
    let built = outputs.iter().find(|(_, output)| output["entryPoint"] == source.as_str());
    let (path, output) = built.with_context(|| format!("esbuild built nothing of {source}"))?;
    Ok((path, output))
}

/// The names of a script and of all scripts that it cannot begin without.
fn find_imported(outputs: &Outputs, script: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![script];
    while let Some(path) = waiting.pop() {
        if !found.insert(file_name(path)) {
            continue;
        }
        let imports = outputs.get(path).and_then(|output| output["imports"].as_array());
        let needed = imports.into_iter().flatten().filter(|import| import["kind"] == "import-statement");
        waiting.extend(needed.filter_map(|import| import["path"].as_str()));
    }
    found
}

/// Writes the names of its files into a page. All scripts that it begins with are named, so that a browser asks for them
/// at once and not for one after it has read another.
fn fill_page(
    layout: &Layout,
    entry: &str,
    files: &EntryFiles<'_>,
    scripts: &BTreeSet<String>,
) -> anyhow::Result<String> {
    let source = layout.checkout_path(SOURCES).join(format!("{entry}.html"));
    let page =
        std::fs::read_to_string(&source).with_context(|| format!("cannot read {}", source.display()))?;
    let script = file_name(files.script);
    let others = scripts.iter().filter(|name| **name != script);
    let preloads: String = others
        .map(|name| format!("\n    <link rel=\"modulepreload\" href=\"{}\" />", asset_url(name)))
        .collect();
    Ok(page
        .replace(&format!("{{{{{entry}.js}}}}"), &asset_url(&script))
        .replace(&format!("{{{{{entry}.css}}}}"), &asset_url(&file_name(files.style)))
        .replace("\n    {{preloads}}", &preloads))
}

/// Where the service answers a file.
fn asset_url(name: &str) -> String {
    format!("/assets/{name}")
}

fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
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
