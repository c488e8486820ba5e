// Package posenc calls a posenc server, which computes positional encodings: it rotates queries and keys (RoPE), moves
// cached keys to other positions, and builds tables, biases and position ids.
//
//	c, err := posenc.NewClient("localhost:50051")
//	rope, err := c.Rope(ctx, posenc.ConfigFile("config.json"))
//	err = rope.Apply(ctx, posenc.BSHD, posenc.StartAt(0),
//		posenc.Float32(q, 1, 1024, 32, 128), posenc.Float32(k, 1, 1024, 8, 128))
//
// A [Tensor] views the caller's memory. During a call other code must not write to its tensors, or read its outputs.
// Tensors of 64 KiB and more are sent from this memory without a copy. So no call returns before the connection has
// released its tensors, not even after its deadline. If the peer does not read, the wait takes up to
// [WithStuckTimeout].
//
// If a call ends with an error, its outputs may hold a part of the result. A tensor that was rotated in place through a
// stream may be partly rotated.
package posenc

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"math"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/posenc/posenc/client/go/posencv1"
)

// Version is the version of this client.
const Version = "0.2.0"

// serviceConfig asks for round robin over healthy servers, and four attempts for calls that fail with UNAVAILABLE.
//
//go:embed service_config.json
var serviceConfig string

// Client calls one server, or all servers of its target. Any number of goroutines may use a Client.
type Client struct {
	// Calls without tensors: ResolveRope, BuildPositions, AnalyzeRope and DiagnoseRope. The contract explains each.
	posencv1.PositionalEncodingServiceClient

	config
	target string
	conn   *grpc.ClientConn
	local  *localServer // nil unless Local made this client
}

// NewClient makes a client of the server at target: "localhost:50051", "dns:///posenc:50051", "unix:/run/posenc.sock".
// NewClient fails if an option or its file is wrong. It does not wait for the network: if there is no server, the first
// call fails.
func NewClient(target string, options ...DialOption) (*Client, error) {
	c := &Client{target: target, config: config{
		timeout:         time.Minute,
		stuckTimeout:    10 * time.Second,
		maxMessageBytes: 512 << 20, // the server's default, too
		streamAbove:     math.MaxInt64,
		chunkBytes:      4<<20 - 64<<10, // so an answer stays below gRPC's default limit, 4 MiB
	}}
	collect(&c.config, options)
	c.maxMessageBytes = min(max(c.maxMessageBytes, 4<<20), math.MaxInt32) // protobuf's largest: 2 GiB - 1
	if target == "" || strings.HasPrefix(target, "http://") || strings.HasPrefix(target, "https://") {
		return nil, wrongArgument("target", "is %q; must be like localhost:50051; WithTLS is TLS", target)
	}
	dialing, err := c.dialing()
	if err != nil {
		return nil, err
	}
	if c.conn, err = grpc.NewClient(target, dialing...); err != nil {
		return nil, wrongArgument("target", "%w", err)
	}
	c.PositionalEncodingServiceClient = posencv1.NewPositionalEncodingServiceClient(c.conn)
	return c, nil
}

// Dial does the same as NewClient.
//
// Deprecated: version 0.3.0 removes it.
func Dial(target string, options ...DialOption) (*Client, error) {
	return NewClient(target, options...)
}

// Close ends the connection, and the server that Local started; running calls fail.
func (c *Client) Close() error {
	err := c.conn.Close()
	if c.local != nil {
		err = errors.Join(err, c.local.stop())
	}
	return err
}

// Stub returns the generated client over this client's connection. Like the methods of Client, its methods take
// options, send request ids, have default deadlines and return *Error. Its unary calls announce their size, and do not
// copy the tensors that they send.
func (c *Client) Stub() posencv1.PositionalEncodingServiceClient {
	return c.PositionalEncodingServiceClient
}

// GetServerInfo returns the server's version, instruction set, limits and presets.
func (c *Client) GetServerInfo(ctx context.Context, options ...Option) (*posencv1.GetServerInfoResponse, error) {
	return c.Stub().GetServerInfo(ctx, &posencv1.GetServerInfoRequest{}, options...)
}

type config struct {
	timeout          time.Duration
	stuckTimeout     time.Duration
	maxMessageBytes  int64
	streamAbove      int64
	chunkBytes       int // size of the elements in a stream's message
	tls              *TLS
	token, tokenFile string
}

// collect applies options in their order.
func collect[O ~func(*T), T any](to *T, options []O) *T {
	for _, option := range options {
		option(to)
	}
	return to
}

