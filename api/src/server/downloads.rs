//! `GET /downloads/{ticket}`: the ZIP file of a download that was permitted. Outside of the API's path, because its clients
//! take no files; the ticket is the permission.

use std::sync::Arc;

use futures_util::stream;
use photofinish_store::model::rate::RateClass;
use photofinish_store::on_behalf_of;
use time::OffsetDateTime;
use warp::Reply;
use warp::http::Method;
use warp::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use warp::reply::Response;

use crate::client_address::{client_address, network_digest};
use crate::context::Context;
use crate::downloads::{ReadPace, archive_name, plan, send, send_in_time, ticket_digest};
use crate::errors::ApiError;
use crate::operation::public::spend_public_rate;
use crate::operation::{self, ApiRequest};
use crate::reply;
use crate::validate::input::batch_units;

/// Responds to GET and HEAD of a ticket.
pub(crate) async fn handle(ctx: &Context, ticket: &str, mut request: ApiRequest) -> Response {
    let proxies = ctx.settings.console.proxies;
    let address = client_address(request.address, &request.headers, proxies);
    let network = network_digest(&ctx.visitor_secret, address, OffsetDateTime::now_utc());
    let mut response = match respond(ctx, ticket, network, &mut request).await {
        Ok(response) => response,
        Err(error) => operation::respond_with_error(error, &mut request.body).await,
    };
    if let Some(rate) = request.rate {
        rate.add_to(response.headers_mut());
    }
    response
}

async fn respond(
    ctx: &Context,
    ticket: &str,
    network: [u8; 32],
    request: &mut ApiRequest,
) -> Result<Response, ApiError> {
    spend_public_rate(ctx, RateClass::Read, 1, &network, request).await?;
    let download = ctx.store.downloads.find(&ticket_digest(ticket)).await?;
    let download = download.ok_or_else(ApiError::not_found)?;
    // The storage is asked for the size of each photo, for HEAD too.
    let further = batch_units(download.photos.len()).saturating_sub(1);
    spend_public_rate(ctx, RateClass::Read, further, &network, request).await?;
    let place = ctx.download_places.take_place(network, download.organization)?;
    let archive = on_behalf_of(download.organization, plan(ctx, &download)).await?;
    let bytes = archive.bytes;
    let mut response = if request.method == Method::HEAD {
        Response::new(bytes::Bytes::new().into())
    } else {
        let pieces = send(archive, Arc::clone(&ctx.store.blobs));
        let pieces = send_in_time(pieces, place, ReadPace::SERVICE);
        let pieces = stream::unfold(pieces, |mut pieces| async move { Some((pieces.recv().await?, pieces)) });
        warp::reply::stream(reply::make_sync(Box::pin(pieces))).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/zip"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
    headers.insert(CONTENT_DISPOSITION, disposition(&archive_name(&download.title)));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    headers.insert("referrer-policy", HeaderValue::from_static("no-referrer"));
    Ok(response)
}

/// An attachment of this name (RFC 6266): in ASCII, and as it is for clients that know RFC 8187.
fn disposition(name: &str) -> HeaderValue {
    let is_plain = |c: &char| c.is_ascii_graphic() || *c == ' ';
    let ascii: String = name.chars().map(|c| if is_plain(&c) { c } else { '_' }).collect();
    let mut encoded = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    let text = format!("attachment; filename=\"{ascii}\"; filename*=UTF-8''{encoded}");
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("attachment"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_sent_in_two_ways() {
        let expected = "attachment; filename=\"L_ufer 2.zip\"; filename*=UTF-8''L%C3%A4ufer%202.zip";
        assert_eq!(disposition("Läufer 2.zip"), expected);
    }
}
