package posenc

import (
	"context"
	"math"
	"os"
	"time"

	"google.golang.org/grpc/metadata"
)

// The largest message of protobuf: 2 GiB - 1.
const maxProtoBytes = math.MaxInt32

type dialOptions struct {
	timeout          time.Duration
	stuckTimeout     time.Duration
	maxMessageBytes  int64
	streamAbove      int64
	chunkBytes       int // of a stream's messages
	bulkConnections  int
	serviceConfig    string
	tls              *TLS
	token, tokenFile string
}

func defaultOptions() *dialOptions {
	return &dialOptions{
		timeout:         time.Minute,
		stuckTimeout:    10 * time.Second,
		maxMessageBytes: 512 << 20,      // the server's default, too
		chunkBytes:      4<<20 - 64<<10, // an answer stays below gRPC's 4 MiB
		serviceConfig:   ServiceConfig,
	}
}

// collect applies options in their order.
func collect[O ~func(*T), T any](to *T, options []O) *T {
	for _, option := range options {
		option(to)
	}
	return to
}

// DialOption is an option of a Client.
type DialOption func(*dialOptions)

// WithTimeout sets the deadline of calls whose context has none; for streams, the longest time without any progress. 0:
// none. The default is 60 s.
func WithTimeout(timeout time.Duration) DialOption {
	return func(o *dialOptions) { o.timeout = timeout }
}

// WithStuckTimeout sets the time after which a connection is closed if its peer does not read waiting bytes. A call
// whose deadline passes earlier returns only then, because the connection holds its tensors. The default is 10 s.
func WithStuckTimeout(timeout time.Duration) DialOption {
	return func(o *dialOptions) { o.stuckTimeout = timeout }
}

// WithMaxMessageBytes sets the largest size of a message, either way. Larger ones are neither sent nor received. At
// least 4 MiB, because the server cuts a stream's answers; at most 2 GiB - 1; the default is 512 MiB.
func WithMaxMessageBytes(bytes int64) DialOption {
	return func(o *dialOptions) { o.maxMessageBytes = bytes }
}

// WithStreamAbove sets the size above which tensors to rotate or reposition go through a stream. The default is the
// largest message. A lower value, such as 16 MiB, makes transfer overlap with computation.
func WithStreamAbove(bytes int64) DialOption { return func(o *dialOptions) { o.streamAbove = bytes } }

// WithBulkConnections sets the number of separate connections for calls of 64 KiB and more, for programs that make many
// such calls at a time. The default is 0: all calls share one connection.
func WithBulkConnections(count int) DialOption {
	return func(o *dialOptions) { o.bulkConnections = count }
}

// WithServiceConfig replaces gRPC's service config, which is JSON.
func WithServiceConfig(json string) DialOption {
	return func(o *dialOptions) { o.serviceConfig = json }
}

// WithTLS requires TLS for every connection.
func WithTLS(config TLS) DialOption { return func(o *dialOptions) { o.tls = &config } }

// WithToken sends a bearer token with every call. It needs TLS, or a target that is a unix socket or a loopback
// address.
func WithToken(token string) DialOption { return func(o *dialOptions) { o.token = token } }

// WithTokenFile is like WithToken, with a file that holds only the token. The file is read again when it changes.
func WithTokenFile(path string) DialOption { return func(o *dialOptions) { o.tokenFile = path } }

// DialFromEnv makes a client from the environment: POSENC_SERVER (default localhost:50051), POSENC_TLS=1 or
// POSENC_TLS_CA, POSENC_TLS_CERT, POSENC_TLS_KEY and POSENC_TLS_SERVER_NAME, POSENC_TOKEN or POSENC_TOKEN_FILE. Options
// override it.
func DialFromEnv(options ...DialOption) (*Client, error) {
	target := os.Getenv("POSENC_SERVER")
	if target == "" {
		target = "localhost:50051"
	}
	found := []DialOption{WithToken(os.Getenv("POSENC_TOKEN")), WithTokenFile(os.Getenv("POSENC_TOKEN_FILE"))}
	config := TLS{
		CAFile:     os.Getenv("POSENC_TLS_CA"),
		CertFile:   os.Getenv("POSENC_TLS_CERT"),
		KeyFile:    os.Getenv("POSENC_TLS_KEY"),
		ServerName: os.Getenv("POSENC_TLS_SERVER_NAME"),
	}
	if config != (TLS{}) || os.Getenv("POSENC_TLS") == "1" {
		found = append(found, WithTLS(config))
	}
	return NewClient(target, append(found, options...)...)
}

type callOptions struct {
	requestID   string
	traceparent string
	progress    func(done, total int64)
	outputs     []Tensor
	saturation  Saturation
}

// Option is an option of one call.
type Option func(*callOptions)

// RequestID names the call in the server's log; the default is random.
func RequestID(id string) Option { return func(o *callOptions) { o.requestID = id } }

// Traceparent is the W3C trace context of the caller.
func Traceparent(value string) Option { return func(o *callOptions) { o.traceparent = value } }

// Progress is called while a tensor or table goes through a stream, with bytes of all tensors together.
func Progress(report func(done, total int64)) Option {
	return func(o *callOptions) { o.progress = report }
}

// Into names the memory for a call's results, in the order of its tensors: q's, then k's. An output may be its input's
// memory. Without Into a Rope rotates in place, and other calls allocate memory.
func Into(outputs ...Tensor) Option { return func(o *callOptions) { o.outputs = outputs } }

// Saturate sets the treatment of results past the largest number of an FP8 type.
func Saturate(saturation Saturation) Option {
	return func(o *callOptions) { o.saturation = saturation }
}

func optionsOf(options []Option) *callOptions { return collect(&callOptions{}, options) }

// with puts the options into a call's metadata.
func (o *callOptions) with(ctx context.Context) context.Context {
	if o.requestID != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, requestIDKey, o.requestID)
	}
	if o.traceparent != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, traceparentKey, o.traceparent)
	}
	return ctx
}
