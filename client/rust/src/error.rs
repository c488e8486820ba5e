//! The error of all calls.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt;

use http::{HeaderMap, StatusCode};
use tonic::Status;
use tonic::metadata::MetadataMap;
use tonic_types::StatusExt;

pub use crate::v1::ErrorReason as Reason;
pub use tonic::Code;

/// The error of a failed call, from the server or from the client. The text names the field and the fault, and says how
/// to fix the mistake.
///
/// Branch on [`reason`](Error::reason) and [`field`](Error::field), never on the text.
#[derive(Clone, PartialEq)]
pub struct Error(pub(crate) Box<Inner>);

#[derive(Clone, PartialEq)]
pub(crate) struct Inner {
    pub code: Code,
    pub message: String,
    reason: String,
    metadata: HashMap<String, String>,
    pub request_id: String,
    /// Whether the server could not be reached, or the connection broke. Another server may then answer.
    pub connection: bool,
    /// The wait before a retry that the server asks for, in milliseconds. The value is negative if the server forbids
    /// retries.
    pub pushback: Option<i64>,
}

/// The result of a call.
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

    /// Returns the error of a mistake in one field or argument.
    pub(crate) fn invalid_field(field: &str, fact: impl fmt::Display) -> Self {
        let mut error = Self::new(Code::InvalidArgument, format!("{field}: {fact}"));
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
    pub fn code_name(&self) -> String {
        let mut name = String::new();
        for letter in format!("{:?}", self.0.code).chars() {
            if letter.is_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.push(letter.to_ascii_uppercase());
        }
        name
    }

    /// Returns the server's reason, or `None` if the server gave no reason, or a reason that this client does not know.
    pub fn reason(&self) -> Option<Reason> {
        Reason::from_str_name(&self.0.reason)
    }

    /// Returns the reason's name without its prefix, such as `FIELD_REQUIRED`, or an empty text without a reason.
    pub fn reason_name(&self) -> &str {
        self.0.reason.strip_prefix("ERROR_REASON_").unwrap_or(&self.0.reason)
    }

    /// Returns the request's field at fault, such as `rope.spec.rotary_dim`.
    pub fn field(&self) -> Option<&str> {
        self.0.metadata.get("field").map(String::as_str)
    }

    /// Returns the facts that come with the reason: sizes, limits, indices.
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

    /// Renames the field in the error of a table's stream to the field of the unary request: `table.rows` becomes
    /// `rows`.
    pub(crate) fn of_table(mut self) -> Self {
        if let Some(field) = self.field().and_then(|field| Some(field.strip_prefix("table.")?.to_owned())) {
            let message = self.0.message.strip_prefix("table.").unwrap_or(&self.0.message);
            self.0.message = message.replace(" table.", " ");
            self.0.metadata.insert("field".to_owned(), field);
        }
        self
    }

    /// Returns whether a message was over the server's or the client's limit. If it was, a stream may succeed.
    pub(crate) fn is_too_large(&self) -> bool {
        self.0.code == Code::ResourceExhausted && self.reason() != Some(Reason::Overloaded)
    }

    /// Returns whether the server refused shared memory: it maps no memory of this caller, or is too old.
    pub(crate) fn refuses_places(&self) -> bool {
        matches!(self.reason(), Some(Reason::SharedMemoryUnavailable | Reason::FieldUnknown))
            && matches!(self.0.code, Code::Unimplemented | Code::PermissionDenied)
    }

    /// Returns the error in trailers, or `None` if the trailers have the status OK, or no status.
    pub(crate) fn of_trailers(trailers: &HeaderMap) -> Option<Self> {
        const DETAILS: &str = "grpc-status-details-bin";
        // tonic panics on details that are not base64, so the details are decoded separately.
        let mut rest = trailers.clone();
        rest.remove(DETAILS);
        let status = Status::from_header_map(&rest).filter(|status| status.code() != Code::Ok)?;
        let metadata = MetadataMap::from_headers(trailers.clone());
        let details = metadata.get_bin(DETAILS).and_then(|value| value.to_bytes().ok()).unwrap_or_default();
        let mut error = Self::new(status.code(), status.message());
        if let Some(info) = Status::with_details(status.code(), "", details).get_details_error_info() {
            (error.0.reason, error.0.metadata) = (info.reason, info.metadata);
        }
        error.0.pushback = trailers.get("grpc-retry-pushback-ms").and_then(|value| value.to_str().ok()?.parse().ok());
        Some(error)
    }

    /// Returns the error of an HTTP status without a gRPC status. gRPC defines the code for each HTTP status.
    pub(crate) fn of_http(status: StatusCode) -> Self {
        let code = match status.as_u16() {
            400 => Code::Internal,
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            404 => Code::Unimplemented,
            429 | 502..=504 => Code::Unavailable,
            _ => Code::Unknown,
        };
        Self::new(code, format!("HTTP status {status} instead of a gRPC answer"))
    }

    /// Returns the error of a connection that failed or broke.
    pub(crate) fn of_transport(error: &(dyn StdError + 'static)) -> Self {
        let mut text = String::new();
        let mut cause = Some(error);
        while let Some(error) = cause {
            // tonic reads the deadline from the request's header, and enforces it, too.
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
        write!(f, "{self} (reason {:?}, {:?}, request {})", self.reason_name(), self.0.metadata, self.0.request_id)
    }
}

impl StdError for Error {}
