package posenc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/posenc/posenc/client/go/posencrpc"
)

// Error is the error of every call, from the server, the connection or this
// library. It has a gRPC status for status.FromError, and is
// context.DeadlineExceeded or context.Canceled for errors.Is if that was the
// cause.
type Error struct {
	// Code is gRPC's name of the code, such as "INVALID_ARGUMENT".
	Code string
	// Reason is the ErrorReason without its prefix, such as "FIELD_REQUIRED":
	// branch on it. Empty if the server gave none.
	Reason string
	// Field is the request's field at fault, if any.
	Field string
	// Metadata is ErrorInfo's metadata: field, limitBytes, messageIndex, ...
	Metadata map[string]string
	// Violations are all fields at fault, if the server found several.
	Violations []Violation
	// RequestID is the call's id in the server's log.
	RequestID string
	// Message says what is wrong and how to fix it.
	Message string

	code codes.Code
}

// Violation is one field at fault.
type Violation struct{ Field, Description string }

func (e *Error) Error() string { return "posenc: " + e.Code + ": " + e.Message }

// GRPCStatus makes status.FromError and status.Code work.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.code, e.Message) }

// Is makes errors.Is know the context's own errors.
func (e *Error) Is(target error) bool {
	return target == context.DeadlineExceeded && e.code == codes.DeadlineExceeded ||
		target == context.Canceled && e.code == codes.Canceled
}

var codeNames = map[codes.Code]string{
	codes.OK: "OK", codes.Canceled: "CANCELLED", codes.Unknown: "UNKNOWN",
	codes.InvalidArgument: "INVALID_ARGUMENT", codes.DeadlineExceeded: "DEADLINE_EXCEEDED",
	codes.NotFound: "NOT_FOUND", codes.AlreadyExists: "ALREADY_EXISTS",
	codes.PermissionDenied: "PERMISSION_DENIED", codes.ResourceExhausted: "RESOURCE_EXHAUSTED",
	codes.FailedPrecondition: "FAILED_PRECONDITION", codes.Aborted: "ABORTED",
	codes.OutOfRange: "OUT_OF_RANGE", codes.Unimplemented: "UNIMPLEMENTED",
	codes.Internal: "INTERNAL", codes.Unavailable: "UNAVAILABLE",
	codes.DataLoss: "DATA_LOSS", codes.Unauthenticated: "UNAUTHENTICATED",
}

func newError(code codes.Code, format string, args ...any) *Error {
	name, known := codeNames[code]
	if !known {
		name = fmt.Sprintf("CODE(%d)", code)
	}
	return &Error{Code: name, Message: fmt.Sprintf(format, args...), code: code}
}

// wrongArgument is an error of a call's arguments, found before anything is
// sent.
func wrongArgument(field, format string, args ...any) *Error {
	e := newError(codes.InvalidArgument, "%s: "+format, append([]any{field}, args...)...)
	e.Field = field
	return e
}

// errorOf converts gRPC's error to an *Error; nil stays nil.
func errorOf(err error, target, requestID string) error {
	if err == nil {
		return nil
	}
	var known *Error
	if errors.As(err, &known) {
		if known.RequestID == "" {
			known.RequestID = requestID
		}
		return known
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = status.FromContextError(err).Err()
	}
	s, _ := status.FromError(err)
	e := newError(s.Code(), "%s", s.Message())
	// Round robin's text for a name without an address.
	if s.Code() == codes.Unavailable && s.Message() == "no children to pick from" {
		e.Message = "no address was found for the name"
	}
	e.RequestID = requestID
	e.readDetails(s)
	if e.Reason == "" && (e.code == codes.Unavailable || e.code == codes.DeadlineExceeded) {
		e.Message += "; the server is " + target
	}
	return e
}

// readDetails reads the details of a google.rpc.Status.
func (e *Error) readDetails(s *status.Status) {
	for _, detail := range s.Proto().GetDetails() {
		_, name, _ := strings.Cut(detail.GetTypeUrl(), "/")
		switch name {
		case "google.rpc.ErrorInfo":
			var info posencrpc.ErrorInfo
			if proto.Unmarshal(detail.GetValue(), &info) == nil {
				e.Reason = strings.TrimPrefix(info.GetReason(), "ERROR_REASON_")
				e.Metadata = info.GetMetadata()
				e.Field = e.Metadata["field"]
			}
		case "google.rpc.BadRequest":
			var request posencrpc.BadRequest
			if proto.Unmarshal(detail.GetValue(), &request) == nil {
				for _, v := range request.GetFieldViolations() {
					e.Violations = append(e.Violations, Violation{v.GetField(), v.GetDescription()})
				}
			}
		}
	}
}

// outside makes fields of an error relative to the message at path. Other
// errors do not change.
func outside(path string, err error) error {
	var e *Error
	if !errors.As(err, &e) || !strings.HasPrefix(e.Field, path+".") {
		return err
	}
	short := func(text string) string {
		return strings.ReplaceAll(" "+text, " "+path+".", " ")[1:]
	}
	e.Message = short(e.Message)
	e.Field = short(e.Field)
	if e.Metadata["field"] != "" {
		e.Metadata["field"] = e.Field
	}
	for i := range e.Violations {
		e.Violations[i].Field = short(e.Violations[i].Field)
	}
	return err
}

// tooLarge returns whether the same tensor may pass in smaller messages.
func tooLarge(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.code == codes.ResourceExhausted && e.Reason != "OVERLOADED"
}
