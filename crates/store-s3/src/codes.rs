//! The table that maps error codes of S3 to error kinds of the library.

use ferrata_store::ErrorKind;

/// The outcome of a refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalKind {
    /// The request had no effect, and would fail again.
    Refused,
    /// The request had no effect, and may succeed later.
    Busy,
    /// The outcome is unknown.
    Unsure,
    /// The condition of a write does not hold.
    Lost,
    /// Two conditional writes collided, and the server decided neither.
    Undecided,
    /// The object does not exist.
    Absent,
}

/// The error kind for the caller, and the outcome of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CodeVerdict {
    pub(crate) sort: RefusalKind,
    pub(crate) kind: ErrorKind,
    pub(crate) remedy: &'static str,
}

const fn refused(kind: ErrorKind, remedy: &'static str) -> CodeVerdict {
    CodeVerdict { sort: RefusalKind::Refused, kind, remedy }
}

const fn busy(remedy: &'static str) -> CodeVerdict {
    CodeVerdict { sort: RefusalKind::Busy, kind: ErrorKind::Unavailable, remedy }
}

const fn unsure(remedy: &'static str) -> CodeVerdict {
    CodeVerdict { sort: RefusalKind::Unsure, kind: ErrorKind::Unavailable, remedy }
}

/// Returns the verdict for a refusal. It depends on the code, or on the status if the code is missing or unknown: an answer to HEAD has no code,
/// and servers invent codes.
pub(crate) fn verdict(code: &str, status: u16) -> CodeVerdict {
    use ErrorKind::{Invalid, TooLarge, Unavailable, Unsupported};
    match code {
        "NoSuchKey" | "NotFound" if status == 404 => CodeVerdict {
            sort: RefusalKind::Absent,
            kind: ErrorKind::NotFound,
            remedy: "the object does not exist",
        },
        "NoSuchBucket" => refused(Invalid, "create the bucket, or use another one in the URL"),
        "InvalidBucketName" => refused(Invalid, "use a valid bucket name"),
        "AccessDenied" | "AllAccessDisabled" | "Forbidden" => refused(
            Invalid,
            "grant these credentials permission to get, put, delete and list objects under the prefix",
        ),
        "AccountProblem" | "NotSignedUp" => refused(Invalid, "settle the account with the provider"),
        "InvalidAccessKeyId" | "InvalidClientTokenId" | "InvalidToken" => {
            refused(Invalid, "the access key is unknown to the server; set valid credentials")
        }
        "SignatureDoesNotMatch" => refused(
            Invalid,
            "the secret key is wrong, or a proxy changes requests; correct the key or the proxy",
        ),
        "ExpiredToken" | "TokenRefreshRequired" | "RequestExpired" => {
            busy("the credentials have expired; renew them, then retry")
        }
        "RequestTimeTooSkewed" => {
            busy("the clocks of this machine and the server differ by too much; set them, then retry")
        }
        "MissingSecurityHeader" | "CredentialsNotSupported" | "MissingAuthenticationToken" => {
            refused(Invalid, "the request had no credentials; set them")
        }
        "PermanentRedirect"
        | "TemporaryRedirect"
        | "AuthorizationHeaderMalformed"
        | "IllegalLocationConstraintException"
        | "IncorrectEndpoint" => {
            refused(Invalid, "the bucket is in another region or at another endpoint; correct the URL")
        }
        "SlowDown" | "Throttling" | "ThrottlingException" | "RequestLimitExceeded" | "TooManyRequests" => {
            busy("the server throttles requests; retry with backoff")
        }
        "ServiceUnavailable" | "Busy" => busy("the server is overloaded; retry with backoff"),
        "RequestTimeout" => {
            busy("the server timed out waiting for the request; check the network, and retry")
        }
        "XAmzContentSHA256Mismatch" | "BadDigest" | "InvalidDigest" | "IncompleteBody" => {
            busy("the request was damaged in transit; retry")
        }
        "InternalError" | "InternalServerError" => unsure("the server had an internal error; retry"),
        "PreconditionFailed" => CodeVerdict {
            sort: RefusalKind::Lost,
            kind: ErrorKind::Conflict,
            remedy: "another writer changed the object; load the run, and decide again",
        },
        "ConditionalRequestConflict" | "OperationAborted" => CodeVerdict {
            sort: RefusalKind::Undecided,
            kind: Unavailable,
            remedy: "two conditional writes conflicted, and neither succeeded; retry",
        },
        "EntityTooLarge" | "MaxMessageLengthExceeded" => {
            refused(TooLarge, "the server rejects objects of this size; write fewer or smaller records")
        }
        "KeyTooLongError" | "KeyTooLong" => {
            refused(Invalid, "the server rejects keys of this length; use a shorter prefix or run id")
        }
        "InvalidURI" | "InvalidObjectName" => {
            refused(Invalid, "the server rejects this key; use a prefix of letters and digits")
        }
        "NotImplemented" | "MethodNotAllowed" => {
            refused(Unsupported, "the server lacks this operation; use a server with conditional writes")
        }
        "InvalidObjectState" => {
            busy("the object was archived; restore it, and exclude the prefix from archiving")
        }
        "QuotaExceeded" | "XMinioStorageFull" | "InsufficientStorage" => {
            busy("no space is left; free space, or raise the quota")
        }
        _ => by_status(status),
    }
}

