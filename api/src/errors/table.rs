//! The error table of the contract: the only place with codes, statuses and default messages.
//! `tests/goldens/errors.tsv` is a copy that a test compares.

/// A row of the contract's error table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// 400
    BadRequest,
    /// 401
    Unauthorized,
    /// 403
    Forbidden,
    /// 404
    NotFound,
    /// 405
    MethodNotSupported,
    /// 406
    NotAcceptable,
    /// 408
    Timeout,
    /// 409
    Conflict,
    /// 412
    PreconditionFailed,
    /// 413
    PayloadTooLarge,
    /// 415
    UnsupportedMediaType,
    /// 422
    UnprocessableContent,
    /// 429
    TooManyRequests,
    /// 499
    ClientClosedRequest,
    /// 500
    InternalServerError,
    /// 501
    NotImplemented,
    /// 502
    BadGateway,
    /// 503
    ServiceUnavailable,
    /// 504
    GatewayTimeout,
}

impl ErrorKind {
    /// Every row, in the order of the contract.
    pub const ALL: [Self; 19] = [
        Self::BadRequest,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotSupported,
        Self::NotAcceptable,
        Self::Timeout,
        Self::Conflict,
        Self::PreconditionFailed,
        Self::PayloadTooLarge,
        Self::UnsupportedMediaType,
        Self::UnprocessableContent,
        Self::TooManyRequests,
        Self::ClientClosedRequest,
        Self::InternalServerError,
        Self::NotImplemented,
        Self::BadGateway,
        Self::ServiceUnavailable,
        Self::GatewayTimeout,
    ];

    /// The HTTP status; also the envelope's `status`.
    pub const fn status(self) -> u16 {
        self.row().0
    }

    /// The envelope's `code`.
    pub const fn code(self) -> &'static str {
        self.row().1
    }

    /// The envelope's default `message`.
    pub const fn message(self) -> &'static str {
        self.row().2
    }

    const fn row(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::BadRequest => (400, "BAD_REQUEST", "Bad Request"),
            Self::Unauthorized => (401, "UNAUTHORIZED", "Unauthorized"),
            Self::Forbidden => (403, "FORBIDDEN", "Forbidden"),
            Self::NotFound => (404, "NOT_FOUND", "Not Found"),
            Self::MethodNotSupported => (405, "METHOD_NOT_SUPPORTED", "Method Not Supported"),
            Self::NotAcceptable => (406, "NOT_ACCEPTABLE", "Not Acceptable"),
            Self::Timeout => (408, "TIMEOUT", "Request Timeout"),
            Self::Conflict => (409, "CONFLICT", "Conflict"),
            Self::PreconditionFailed => (412, "PRECONDITION_FAILED", "Precondition Failed"),
            Self::PayloadTooLarge => (413, "PAYLOAD_TOO_LARGE", "Payload Too Large"),
            Self::UnsupportedMediaType => (415, "UNSUPPORTED_MEDIA_TYPE", "Unsupported Media Type"),
            Self::UnprocessableContent => (422, "UNPROCESSABLE_CONTENT", "Unprocessable Content"),
            Self::TooManyRequests => (429, "TOO_MANY_REQUESTS", "Too Many Requests"),
            Self::ClientClosedRequest => (499, "CLIENT_CLOSED_REQUEST", "Client Closed Request"),
            Self::InternalServerError => (500, "INTERNAL_SERVER_ERROR", "Internal Server Error"),
            Self::NotImplemented => (501, "NOT_IMPLEMENTED", "Not Implemented"),
            Self::BadGateway => (502, "BAD_GATEWAY", "Bad Gateway"),
            Self::ServiceUnavailable => (503, "SERVICE_UNAVAILABLE", "Service Unavailable"),
            Self::GatewayTimeout => (504, "GATEWAY_TIMEOUT", "Gateway Timeout"),
        }
    }
}

/// Why a well-formed request is declined: `data.declineCode` of a 422.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclineCode {
    /// The selfie shows no face.
    NoFace,
    /// The selfie is not an image, or a damaged one.
    UnreadableImage,
    /// Face search is disabled in the album.
    FaceSearchDisabled,
    /// Bib search is disabled in the album.
    TextSearchDisabled,
    /// The balance does not cover the price.
    InsufficientCredits,
    /// The start list has more than 100,000 bibs or excluded numbers, or 500,000 in its ranges.
    StartListTooLarge,
    /// A gallery has selfie search only with a contact and a page about privacy.
    GalleryContactMissing,
    /// The gallery has no such search.
    GallerySearchDisabled,
}

impl DeclineCode {
    /// Every code.
    pub const ALL: [Self; 8] = [
        Self::NoFace,
        Self::UnreadableImage,
        Self::FaceSearchDisabled,
        Self::TextSearchDisabled,
        Self::InsufficientCredits,
        Self::StartListTooLarge,
        Self::GalleryContactMissing,
        Self::GallerySearchDisabled,
    ];

    /// The code in the response.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoFace => "NO_FACE",
            Self::UnreadableImage => "UNREADABLE_IMAGE",
            Self::FaceSearchDisabled => "FACE_SEARCH_DISABLED",
            Self::TextSearchDisabled => "TEXT_SEARCH_DISABLED",
            Self::InsufficientCredits => "INSUFFICIENT_CREDITS",
            Self::StartListTooLarge => "START_LIST_TOO_LARGE",
            Self::GalleryContactMissing => "GALLERY_CONTACT_MISSING",
            Self::GallerySearchDisabled => "GALLERY_SEARCH_DISABLED",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn table_rows() -> Vec<(u16, String, String)> {
        ErrorKind::ALL.iter().map(|k| (k.status(), k.code().to_owned(), k.message().to_owned())).collect()
    }

    #[test]
    fn the_error_table_equals_the_golden_file() {
        let golden: Vec<_> = include_str!("../../tests/goldens/errors.tsv")
            .lines()
            .map(|line| {
                let mut cells = line.split('\t');
                let mut cell = || cells.next().unwrap().to_owned();
                (cell().parse().unwrap(), cell(), cell())
            })
            .collect();
        assert_eq!(table_rows(), golden);
    }

    #[test]
    fn the_error_table_equals_that_of_the_contract() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/api/partner-api.md");
        let Ok(contract) = std::fs::read_to_string(&path) else {
            #[expect(clippy::disallowed_methods, reason = "a switch of the test run, not of the service")]
            let required =
                std::env::var("REQUIRE_SHARED").is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
            assert!(!required, "{} is missing", path.display());
            println!("SKIPPED: {} is missing", path.display());
            return;
        };
        let section = contract.split("Defined errors:").nth(1).unwrap().split("A 504").next().unwrap();
        let mut rows: Vec<_> = section
            .lines()
            .filter_map(|line| {
                let mut cells = line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned());
                Some((cells.next()?.parse().ok()?, cells.next()?, cells.next()?))
            })
            .collect();
        rows.push((504, "GATEWAY_TIMEOUT".to_owned(), "Gateway Timeout".to_owned()));
        assert_eq!(table_rows(), rows);
    }
}
