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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

const (
	requestIDKey    = "x-request-id"
	traceparentKey  = "traceparent"
	messageBytesKey = "posenc-message-bytes"

	// Deadline of a stream whose only limit is progress. Without one the server would set its default.
	longestStream = 24 * time.Hour
)

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
