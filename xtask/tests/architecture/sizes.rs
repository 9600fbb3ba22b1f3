//! How long files and functions may grow. Exceptions are listed here, each with its reason.

use super::source;

/// Lines of a file before its tests.
const FILE_CEILING: usize = 400;
/// Lines inside a function without empty lines and comments, as clippy counts them.
const FUNCTION_CEILING: usize = 60;

/// File and the reason why it is longer.
const LONG_FILES: [(&str, &str); 1] =
    [("api/console/web/api.d.ts", "generated: the types of all operations, which nobody edits")];

/// File, function and the reason why it is longer.
const LONG_FUNCTIONS: [(&str, &str, &str); 0] = [];

#[test]
fn no_file_exceeds_its_ceiling() {
    let mut long = Vec::new();
    for name in source::files() {
        let counts = [".rs", ".py", ".ts", ".tsx", ".css", ".mjs"].iter().any(|end| name.ends_with(end));
        if counts && !LONG_FILES.iter().any(|(exempt, _)| *exempt == name) {
            let lines = source::production_lines(&source::text(&name));
            if lines > FILE_CEILING {
                long.push(format!("{name}: {lines} lines before its tests, the ceiling is {FILE_CEILING}"));
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn no_function_exceeds_its_ceiling() {
    let mut long = Vec::new();
    for (name, text) in source::rust() {
        for function in functions(&text) {
            let exempt =
                LONG_FUNCTIONS.iter().any(|(file, known, _)| *file == name && *known == function.name);
            if function.lines > FUNCTION_CEILING && !exempt {
                long.push(format!("{name}: fn {} has {} lines", function.name, function.lines));
            }
        }
    }
    assert!(long.is_empty(), "the ceiling is {FUNCTION_CEILING}:\n{}", long.join("\n"));
}

#[test]
fn every_exception_is_still_needed() {
    for (file, reason) in LONG_FILES {
        let lines = source::production_lines(&source::text(file));
        assert!(lines > FILE_CEILING && !reason.is_empty(), "{file} has only {lines} lines now");
    }
    for (file, name, reason) in LONG_FUNCTIONS {
        let text = source::text(file);
        let is_long =
            functions(&text).iter().any(|known| known.name == name && known.lines > FUNCTION_CEILING);
        assert!(is_long && !reason.is_empty(), "{file}: fn {name} is no longer too long");
    }
}

struct Function {
    name: String,
    lines: usize,
}

/// Functions with a body. Relies on rustfmt's layout: the closing brace is below the `fn`.
fn functions(text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indent = line.len() - line.trim_start().len();
        let closing = format!("{}}}", &line[..indent]);
        let opens = lines[start..]
            .iter()
            .position(|line| line.ends_with('{') || line.ends_with(';') || line.ends_with('}'));
        let Some(opening) = opens.map(|offset| start + offset).filter(|at| lines[*at].ends_with('{')) else {
            continue;
        };
        let end = lines[opening..].iter().position(|line| *line == closing).map(|offset| opening + offset);
        let body = &lines[opening + 1..end.unwrap_or(lines.len())];
        let counted =
            body.iter().map(|line| line.trim()).filter(|line| !line.is_empty() && !line.starts_with("//"));
        found.push(Function { name, lines: counted.count() });
    }
    found
}

/// The name after `fn` if the line begins a function.
pub fn function_name(line: &str) -> Option<String> {
    let mut words = line.trim_start();
    for prefix in
        ["pub(crate) ", "pub(super) ", "pub ", "default ", "const ", "async ", "unsafe ", "extern \"C\" "]
    {
        words = words.strip_prefix(prefix).unwrap_or(words);
    }
    let rest = words.strip_prefix("fn ")?;
    Some(rest.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect())
}

#[test]
fn functions_are_counted_as_clippy_counts_them() {
    let text = "fn one() {\n    // why\n\n    work();\n    if x {\n        y();\n    }\n}\n\n    pub async fn two(\n        \
                a: u32,\n    ) -> u32 {\n        a\n    }\ntrait T {\n    fn three(&self);\n}\n";
    let counts: Vec<(String, usize)> = functions(text).into_iter().map(|f| (f.name, f.lines)).collect();
    assert_eq!(counts, [("one".to_owned(), 4), ("two".to_owned(), 1)]);
}
