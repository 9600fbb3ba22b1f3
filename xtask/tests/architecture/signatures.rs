//! What a signature may look like: no tuples without names, no more arguments than clippy allows, no lint switched off.

use syn::visit::Visit;

use super::source;

/// Numbers of which a pair is a coordinate or a size.
const COORDINATES: [&str; 8] = ["u16", "u32", "u64", "usize", "i32", "i64", "f32", "f64"];

/// Most arguments of a function, as `clippy.toml` says.
const ARGUMENT_LIMIT: &str = "too-many-arguments-threshold = 6";

/// Lints that hold everywhere, and the groups that contain them.
const LINTS: [&str; 2] = ["too_many_arguments", "too_many_lines"];
/// A lint of production code; tests may unwrap.
const PRODUCTION_LINT: &str = "unwrap_used";
const LINT_GROUPS: [&str; 4] = ["clippy::all", "clippy::complexity", "clippy::pedantic", "warnings"];

/// The crate that only starts servers for tests, and unwraps as they do.
const TEST_SUPPORT: &str = "tests/servers/src/lib.rs";

/// A function's name and those of its parameters that are tuples.
#[derive(Default)]
struct TupleParameters {
    found: Vec<String>,
}

impl TupleParameters {
    fn check(&mut self, signature: &syn::Signature) {
        for input in &signature.inputs {
            let syn::FnArg::Typed(parameter) = input else { continue };
            if has_nameless_tuple(&parameter.ty) {
                self.found.push(signature.ident.to_string());
            }
        }
    }
}

impl<'ast> Visit<'ast> for TupleParameters {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !module.attrs.iter().any(is_cfg_test) {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.check(signature);
        syn::visit::visit_signature(self, signature);
    }
}

fn is_cfg_test(attribute: &syn::Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.parse_args::<syn::Ident>().is_ok_and(|condition| condition == "test")
}

/// Whether a parameter's type is a tuple, or a reference or an option of one, that is no coordinate.
fn has_nameless_tuple(parameter: &syn::Type) -> bool {
    match parameter {
        syn::Type::Reference(reference) => has_nameless_tuple(&reference.elem),
        syn::Type::Paren(inner) => has_nameless_tuple(&inner.elem),
        syn::Type::Tuple(tuple) => !tuple.elems.is_empty() && !is_coordinate(tuple),
        syn::Type::Path(path) => path.path.segments.last().is_some_and(|segment| {
            segment.ident == "Option" && generic_types(segment).any(has_nameless_tuple)
        }),
        _ => false,
    }
}

fn generic_types(segment: &syn::PathSegment) -> impl Iterator<Item = &syn::Type> {
    let arguments = match &segment.arguments {
        syn::PathArguments::AngleBracketed(arguments) => Some(&arguments.args),
        _ => None,
    };
    arguments.into_iter().flatten().filter_map(|argument| match argument {
        syn::GenericArgument::Type(inner) => Some(inner),
        _ => None,
    })
}

/// Two numbers of one type: a point, a size, a range.
fn is_coordinate(tuple: &syn::TypeTuple) -> bool {
    let number = |element: &syn::Type| match element {
        syn::Type::Path(path) => COORDINATES.iter().find(|name| path.path.is_ident(name)).copied(),
        _ => None,
    };
    let numbers: Vec<_> = tuple.elems.iter().map(number).collect();
    numbers.len() == 2 && numbers[0].is_some() && numbers[0] == numbers[1]
}

#[test]
fn no_parameter_is_a_tuple_without_a_name() {
    let mut found = Vec::new();
    for (name, text) in source::rust().into_iter().filter(|(name, _)| !source::is_test(name)) {
        let mut tuples = TupleParameters::default();
        tuples.visit_file(&syn::parse_file(&text).unwrap_or_else(|error| panic!("{name}: {error}")));
        found.extend(tuples.found.into_iter().map(|function| format!("{name}: fn {function}")));
    }
    assert!(found.is_empty(), "tuple parameters that are no coordinates:\n{}", found.join("\n"));
}

/// Attributes may be spelled in many ways, so the words themselves are refused wherever a lint can be set.
#[test]
fn no_lint_is_switched_off() {
    let mut found = Vec::new();
    for (name, text) in
        source::rust().into_iter().filter(|(name, _)| !name.ends_with("architecture/signatures.rs"))
    {
        let mentions = LINTS.iter().filter(|lint| text.contains(**lint));
        found.extend(mentions.map(|lint| format!("{name} names {lint}")));
        if !source::is_test(&name) && text.contains(PRODUCTION_LINT) && name != TEST_SUPPORT {
            found.push(format!("{name} names {PRODUCTION_LINT}"));
        }
        for attribute in lint_attributes(&text) {
            let groups = LINT_GROUPS.iter().filter(|group| attribute.contains(**group));
            found.extend(groups.map(|group| format!("{name} switches {group} off")));
        }
    }
    for name in source::files().iter().filter(|name| name.ends_with(".toml")) {
        for line in source::text(name).lines().filter(|line| line.contains("allow") || line.contains("-A")) {
            let mentions = LINTS.iter().chain(&LINT_GROUPS).filter(|lint| line.contains(**lint));
            found.extend(mentions.map(|lint| format!("{name} switches {lint} off")));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(
        source::text("clippy.toml").contains(ARGUMENT_LIMIT),
        "clippy.toml has another limit of arguments"
    );
}

/// What stands in the brackets of each attribute that sets lints, without white space.
fn lint_attributes(text: &str) -> Vec<String> {
    let packed: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
    let mut attributes = Vec::new();
    for opening in ["allow(", "expect("] {
        for (start, _) in packed.match_indices(opening) {
            let before = &packed[..start];
            // In an attribute, also behind a condition: `#[allow(`, `#![allow(`, `#[cfg_attr(test,allow(`.
            if before.ends_with("#[") || before.ends_with("#![") || before.ends_with(',') {
                let end = packed[start..].find(')').map_or(packed.len(), |length| start + length);
                attributes.push(packed[start..end].to_owned());
            }
        }
    }
    attributes
}

#[test]
fn tuples_are_told_from_coordinates() {
    let is_nameless = |text: &str| has_nameless_tuple(&syn::parse_str(text).unwrap());
    for coordinate in ["(u32, u32)", "&(f32, f32)", "Option<(usize, usize)>", "()", "Vec<u8>"] {
        assert!(!is_nameless(coordinate), "{coordinate}");
    }
    for tuple in ["(u32, &str)", "&(f32, f64)", "Option<(String, u8)>", "(u8, u8, u8)", "(A, B)"] {
        assert!(is_nameless(tuple), "{tuple}");
    }
}

#[test]
fn lints_are_found_in_any_spelling() {
    let text = "#[allow(\n    clippy::all\n)]\n#![expect(warnings, reason = \"x\")]\n#[cfg_attr(x, allow(clippy::pedantic))]";
    assert_eq!(lint_attributes(text).len(), 3);
}
