//! Runs a process under strace and parses its file operations in order. Knows calls and paths, and nothing of what a disk
//! keeps of them.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

/// The recorded calls. A `?` precedes calls that do not exist on every architecture.
const TRACED_CALLS: &str = "trace=openat,openat2,?open,?creat,close,write,pwrite64,writev,pwritev,pwritev2,ftruncate,\
    truncate,fallocate,fsync,fdatasync,sync_file_range,sync,syncfs,?rename,renameat,renameat2,?link,linkat,?symlink,\
    symlinkat,?unlink,unlinkat,?rmdir,?mkdir,mkdirat,copy_file_range,sendfile,splice,io_uring_setup,mmap,?dup2,dup,dup3";

/// The longest string in the recording; longer data would be truncated.
const MAX_STRING_BYTES: &str = "2097152";

/// One call that succeeded.
pub struct TracedCall {
    /// The line of the recording at which it began: its changes may be on the disk from here on.
    pub begun: usize,
    /// The line at which it returned: its guarantees apply from here on.
    pub ended: usize,
    pub call: FileCall,
}

/// A call with its arguments; paths are absolute.
pub enum FileCall {
    Open {
        path: String,
        flags: String,
        descriptor: i32,
    },
    Close {
        descriptor: i32,
    },
    /// Writes at an offset, or at the position of the descriptor.
    Write {
        file: OpenFile,
        at: Option<u64>,
        bytes: Vec<u8>,
    },
    Resize {
        file: OpenFile,
        length: u64,
    },
    Sync {
        file: OpenFile,
    },
    Move {
        from: String,
        to: String,
    },
    Remove {
        path: String,
    },
    MakeFolder {
        path: String,
    },
    /// A writable shared mapping.
    Map {
        file: OpenFile,
    },
    /// A call that the model does not support, with its line.
    Other {
        paths: Vec<String>,
        line: String,
    },
}

/// An open file: its descriptor, and its path at the time of the call.
pub struct OpenFile {
    pub descriptor: i32,
    pub path: String,
}

/// Checks that processes can be traced here.
///
/// # Errors
/// Why not.
pub fn check_strace() -> Result<(), String> {
    let probe = Command::new("strace").args(["-f", "-o", "/dev/null", "--", "true"]).output();
    match probe {
        Err(cause) => Err(format!("no strace: {cause}")),
        Ok(output) if !output.status.success() => {
            Err(format!("strace may not trace here: {}", String::from_utf8_lossy(&output.stderr).trim()))
        }
        Ok(_) => Ok(()),
    }
}

