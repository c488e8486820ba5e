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
	channel   *channel
	conn      *grpc.ClientConn
	release   func()
	method    string
	requestID string
	cancel    context.CancelFunc
	patience  time.Duration // 0: unlimited
	watch     *time.Timer
	stood     atomic.Bool
	received  atomic.Int64
}

// NewStream is part of grpc.ClientConnInterface.
func (c *channel) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.open(ctx, desc, method, options...)
}

func (c *channel) open(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (*stream, error) {
	ctx, id, err := identify(ctx)
	if err != nil {
		return nil, err
	}
	conn, release, err := c.connection(bulkFrom)
	if err != nil {
		return nil, err
	}
	s := &stream{channel: c, conn: conn, release: release, method: method, requestID: id}
	if _, set := ctx.Deadline(); set {
		ctx, s.cancel = context.WithCancel(ctx)
	} else {
		s.patience = c.options.timeout
		ctx, s.cancel = context.WithTimeout(ctx, longestStream)
	}
	if s.patience > 0 {
		s.watch = time.AfterFunc(s.patience, func() {
			s.stood.Store(true)
			s.cancel()
		})
	}
	if s.ClientStream, err = conn.NewStream(ctx, desc, method, options...); err != nil {
		return nil, s.end(err)
	}
	return s, nil
}

// moved notes progress.
func (s *stream) moved() {
	if s.watch != nil {
		s.watch.Reset(s.patience)
	}
}

// end translates the error with which the stream ended; io.EOF stays.
func (s *stream) end(err error) error {
	if s.watch != nil {
		s.watch.Stop()
	}
	s.cancel()
	s.release()
	if err == io.EOF {
		return err
	}
	if s.stood.Load() {
		err = newError(codes.DeadlineExceeded, "the stream stood still for %v after %d responses; the server is %s",
			s.patience, s.received.Load(), s.channel.target)
	}
	err = errorOf(err, s.channel.target, s.requestID)
	return s.channel.explain(context.Background(), s.method, err)
}

// SendMsg is part of grpc.ClientStream. After an io.EOF, RecvMsg returns the
// error of the stream.
func (s *stream) SendMsg(message any) error {
	err := s.ClientStream.SendMsg(message)
	if err == nil {
		s.moved()
	} else if err != io.EOF {
		err = s.end(err)
	}
	return err
}

// RecvMsg is part of grpc.ClientStream.
func (s *stream) RecvMsg(message any) error {
	if err := s.ClientStream.RecvMsg(message); err != nil {
		return s.end(err)
	}
	s.received.Add(1)
	s.moved()
	return nil
}
