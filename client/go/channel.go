package posenc

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/health" // the service config's health check
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/posenc/posenc/client/go/posencv1"
)

const (
	requestIDKey    = "x-request-id"
	messageBytesKey = "posenc-message-bytes"

	// Smaller calls gain nothing from a separate connection.
	bulkFrom = 64 << 10

	// How long a connection may take to release a call's buffers before it counts
	// as stuck.
	grace = 200 * time.Millisecond

	// How long the request for the server's version may take, for an
	// UNIMPLEMENTED.
	explainTimeout = 2 * time.Second
)

// channel holds the client's connections. Generated code calls it, and it gives
// every call a connection, a deadline, a request id and an announced size, and
// translates the error.
type channel struct {
	target  string
	options *dialOptions
	dial    []grpc.DialOption

	mutex  sync.Mutex
	small  *grpc.ClientConn
	once   *grpc.ClientConn   // without retries; nil until it is needed
	bulk   []*grpc.ClientConn // nil until it is needed
	calls  []int              // running calls on each of bulk
	turn   int                // index after the last used one of bulk
	closed bool
}

// Bytes that a connection for tensors reads and writes at once (gRPC's 32 KiB took
// a third more processor time with 64 MiB on loopback), and windows so large that
// neither chunks nor answers wait for them.
const (
	bulkBuffer           = 256 << 10
	bulkStreamWindow     = 16 << 20
	bulkConnectionWindow = 64 << 20
)

func bulkDialing() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithReadBufferSize(bulkBuffer),
		grpc.WithWriteBufferSize(bulkBuffer),
		grpc.WithInitialWindowSize(bulkStreamWindow),
		grpc.WithInitialConnWindowSize(bulkConnectionWindow),
	}
}

func newChannel(target string, o *dialOptions) (*channel, error) {
	if target == "" {
		return nil, wrongArgument("target", "is missing; such as localhost:50051")
	}
	if err := checkTarget(target); err != nil {
		return nil, err
	}
	security, err := transport(target, o)
	if err != nil {
		return nil, err
	}
	c := &channel{target: target, options: o, dial: dialing(o, security)}
	if o.token != "" || o.tokenFile != "" {
		token, err := newBearer(o)
		if err != nil {
			return nil, err
		}
		c.dial = append(c.dial, grpc.WithPerRPCCredentials(token))
	}
	if c.small, err = grpc.NewClient(target, c.dial...); err != nil {
		return nil, wrongArgument("target", "%v", err)
	}
	c.bulk = make([]*grpc.ClientConn, max(o.bulkConnections, 0))
	c.calls = make([]int, len(c.bulk))
	return c, nil
}

var longPort = regexp.MustCompile(`:([0-9]{5,})(?:,|$)`)

// checkTarget refuses schemes that gRPC does not know, and impossible ports.
// gRPC would report these only in calls, as if the server did not answer.
func checkTarget(target string) error {
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

func dialing(o *dialOptions, security credentials.TransportCredentials) []grpc.DialOption {
	// A retry helps only after the connection was tried again, so this is the
	// retries' first backoff, not gRPC's 1 s.
	reconnect := backoff.DefaultConfig
	reconnect.BaseDelay = 100 * time.Millisecond
	return []grpc.DialOption{
		grpc.WithTransportCredentials(security),
		grpc.WithUserAgent("posenc-go/" + Version),
		grpc.WithDefaultServiceConfig(o.serviceConfig),
		grpc.WithDisableServiceConfig(), // DNS's config would cost a look-up
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 20 * time.Second}),
		// The timeout becomes TCP_USER_TIMEOUT, which ends connections whose peer
		// reads no bytes. gRPC sets it only if it also sends pings; servers close
		// connections that ping often, so it is one ping an hour.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Hour, Timeout: o.stuckTimeout}),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(int(o.maxMessageBytes)),
			grpc.MaxCallSendMsgSize(int(o.maxMessageBytes)),
			// A call that has sent more than this is not retried. gRPC's default of 256
			// KiB would exclude most tensors; it keeps references, not copies.
			grpc.MaxRetryRPCBufferSize(int(o.maxMessageBytes)),
			grpc.ForceCodecV2(newCodec()),
		),
	}
}

// single returns the connection for calls that must not be sent again: in gRPC,
// retries are an option of the connection.
func (c *channel) single() (*grpc.ClientConn, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.closed {
		return nil, newError(codes.Canceled, "the client is closed")
	}
	var err error
	if c.once == nil {
		c.once, err = grpc.NewClient(c.target, append([]grpc.DialOption{grpc.WithDisableRetry()}, c.dial...)...)
	}
	return c.once, err
}

// connection returns the connection for a call whose larger message has this
// size, and a function for the call's end. Tensors take the connection with the
// fewest calls; a new one is made only if all others are busy. Equally busy
// connections are used in turn: a connection whose calls fail at once is often
// idle, and must not get all calls.
func (c *channel) connection(bytes int64) (*grpc.ClientConn, func(), error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.closed {
		return nil, nil, newError(codes.Canceled, "the client is closed")
	}
	if bytes < bulkFrom || len(c.bulk) == 0 {
		var err error
		if c.small == nil { // it was dropped
			c.small, err = grpc.NewClient(c.target, c.dial...)
		}
		return c.small, func() {}, err
	}
	best := c.turn
	for i := range c.bulk {
		if next := (c.turn + i) % len(c.bulk); c.load(next) < c.load(best) {
			best = next
		}
	}
	c.turn = (best + 1) % len(c.bulk)
	if c.bulk[best] == nil {
		conn, err := grpc.NewClient(c.target, append(bulkDialing(), c.dial...)...)
		if err != nil {
			return nil, nil, err
		}
		c.bulk[best] = conn
	}
	c.calls[best]++
	return c.bulk[best], sync.OnceFunc(func() {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		c.calls[best]--
	}), nil
}

