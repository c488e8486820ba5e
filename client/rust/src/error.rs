//! The error of all calls.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt;

use prost::Message;
use tonic::Status;
use tonic::metadata::MetadataMap;

pub use crate::v1::ErrorReason as Reason;
pub use tonic::Code;

/// The error of a failed call: code and text of the server or the client. The text has field, fact and remedy.
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
    /// Whether the server was not reached, or disconnected: another may answer.
    connection: bool,
    /// The server's wait for retries in milliseconds; negative if it forbids them.
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

    /// Returns the error of a mistake in one field or argument.
    pub(crate) fn invalid_field(field: &str, fact: impl fmt::Display) -> Self {
        let mut error = Self::invalid(format!("{field}: {fact}"));
        error.0.metadata.insert("field".to_owned(), field.to_owned());
        error
    }

    /// Returns the error of an answer that does not fit its request.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }

    /// Returns the gRPC status code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Returns gRPC's name of the code, such as `INVALID_ARGUMENT`.
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

    /// Returns the server's reason; `None` if it gave none, or one that this client does not know.
    pub fn reason(&self) -> Option<Reason> {
        Reason::from_str_name(&format!("{REASON_PREFIX}{}", self.0.reason))
    }

    /// Returns the reason's name without its prefix, such as `FIELD_REQUIRED`; empty without a reason.
    pub fn reason_name(&self) -> &str {
        &self.0.reason
    }

    /// Returns the request's field at fault, such as `rope.spec.rotary_dim`.
    pub fn field(&self) -> Option<&str> {
        self.0.metadata.get("field").map(String::as_str)
    }

    /// Returns the reason's facts: sizes, limits, indices.
    pub fn metadata(&self) -> &HashMap<String, String> {
        &self.0.metadata
    }

    /// Returns the call's request id, which the server logs. Empty if nothing was sent.
    pub fn request_id(&self) -> &str {
        &self.0.request_id
    }

    /// Returns the text without the code.
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

    /// Returns whether the client found the mistake before it sent anything.
    pub(crate) fn is_own_finding(&self) -> bool {
        self.0.code == Code::InvalidArgument && self.0.request_id.is_empty()
    }

    /// Returns whether bytes must be sent, because the server shares no memory with this client.
    pub(crate) fn wants_bytes(&self) -> bool {
        // An older server does not know the fields.
        matches!(self.0.reason.as_str(), "SHARED_MEMORY_UNAVAILABLE" | "FIELD_UNKNOWN")
            && matches!(self.0.code, Code::Unimplemented | Code::PermissionDenied)
    }

    /// Returns the error of a call that replaces tensors in shared memory.
    pub(crate) fn of_replacing(self, names: &str) -> Self {
        // The server returns these errors before it writes anything.
        let untouched =
            [Code::InvalidArgument, Code::NotFound, Code::PermissionDenied, Code::Aborted, Code::Unimplemented];
        if untouched.contains(&self.0.code) {
            return self;
        }
        let told = "may have been rotated by then, in part or whole: write it anew";
        let text = format!("{}; {names} {told}", self.0.message);
        self.with_text(text)
    }

    /// Returns the same error with fields relative to the message at `path`: `table.rows` becomes `rows`.
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

    /// Returns whether a message was over the server's or the client's limit: a stream may work.
    pub(crate) fn is_too_large(&self) -> bool {
        self.0.code == Code::ResourceExhausted && self.0.reason != "OVERLOADED"
    }

    /// Returns the error in trailers; `None` if they say OK.
    pub(crate) fn of_trailers(trailers: &http::HeaderMap) -> Option<Self> {
        // tonic panics on details that are not base64, so they are removed first.
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

    /// Returns the error of an HTTP status without a gRPC status, by gRPC's own mapping.
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

    /// Returns the error of a connection that could not be made, or broke.
    pub(crate) fn of_transport(error: &(dyn StdError + 'static)) -> Self {
        let mut text = String::new();
        let mut cause = Some(error);
        while let Some(error) = cause {
            // tonic also enforces the deadline, which it reads from the header for the server.
            if error.is::<tonic::TimeoutExpired>() {
                return Self::new(Code::DeadlineExceeded, "no answer within the timeout");
            }
            let fact = error.to_string();
            // Wrappers often repeat the text of the inner error.
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

// The parts of google.rpc that errors need.

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
