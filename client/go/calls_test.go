package posenc

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/posenc/posenc/client/go/posencv1"
)

// asError fails the test if err is not an *Error.
func asError(t *testing.T, err error) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is no *Error", err)
	}
	return e
}

func TestAnErrorHasReasonFieldAndRequestID(t *testing.T) {
	c := dial(t, startServer(t))
	q := Float32(make([]float32, 8), 1, 1, 1, 8)
	_, _, err := c.ApplyRope(context.Background(), ApplyRopeArgs{
		Rope: Spec(halfSplit), Positions: StartAt(0), Q: q,
	}, RequestID("r-1"))
	e := asError(t, err)
	if e.Code != codes.InvalidArgument || e.Reason != "FIELD_REQUIRED" || e.Field != "layout" || e.RequestID != "r-1" {
		t.Errorf("got %+v", e)
	}
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(e.Error(), "layout") {
		t.Errorf("got %v", err)
	}
	if e.Metadata["field"] != "layout" || len(e.Violations) == 0 || e.Violations[0].Field != "layout" {
		t.Errorf("got %v, %v", e.Metadata, e.Violations)
	}
}

func TestAMissingConfigFileIsNamed(t *testing.T) {
	c := dial(t, "127.0.0.1:1")
	_, err := c.Rope(context.Background(), ConfigFile("/nowhere/config.json"))
	if e := asError(t, err); e.Code != codes.InvalidArgument || !strings.Contains(e.Error(), "/nowhere/config.json") {
		t.Errorf("got %v", e)
	}
}

func TestTellsWhichServerIsAway(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	c := dial(t, address)
	_, err = c.GetServerInfo(context.Background())
	if e := asError(t, err); e.Code != codes.Unavailable || !strings.Contains(e.Error(), address+"; is the server there, ") {
		t.Errorf("got %v", e)
	}
}

func TestExplainsAServerOfAnotherVersion(t *testing.T) {
	c := dial(t, startFake(t, &fake{}))
	_, err := c.AnalyzeRope(context.Background(), &posencv1.AnalyzeRopeRequest{})
	if e := asError(t, err); e.Code != codes.Unimplemented || !strings.Contains(e.Error(), "9.8.7") || !strings.Contains(e.Error(), Version) {
		t.Errorf("got %v", e)
	}
}

func TestRetriesUnavailableThreeTimes(t *testing.T) {
	calls := make(chan struct{}, 100)
	c := dial(t, startFake(t, &fake{info: func(context.Context) (*posencv1.GetServerInfoResponse, error) {
		calls <- struct{}{}
		return nil, status.Error(codes.Unavailable, "draining")
	}}))
	_, err := c.GetServerInfo(context.Background())
	if e := asError(t, err); e.Code != codes.Unavailable || len(calls) != 4 {
		t.Errorf("%d calls, %v", len(calls), e)
	}
}

