package posenc

import (
	"context"
	_ "embed"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/posenc/posenc/client/go/posencv1"
)

// Version is this client's.
const Version = "0.2.0"

// ServiceConfig is the default of WithServiceConfig: round robin over healthy
// servers, and up to four attempts for calls that end as UNAVAILABLE.
//
//go:embed service_config.json
var ServiceConfig string

// Client calls one server, or all servers of its target. It is safe for any
// number of goroutines.
type Client struct {
	channel *channel
	stub    posencv1.PositionalEncodingServiceClient
	options *dialOptions
	chunk   chunkSize
}

// Dial makes a client of the server at target: "localhost:50051",
// "dns:///posenc:50051", "unix:/run/posenc.sock". It does not wait for the
// network: if no server answers, the first call fails. Dial fails if options or
// their files are wrong.
func Dial(target string, options ...DialOption) (*Client, error) {
	o := &dialOptions{
		timeout:         time.Minute,
		stuckTimeout:    10 * time.Second,
		maxMessageBytes: defaultMaxMessageBytes,
		bulkConnections: 4,
		serviceConfig:   ServiceConfig,
	}
	for _, option := range options {
		if option != nil {
			option(o)
		}
	}
	o.maxMessageBytes = min(max(o.maxMessageBytes, 0), maxProtoBytes)
	if o.streamAboveBytes <= 0 || o.streamAboveBytes > o.maxMessageBytes {
		o.streamAboveBytes = o.maxMessageBytes
	}
	channel, err := newChannel(target, o)
	if err != nil {
		return nil, err
	}
	return &Client{
		channel: channel,
		stub:    posencv1.NewPositionalEncodingServiceClient(channel),
		options: o,
	}, nil
}

// Close ends all connections; running calls fail.
func (c *Client) Close() error {
	if c == nil {
		return nil
	}
	return c.channel.close()
}

// check returns an error if the client or the context is nil. A client is nil if
// Dial failed and its caller ignored the error.
func (c *Client) check(ctx context.Context) error {
	if c == nil {
		return wrongArgument("client", "is nil; Dial returned an error")
	}
	if ctx == nil {
		return wrongArgument("ctx", "is nil; must be a context")
	}
	return nil
}

// Stub returns the generated client over this client's connections. Its calls
// have request ids, default deadlines, announced sizes and *Error like all
// others, but copy tensors.
func (c *Client) Stub() posencv1.PositionalEncodingServiceClient { return c.stub }

// with puts a call's options into the context's outgoing metadata.
func (o *callOptions) with(ctx context.Context) context.Context {
	if o.requestID != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, requestIDKey, o.requestID)
	}
	if o.traceparent != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", o.traceparent)
	}
	return ctx
}

// plain makes a call whose messages have no large tensors.
func plain[Request, Response any](
	ctx context.Context, c *Client,
	method func(posencv1.PositionalEncodingServiceClient, context.Context, *Request, ...grpc.CallOption) (*Response, error),
	request *Request, options []Option,
) (*Response, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	return method(c.stub, collect(options).with(ctx), request)
}

// GetServerInfo returns the server's version, instruction set, limits and
// presets.
func (c *Client) GetServerInfo(ctx context.Context, options ...Option) (*posencv1.GetServerInfoResponse, error) {
	return plain(ctx, c, posencv1.PositionalEncodingServiceClient.GetServerInfo, &posencv1.GetServerInfoRequest{}, options)
}

// ResolveRope turns a preset, a config.json or a specification into exact
// frequencies, and says what was assumed. See Rope for calls that use them.
func (c *Client) ResolveRope(ctx context.Context, request *posencv1.ResolveRopeRequest, options ...Option) (*posencv1.ResolveRopeResponse, error) {
	return plain(ctx, c, posencv1.PositionalEncodingServiceClient.ResolveRope, request, options)
}

// AnalyzeRope returns wavelengths, long-term decay and similarity between
// positions, as numbers for plots.
func (c *Client) AnalyzeRope(ctx context.Context, request *posencv1.AnalyzeRopeRequest, options ...Option) (*posencv1.AnalyzeRopeResponse, error) {
	return plain(ctx, c, posencv1.PositionalEncodingServiceClient.AnalyzeRope, request, options)
}

// DiagnoseRope reads all descriptions of one checkpoint as each of its readers
// does, and says which readers disagree, from which distance on, and which key
// fixes it.
func (c *Client) DiagnoseRope(ctx context.Context, request *posencv1.DiagnoseRopeRequest, options ...Option) (*posencv1.DiagnoseRopeResponse, error) {
	return plain(ctx, c, posencv1.PositionalEncodingServiceClient.DiagnoseRope, request, options)
}

// BuildPositions builds position ids for batches that are packed, padded, split
// over devices, or mix text and images. Pass the answer's Positions to other
// calls unchanged.
func (c *Client) BuildPositions(ctx context.Context, request *posencv1.BuildPositionsRequest, options ...Option) (*posencv1.BuildPositionsResponse, error) {
	return plain(ctx, c, posencv1.PositionalEncodingServiceClient.BuildPositions, request, options)
}
