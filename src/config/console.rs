//! Settings of the console and of what visitors see.

use std::net::SocketAddr;
use std::path::PathBuf;

use url::Url;

use super::parsers::{self, ON_OFF};

/// Settings of the console.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Console (roles all, serve)")]
pub struct ConsoleArguments {
    /// Whether there are the console and galleries
    #[arg(long, env = "PHOTOFINISH_CONSOLE", value_name = "ON_OFF", default_value = "on", action = clap::ArgAction::Set, value_parser = ON_OFF)]
    pub console: bool,
    /// Address of the console, for a network of its own: it is not on that of the API then [default: the address of the API]
    #[arg(long, env = "PHOTOFINISH_CONSOLE_LISTEN", value_name = "ADDRESS", value_parser = parsers::address)]
    pub console_listen: Option<SocketAddr>,
    /// The URL under which people reach the console [default: the public URL]
    #[arg(long, env = "PHOTOFINISH_CONSOLE_URL", value_name = "URL", value_parser = parsers::http_origin)]
    pub console_url: Option<Url>,
    /// Another URL of the service, for galleries alone: the console is not there [default: galleries have the public URL]
    #[arg(long, env = "PHOTOFINISH_GALLERY_URL", value_name = "URL", value_parser = parsers::http_origin)]
    pub gallery_url: Option<Url>,
    /// Folder that the pages are read from, for who works on them [default: those in the program]
    #[arg(long, env = "PHOTOFINISH_CONSOLE_DIR", value_name = "FOLDER")]
    pub console_dir: Option<PathBuf>,
    /// Proxies before the service that add the address of their client to x-forwarded-for; wrong passwords, and searches in galleries, are counted by it, and one address may then have all connections
    #[arg(long, env = "PHOTOFINISH_PROXIES", value_name = "PROXIES", default_value = "0", value_parser = proxies)]
    pub proxies: usize,
    /// The same before the console, where it has an address of its own
    #[arg(long, env = "PHOTOFINISH_CONSOLE_PROXIES", value_name = "PROXIES", default_value = "0", value_parser = proxies)]
    pub console_proxies: usize,
}

impl ConsoleArguments {
    /// Whether there are the console and galleries: not in a build without their pages, unless a folder has them.
    pub fn is_enabled(&self) -> bool {
        self.console && (cfg!(feature = "console") || self.console_dir.is_some())
    }
}

fn proxies(text: &str) -> Result<usize, String> {
    parsers::integer(text, 0, 10).map(|proxies| proxies as usize)
}