// DialOption is an option of a Client.
type DialOption func(*config)

// WithTimeout sets the timeout of unary calls whose context has no deadline. For streams, the timeout is the longest
// time without progress. The default is 60 s.
func WithTimeout(timeout time.Duration) DialOption { return func(c *config) { c.timeout = timeout } }

// WithStuckTimeout sets the time after which a TCP connection is closed (on Linux) if its peer does not read waiting
// bytes. After its deadline, a call waits at most about this long for the connection to release its tensors. The
// default is 10 s.
func WithStuckTimeout(timeout time.Duration) DialOption {
	return func(c *config) { c.stuckTimeout = timeout }
}

// WithMaxMessageBytes sets the largest size of a message. The client neither sends nor receives larger messages. The
// smallest value is 4 MiB, the size of a stream's answers; the largest is 2 GiB - 1; the default is 512 MiB.
func WithMaxMessageBytes(bytes int64) DialOption {
	return func(c *config) { c.maxMessageBytes = bytes }
}

// WithStreamAbove sets the size of a message above which ApplyRope and Reposition use a stream. The default is the
// largest size of a message. With a lower value, such as 16 MiB, transfer and computation overlap.
func WithStreamAbove(bytes int64) DialOption { return func(c *config) { c.streamAbove = bytes } }

// WithTLS requires TLS for every connection.
func WithTLS(files TLS) DialOption { return func(c *config) { c.tls = &files } }

// WithToken sends a bearer token with every call. A token needs TLS, or a unix socket or loopback address as the
// target.
func WithToken(token string) DialOption { return func(c *config) { c.token = token } }

// WithTokenFile is like WithToken, with a file that holds only the token. The file is read again when it changes.
func WithTokenFile(path string) DialOption { return func(c *config) { c.tokenFile = path } }

// DialFromEnv makes a client from POSENC_SERVER (default localhost:50051), POSENC_TLS=1 or POSENC_TLS_CA, _CERT, _KEY
// and _SERVER_NAME, and POSENC_TOKEN or POSENC_TOKEN_FILE. Options override them.
func DialFromEnv(options ...DialOption) (*Client, error) {
	env := os.Getenv
	found := []DialOption{WithToken(env("POSENC_TOKEN")), WithTokenFile(env("POSENC_TOKEN_FILE"))}
	files := TLS{env("POSENC_TLS_CA"), env("POSENC_TLS_CERT"), env("POSENC_TLS_KEY"), env("POSENC_TLS_SERVER_NAME")}
	if files != (TLS{}) || env("POSENC_TLS") == "1" {
		found = append(found, WithTLS(files))
	}
	return NewClient(cmp.Or(env("POSENC_SERVER"), "localhost:50051"), append(found, options...)...)
}

// Option is an option of one call: an option of this package, or a call option of gRPC.
type Option = grpc.CallOption

type settings struct {
	requestID   string
	traceparent string
	progress    func(done, total int64)
	outputs     []Tensor
	saturation  Saturation
	blocks      BlockFormat
}

type option struct {
	grpc.EmptyCallOption
	set func(*settings)
}

// RequestID names the call in the server's log; the default is random.
func RequestID(id string) Option { return option{set: func(o *settings) { o.requestID = id }} }

// Traceparent is the W3C trace context of the caller.
func Traceparent(value string) Option {
	return option{set: func(o *settings) { o.traceparent = value }}
}

// Progress sets a function that is called while a tensor or table goes through a stream. The function gets the numbers
// of bytes of all tensors together.
func Progress(report func(done, total int64)) Option {
	return option{set: func(o *settings) { o.progress = report }}
}

// Into names the memory for a call's results, in the order of its tensors: for q, then for k. An output may be the
// memory of its own input. Without Into a Rope rotates in place, and other calls allocate memory.
func Into(outputs ...Tensor) Option {
	return option{set: func(o *settings) { o.outputs = outputs }}
}

// Saturate sets the treatment of results that are larger than the largest number of a type of 8 bits.
func Saturate(saturation Saturation) Option {
	return option{set: func(o *settings) { o.saturation = saturation }}
}

// Blocks sets the format of the blocks whose bytes are the keys of Reposition.
func Blocks(format BlockFormat) Option {
	return option{set: func(o *settings) { o.blocks = format }}
}

func optionsOf(options []Option) *settings {
	o := &settings{}
	for _, given := range options {
		if own, ok := given.(option); ok {
			own.set(o)
		}
	}
	return o
}
