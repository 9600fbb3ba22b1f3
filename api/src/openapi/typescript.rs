//! The types of all operations in TypeScript, for the pages of the console and of galleries: from the same schemas as the
//! OpenAPI document, so that a page that reads a member that no response has does not compile.

use std::fmt::Write;

use serde_json::{Map, Value};

use crate::operation::console::console_operations;
use crate::operation::visitors::visitor_operations;
use crate::operation::{Operation, catalog};
use crate::validate::validators::Schemas;

const HEADING: &str = "\
/** What the operations of the service take and give, by their schemas. Generated; see `photofinish_api::typescript_types`. */
";

/// Returns the declarations that `console/web/api.d.ts` has: each schema as a type of its name, and for each kind of caller
/// an interface of all operations, path by path: what it takes, then what it gives.
///
/// # Panics
/// Never: a test compares the file.
pub fn typescript_types() -> String {
    let mut schemas = Schemas::new();
    let console = catalog::all_operations().into_iter().chain(console_operations());
    let interfaces = [
        write_operations("Operations", console, &mut schemas),
        write_operations("VisitorOperations", visitor_operations(), &mut schemas),
    ];
    let schemas = serde_json::to_value(schemas).expect("schemas are valid JSON");
    let mut text = HEADING.to_owned();
    for (name, schema) in schemas.as_object().into_iter().flatten() {
        write_declaration(&mut text, name, schema);
    }
    text + &interfaces.concat()
}

/// Writes the interface of operations, adding the schemas that they name.
fn write_operations(
    name: &str,
    operations: impl IntoIterator<Item = Operation>,
    schemas: &mut Schemas,
) -> String {
    let mut text = format!("\nexport interface {name} {{\n");
    for operation in operations {
        let (input, _) = (operation.schema_fns.input)(schemas);
        let output = (operation.schema_fns.output)(schemas);
        let output = serde_json::to_value(output).expect("references are valid JSON");
        let path = &operation.info.path()[1..];
        writeln!(text, "  \"{path}\": [{input}, {}];", to_type(&output)).expect("a string takes all");
    }
    text + "}\n"
}

fn write_declaration(text: &mut String, name: &str, schema: &Value) {
    text.push('\n');
    if let Some(description) = schema["description"].as_str() {
        text.push_str(&format!("/** {} */\n", description.replace('\n', " ")));
    }
    match schema["properties"].as_object() {
        Some(properties) => {
            text.push_str(&format!("export interface {name} {{\n"));
            for member in to_members(schema, properties) {
                text.push_str(&format!("  {member};\n"));
            }
            text.push_str("}\n");
        }
        None => text.push_str(&format!("export type {name} = {};\n", to_type(schema))),
    }
}

/// Returns the members of an object; those that may be missing have a `?`.
fn to_members(schema: &Value, properties: &Map<String, Value>) -> Vec<String> {
    let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
    let to_member = |(name, schema): (&String, &Value)| {
        let mark = if required.iter().any(|known| known == name) { "" } else { "?" };
        format!("{name}{mark}: {}", to_type(schema))
    };
    properties.iter().map(to_member).collect()
}

/// Returns the type of a schema as OpenAPI 3.1 has them: a reference, values, alternatives, or types by name.
fn to_type(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        return reference.rsplit('/').next().unwrap_or(reference).to_owned();
    }
    let join = |parts: &Value, separator: &str, to_part: &dyn Fn(&Value) -> String| {
        let parts: Vec<String> = parts.as_array()?.iter().map(to_part).collect();
        Some(parts.join(separator))
    };
    let named = |name: &Value| match name.as_str() {
        Some("object") => to_object(schema),
        Some("array") => to_list(&to_type(&schema["items"])),
        Some("integer") => "number".to_owned(),
        Some(name) => name.to_owned(),
        None => "unknown".to_owned(),
    };
    join(&schema["enum"], " | ", &Value::to_string)
        .or_else(|| join(&schema["oneOf"], " | ", &to_type))
        .or_else(|| join(&schema["anyOf"], " | ", &to_type))
        .or_else(|| join(&schema["allOf"], " & ", &to_type))
        .or_else(|| join(&schema["type"], " | ", &named))
        .unwrap_or_else(|| named(&schema["type"]))
}

fn to_object(schema: &Value) -> String {
    match schema["properties"].as_object() {
        Some(properties) => format!("{{ {} }}", to_members(schema, properties).join("; ")),
        None if schema["additionalProperties"].is_object() => {
            format!("Record<string, {}>", to_type(&schema["additionalProperties"]))
        }
        None => "Record<string, unknown>".to_owned(),
    }
}

fn to_list(item: &str) -> String {
    if item.contains(' ') { format!("({item})[]") } else { format!("{item}[]") }
}
