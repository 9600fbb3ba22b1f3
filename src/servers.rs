//! The servers of a process: of the API, and, where they have addresses of their own, of health and of the console.

use std::net::SocketAddr;

use anyhow::Context as _;
use photofinish_api::context::Context;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use crate::config::Config;
use crate::role::Role;
use crate::shutdown::wait_until_stopped;

/// The addresses, taken before anything is begun that a failure would interrupt: connections wait until they are served.
pub struct Listeners {
    api: TcpListener,
    admin: Option<TcpListener>,
    console: Option<TcpListener>,
}

impl Listeners {
    /// Listens on all addresses.
    ///
    /// # Errors
    /// When one of them cannot be used; says which setting it is of.
    pub async fn bind(config: &Config, role: Role) -> anyhow::Result<Self> {
        let (service, console) = (&config.settings.service, &config.settings.console);
        let console_address = console.console_listen.filter(|_| console.is_enabled() && role.has_api());
        Ok(Self {
            api: listen(service.listen, "PHOTOFINISH_LISTEN").await?,
            admin: listen_if_set(service.admin_listen, "PHOTOFINISH_ADMIN_LISTEN").await?,
            console: listen_if_set(console_address, "PHOTOFINISH_CONSOLE_LISTEN").await?,
        })
    }

    /// Serves them until the stop.
    pub fn serve(self, role: Role, context: &Context, stopped: &watch::Receiver<bool>) -> Servers {
        let mut servers = JoinSet::new();
        let until = || wait_until_stopped(stopped.clone());
        // Health and metrics alone where the role has no API.
        if role.has_api() {
            servers.spawn(photofinish_api::serve(self.api, context.clone(), until()));
        } else {
            servers.spawn(photofinish_api::serve_admin(self.api, context.clone(), until()));
        }
        if let Some(listener) = self.admin {
            servers.spawn(photofinish_api::serve_admin(listener, context.clone(), until()));
        }
        if let Some(listener) = self.console {
            servers.spawn(photofinish_api::serve_console(listener, context.clone(), until()));
        }
        Servers::from(servers)
    }
}

async fn listen(address: SocketAddr, setting: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("listening on {address} ({setting})"))
}

async fn listen_if_set(address: Option<SocketAddr>, setting: &str) -> anyhow::Result<Option<TcpListener>> {
    match address {
        Some(address) => listen(address, setting).await.map(Some),
        None => Ok(None),
    }
}

/// Running servers. They end at the stop.
pub struct Servers(JoinSet<()>);

impl From<JoinSet<()>> for Servers {
    fn from(tasks: JoinSet<()>) -> Self {
        Self(tasks)
    }
}

impl Servers {
    /// Waits until one ends; returns why this process is of no use any more. To be called before the stop.
    pub async fn wait_for_failure(&mut self) -> String {
        match self.0.join_next().await {
            Some(Err(error)) => format!("a server failed: {error}"),
            Some(Ok(())) | None => "a server ended".to_owned(),
        }
    }

    /// Waits until all have ended.
    ///
    /// # Errors
    /// When one has panicked.
    pub async fn wait_for_all(mut self) -> Result<(), JoinError> {
        let mut ended = Ok(());
        while let Some(server) = self.0.join_next().await {
            ended = ended.and(server);
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::config::tests::config;

    #[tokio::test]
    async fn a_server_that_ends_or_panics_while_others_go_on_is_reported() {
        let mut tasks = JoinSet::<()>::new();
        tasks.spawn(std::future::pending());
        tasks.spawn(async {});
        assert_eq!(Servers::from(tasks).wait_for_failure().await, "a server ended");
        let mut tasks = JoinSet::<()>::new();
        tasks.spawn(std::future::pending());
        tasks.spawn(async { panic!("a panic of this test") });
        let reason = Servers::from(tasks).wait_for_failure().await;
        assert!(reason.starts_with("a server failed: ") && reason.contains("panic of this test"), "{reason}");
    }

    #[tokio::test]
    async fn all_servers_are_waited_for_where_one_has_panicked() {
        let has_answered = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::<()>::new();
        tasks.spawn(async { panic!("a panic of this test") });
        tasks.spawn({
            let has_answered = Arc::clone(&has_answered);
            async move {
                // Its last request takes longer than the panic.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                has_answered.store(true, Ordering::SeqCst);
            }
        });
        let ended = Servers::from(tasks).wait_for_all().await;
        assert!(ended.is_err_and(|error| error.is_panic()));
        assert!(has_answered.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_named_with_its_setting() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let configured = |setting: &'static str| {
            // The last one of a setting counts. A folder of pages: there is a console in every build.
            let settings = [
                ("PHOTOFINISH_LISTEN", "127.0.0.1:0"),
                ("PHOTOFINISH_CONSOLE_DIR", "."),
                (setting, address.as_str()),
            ];
            config(&settings).unwrap()
        };
        for setting in ["PHOTOFINISH_LISTEN", "PHOTOFINISH_ADMIN_LISTEN", "PHOTOFINISH_CONSOLE_LISTEN"] {
            let refused = Listeners::bind(&configured(setting), Role::All).await.err().unwrap();
            let refused = format!("{refused:#}");
            assert!(refused.contains(&address) && refused.contains(&format!("({setting})")), "{refused}");
        }
        // A worker has no console.
        Listeners::bind(&configured("PHOTOFINISH_CONSOLE_LISTEN"), Role::Work).await.unwrap();
    }
}
