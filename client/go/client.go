// Package posenc calls a posenc server, which computes positional encodings: it rotates queries and keys (RoPE), moves
// cached keys to other positions, and builds tables, biases and position ids.
//
//	c, err := posenc.NewClient("localhost:50051")
//	rope, err := c.Rope(ctx, posenc.ConfigFile("config.json"))
//	err = rope.Apply(ctx, posenc.BSHD, posenc.StartAt(0),
//		posenc.Float32(q, 1, 1024, 32, 128), posenc.Float32(k, 1, 1024, 8, 128))
//
// A [Tensor] views the caller's memory. During a call other code must not write to its tensors, or read its outputs.
// Tensors of 64 KiB and more are sent from there without a copy. So no call returns, not even after its deadline, before
// the connection has released them; a peer that reads no bytes delays that by the time of [WithStuckTimeout].
//
// If a call ends with an error, its outputs may hold a part of the result. In place, a part of the tensor may then be
// rotated and the rest not, but only if the tensor was so large that it went through a stream.
package posenc

import (
	"context"
	_ "embed"
	"errors"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/posenc/posenc/client/go/posencv1"
)

// Version is this client's.
const Version = "0.2.0"

// ServiceConfig is the default of WithServiceConfig: round robin over healthy servers, and up to four attempts for
// calls that end as UNAVAILABLE.
//
//go:embed service_config.json
var ServiceConfig string

// Client calls one server, or all servers of its target. It is safe for any number of goroutines.
type Client struct {
	dialOptions
	target      string
	connections []*grpc.ClientConn // the first one is for small calls
	turn        atomic.Uint32      // of the others
	stub        posencv1.PositionalEncodingServiceClient
}

// NewClient makes a client of the server at target: "localhost:50051", "dns:///posenc:50051", "unix:/run/posenc.sock".
// It does not wait for the network: if no server answers, the first call fails. NewClient fails if options or their
// files are wrong.
func NewClient(target string, options ...DialOption) (*Client, error) {
	c := &Client{target: target, dialOptions: *collect(defaultOptions(), options)}
	c.maxMessageBytes = min(max(c.maxMessageBytes, 4<<20), maxProtoBytes)
	if c.streamAbove <= 0 || c.streamAbove > c.maxMessageBytes {
		c.streamAbove = c.maxMessageBytes
	}
	if target == "" || strings.HasPrefix(target, "http://") || strings.HasPrefix(target, "https://") {
		return nil, wrongArgument("target", "is %q; must be like localhost:50051; WithTLS is TLS", target)
	}
	dialing, err := c.dialing()
	if err != nil {
		return nil, err
	}
	for range 1 + max(c.bulkConnections, 0) {
		conn, err := grpc.NewClient(target, dialing...)
		if err != nil {
			return nil, wrongArgument("target", "%w", err)
		}
		c.connections = append(c.connections, conn)
	}
	c.stub = posencv1.NewPositionalEncodingServiceClient(c.connections[0])
	return c, nil
}

// Dial is NewClient.
//
// Deprecated: it goes with version 0.3.0.
func Dial(target string, options ...DialOption) (*Client, error) {
	return NewClient(target, options...)
}

// Close ends all connections; running calls fail.
func (c *Client) Close() error {
	var err error
	for _, conn := range c.connections {
		err = errors.Join(err, conn.Close())
	}
	return err
}

// Stub returns the generated client over this client's connection. Its calls have request ids, default deadlines,
// announced sizes and *Error like all others, but copy tensors.
func (c *Client) Stub() posencv1.PositionalEncodingServiceClient { return c.stub }

// GetServerInfo returns the server's version, instruction set, limits and presets.
func (c *Client) GetServerInfo(ctx context.Context, options ...Option) (*posencv1.GetServerInfoResponse, error) {
	return c.stub.GetServerInfo(optionsOf(options).with(ctx), &posencv1.GetServerInfoRequest{})
}

// ResolveRope turns a preset, a config.json or a specification into exact frequencies, and says what was assumed. See
// Rope for calls that use them.
func (c *Client) ResolveRope(ctx context.Context, request *posencv1.ResolveRopeRequest, options ...Option) (*posencv1.ResolveRopeResponse, error) {
	return c.stub.ResolveRope(optionsOf(options).with(ctx), request)
}

// AnalyzeRope returns wavelengths, long-term decay and similarity between positions, as numbers for plots.
func (c *Client) AnalyzeRope(ctx context.Context, request *posencv1.AnalyzeRopeRequest, options ...Option) (*posencv1.AnalyzeRopeResponse, error) {
	return c.stub.AnalyzeRope(optionsOf(options).with(ctx), request)
}

// DiagnoseRope reads all descriptions of one checkpoint as each of its readers does, and says which readers disagree,
// from which distance on, and which key fixes it.
func (c *Client) DiagnoseRope(ctx context.Context, request *posencv1.DiagnoseRopeRequest, options ...Option) (*posencv1.DiagnoseRopeResponse, error) {
	return c.stub.DiagnoseRope(optionsOf(options).with(ctx), request)
}

// BuildPositions builds position ids for batches that are packed, padded, split over devices, or mix text and images.
// Pass the answer's Positions to other calls unchanged.
func (c *Client) BuildPositions(ctx context.Context, request *posencv1.BuildPositionsRequest, options ...Option) (*posencv1.BuildPositionsResponse, error) {
	return c.stub.BuildPositions(optionsOf(options).with(ctx), request)
}
