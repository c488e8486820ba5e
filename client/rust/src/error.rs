//! The one error of all calls.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt;

use prost::Message;
use tonic::Status;
use tonic::metadata::MetadataMap;

pub use crate::v1::ErrorReason as Reason;
pub use tonic::Code;

/// Why a call failed: the server's code and text, which says field, fact and remedy, or the client's own.
///
/// Branch on [`reason`](Error::reason) and [`field`](Error::field), never on the text.
#[derive(Clone, PartialEq)]
pub struct Error(Box<Inner>);

#[derive(Clone, PartialEq)]
struct Inner {
    code: Code,
    message: String,
    reason: String,
    metadata: HashMap<String, String>,
    request_id: String,
    /// Whether the server was not reached, or went away: another may answer.
    connection: bool,
    /// How long the server asks retries to wait, in milliseconds; negative if there should be none.
    pushback: Option<i64>,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            code,
            message: message.into(),
            reason: String::new(),
            metadata: HashMap::new(),
            request_id: String::new(),
            connection: false,
            pushback: None,
        }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// A mistake in one field, or argument.
    pub(crate) fn invalid_field(field: &str, fact: impl fmt::Display) -> Self {
        let mut error = Self::invalid(format!("{field}: {fact}"));
        error.0.metadata.insert("field".to_owned(), field.to_owned());
        error
    }

    /// An answer that does not fit its request.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }

    /// The gRPC status code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The code as gRPC writes it: `INVALID_ARGUMENT`.
    pub fn code_name(&self) -> &'static str {
        match self.0.code {
            Code::Ok => "OK",
            Code::Cancelled => "CANCELLED",
            Code::Unknown => "UNKNOWN",
            Code::InvalidArgument => "INVALID_ARGUMENT",
            Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Code::NotFound => "NOT_FOUND",
            Code::AlreadyExists => "ALREADY_EXISTS",
            Code::PermissionDenied => "PERMISSION_DENIED",
            Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Code::FailedPrecondition => "FAILED_PRECONDITION",
            Code::Aborted => "ABORTED",
            Code::OutOfRange => "OUT_OF_RANGE",
            Code::Unimplemented => "UNIMPLEMENTED",
            Code::Internal => "INTERNAL",
            Code::Unavailable => "UNAVAILABLE",
            Code::DataLoss => "DATA_LOSS",
            Code::Unauthenticated => "UNAUTHENTICATED",
        }
    }

    /// The server's reason; `None` if it gave none, or one that is newer than this client.
    pub fn reason(&self) -> Option<Reason> {
        Reason::from_str_name(&format!("{REASON_PREFIX}{}", self.0.reason))
    }

    /// The reason's name without its prefix, `FIELD_REQUIRED`; empty if there is none.
    pub fn reason_name(&self) -> &str {
        &self.0.reason
    }

    /// The field of the request that is at fault, `rope.spec.rotary_dim`.
    pub fn field(&self) -> Option<&str> {
        self.0.metadata.get("field").map(String::as_str)
    }

    /// What goes with the reason: sizes, limits, indices.
    pub fn metadata(&self) -> &HashMap<String, String> {
        &self.0.metadata
    }

    /// The request id that the call carried, by which the server's log knows it. Empty if nothing was sent.
    pub fn request_id(&self) -> &str {
        &self.0.request_id
    }

    /// The text without the code.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub(crate) fn with_request_id(mut self, request_id: &str) -> Self {
        self.0.request_id = request_id.to_owned();
        self
    }

    pub(crate) fn with_text(mut self, message: String) -> Self {
        self.0.message = message;
        self
    }

    pub(crate) fn with_code(mut self, code: Code) -> Self {
        self.0.code = code;
        self
    }

    /// Whether it is about arguments of which nothing has been sent.
    pub(crate) fn is_own_finding(&self) -> bool {
        self.0.code == Code::InvalidArgument && self.0.request_id.is_empty()
    }

    /// Whether the server shares no memory with this client, so that bytes have to be sent.
    pub(crate) fn wants_bytes(&self) -> bool {
        // An older server does not know the fields.
        matches!(self.0.reason.as_str(), "SHARED_MEMORY_UNAVAILABLE" | "FIELD_UNKNOWN")
            && matches!(self.0.code, Code::Unimplemented | Code::PermissionDenied)
    }

    /// The error of a call that replaces tensors in shared memory.
    pub(crate) fn of_replacing(self, names: &str) -> Self {
        // These the server gives before it writes anything.
        let untouched =
            [Code::InvalidArgument, Code::NotFound, Code::PermissionDenied, Code::Aborted, Code::Unimplemented];
        if untouched.contains(&self.0.code) {
            return self;
        }
        let told = "may have been rotated by then, in part or whole: write it anew";
        let text = format!("{}; {names} {told}", self.0.message);
        self.with_text(text)
    }

    /// The same error with fields named from inside the message at `path`: `table.rows` becomes `rows`.
    pub(crate) fn outside_of(mut self, path: &str) -> Self {
        if !self.field().is_some_and(|field| field.starts_with(&format!("{path}."))) {
            return self;
        }
        let short = |text: &str| format!(" {text}").replace(&format!(" {path}."), " ")[1..].to_owned();
        if let Some(field) = self.0.metadata.get_mut("field") {
            *field = short(field);
        }
        let text = short(&self.0.message);
        self.with_text(text)
    }

    pub(crate) fn is_connection(&self) -> bool {
        self.0.connection
    }

    pub(crate) fn pushback(&self) -> Option<i64> {
        self.0.pushback
    }

    /// Whether a message was over a limit, of the server's or the client's: a stream may do.
    pub(crate) fn is_too_large(&self) -> bool {
        self.0.code == Code::ResourceExhausted && self.0.reason != "OVERLOADED"
    }

    /// The error that trailers tell; `None` if they say OK.
    pub(crate) fn of_trailers(trailers: &http::HeaderMap) -> Option<Self> {
        // tonic panics over details that are not base64, so they are taken out first.
        let mut rest = trailers.clone();
        rest.remove(DETAILS);
        let status = Status::from_header_map(&rest)?;
        if status.code() == Code::Ok {
            return None;
        }
        let mut error = Self::new(status.code(), status.message());
        let metadata = MetadataMap::from_headers(trailers.clone());
        error.0.pushback = trailers.get("grpc-retry-pushback-ms").and_then(|value| value.to_str().ok()?.parse().ok());
        if let Some(details) = metadata.get_bin(DETAILS).and_then(|value| value.to_bytes().ok()) {
            error.read_details(&details);
        }
        Some(error)
    }

    fn read_details(&mut self, details: &[u8]) {
        let Ok(status) = RpcStatus::decode(details) else { return };
        for detail in status.details {
            if detail.type_url != ERROR_INFO {
                continue;
            }
            if let Ok(info) = ErrorInfo::decode(detail.value.as_slice()) {
                self.0.reason = info.reason.strip_prefix(REASON_PREFIX).unwrap_or(&info.reason).to_owned();
                self.0.metadata = info.metadata;
            }
        }
    }

    /// What HTTP says if gRPC says nothing; the codes are those of gRPC's own mapping.
    pub(crate) fn of_http(status: http::StatusCode) -> Self {
        let code = match status.as_u16() {
            400 => Code::Internal,
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            404 => Code::Unimplemented,
            429 | 502 | 503 | 504 => Code::Unavailable,
            _ => Code::Unknown,
        };
        Self::new(code, format!("HTTP status {status} instead of a gRPC answer"))
    }

    /// A connection that could not be made, or broke.
    pub(crate) fn of_transport(error: &(dyn StdError + 'static)) -> Self {
        let mut text = String::new();
        let mut cause = Some(error);
        while let Some(error) = cause {
            // tonic reads the header by which the server learns the deadline, and keeps it too.
            if error.is::<tonic::TimeoutExpired>() {
                return Self::new(Code::DeadlineExceeded, "no answer within the timeout");
            }
            let fact = error.to_string();
            // Wrappers often repeat what they hold.
            if !text.contains(&fact) {
                text += if text.is_empty() { "" } else { ": " };
                text += &fact;
            }
            cause = error.source();
        }
        let mut error = Self::new(Code::Unavailable, text);
        error.0.connection = true;
        error
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code_name(), self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} (reason {:?}, {:?}, request {})", self.0.reason, self.0.metadata, self.0.request_id)
    }
}

impl StdError for Error {}

const DETAILS: &str = "grpc-status-details-bin";
const REASON_PREFIX: &str = "ERROR_REASON_";
const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";

// As much of google.rpc as errors need.

#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(map = "string, string", tag = "3")]
    metadata: HashMap<String, String>,
}
