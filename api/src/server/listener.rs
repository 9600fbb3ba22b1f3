//! Accepts connections and serves HTTP/1.1 on them, until a shutdown drains them.
//!
//! HTTP/2 is not supported on purpose: hyper detects its version by reading the first bytes without a time limit, so
//! connections that send nothing would keep their permits forever. Load balancers that speak HTTP/2 to clients speak
//! HTTP/1.1 to services.

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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use warp::filters::BoxedFilter;
use warp::http::Request;
use warp::reply::Response;

use crate::context::{Context, Draining};
use crate::server::middleware::RequestMiddleware;
use crate::server::router;

/// Open connections; further ones wait in the backlog of the operating system. Each may keep a body in memory.
const CONNECTION_LIMIT: usize = 4096;
/// Time for requests in flight after a shutdown.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);
/// Pause after a failed accept. The usual reason is that the process has no file descriptors left, until connections
/// are closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the API until `shutdown` completes, then drains: readiness is false, no connection is accepted, requests in
/// flight get their response (within 30 seconds), and event streams end with a 503.
pub async fn serve(listener: TcpListener, ctx: Context, shutdown: impl Future<Output = ()>) {
    let connections = ConnectionContext::new(&ctx, router::routes(ctx.clone()));
    serve_connections(listener, connections, ctx.draining, shutdown).await;
}

/// Serves health and metrics only, until `shutdown` completes.
pub async fn serve_admin(listener: TcpListener, ctx: Context, shutdown: impl Future<Output = ()>) {
    let connections = ConnectionContext::new(&ctx, router::admin_routes(ctx.clone()));
    serve_connections(listener, connections, ctx.draining, shutdown).await;
}

/// What all connections share.
struct ConnectionContext {
    routes: BoxedFilter<(Response,)>,
    middleware: Arc<RequestMiddleware>,
    head_timeout: Duration,
}

impl ConnectionContext {
    fn new(ctx: &Context, routes: BoxedFilter<(Response,)>) -> Self {
        let middleware = Arc::new(RequestMiddleware::new(ctx));
        Self { routes, middleware, head_timeout: ctx.settings.head_timeout }
    }
}

async fn serve_connections(
    listener: TcpListener,
    ctx: ConnectionContext,
    draining: Draining,
    shutdown: impl Future<Output = ()>,
) {
    let permits = Arc::new(Semaphore::new(CONNECTION_LIMIT));
    let connections = GracefulShutdown::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept_connection(&listener, &permits) => accepted,
        };
        let Some(AcceptedConnection { socket, permit }) = accepted else { continue };
        let service = build_service(ctx.routes.clone(), Arc::clone(&ctx.middleware));
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(ctx.head_timeout);
        let connection = connections.watch(builder.serve_connection(TokioIo::new(socket), service));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended early");
            }
            drop(permit);
        });
    }
    draining.begin();
    drop(listener);
    tokio::select! {
        () = connections.shutdown() => {}
        () = tokio::time::sleep(DRAIN_LIMIT) => {
            tracing::warn!(limit_s = DRAIN_LIMIT.as_secs(), "aborting requests in flight: drain limit reached");
        }
    }
}

struct AcceptedConnection {
    socket: TcpStream,
    permit: OwnedSemaphorePermit,
}

/// Waits for a permit and a connection; `None` when accepting failed.
async fn accept_connection(listener: &TcpListener, permits: &Arc<Semaphore>) -> Option<AcceptedConnection> {
    let permit = permits.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((socket, _)) => {
            if let Err(error) = socket.set_nodelay(true) {
                tracing::debug!(%error, "failed to set TCP_NODELAY, small responses may be delayed");
            }
            Some(AcceptedConnection { socket, permit })
        }
        Err(error) => {
            tracing::warn!(%error, "failed to accept a connection, retrying");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

type ResponseFuture = std::pin::Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

fn build_service(
    routes: BoxedFilter<(Response,)>,
    middleware: Arc<RequestMiddleware>,
) -> impl Service<Request<Incoming>, Response = Response, Error = Infallible, Future = ResponseFuture> + Clone
{
    let inner = TowerToHyperService::new(warp::service(routes));
    service_fn(move |request: Request<Incoming>| -> ResponseFuture {
        let (inner, middleware) = (inner.clone(), Arc::clone(&middleware));
        Box::pin(async move { Ok(middleware.handle(request, |request| inner.call(request)).await) })
    })
}
