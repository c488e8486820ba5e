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
	"math"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/posenc/posenc/client/go/posencv1"
)

// Version is this client's.
const Version = "0.2.0"

// Round robin over healthy servers, and up to four attempts for calls that end as UNAVAILABLE.
//
//go:embed service_config.json
var serviceConfig string

// Client calls one server, or all servers of its target. It is safe for any number of goroutines.
type Client struct {
	// Calls without tensors: ResolveRope, BuildPositions, AnalyzeRope and DiagnoseRope, which the contract describes.
	posencv1.PositionalEncodingServiceClient

	config
	target string
	conn   *grpc.ClientConn
}

// NewClient makes a client of the server at target: "localhost:50051", "dns:///posenc:50051", "unix:/run/posenc.sock".
// It does not wait for the network: if no server answers, the first call fails. NewClient fails if options or their
// files are wrong.
func NewClient(target string, options ...DialOption) (*Client, error) {
	c := &Client{target: target, config: config{
		timeout:         time.Minute,
		stuckTimeout:    10 * time.Second,
		maxMessageBytes: 512 << 20, // the server's default, too
		streamAbove:     math.MaxInt64,
		chunkBytes:      4<<20 - 64<<10, // an answer stays below gRPC's 4 MiB
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

// Dial is NewClient.
//
// Deprecated: it goes with version 0.3.0.
func Dial(target string, options ...DialOption) (*Client, error) {
	return NewClient(target, options...)
}

// Close ends the connection; running calls fail.
func (c *Client) Close() error { return c.conn.Close() }

// Stub returns the generated client over this client's connection. Its calls have options, request ids, default
// deadlines, announced sizes and *Error like all others, but copy tensors.
func (c *Client) Stub() posencv1.PositionalEncodingServiceClient {
	return c.PositionalEncodingServiceClient
}

// GetServerInfo returns the server's version, instruction set, limits and presets.
func (c *Client) GetServerInfo(ctx context.Context, options ...Option) (*posencv1.GetServerInfoResponse, error) {
	return c.Stub().GetServerInfo(ctx, &posencv1.GetServerInfoRequest{}, options...)
}