func TestAnnouncesTheExactSizeAndSendsIDAndTrace(t *testing.T) {
	got := make(chan metadata.MD, 1)
	size := make(chan int, 1)
	c := dial(t, startFake(t, &fake{apply: func(ctx context.Context, r *posencv1.ApplyRopeRequest) (*posencv1.ApplyRopeResponse, error) {
		sent, _ := metadata.FromIncomingContext(ctx)
		got <- sent
		size <- proto.Size(r)
		return &posencv1.ApplyRopeResponse{Q: r.GetQ(), K: r.GetK()}, nil
	}}))
	for _, tokens := range []int{1, 300} { // 1: q is copied into the message; 300: q is lent to gRPC
		values := numbers(tokens * 2 * 64)
		q := tensorWith(t, DtypeFloat32, values, 1, tokens, 2, 64)
		q, k, err := c.ApplyRope(context.Background(), ApplyRopeArgs{
			Rope: Spec(halfSplit), Positions: StartAt(0), Layout: BSHD, Q: q, K: q,
		}, Traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
		if err != nil {
			t.Fatal(err)
		}
		expectValues(t, q, values, 0)
		expectValues(t, k, values, 0)
		sent := <-got
		if announced := sent.Get(messageBytesKey); len(announced) != 1 || announced[0] != strconv.Itoa(<-size) {
			t.Errorf("announced %v", announced)
		}
		if len(sent.Get("traceparent")) != 1 || len(sent.Get(requestIDKey)) != 1 || len(sent.Get(requestIDKey)[0]) < 16 {
			t.Errorf("got %v", sent)
		}
	}
}

// holding is a server that takes a call and answers only when the call is cancelled.
func holding() *fake {
	return &fake{apply: func(ctx context.Context, _ *posencv1.ApplyRopeRequest) (*posencv1.ApplyRopeResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
}

// rotateUntil makes a call of 8 MiB, and writes to its tensor as soon as the call has returned. The race detector then
// finds code that still reads the tensor.
func rotateUntil(t *testing.T, c *Client, timeout time.Duration) *Error {
	t.Helper()
	q := make([]float32, 1<<21)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, _, err := c.ApplyRope(ctx, ApplyRopeArgs{
		Rope: Spec(halfSplit), Positions: StartAt(0), Layout: BSHD, Q: Float32(q, 1, 1<<12, 4, 128),
	})
	for i := range q {
		q[i] = 1
	}
	return asError(t, err)
}

func TestADeadlineGivesTheTensorsBack(t *testing.T) {
	c := dial(t, startFake(t, holding()))
	e := rotateUntil(t, c, 300*time.Millisecond)
	if e.Code != codes.DeadlineExceeded || !errors.Is(e, context.DeadlineExceeded) {
		t.Errorf("got %v", e)
	}
}

func TestAPeerThatTakesNoBytesGivesTheTensorsBack(t *testing.T) {
	server := startFake(t, holding(), grpc.InitialWindowSize(64<<20), grpc.InitialConnWindowSize(64<<20))
	c := dial(t, startStuckProxy(t, server, 1<<20), WithStuckTimeout(time.Second))
	if e := rotateUntil(t, c, 2*time.Second); e.Code != codes.DeadlineExceeded && e.Code != codes.Unavailable {
		t.Errorf("got %v", e)
	}
}

// startStuckProxy accepts connections to the server, and forwards only the first `bytes` bytes of each connection.
func startStuckProxy(t *testing.T, server string, bytes int64) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return // the test is over
			}
			to, err := net.Dial("tcp", server)
			if err != nil {
				from.Close()
				continue
			}
			t.Cleanup(func() { from.Close(); to.Close() })
			go io.CopyN(to, from, bytes)
			go io.Copy(from, to)
		}
	}()
	return listener.Addr().String()
}

func TestATokenIsNotSentInTheClearToAnotherMachine(t *testing.T) {
	for target, local := range map[string]bool{
		"posenc.example:50051": false, "dns:///10.0.0.1:50051": false, "127.0.0.1.example:1": false,
		"localhost:50051": true, "127.0.0.1:1": true, "[::1]:1": true, "unix:/run/posenc.sock": true,
	} {
		c, err := NewClient(target, WithToken("secret"))
		if local != (err == nil) {
			t.Errorf("%s: %v", target, err)
		}
		if err == nil {
			c.Close()
		} else if e := asError(t, err); e.Code != codes.InvalidArgument {
			t.Errorf("%s: %v", target, e)
		}
	}
}

