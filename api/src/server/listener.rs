//! Serves a filter on a listener: request ids, header time limits, metrics, the answer to panics, and a stop that
//! drains. Knows no operation and no path beyond the names it counts by.
//!
//! HTTP/1.1 alone: what tells HTTP/2 from it waits for first bytes without a limit, so that connections which send none
//! would keep their seats for ever. Proxies that speak HTTP/2 to clients speak HTTP/1.1 to services.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use warp::filters::BoxedFilter;
use warp::http::Request;
use warp::reply::Response;

use crate::context::{Context, Draining};
use crate::server::middleware::RequestMiddleware;
use crate::server::router;

/// Connections at a time; more wait in the system's backlog. Each may hold a body in memory.
const CONNECTION_LIMIT: usize = 4096;
/// How long requests in flight may take once the service is told to stop.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);
/// Without file descriptors nothing can be accepted; connections that end give some back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the API until `shutdown`, then drains: readiness is false, no connection is accepted, requests in flight
/// are answered (for 30 seconds at most), event streams end with a 503.
pub async fn serve(listener: TcpListener, ctx: Context, shutdown: impl Future<Output = ()>) {
    let (house, stop) =
        (ConnectionContext::new(&ctx), Shutdown { draining: ctx.draining.clone(), signal: shutdown });
    serve_connections(listener, (router::routes(ctx), house), stop).await;
}

/// Serves health and metrics alone, until `shutdown`.
pub async fn serve_admin(listener: TcpListener, ctx: Context, shutdown: impl Future<Output = ()>) {
    let (house, stop) =
        (ConnectionContext::new(&ctx), Shutdown { draining: ctx.draining.clone(), signal: shutdown });
    serve_connections(listener, (router::admin_routes(ctx), house), stop).await;
}

/// What every connection meets.
struct ConnectionContext {
    middleware: Arc<RequestMiddleware>,
    head_timeout: Duration,
}

impl ConnectionContext {
    fn new(ctx: &Context) -> Self {
        Self { middleware: Arc::new(RequestMiddleware::new(ctx)), head_timeout: ctx.settings.head_timeout }
    }
}

struct Shutdown<F> {
    draining: Draining,
    signal: F,
}

async fn serve_connections<F>(
    listener: TcpListener,
    (routes, house): (BoxedFilter<(Response,)>, ConnectionContext),
    stop: Shutdown<F>,
) where
    F: Future<Output = ()>,
{
    let ConnectionContext { middleware: reception, head_timeout } = house;
    let seats = Arc::new(Semaphore::new(CONNECTION_LIMIT));
    let connections = GracefulShutdown::new();
    let mut shutdown = std::pin::pin!(stop.signal);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept_connection(&listener, &seats) => accepted,
        };
        let Some((socket, seat)) = accepted else { continue };
        let service = build_service(routes.clone(), Arc::clone(&reception));
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(head_timeout);
        let connection = connections.watch(builder.serve_connection(TokioIo::new(socket), service));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended early");
            }
            drop(seat);
        });
    }
    stop.draining.begin();
    drop(listener);
    tokio::select! {
        () = connections.shutdown() => {}
        () = tokio::time::sleep(DRAIN_LIMIT) => tracing::warn!("requests in flight are cut off"),
    }
}

/// A connection and its seat; `None` when this one could not be had.
async fn accept_connection(
    listener: &TcpListener,
    seats: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let seat = seats.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((socket, _)) => {
            if let Err(error) = socket.set_nodelay(true) {
                tracing::debug!(%error, "small answers may wait");
            }
            Some((socket, seat))
        }
        Err(error) => {
            tracing::warn!(%error, "a connection was not accepted");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

type ResponseFuture = std::pin::Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

fn build_service(
    routes: BoxedFilter<(Response,)>,
    reception: Arc<RequestMiddleware>,
) -> impl Service<Request<Incoming>, Response = Response, Error = Infallible, Future = ResponseFuture> + Clone
{
    let inner = TowerToHyperService::new(warp::service(routes));
    service_fn(move |request: Request<Incoming>| -> ResponseFuture {
        let (inner, reception) = (inner.clone(), Arc::clone(&reception));
        Box::pin(async move { Ok(reception.handle(request, |request| inner.call(request)).await) })
    })
}
