package posenc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

// Error is the error of every call, from the server, the connection or this library. errors.Is finds
// context.DeadlineExceeded and context.Canceled in it, and status.FromError finds its code and details.
type Error struct {
	Code       codes.Code
	Reason     string                                  // ErrorReason without its prefix, such as "FIELD_REQUIRED", or empty; branch on it
	Field      string                                  // the request's field that is at fault
	Metadata   map[string]string                       // facts that come with the reason: field, limitBytes, messageIndex, ...
	Violations []*errdetails.BadRequest_FieldViolation // all fields at fault, if the server found several
	RequestID  string                                  // the call's id in the server's log
	Message    string                                  // what is wrong, and how to fix it

	details []*anypb.Any
	cause   error
}

func (e *Error) Error() string { return fmt.Sprintf("posenc: %v: %s", e.Code, e.Message) }

// Unwrap returns the cause, if it is an error of the context or of a file.
func (e *Error) Unwrap() error { return e.cause }

// GRPCStatus makes status.FromError and status.Code work.
func (e *Error) GRPCStatus() *status.Status {
	return status.FromProto(&spb.Status{Code: int32(e.Code), Message: e.Message, Details: e.details})
}

func newError(code codes.Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), cause: errors.Unwrap(err)}
}

// wrongArgument returns the error of a wrong argument, which is found before anything is sent.
func wrongArgument(field, format string, args ...any) *Error {
	e := newError(codes.InvalidArgument, field+": "+format, args...)
	e.Field = field
	return e
}

// errorOf converts gRPC's error to an *Error; nil stays nil.
func (c *Client) errorOf(err error, method, requestID string) error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		e.RequestID = requestID
		return e
	}
	s := status.Convert(err)
	e = &Error{Code: s.Code(), Message: s.Message(), RequestID: requestID, details: s.Proto().GetDetails()}
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			e.Reason = strings.TrimPrefix(d.GetReason(), "ERROR_REASON_")
			e.Metadata = d.GetMetadata()
			e.Field = e.Metadata["field"]
		case *errdetails.BadRequest:
			e.Violations = d.GetFieldViolations()
		}
	}
	e.cause = map[codes.Code]error{
		codes.DeadlineExceeded: context.DeadlineExceeded,
		codes.Canceled:         context.Canceled,
	}[e.Code]
	switch {
	case e.Reason != "":
	case e.Code == codes.DeadlineExceeded:
		e.Message += "; the server is " + c.target + "; the timeout is over: is the server there, or must the timeout be longer?"
	case e.Code == codes.Unavailable && c.local != nil:
		e.Message += "; the server is " + c.target + c.local.whyGone()
	case e.Code == codes.Unavailable:
		e.Message += "; the server is " + c.target +
			"; is the server there, does it speak TLS or plaintext as this client does, and do both trust the certificates?"
	case e.Code == codes.Unimplemented && !strings.HasSuffix(method, "/GetServerInfo"):
		e.Message += "; the server is of another version than this client (" + Version + ")"
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if info, err := c.GetServerInfo(ctx); err == nil {
			e.Message += ": it is " + info.GetVersion()
		}
	}
	return e
}

// tooLarge returns whether smaller messages with the same tensor may succeed.
func tooLarge(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == codes.ResourceExhausted && e.Reason != "OVERLOADED"
}
