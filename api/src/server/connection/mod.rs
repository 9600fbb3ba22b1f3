//! One connection: the HTTP library over a socket with time limits, and the service that it calls for each request.

mod refusal;
mod socket;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::Watcher;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use warp::filters::BoxedFilter;
use warp::http::{Request, Uri};
use warp::reply::Response;

pub(crate) use self::refusal::refuse;
use self::socket::{GuardedSocket, SocketLimits};
use crate::client_address::PeerAddress;
use crate::context::Context;
use crate::errors::ApiError;
use crate::seats::{Activity, AnswerGuard, Seat};
use crate::server::middleware::RequestMiddleware;

/// Largest head of a request. Keys and trace headers take some hundred bytes.
const MAX_HEAD_BYTES: usize = 32 << 10;
/// Largest chunk of a body that is read at once, and of a response that is gathered before it is sent.
const MAX_BUFFER_BYTES: usize = 64 << 10;

/// What all connections of a listener share.
#[derive(Clone)]
pub(crate) struct ConnectionContext {
    routes: BoxedFilter<(Response,)>,
    middleware: Arc<RequestMiddleware>,
    limits: SocketLimits,
}

impl ConnectionContext {
    pub(crate) fn new(ctx: &Context, routes: BoxedFilter<(Response,)>) -> Self {
        let settings = &ctx.settings;
        let limits = SocketLimits {
            head: settings.head_timeout,
            idle: settings.idle_timeout,
            stall: settings.stall_timeout,
        };
        Self { routes, middleware: Arc::new(RequestMiddleware::new(ctx)), limits }
    }

    /// Serves requests until the client closes the connection, a time limit ends it, its seat is needed, or, after the
    /// request in flight, `shutdown` begins.
    pub(crate) async fn serve(self, socket: TcpStream, seat: Seat, shutdown: Watcher) {
        let activity = seat.activity();
        let peer = socket.peer_addr().ok().map(|address| PeerAddress(address.ip()));
        let io = TokioIo::new(GuardedSocket::new(socket, Arc::clone(activity), self.limits));
        let service = build_service(self.routes, self.middleware, Arc::clone(activity), peer);
        let mut builder = http1::Builder::new();
        // The socket has the time limits.
        builder
            .header_read_timeout(None::<Duration>)
            .max_header_size(MAX_HEAD_BYTES)
            .max_buf_size(MAX_BUFFER_BYTES);
        let served = shutdown.watch(builder.serve_connection(io, service));
        tokio::select! {
            served = served => {
                if let Err(error) = served {
                    tracing::debug!(%error, "connection ended early");
                }
            }
            () = activity.wait_until_asked_to_leave() => {}
        }
    }
}

/// A response whose body says when all of it was taken.
type TrackedResponse = warp::http::Response<TrackedBody<<Response as HasBody>::Body>>;

/// Names the type of warp's bodies.
trait HasBody {
    type Body;
}

impl<B> HasBody for warp::http::Response<B> {
    type Body = B;
}

fn build_service(
    routes: BoxedFilter<(Response,)>,
    middleware: Arc<RequestMiddleware>,
    activity: Arc<Activity>,
    peer: Option<PeerAddress>,
) -> impl Service<Request<Incoming>, Response = TrackedResponse, Error = Infallible, Future: Send> {
    let inner = TowerToHyperService::new(warp::service(routes));
    service_fn(move |mut request: Request<Incoming>| {
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        request.extensions_mut().insert(Arc::clone(&activity));
        let (inner, middleware) = (inner.clone(), Arc::clone(&middleware));
        let answer = activity.begin_request();
        async move {
            // The seat was given away, and the connection is being dropped: a request begun now would end half done.
            let Some(answer) = answer else { return std::future::pending().await };
            let respond = |request: Request<Incoming>| async move {
                if names_path(request.uri()) { inner.call(request).await } else { Ok(refuse_target()) }
            };
            let response = middleware.handle(request, respond).await;
            Ok(response.map(|body| TrackedBody { body, _answer: answer }))
        }
    })
}

/// Whether the target of a request is a path or a URL. Others are for proxies (`CONNECT host:80`) or for no resource
/// (`OPTIONS *`); warp panics at them.
fn names_path(target: &Uri) -> bool {
    target.path_and_query().is_some_and(|target| target.path().starts_with('/'))
}

fn refuse_target() -> Response {
    ApiError::malformed("The request target must be a path").with_connection_close().into_response()
}

/// The body of a response; it ends the answer when it is dropped.
struct TrackedBody<B> {
    body: B,
    _answer: AnswerGuard,
}

impl<B: Body + Unpin> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