/// Runs a program to its end and returns its calls.
///
/// # Panics
/// If the program fails.
pub fn trace_program(program: &mut Command, record: &Path) -> Vec<TracedCall> {
    let mut strace = Command::new("strace");
    strace.args(["-f", "--seccomp-bpf", "-qq", "-y", "-xx", "-e", "signal=none", "-s", MAX_STRING_BYTES]);
    strace.args(["-e", TRACED_CALLS]).arg("-o").arg(record).arg("--").arg(program.get_program());
    strace.args(program.get_args().map(OsStr::to_owned));
    strace.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = strace.stdin(Stdio::null()).output().unwrap();
    assert!(
        output.status.success(),
        "the writer failed: {}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    parse(&std::fs::read_to_string(record).unwrap())
}

fn parse(record: &str) -> Vec<TracedCall> {
    let mut unfinished: Vec<(&str, usize, &str)> = Vec::new();
    let mut calls = Vec::new();
    for (number, line) in record.lines().enumerate() {
        let (thread, text) = line.split_once(' ').unwrap();
        let text = text.trim_start();
        if text.starts_with("+++") || text.starts_with("---") {
            continue;
        }
        if let Some(begun) = text.strip_suffix(" <unfinished ...>") {
            unfinished.push((thread, number, begun));
            continue;
        }
        if let Some(rest) = text.strip_prefix("<... ") {
            let at = unfinished.iter().position(|(other, ..)| *other == thread).unwrap();
            let (_, begun, first) = unfinished.swap_remove(at);
            let (_, rest) = rest.split_once("resumed>").unwrap();
            calls.extend(parse_line(begun, number, &format!("{first}{rest}")));
        } else {
            calls.extend(parse_line(number, number, text));
        }
    }
    calls
}

/// Parses a complete line; returns `None` if the call failed or never returned.
fn parse_line(begun: usize, ended: usize, line: &str) -> Option<TracedCall> {
    let (name, rest) = line.split_once('(')?;
    let (arguments, result) = rest.rsplit_once(" = ")?;
    let arguments = arguments.trim_end().strip_suffix(')')?;
    let result: i64 = parse_leading_number(result)?;
    if result < 0 {
        return None;
    }
    let arguments: Vec<&str> = arguments.split(", ").collect();
    Some(TracedCall { begun, ended, call: parse_call(name, &arguments, result, line) })
}

fn parse_call(name: &str, arguments: &[&str], result: i64, line: &str) -> FileCall {
    let file = || parse_open_file(arguments[0]);
    let bytes = || {
        assert!(!arguments[1].ends_with("..."), "the data of a write were truncated");
        let mut bytes = parse_string(arguments[1]);
        bytes.truncate(usize::try_from(result).unwrap());
        bytes
    };
    match name {
        "openat" => FileCall::Open {
            path: resolve_path(arguments[0], arguments[1]),
            flags: arguments[2].to_owned(),
            descriptor: i32::try_from(result).unwrap(),
        },
        "close" => FileCall::Close { descriptor: file().descriptor },
        "write" => FileCall::Write { file: file(), at: None, bytes: bytes() },
        "pwrite64" => {
            FileCall::Write { file: file(), at: Some(arguments[3].parse().unwrap()), bytes: bytes() }
        }
        "ftruncate" => FileCall::Resize { file: file(), length: arguments[1].parse().unwrap() },
        "fsync" | "fdatasync" => FileCall::Sync { file: file() },
        "rename" => FileCall::Move { from: parse_path(arguments[0]), to: parse_path(arguments[1]) },
        "renameat" | "renameat2" => FileCall::Move {
            from: resolve_path(arguments[0], arguments[1]),
            to: resolve_path(arguments[2], arguments[3]),
        },
        "unlink" | "rmdir" => FileCall::Remove { path: parse_path(arguments[0]) },
        "unlinkat" => FileCall::Remove { path: resolve_path(arguments[0], arguments[1]) },
        "mkdir" => FileCall::MakeFolder { path: parse_path(arguments[0]) },
        "mkdirat" => FileCall::MakeFolder { path: resolve_path(arguments[0], arguments[1]) },
        "mmap" => match (arguments[2].contains("PROT_WRITE"), arguments[3].contains("MAP_SHARED")) {
            (true, true) => FileCall::Map { file: parse_open_file(arguments[4]) },
            _ => FileCall::Other { paths: Vec::new(), line: String::new() },
        },
        _ => {
            let paths = arguments
                .iter()
                .map(|a| if a.contains('<') { parse_open_file(a).path } else { parse_path(a) });
            FileCall::Other { paths: paths.collect(), line: line.chars().take(400).collect() }
        }
    }
}

/// Parses `12<\x2f..>`, or `12` for a descriptor without a path.
fn parse_open_file(argument: &str) -> OpenFile {
    let (descriptor, path) = argument.split_once('<').unwrap_or((argument, ""));
    let path = path.trim_end_matches("(deleted)").trim_end_matches('>');
    OpenFile { descriptor: descriptor.parse().unwrap_or(-1), path: unescape(path) }
}

/// Parses a path that may be relative to an open folder (`AT_FDCWD` is the working directory).
fn resolve_path(folder: &str, path: &str) -> String {
    let path = parse_path(path);
    if path.starts_with('/') { path } else { format!("{}/{path}", parse_open_file(folder).path) }
}

fn parse_path(argument: &str) -> String {
    String::from_utf8(parse_string(argument)).unwrap()
}

fn unescape(text: &str) -> String {
    String::from_utf8(unescape_bytes(text)).unwrap()
}

/// Parses a quoted string.
fn parse_string(argument: &str) -> Vec<u8> {
    unescape_bytes(argument.trim_matches('"'))
}

/// Decodes bytes written as `\x2f`; copies the rest.
fn unescape_bytes(text: &str) -> Vec<u8> {
    let text = text.as_bytes();
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
    let mut bytes = Vec::with_capacity(text.len() / 4);
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with(b"\\x") {
            bytes.push(digit(text[at + 2]) << 4 | digit(text[at + 3]));
            at += 4;
        } else {
            bytes.push(text[at]);
            at += 1;
        }
    }
    bytes
}

/// Parses the number at the beginning, as in `3</name>`, `-1 ENOENT (..)`; returns 0 for addresses such as `0x7f..`.
fn parse_leading_number(text: &str) -> Option<i64> {
    let text = text.trim();
    if text.starts_with("0x") {
        return Some(0);
    }
    let end = text.char_indices().find(|(i, c)| !(c.is_ascii_digit() || (*i == 0 && *c == '-')));
    text[..end.map_or(text.len(), |(i, _)| i)].parse().ok()
}
