//! Accepts connections, gives each a seat, and serves HTTP/1.1 on them, until a shutdown drains them.
//!
//! HTTP/2 is not supported on purpose: load balancers that speak HTTP/2 to clients speak HTTP/1.1 to services.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::context::{Context, Draining};
use crate::metrics::CloseReason;
use crate::seats::{SeatLimits, Seats};
use crate::server::connection::{self, ConnectionContext};
use crate::server::router;

/// Connections without a seat that are told so at once; further ones are only closed.
const REFUSALS: usize = 64;
/// Time for requests in flight after a shutdown.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);
/// Pause after a failed accept. The usual reason is that the process has no file descriptors left, until connections
/// are closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the API until `shutdown` completes, then drains: readiness is false, no connection is accepted, requests in
/// flight get their response (within 30 seconds), and event streams end with a 503.
pub async fn serve(listener: TcpListener, ctx: Context, shutdown: impl Future<Output = ()>) {
    let connections = ConnectionContext::new(&ctx, router::routes(ctx.clone()));
    Acceptor::with_seats_of_api(listener, connections, &ctx, ctx.settings.console.proxies)
        .run(shutdown)
        .await;
}

/// Serves the console only, until `shutdown` completes, with the seats of the API.
pub async fn serve_console(listener: TcpListener, ctx: Context, shutdown: impl Future<Output = ()>) {
    let connections = ConnectionContext::new(&ctx, router::console_routes(ctx.clone()));
    let proxies = ctx.settings.console.console_proxies;
    Acceptor::with_seats_of_api(listener, connections, &ctx, proxies).run(shutdown).await;
}

/// Serves health and metrics only, until `shutdown` completes. Has seats of its own: the API's may be taken.
pub async fn serve_admin(listener: TcpListener, ctx: Context, shutdown: impl Future<Output = ()>) {
    let connections = ConnectionContext::new(&ctx, router::admin_routes(ctx.clone()));
    let (seats, draining) = (Seats::new(SeatLimits::admin()), ctx.draining.clone());
    Acceptor { listener, connections, seats, is_behind_proxies: false, draining }.run(shutdown).await;
}

/// A listener and what it needs.
struct Acceptor {
    listener: TcpListener,
    connections: ConnectionContext,
    seats: Seats,
    /// Whether whoever connects is a proxy of ours.
    is_behind_proxies: bool,
    draining: Draining,
}

impl Acceptor {
    fn with_seats_of_api(
        listener: TcpListener,
        connections: ConnectionContext,
        ctx: &Context,
        proxies: usize,
    ) -> Self {
        let is_behind_proxies = proxies > 0;
        let (seats, draining) = (ctx.seats.clone(), ctx.draining.clone());
        Self { listener, connections, seats, is_behind_proxies, draining }
    }

    /// Returns the address of the client; `None` for a proxy, in whose connections are requests of many clients.
    fn client_address(&self, peer: SocketAddr) -> Option<IpAddr> {
        (!self.is_behind_proxies).then(|| peer.ip())
    }

    async fn run(self, shutdown: impl Future<Output = ()>) {
        let refusals = Arc::new(Semaphore::new(REFUSALS));
        let graceful = GracefulShutdown::new();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                () = &mut shutdown => break,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((socket, peer)) => match self.seats.take_seat(self.client_address(peer)) {
                    Some(seat) => {
                        send_small_responses_at_once(&socket);
                        tokio::spawn(self.connections.clone().serve(socket, seat, graceful.watcher()));
                    }
                    None => refuse(socket, &refusals),
                },
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection, retrying");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        self.draining.begin();
        drop(self.listener);
        tokio::select! {
            () = graceful.shutdown() => {}
            () = tokio::time::sleep(DRAIN_LIMIT) => {
                tracing::warn!(limit_s = DRAIN_LIMIT.as_secs(), "aborting requests in flight: drain limit reached");
            }
        }
    }
}

fn send_small_responses_at_once(socket: &TcpStream) {
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "failed to set TCP_NODELAY, small responses may be delayed");
    }
}

/// Closes a connection that has no seat. Its client is told, unless too many are being told already.
fn refuse(socket: TcpStream, refusals: &Arc<Semaphore>) {
    if let Ok(permit) = Arc::clone(refusals).try_acquire_owned() {
        tokio::spawn(async move {
            connection::refuse(socket).await;
            drop(permit);
        });
    } else {
        CloseReason::NoSeat.count();
    }
}
