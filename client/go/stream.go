package posenc

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// Deadline of a stream whose only limit is progress. Without a deadline the
// server would set its default.
const longestStream = 24 * time.Hour

// stream is a gRPC stream that ends if it makes no progress.
type stream struct {
	grpc.ClientStream
	client     *Client
	method, id string
	cancel     context.CancelFunc
	watch      *time.Timer // nil: the caller has set a deadline
	stood      atomic.Bool
}

// stream does for streams what unary does, but announces no size. It is a
// grpc.StreamClientInterceptor.
func (c *Client) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, id, err := identify(ctx, 0)
	if err != nil {
		return nil, err
	}
	s := &stream{client: c, method: method, id: id}
	if _, set := ctx.Deadline(); set {
		ctx, s.cancel = context.WithCancel(ctx)
	} else {
		ctx, s.cancel = context.WithTimeout(ctx, longestStream)
		if c.timeout > 0 {
			s.watch = time.AfterFunc(c.timeout, func() {
				s.stood.Store(true)
				s.cancel()
			})
		}
	}
	if s.ClientStream, err = open(ctx, desc, conn, method, options...); err != nil {
		return nil, s.progress(err)
	}
	return s, nil
}

// progress notes that a message went. With an error the stream has ended: it
// translates that; io.EOF stays.
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

// SendMsg is part of grpc.ClientStream. After an io.EOF, RecvMsg returns the
// error of the stream.
func (s *stream) SendMsg(message any) error {
	err := s.ClientStream.SendMsg(message)
	if err == io.EOF {
		return err
	}
	return s.progress(err)
}

// RecvMsg is part of grpc.ClientStream.
func (s *stream) RecvMsg(message any) error { return s.progress(s.ClientStream.RecvMsg(message)) }
