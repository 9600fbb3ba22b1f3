//! Who imports whom inside a crate: no circle of more than two files, and no folder that imports a folder above it.
//!
//! The imports are read from the source with `syn`: paths that begin with `crate`, `self`, `super` or the name of a
//! child module, in `use` declarations and in code. A re-export (`pub use`) is not an import; a path through one leads
//! to what it names. Test code is left out.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;

use super::source;

/// Larger circles are refused: two files may describe one another (a type and its parts), three are a tangle.
const LARGEST_CIRCLE: usize = 2;

/// A path from the root of its crate, segment by segment.
type ModulePath = Vec<String>;

#[test]
fn no_circle_of_imports_has_more_than_two_files() {
    let mut circles = Vec::new();
    for (root, krate) in crates() {
        for circle in strongly_connected(&krate.file_imports()) {
            if circle.len() > LARGEST_CIRCLE {
                circles.push(format!("{root}: {}", circle.join(", ")));
            }
        }
    }
    assert!(circles.is_empty(), "files that import each other in a circle:\n{}", circles.join("\n"));
}

#[test]
fn no_folder_of_a_crate_imports_a_folder_that_imports_it() {
    let mut circles = Vec::new();
    for (root, krate) in crates() {
        let imports = krate.file_imports();
        let folders = by_folder(&root, &imports);
        for circle in strongly_connected(&folders) {
            if circle.len() > 1 {
                let edges = edges_between(&root, &imports, &circle);
                circles.push(format!("{root}: {}\n    {}", circle.join(", "), edges.join("\n    ")));
            }
        }
    }
    assert!(circles.is_empty(), "folders that import each other in a circle:\n{}", circles.join("\n"));
}

/// The source folders of all crates, each with its modules.
fn crates() -> BTreeMap<String, Crate> {
    let mut crates: BTreeMap<String, Crate> = BTreeMap::new();
    for (name, text) in source::rust().into_iter().filter(|(name, _)| !source::is_test(name)) {
        let Some(root) = source_root(&name) else { continue };
        let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let module = module_path(&root, &name);
        let mut reader = ModuleReader { module: module.clone(), ..ModuleReader::default() };
        reader.visit_file(&syntax);
        let krate = crates.entry(root).or_default();
        krate.test_modules.extend(reader.test_modules);
        krate.modules.insert(module, Module { file: name, uses: reader.uses, exports: reader.exports });
    }
    for krate in crates.values_mut() {
        let tests = std::mem::take(&mut krate.test_modules);
        krate.modules.retain(|path, _| !tests.iter().any(|test| path.starts_with(test)));
    }
    crates
}

/// The folder `src` that a production file is in.
fn source_root(name: &str) -> Option<String> {
    if name.starts_with("src/") {
        return Some("src".to_owned());
    }
    name.find("/src/").map(|end| name[..end + "/src".len()].to_owned())
}

/// The module that a file defines.
fn module_path(root: &str, name: &str) -> ModulePath {
    let inside = name[root.len() + 1..].trim_end_matches(".rs");
    let segments = inside.split('/').filter(|segment| !["mod", "lib", "main"].contains(segment));
    segments.map(str::to_owned).collect()
}

#[derive(Default)]
struct Crate {
    modules: BTreeMap<ModulePath, Module>,
    /// Modules declared behind `#[cfg(test)]`.
    test_modules: BTreeSet<ModulePath>,
}

struct Module {
    file: String,
    uses: BTreeSet<ModulePath>,
    exports: BTreeMap<String, ModulePath>,
}

impl Crate {
    /// Each file with the files that it imports.
    fn file_imports(&self) -> BTreeMap<String, BTreeSet<String>> {
        let imports_of = |module: &Module| {
            let files = module.uses.iter().filter_map(|path| self.file_of(path));
            files.filter(|file| *file != module.file).collect()
        };
        self.modules.values().map(|module| (module.file.clone(), imports_of(module))).collect()
    }

    /// The file that defines what `path` names; re-exports are followed.
    fn file_of(&self, path: &[String]) -> Option<String> {
        let mut path = path.to_vec();
        // A chain of re-exports is short; one that names itself would not end.
        for _ in 0..8 {
            let depth = (0..=path.len()).rev().find(|depth| self.modules.contains_key(&path[..*depth]))?;
            let module = &self.modules[&path[..depth]];
            match path.get(depth).and_then(|name| module.exports.get(name)) {
                Some(target) if *target != path => {
                    path = target.iter().chain(&path[depth + 1..]).cloned().collect();
                }
                _ => return Some(module.file.clone()),
            }
        }
        None
    }
}

/// Collects what one file imports and re-exports.
#[derive(Default)]
struct ModuleReader {
    module: ModulePath,
    children: BTreeSet<String>,
    uses: BTreeSet<ModulePath>,
    exports: BTreeMap<String, ModulePath>,
    test_modules: BTreeSet<ModulePath>,
}

impl ModuleReader {
    /// A path of this crate from its root; `None` for other crates and for names of this file.
    fn absolute(&self, segments: &[String]) -> Option<ModulePath> {
        let first = segments.first()?;
        let mut base = match first.as_str() {
            "crate" => ModulePath::new(),
            "self" | "super" => self.module.clone(),
            child if self.children.contains(child) => {
                return Some(self.module.iter().chain(segments).cloned().collect());
            }
            _ => return None,
        };
        let mut rest =
            segments.iter().skip_while(|segment| *segment == "crate" || *segment == "self").peekable();
        while rest.peek().is_some_and(|segment| *segment == "super") {
            rest.next();
            base.pop()?;
        }
        base.extend(rest.cloned());
        Some(base)
    }

