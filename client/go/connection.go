package posenc

import (
	"context"
	"crypto/rand"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/health" // the service config's health check
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

const (
	requestIDKey    = "x-request-id"
	traceparentKey  = "traceparent"
	messageBytesKey = "posenc-message-bytes"

	// Smaller calls gain nothing from a separate connection.
	bulkFrom = 64 << 10

	// Bytes that a connection reads and writes at once (gRPC's 32 KiB took a third
	// more processor time with 64 MiB on loopback), and windows so large that
	// neither tensors nor answers wait for them.
	bufferBytes      = 256 << 10
	streamWindow     = 16 << 20
	connectionWindow = 64 << 20
)

// connection is a gRPC connection that counts its running calls with tensors.
type connection struct {
	*grpc.ClientConn
	calls atomic.Int64
}

// connection returns the one for a call whose larger message has this size.
// Tensors take that with the fewest calls, so that a program that makes one call
// at a time uses one.
func (c *Client) connection(bytes int64) *connection {
	best := c.connections[0]
	if bytes < bulkFrom || len(c.connections) == 1 {
		return best
	}
	best = c.connections[1]
	for _, other := range c.connections[2:] {
		if other.calls.Load() < best.calls.Load() {
			best = other
		}
	}
	return best
}

var longPort = regexp.MustCompile(`:([0-9]{5,})(?:,|$)`)

// checkTarget refuses schemes that gRPC does not know, and impossible ports.
// gRPC would report these only in calls, as if the server did not answer.
func checkTarget(target string) error {
	if target == "" {
		return wrongArgument("target", "is missing; such as localhost:50051")
	}
	for _, scheme := range []string{"http://", "https://"} {
		if rest, found := strings.CutPrefix(target, scheme); found {
			return wrongArgument("target", "%s: must be %s, without %s; WithTLS is TLS", target, rest, scheme)
		}
	}
	if strings.HasPrefix(target, "unix") {
		return nil
	}
	for _, found := range longPort.FindAllStringSubmatch(target, -1) {
		if _, err := strconv.ParseUint(found[1], 10, 16); err != nil {
			return wrongArgument("target", "%s: port %s; must be 1 to 65535", target, found[1])
		}
	}
	return nil
}

func (c *Client) dialing() ([]grpc.DialOption, error) {
	security, err := c.transport(c.target)
	if err != nil {
		return nil, err
	}
	// A retry helps only after the connection was tried again, so this is the
	// retries' first backoff, not gRPC's 1 s.
	reconnect := backoff.DefaultConfig
	reconnect.BaseDelay = 100 * time.Millisecond
	dialing := []grpc.DialOption{
		grpc.WithTransportCredentials(patient{security, c.stuckTimeout}),
		grpc.WithUserAgent("posenc-go/" + Version),
		grpc.WithDefaultServiceConfig(c.serviceConfig),
		grpc.WithDisableServiceConfig(), // DNS's config would cost a look-up
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 20 * time.Second}),
		// The timeout becomes TCP_USER_TIMEOUT, which ends connections to machines
		// that are gone. gRPC sets it only if it also sends pings; servers close
		// connections that ping often, so it is one ping an hour.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Hour, Timeout: c.stuckTimeout}),
		grpc.WithReadBufferSize(bufferBytes),
		grpc.WithWriteBufferSize(bufferBytes),
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(connectionWindow),
		grpc.WithUnaryInterceptor(c.unary),
		grpc.WithStreamInterceptor(c.stream),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(int(c.maxMessageBytes)),
			grpc.MaxCallSendMsgSize(int(c.maxMessageBytes)),
			// A call that has sent more than this is not retried. gRPC's default of 256
			// KiB would exclude most tensors; it keeps references, not copies.
			grpc.MaxRetryRPCBufferSize(int(c.maxMessageBytes)),
			grpc.ForceCodecV2(newCodec()),
		),
	}
	if c.token != "" || c.tokenFile != "" {
		token, err := newBearer(c.token, c.tokenFile)
		if err != nil {
			return nil, err
		}
		dialing = append(dialing, grpc.WithPerRPCCredentials(token))
	}
	return dialing, nil
}

// patient ends a connection whose peer takes no bytes for this time.
type patient struct {
	credentials.TransportCredentials
	timeout time.Duration
}

// ClientHandshake is part of credentials.TransportCredentials.
func (p patient) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return p.TransportCredentials.ClientHandshake(ctx, authority, patientConn{conn, p.timeout})
}

// Clone is part of credentials.TransportCredentials.
func (p patient) Clone() credentials.TransportCredentials {
	return patient{p.TransportCredentials.Clone(), p.timeout}
}

type patientConn struct {
	net.Conn
	timeout time.Duration
}

func (p patientConn) Write(bytes []byte) (int, error) {
	if err := p.SetWriteDeadline(time.Now().Add(p.timeout)); err != nil {
		return 0, err
	}
	return p.Conn.Write(bytes)
}

// identify returns the call's request id, and makes one if it has none. It
// announces the size of the message, unless that is 0 or announced. It fails if
// the id or the trace context cannot be sent.
func identify(ctx context.Context, bytes int64) (context.Context, string, error) {
	sent, _ := metadata.FromOutgoingContext(ctx)
	ids := sent.Get(requestIDKey)
	if !printable(ids...) {
		return ctx, "", wrongArgument("request_id", "must be of visible ASCII characters")
	}
	if !printable(sent.Get(traceparentKey)...) {
		return ctx, "", wrongArgument("traceparent", "must be of visible ASCII characters")
	}
	if bytes > 0 && len(sent.Get(messageBytesKey)) == 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, messageBytesKey, strconv.FormatInt(bytes, 10))
	}
	if len(ids) > 0 {
		return ctx, ids[0], nil
	}
	id := rand.Text()
	return metadata.AppendToOutgoingContext(ctx, requestIDKey, id), id, nil
}

// printable returns whether headers can carry these texts.
func printable(texts ...string) bool {
	for _, text := range texts {
		for _, c := range []byte(text) {
			if c < ' ' || c > '~' {
				return false
			}
		}
	}
	return true
}

func messageBytes(message any) int64 {
	switch m := message.(type) {
	case *sentMessage:
		return m.size()
	case proto.Message:
		return int64(proto.Size(m))
	default:
		return 0
	}
}

// unary gives a call a request id, a deadline and an announced size, and
// translates its error. It is a grpc.UnaryClientInterceptor.
func (c *Client) unary(ctx context.Context, method string, request, response any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if _, set := ctx.Deadline(); !set && c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	bytes := messageBytes(request)
	ctx, id, err := identify(ctx, bytes)
	if err == nil && bytes > c.maxMessageBytes {
		err = newError(codes.ResourceExhausted, "request: %d bytes; the limit is %d, split the batch", bytes, c.maxMessageBytes)
	}
	if err == nil {
		err = invoke(ctx, method, request, response, conn, options...)
	}
	return c.errorOf(err, method, id)
}