// load is twice the running calls on one of bulk, or 1 if it has no connection
// yet: a new connection comes after idle ones, and before busy ones.
func (c *channel) load(i int) int {
	if c.bulk[i] == nil {
		return 1
	}
	return 2 * c.calls[i]
}

// recall waits until a connection has released the memory that a call lent it,
// so that the caller may change the tensors. After a call's end gRPC drops
// unwritten data, unless the peer does not read the data that it is writing.
// Such a connection is useless: it is closed, which ends the wait.
func (c *channel) recall(l *loans, from *grpc.ClientConn) {
	l.close()
	if l.await(grace) || l.await(c.options.stuckTimeout) {
		return
	}
	c.drop(from)
	// gRPC's writer ends with the connection, at most 5 s later, after its goodbye
	// to the peer. gRPC 1.80 may not give dropped buffers back, so this wait can
	// time out.
	l.await(c.options.stuckTimeout + 10*time.Second)
}

func (c *channel) drop(conn *grpc.ClientConn) {
	c.mutex.Lock()
	if c.small == conn {
		c.small = nil
	}
	if c.once == conn {
		c.once = nil
	}
	for i := range c.bulk {
		if c.bulk[i] == conn {
			c.bulk[i] = nil
		}
	}
	c.mutex.Unlock()
	conn.Close()
}

func (c *channel) close() error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.closed = true
	var err error
	for _, conn := range append(c.bulk, c.small, c.once) {
		if conn != nil {
			err = errors.Join(err, conn.Close())
		}
	}
	c.small, c.once, c.bulk = nil, nil, nil
	return err
}

// identify returns the call's request id, and makes one if it has none. It fails
// if the id or the trace context cannot be sent.
func identify(ctx context.Context) (context.Context, string, error) {
	sent, _ := metadata.FromOutgoingContext(ctx)
	ids, traces := sent.Get(requestIDKey), sent.Get("traceparent")
	if !sendable(ids) {
		return ctx, "", wrongArgument("request_id", "must be of visible ASCII characters")
	}
	if !sendable(traces) {
		return ctx, "", wrongArgument("traceparent", "must be of visible ASCII characters")
	}
	if len(ids) > 0 {
		return ctx, ids[0], nil
	}
	var random [16]byte
	rand.Read(random[:])
	id := hex.EncodeToString(random[:])
	return metadata.AppendToOutgoingContext(ctx, requestIDKey, id), id, nil
}

// sendable returns whether headers can carry these values.
func sendable(values []string) bool {
	for _, value := range values {
		for _, c := range []byte(value) {
			if c < ' ' || c > '~' {
				return false
			}
		}
	}
	return true
}

// announce sends a message's size, unless the caller has done so.
func announce(ctx context.Context, bytes int64) context.Context {
	if sent, ok := metadata.FromOutgoingContext(ctx); ok && len(sent.Get(messageBytesKey)) > 0 {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, messageBytesKey, strconv.FormatInt(bytes, 10))
}

// Invoke is part of grpc.ClientConnInterface.
func (c *channel) Invoke(ctx context.Context, method string, request, response any, options ...grpc.CallOption) error {
	ctx, id, err := identify(ctx)
	if err != nil {
		return err
	}
	err = errorOf(c.invoke(ctx, method, request, response, options), c.target, id)
	return c.explain(ctx, method, err)
}

func (c *channel) invoke(ctx context.Context, method string, request, response any, options []grpc.CallOption) error {
	if _, set := ctx.Deadline(); !set && c.options.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.options.timeout)
		defer cancel()
	}
	bytes, expected := sizes(request)
	if bytes > c.options.maxMessageBytes {
		return newError(codes.ResourceExhausted, "request: %d bytes; the limit is %d, split the batch",
			bytes, c.options.maxMessageBytes)
	}
	message, lends := request.(*sentMessage)
	var conn *grpc.ClientConn
	release := func() {}
	var err error
	if lends && message.once {
		conn, err = c.single()
	} else {
		conn, release, err = c.connection(max(bytes, expected))
	}
	if err != nil {
		return err
	}
	defer release()
	ctx = announce(ctx, bytes)
	if !lends {
		return conn.Invoke(ctx, method, request, response, options...)
	}
	message.loans = newLoans()
	err = conn.Invoke(ctx, method, request, response, options...)
	c.recall(message.loans, conn)
	return err
}

// sizes returns a request's bytes, and roughly its answer's.
func sizes(request any) (bytes, expected int64) {
	switch m := request.(type) {
	case *sentMessage:
		bytes = m.size()
		if table, ok := m.body.(*posencv1.BuildTableRequest); ok {
			expected = rowsOf(table) * rowBytes
		}
	case proto.Message:
		bytes = int64(proto.Size(m))
	}
	return bytes, max(bytes, expected)
}

// explain adds the server's version to an UNIMPLEMENTED. With a reason, the
// server has already named the field that it does not know.
func (c *channel) explain(ctx context.Context, method string, err error) error {
	var e *Error
	if !errors.As(err, &e) || e.code != codes.Unimplemented || e.Reason != "" || strings.HasSuffix(method, "/GetServerInfo") {
		return err
	}
	e.Message += "; the server is of another version than this client (" + Version + ")"
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	conn, _, failed := c.connection(0)
	if failed != nil {
		return e
	}
	info, failed := posencv1.NewPositionalEncodingServiceClient(conn).GetServerInfo(ctx, &posencv1.GetServerInfoRequest{})
	if failed == nil && info.GetVersion() != "" {
		e.Message += ": it is " + info.GetVersion()
	}
	return e
}
