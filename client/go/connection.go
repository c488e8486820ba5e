package posenc

import (
	"cmp"
	"context"
	"crypto/rand"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
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

	// Deadline of a stream whose only limit is progress. Without one the server would set its default.
	longestStream = 24 * time.Hour

	// Bytes that a connection reads and writes at once (gRPC's 32 KiB took a third more processor time with 64 MiB on
	// loopback), and windows so large that neither tensors nor answers wait for them.
	bufferBytes      = 256 << 10
	streamWindow     = 16 << 20
	connectionWindow = 64 << 20
)

func (c *Client) dialing() ([]grpc.DialOption, error) {
	transport, token, err := c.security(c.target)
	if err != nil {
		return nil, err
	}
	// A retry helps only after the connection was tried again, so this is the retries' first backoff, not gRPC's 1 s.
	reconnect := backoff.DefaultConfig
	reconnect.BaseDelay = 100 * time.Millisecond
	dialing := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithUserAgent("posenc-go/" + Version),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithDisableServiceConfig(), // DNS's config would cost a look-up
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 20 * time.Second}),
		// On Linux the timeout becomes TCP_USER_TIMEOUT, which ends connections to machines that are gone, and to peers
		// that read nothing. gRPC sets it only if it also sends pings; servers close connections that ping often, so it
		// is one ping an hour.
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
	if token != nil {
		dialing = append(dialing, grpc.WithPerRPCCredentials(token))
	}
	return dialing, nil
}

// begin returns the context of a call with its metadata, and its id.
func begin(ctx context.Context, options []Option) (context.Context, string) {
	o := optionsOf(options)
	id := cmp.Or(o.requestID, rand.Text())
	if o.traceparent != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, traceparentKey, o.traceparent)
	}
	return metadata.AppendToOutgoingContext(ctx, requestIDKey, id), id
}

// announce sends the size of a call's largest message.
func announce(ctx context.Context, bytes int) context.Context {
	return metadata.AppendToOutgoingContext(ctx, messageBytesKey, strconv.Itoa(bytes))
}

// unary gives a call its metadata, a deadline and an announced size, and translates its error. It is a
// grpc.UnaryClientInterceptor.
func (c *Client) unary(ctx context.Context, method string, request, response any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...Option) error {
	if _, set := ctx.Deadline(); !set && c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	ctx, id := begin(ctx, options)
	sent, size := &lentMessage{request.(proto.Message), &loans{}}, proto.Size(request.(proto.Message))
	err := invoke(announce(ctx, size), method, sent, response, conn, options...)
	if size >= lendFrom {
		sent.loans.recall(c.stuckTimeout)
	}
	return c.errorOf(err, method, id)
}

// stream is a gRPC stream that ends if it makes no progress.
type stream struct {
	grpc.ClientStream
	client     *Client
	method, id string
	end        context.CancelFunc
	idle       time.Duration // the longest time without progress
	watch      *time.Timer
	stood      atomic.Bool
}

// stream does for streams what unary does, but announces no size. It is a grpc.StreamClientInterceptor.
func (c *Client) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...Option) (grpc.ClientStream, error) {
	ctx, id := begin(ctx, options)
	s := &stream{client: c, method: method, id: id, idle: c.timeout}
	if _, set := ctx.Deadline(); set || c.timeout <= 0 {
		s.idle = longestStream
	}
	ctx, s.end = context.WithTimeout(ctx, longestStream)
	s.watch = time.AfterFunc(s.idle, func() {
		s.stood.Store(true)
		s.end()
	})
	var err error
	if s.ClientStream, err = open(ctx, desc, conn, method, options...); err != nil {
		return nil, s.progress(err)
	}
	return s, nil
}

// progress notes that a message went. With an error the stream has ended: it translates that; io.EOF stays.
func (s *stream) progress(err error) error {
	if err == nil {
		s.watch.Reset(s.idle)
		return nil
	}
	s.watch.Stop()
	s.end()
	if err == io.EOF {
		return err
	}
	if s.stood.Load() {
		err = newError(codes.DeadlineExceeded, "the stream stood still for %v; the server is %s", s.idle, s.client.target)
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
