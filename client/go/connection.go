package posenc

import (
	"context"
	"crypto/rand"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
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

	// Deadline of a stream whose only limit is progress. Without one the server would set its default.
	longestStream = 24 * time.Hour

	// Bytes that a connection reads and writes at once (gRPC's 32 KiB took a third more processor time with 64 MiB on
	// loopback), and windows so large that neither tensors nor answers wait for them.
	bufferBytes      = 256 << 10
	streamWindow     = 16 << 20
	connectionWindow = 64 << 20
)

// connection returns the one for a call of this size. Calls with tensors take the bulk connections in turn.
func (c *Client) connection(bytes int64) *grpc.ClientConn {
	if bulk := c.connections[1:]; bytes >= bulkFrom && len(bulk) > 0 {
		return bulk[int(c.turn.Add(1))%len(bulk)]
	}
	return c.connections[0]
}

func (c *Client) dialing() ([]grpc.DialOption, error) {
	security, err := c.transport(c.target)
	if err != nil {
		return nil, err
	}
	// A retry helps only after the connection was tried again, so this is the retries' first backoff, not gRPC's 1 s.
	reconnect := backoff.DefaultConfig
	reconnect.BaseDelay = 100 * time.Millisecond
	dialing := []grpc.DialOption{
		grpc.WithTransportCredentials(patient{security, c.stuckTimeout}),
		grpc.WithUserAgent("posenc-go/" + Version),
		grpc.WithDefaultServiceConfig(c.serviceConfig),
		grpc.WithDisableServiceConfig(), // DNS's config would cost a look-up
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 20 * time.Second}),
		// The timeout becomes TCP_USER_TIMEOUT, which ends connections to machines that are gone. gRPC sets it only if
		// it also sends pings; servers close connections that ping often, so it is one ping an hour.
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
			// A call that has sent more than this is not retried. gRPC's default of 256 KiB would exclude most tensors;
			// it keeps references, not copies.
			grpc.MaxRetryRPCBufferSize(int(c.maxMessageBytes)),
			grpc.ForceCodecV2(codec{encoding.GetCodecV2("proto")}),
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

// identify returns the call's request id, and makes one if it has none.
func identify(ctx context.Context) (context.Context, string) {
	sent, _ := metadata.FromOutgoingContext(ctx)
	if ids := sent.Get(requestIDKey); len(ids) > 0 {
		return ctx, ids[0]
	}
	id := rand.Text()
	return metadata.AppendToOutgoingContext(ctx, requestIDKey, id), id
}

// announce sends the size of a call's largest message.
func announce[N int | int64](ctx context.Context, bytes N) context.Context {
	return metadata.AppendToOutgoingContext(ctx, messageBytesKey, strconv.FormatInt(int64(bytes), 10))
}

// unary gives a call a request id, a deadline and an announced size, and translates its error. It is a
// grpc.UnaryClientInterceptor.
func (c *Client) unary(ctx context.Context, method string, request, response any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if _, set := ctx.Deadline(); !set && c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	ctx, id := identify(ctx)
	bytes := int64(0)
	if m, ok := request.(*sentMessage); ok {
		bytes = m.size()
	} else {
		bytes = int64(proto.Size(request.(proto.Message)))
	}
	if bytes > c.maxMessageBytes {
		return newError(codes.ResourceExhausted, "request: %d bytes; the limit is %d, split the batch", bytes, c.maxMessageBytes)
	}
	return c.errorOf(invoke(announce(ctx, bytes), method, request, response, conn, options...), method, id)
}

// stream is a gRPC stream that ends if it makes no progress.
type stream struct {
	grpc.ClientStream
	client     *Client
	method, id string
	cancel     context.CancelFunc
	watch      *time.Timer // nil: the caller has set a deadline
	stood      atomic.Bool
}

// stream does for streams what unary does, but announces no size. It is a grpc.StreamClientInterceptor.
func (c *Client) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, id := identify(ctx)
	s := &stream{client: c, method: method, id: id}
	_, set := ctx.Deadline()
	ctx, s.cancel = context.WithTimeout(ctx, longestStream)
	if !set && c.timeout > 0 {
		s.watch = time.AfterFunc(c.timeout, func() {
			s.stood.Store(true)
			s.cancel()
		})
	}
	var err error
	if s.ClientStream, err = open(ctx, desc, conn, method, options...); err != nil {
		return nil, s.progress(err)
	}
	return s, nil
}

// progress notes that a message went. With an error the stream has ended: it translates that; io.EOF stays.
func (s *stream) progress(err error) error {
	if err == nil {
		if s.watch != nil {
			s.watch.Reset(s.client.timeout)
		}
		return nil
	}
	if s.watch != nil {
		s.watch.Stop()
	}
	s.cancel()
	if err == io.EOF {
		return err
	}
	if s.stood.Load() {
		err = newError(codes.DeadlineExceeded, "the stream stood still for %v; the server is %s", s.client.timeout, s.client.target)
	}
	return s.client.errorOf(err, s.method, s.id)
}

// SendMsg is part of grpc.ClientStream. After an io.EOF, RecvMsg returns the error of the stream.
func (s *stream) SendMsg(message any) error {
	err := s.ClientStream.SendMsg(message)
	if err == io.EOF {
		return err
	}
	return s.progress(err)
}

// RecvMsg is part of grpc.ClientStream.
func (s *stream) RecvMsg(message any) error { return s.progress(s.ClientStream.RecvMsg(message)) }