    fn record_use(&mut self, tree: &syn::UseTree, prefix: &mut ModulePath, is_export: bool) {
        match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.record_use(&path.tree, prefix, is_export);
                prefix.pop();
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.record_use(tree, prefix, is_export);
                }
            }
            syn::UseTree::Name(name) => self.record_leaf(&name.ident, None, prefix, is_export),
            syn::UseTree::Rename(name) => {
                self.record_leaf(&name.ident, Some(&name.rename), prefix, is_export)
            }
            syn::UseTree::Glob(_) => {
                if let Some(path) = self.absolute(prefix) {
                    self.uses.insert(path);
                }
            }
        }
    }

    fn record_leaf(
        &mut self,
        name: &syn::Ident,
        alias: Option<&syn::Ident>,
        prefix: &[String],
        is_export: bool,
    ) {
        let mut segments = prefix.to_vec();
        if name != "self" {
            segments.push(name.to_string());
        }
        let Some(path) = self.absolute(&segments) else { return };
        if is_export {
            let shown = alias.map_or_else(|| segments.last().cloned(), |alias| Some(alias.to_string()));
            self.exports.extend(shown.map(|shown| (shown, path)));
        } else {
            self.uses.insert(path);
        }
    }
}

impl<'ast> Visit<'ast> for ModuleReader {
    fn visit_file(&mut self, file: &'ast syn::File) {
        let modules = file.items.iter().filter_map(|item| match item {
            syn::Item::Mod(module) => Some(module.ident.to_string()),
            _ => None,
        });
        self.children = modules.collect();
        syn::visit::visit_file(self, file);
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test_only(attributes_of(item)) {
            syn::visit::visit_item(self, item);
        } else if let syn::Item::Mod(module) = item {
            let mut path = self.module.clone();
            path.push(module.ident.to_string());
            self.test_modules.insert(path);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        // A module inside the file: its `super` is this file, so its own name counts as a segment.
        self.module.push(module.ident.to_string());
        syn::visit::visit_item_mod(self, module);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_export = !matches!(item.vis, syn::Visibility::Inherited);
        self.record_use(&item.tree, &mut ModulePath::new(), is_export);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: ModulePath = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        // A single name is no path to another module.
        if segments.len() > 1 {
            self.uses.extend(self.absolute(&segments));
        }
        syn::visit::visit_path(self, path);
    }
}

fn attributes_of(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Const(item) => &item.attrs,
        _ => &[],
    }
}

fn is_test_only(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|condition| condition == "test")
    })
}

/// The imports between the folders directly below a crate's root; a file there is a folder of its own. The root's own
/// file only lists the modules.
fn by_folder(root: &str, imports: &BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, BTreeSet<String>> {
    let mut folders: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, imported) in imports {
        let from = folder_of(root, file);
        let to = imported.iter().map(|file| folder_of(root, file)).filter(|to| *to != from);
        folders.entry(from.clone()).or_default().extend(to);
    }
    folders
}

fn folder_of(root: &str, file: &str) -> String {
    let inside = &file[root.len() + 1..];
    inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs").to_owned()
}

fn edges_between(
    root: &str,
    imports: &BTreeMap<String, BTreeSet<String>>,
    folders: &[String],
) -> Vec<String> {
    let mut edges = Vec::new();
    for (file, imported) in imports {
        for target in imported {
            let (from, to) = (folder_of(root, file), folder_of(root, target));
            if from != to && folders.contains(&from) && folders.contains(&to) {
                edges.push(format!("{file} -> {target}"));
            }
        }
    }
    edges
}

/// The sets of nodes that reach each other: for each node those that it reaches and that reach it. The graphs have some
/// hundred nodes, so plain reachability is fast enough.
fn strongly_connected(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        graph.keys().map(|node| (node, reachable(graph, node))).collect();
    let mut found: BTreeSet<Vec<String>> = BTreeSet::new();
    for (node, targets) in &reached {
        let mutual =
            targets.iter().filter(|target| reached.get(**target).is_some_and(|back| back.contains(node)));
        let circle: Vec<String> = mutual.map(|target| (*target).clone()).collect();
        if !circle.is_empty() {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

fn reachable<'a>(graph: &'a BTreeMap<String, BTreeSet<String>>, start: &'a String) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![start];
    while let Some(node) = open.pop() {
        for next in graph.get(node).into_iter().flatten() {
            if reached.insert(next) {
                open.push(next);
            }
        }
    }
    reached
}

#[test]
fn circles_are_found_through_re_exports() {
    let files = [
        ("src/lib.rs", "mod a; mod b; mod c;"),
        ("src/a/mod.rs", "mod inner; pub use self::inner::Thing; use crate::b::Other;"),
        ("src/a/inner.rs", "pub struct Thing;"),
        ("src/b.rs", "use crate::c; pub struct Other(crate::a::Thing);"),
        ("src/c.rs", "#[cfg(test)] mod tests { use crate::a::Thing; } fn f() { crate::a::start(); }"),
    ];
    let mut krate = Crate::default();
    for (file, text) in files {
        let module = module_path("src", file);
        let mut reader = ModuleReader { module: module.clone(), ..ModuleReader::default() };
        reader.visit_file(&syn::parse_file(text).unwrap());
        krate
            .modules
            .insert(module, Module { file: file.to_owned(), uses: reader.uses, exports: reader.exports });
    }
    let circles = strongly_connected(&krate.file_imports());
    assert_eq!(circles, [["src/a/mod.rs", "src/b.rs", "src/c.rs"]]);
}