func TestReadsATokenFileAgainWhenItChanges(t *testing.T) {
	got := make(chan []string, 1)
	address := startFake(t, &fake{info: func(ctx context.Context) (*posencv1.GetServerInfoResponse, error) {
		sent, _ := metadata.FromIncomingContext(ctx)
		got <- sent.Get("authorization")
		return &posencv1.GetServerInfoResponse{}, nil
	}})
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("first\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := &bearer{file: path}
	c := dial(t, address, WithTokenFile(path))
	if _, err := c.GetServerInfo(context.Background()); err != nil {
		t.Fatal(err)
	}
	if tokens := <-got; len(tokens) != 1 || tokens[0] != "Bearer first" {
		t.Errorf("sent %v", tokens)
	}
	if err := os.WriteFile(path, []byte("second"), 0o600); err != nil {
		t.Fatal(err)
	}
	sent, err := b.GetRequestMetadata(context.Background())
	if err != nil || sent["authorization"] != "Bearer second" {
		t.Errorf("got %v, %v", sent, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if sent, err := b.GetRequestMetadata(context.Background()); err != nil || sent["authorization"] != "Bearer second" {
		t.Errorf("got %v, %v", sent, err)
	}
}

func TestWrongFilesAreNamedWhenDialing(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for field, option := range map[string]DialOption{
		"tls.ca_file":   WithTLS(TLS{CAFile: empty}),
		"tls.cert_file": WithTLS(TLS{CertFile: empty}),
		"token_file":    WithTokenFile(empty + ".missing"),
	} {
		_, err := NewClient("localhost:1", option)
		if e := asError(t, err); e.Field != field || e.Code != codes.InvalidArgument {
			t.Errorf("%s: %v", field, e)
		}
	}
}

func TestSpecsTakeShortNamesOfEnums(t *testing.T) {
	source := SpecJSON(`{"pairing": "half_split", "rotary_dim": 8, "axes": {"assignment": "sectioned", "sections": [1, 3]}}`)
	want := &posencv1.RopeSpec{
		Pairing: HalfSplit, RotaryDim: 8,
		Axes: &posencv1.RotaryAxes{Assignment: posencv1.RotaryAxes_ASSIGNMENT_SECTIONED, Sections: []int32{1, 3}},
	}
	if source.err != nil || !proto.Equal(source.Message().GetSpec(), want) {
		t.Errorf("got %v, %v", source.Message(), source.err)
	}
	if wrong := SpecJSON(`{"paring": "half_split"}`); wrong.err == nil || !strings.Contains(wrong.err.Error(), "paring") {
		t.Errorf("got %v", wrong.err)
	}
}

func TestViewsShareTheCallersMemory(t *testing.T) {
	elements := []float32{1, 2, 3, 4}
	tensor := Float32(elements, 2, 2)
	tensor.Float32s()[3] = 5
	if elements[3] != 5 || tensor.Float64s() != nil || len(tensor.Bytes()) != 16 {
		t.Errorf("got %v, %v", elements, tensor)
	}
	if empty := Float32(nil, 1, 0, 2, 8); !empty.Given() || empty.Float32s() != nil {
		t.Errorf("got %v", empty)
	}
}

func TestASchemeOfTheWebIsAnErrorOfTheTarget(t *testing.T) {
	for _, target := range []string{"http://localhost:50051", "https://posenc:1", ""} {
		var e *Error
		if _, err := NewClient(target); !errors.As(err, &e) || e.Code != codes.InvalidArgument || e.Field != "target" {
			t.Errorf("%s: %v", target, err)
		}
	}
	for _, target := range []string{"127.0.0.1:65535", "unix:/tmp/a:99999", "[fe80::12345]:1"} {
		if c, err := NewClient(target); err != nil {
			t.Error(err)
		} else {
			c.Close()
		}
	}
}

func TestAnUnknownValueIsNamedWithItsFieldAndNoVersionIsBlamed(t *testing.T) {
	c := dial(t, startServer(t))
	args := ApplyRopeArgs{Rope: Spec(halfSplit), Positions: StartAt(5), Layout: 99, Q: Float32(make([]float32, 8), 1, 1, 1, 8)}
	var e *Error
	_, _, err := c.ApplyRope(context.Background(), args)
	if !errors.As(err, &e) || e.Field != "layout" || !strings.HasPrefix(e.Message, "layout: value 99 ") ||
		strings.Contains(e.Message, "another version") {
		t.Error(err)
	}
}

// The server refuses fields that it does not know, because it would compute the results without them.
func TestFieldsOfANewerContractAreNotLost(t *testing.T) {
	address := startServer(t)
	source := Spec(proto.CloneOf(halfSplit)).Message()
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1)
	source.GetSpec().ProtoReflect().SetUnknown(unknown)
	request := &posencv1.AddEncodingRequest{Positions: StartAt(0)}
	request.ProtoReflect().SetUnknown(unknown)
	x := Float32(make([]float32, 1<<16), 1<<10, 1, 1, 1<<6)
	for _, c := range []*Client{dial(t, address), dial(t, address, WithStreamAbove(1))} {
		args := ApplyRopeArgs{Rope: Source(source), Layout: BSHD, Positions: StartAt(0), Q: x}
		_, _, applied := c.ApplyRope(context.Background(), args)
		_, added := c.AddEncoding(context.Background(), request, x)
		for _, err := range []error{applied, added} {
			if e := asError(t, err); e.Reason != "FIELD_UNKNOWN" {
				t.Error(err)
			}
		}
	}
}