fn by_status(status: u16) -> CodeVerdict {
    match status {
        301 | 302 | 307 | 308 => verdict("PermanentRedirect", status),
        403 => verdict("AccessDenied", status),
        404 => verdict("NoSuchKey", status),
        405 | 501 => verdict("NotImplemented", status),
        409 => verdict("OperationAborted", status),
        412 => verdict("PreconditionFailed", status),
        413 => verdict("EntityTooLarge", status),
        429 => verdict("SlowDown", status),
        503 => verdict("ServiceUnavailable", status),
        507 => verdict("QuotaExceeded", status),
        400..=499 => refused(
            ErrorKind::Invalid,
            "the server rejected the request as invalid; the code names the cause",
        ),
        _ => verdict("InternalError", status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known codes, each with its status.
    const TABLE: &[(&str, u16, RefusalKind, ErrorKind)] = &[
        ("NoSuchKey", 404, RefusalKind::Absent, ErrorKind::NotFound),
        ("NotFound", 404, RefusalKind::Absent, ErrorKind::NotFound),
        ("NoSuchBucket", 404, RefusalKind::Refused, ErrorKind::Invalid),
        ("InvalidBucketName", 400, RefusalKind::Refused, ErrorKind::Invalid),
        ("AccessDenied", 403, RefusalKind::Refused, ErrorKind::Invalid),
        ("AllAccessDisabled", 403, RefusalKind::Refused, ErrorKind::Invalid),
        ("Forbidden", 403, RefusalKind::Refused, ErrorKind::Invalid),
        ("AccountProblem", 403, RefusalKind::Refused, ErrorKind::Invalid),
        ("NotSignedUp", 403, RefusalKind::Refused, ErrorKind::Invalid),
        ("InvalidAccessKeyId", 403, RefusalKind::Refused, ErrorKind::Invalid),
        ("InvalidClientTokenId", 403, RefusalKind::Refused, ErrorKind::Invalid),
        ("InvalidToken", 400, RefusalKind::Refused, ErrorKind::Invalid),
        ("SignatureDoesNotMatch", 403, RefusalKind::Refused, ErrorKind::Invalid),
        ("ExpiredToken", 400, RefusalKind::Busy, ErrorKind::Unavailable),
        ("TokenRefreshRequired", 400, RefusalKind::Busy, ErrorKind::Unavailable),
        ("RequestExpired", 400, RefusalKind::Busy, ErrorKind::Unavailable),
        ("RequestTimeTooSkewed", 403, RefusalKind::Busy, ErrorKind::Unavailable),
        ("MissingSecurityHeader", 400, RefusalKind::Refused, ErrorKind::Invalid),
        ("CredentialsNotSupported", 400, RefusalKind::Refused, ErrorKind::Invalid),
        ("MissingAuthenticationToken", 403, RefusalKind::Refused, ErrorKind::Invalid),
        ("PermanentRedirect", 301, RefusalKind::Refused, ErrorKind::Invalid),
        ("TemporaryRedirect", 307, RefusalKind::Refused, ErrorKind::Invalid),
        ("AuthorizationHeaderMalformed", 400, RefusalKind::Refused, ErrorKind::Invalid),
        ("IllegalLocationConstraintException", 400, RefusalKind::Refused, ErrorKind::Invalid),
        ("IncorrectEndpoint", 400, RefusalKind::Refused, ErrorKind::Invalid),
        ("SlowDown", 503, RefusalKind::Busy, ErrorKind::Unavailable),
        ("Throttling", 400, RefusalKind::Busy, ErrorKind::Unavailable),
        ("ThrottlingException", 400, RefusalKind::Busy, ErrorKind::Unavailable),
        ("RequestLimitExceeded", 503, RefusalKind::Busy, ErrorKind::Unavailable),
        ("TooManyRequests", 429, RefusalKind::Busy, ErrorKind::Unavailable),
        ("ServiceUnavailable", 503, RefusalKind::Busy, ErrorKind::Unavailable),
        ("Busy", 503, RefusalKind::Busy, ErrorKind::Unavailable),
        ("RequestTimeout", 400, RefusalKind::Busy, ErrorKind::Unavailable),
        ("XAmzContentSHA256Mismatch", 400, RefusalKind::Busy, ErrorKind::Unavailable),
        ("BadDigest", 400, RefusalKind::Busy, ErrorKind::Unavailable),
        ("InvalidDigest", 400, RefusalKind::Busy, ErrorKind::Unavailable),
        ("IncompleteBody", 400, RefusalKind::Busy, ErrorKind::Unavailable),
        ("InternalError", 500, RefusalKind::Unsure, ErrorKind::Unavailable),
        ("InternalServerError", 500, RefusalKind::Unsure, ErrorKind::Unavailable),
        ("PreconditionFailed", 412, RefusalKind::Lost, ErrorKind::Conflict),
        ("ConditionalRequestConflict", 409, RefusalKind::Undecided, ErrorKind::Unavailable),
        ("OperationAborted", 409, RefusalKind::Undecided, ErrorKind::Unavailable),
        ("EntityTooLarge", 400, RefusalKind::Refused, ErrorKind::TooLarge),
        ("MaxMessageLengthExceeded", 400, RefusalKind::Refused, ErrorKind::TooLarge),
        ("KeyTooLongError", 400, RefusalKind::Refused, ErrorKind::Invalid),
        ("KeyTooLong", 400, RefusalKind::Refused, ErrorKind::Invalid),
        ("InvalidURI", 400, RefusalKind::Refused, ErrorKind::Invalid),
        ("InvalidObjectName", 400, RefusalKind::Refused, ErrorKind::Invalid),
        ("NotImplemented", 501, RefusalKind::Refused, ErrorKind::Unsupported),
        ("MethodNotAllowed", 405, RefusalKind::Refused, ErrorKind::Unsupported),
        ("InvalidObjectState", 403, RefusalKind::Busy, ErrorKind::Unavailable),
        ("QuotaExceeded", 403, RefusalKind::Busy, ErrorKind::Unavailable),
        ("XMinioStorageFull", 507, RefusalKind::Busy, ErrorKind::Unavailable),
        ("InsufficientStorage", 507, RefusalKind::Busy, ErrorKind::Unavailable),
        // Without a known code, the status decides.
        ("", 301, RefusalKind::Refused, ErrorKind::Invalid),
        ("", 302, RefusalKind::Refused, ErrorKind::Invalid),
        ("", 307, RefusalKind::Refused, ErrorKind::Invalid),
        ("", 308, RefusalKind::Refused, ErrorKind::Invalid),
        ("", 400, RefusalKind::Refused, ErrorKind::Invalid),
        ("", 403, RefusalKind::Refused, ErrorKind::Invalid),
        ("", 404, RefusalKind::Absent, ErrorKind::NotFound),
        ("", 405, RefusalKind::Refused, ErrorKind::Unsupported),
        ("", 409, RefusalKind::Undecided, ErrorKind::Unavailable),
        ("", 412, RefusalKind::Lost, ErrorKind::Conflict),
        ("", 413, RefusalKind::Refused, ErrorKind::TooLarge),
        ("Odd", 418, RefusalKind::Refused, ErrorKind::Invalid),
        ("Odd", 429, RefusalKind::Busy, ErrorKind::Unavailable),
        ("Odd", 500, RefusalKind::Unsure, ErrorKind::Unavailable),
        ("", 501, RefusalKind::Refused, ErrorKind::Unsupported),
        ("", 502, RefusalKind::Unsure, ErrorKind::Unavailable),
        ("", 503, RefusalKind::Busy, ErrorKind::Unavailable),
        ("", 504, RefusalKind::Unsure, ErrorKind::Unavailable),
        ("", 507, RefusalKind::Busy, ErrorKind::Unavailable),
        ("", 599, RefusalKind::Unsure, ErrorKind::Unavailable),
    ];

    #[test]
    fn every_code_has_its_verdict() {
        for (code, status, sort, kind) in TABLE {
            let found = verdict(code, *status);
            assert_eq!((found.sort, found.kind), (*sort, *kind), "{code} with {status}");
            assert!(!found.remedy.is_empty() && !found.remedy.ends_with('.'), "{code}");
        }
    }

    #[test]
    fn only_status_404_means_missing_object() {
        // A proxy may send any status with any text.
        assert_eq!(verdict("NotFound", 500).sort, RefusalKind::Unsure);
    }
}
