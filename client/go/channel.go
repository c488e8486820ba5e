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

	// Smaller calls gain nothing from a connection of their own.
	bulkFrom = 64 << 10

	// How long a connection may take to let go of what a call left behind
	// before it is looked at as stuck.
	grace = 200 * time.Millisecond

	// How long the question may take that explains an UNIMPLEMENTED.
	explainTimeout = 2 * time.Second
)

// channel is the client's connections. It is what generated code calls, and does
// there what every call needs: a connection, a deadline, a request id, the
// announced size, and the error's translation.
type channel struct {
	target  string
	options *dialOptions
	dial    []grpc.DialOption

	mutex  sync.Mutex
	small  *grpc.ClientConn
	once   *grpc.ClientConn   // without retries; nil until it is needed
	bulk   []*grpc.ClientConn // nil until it is needed
	calls  []int              // under way on each of bulk
	turn   int                // after the one of bulk that was taken last
	closed bool
}

// How many bytes a connection for tensors reads and writes at once (gRPC's 32 KiB
// cost a third more processor time, measured with 64 MiB on loopback), and windows
// so large that neither a chunk of a stream nor an answer waits for them.
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

// checkTarget finds a scheme that is not gRPC's, and a port that no server has:
// gRPC would say so only in calls, and there as if the server were away.
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
	// A retry is of use only if the connection has been tried again by then:
	// the first backoff of the retries, not gRPC's 1 s.
	reconnect := backoff.DefaultConfig
	reconnect.BaseDelay = 100 * time.Millisecond
	return []grpc.DialOption{
		grpc.WithTransportCredentials(security),
		grpc.WithUserAgent("posenc-go/" + Version),
		grpc.WithDefaultServiceConfig(o.serviceConfig),
		grpc.WithDisableServiceConfig(), // that of DNS, which would cost a look-up
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 20 * time.Second}),
		// The timeout becomes TCP_USER_TIMEOUT, which ends connections that take
		// no bytes. gRPC sets it only if it also sends pings, and servers close
		// connections that ping often: one an hour is as good as none.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Hour, Timeout: o.stuckTimeout}),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(int(o.maxMessageBytes)),
			grpc.MaxCallSendMsgSize(int(o.maxMessageBytes)),
			// A call that has sent more than this is not retried. gRPC's 256 KiB
			// would exclude most tensors; it keeps references, not copies.
			grpc.MaxRetryRPCBufferSize(int(o.maxMessageBytes)),
			grpc.ForceCodecV2(newCodec()),
		),
	}
}

// single returns the connection for calls that must not be sent again: gRPC
// decides by the connection.
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

// connection returns the one for a call whose larger message has this size, and
// what to call at the call's end. Tensors take the connection with the fewest
// calls: a new one is made only if all others are busy. Equals take turns: one
// whose calls fail at once is often idle, and shall not draw all of them.
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

// load is twice the calls under way on one of bulk: one that is still to be made
// comes after those that are idle, and before those that are not.
func (c *channel) load(i int) int {
	if c.bulk[i] == nil {
		return 1
	}
	return 2 * c.calls[i]
}

// recall waits until a connection has let go of what a call lent it, so that
// the caller may change the tensors. After a call's end gRPC drops what it has
// not yet written, unless the peer takes nothing of what it is writing. Such a
// connection serves nobody: it is closed, which ends the wait.
func (c *channel) recall(l *loans, from *grpc.ClientConn) {
	l.close()
	if l.await(grace) || l.await(c.options.stuckTimeout) {
		return
	}
	c.drop(from)
	// gRPC's writer ends with the connection, at most 5 s later, the time for its
	// goodbye to the peer. What it then throws away it may not give back (1.80),
	// so that this wait can run to its end.
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

// identify makes sure that the call has a request id, and returns it. It fails if
// that, or the trace that the call belongs to, cannot be sent.
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

// sendable tells whether headers can carry these values.
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

// announce tells the server a message's size, unless the caller has done so.
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

// explain adds to an UNIMPLEMENTED which version the server has. Where there is a
// reason, the server has said itself which field it does not know.
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
