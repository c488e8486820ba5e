package posenc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/posenc/posenc/client/go/posencv1"
)

type ropeStream = grpc.BidiStreamingServer[posencv1.ApplyRopeStreamRequest, posencv1.ApplyRopeStreamResponse]

// echoing is a server that does not implement unary rotation. In a stream it sends back the bytes of the tensors, cut
// at random positions.
func echoing(random *rand.Rand, more string) *fake {
	return &fake{
		info: func(context.Context) (*posencv1.GetServerInfoResponse, error) {
			return nil, status.Error(codes.FailedPrecondition, "a stream needs no answer before its first byte")
		},
		stream: func(s ropeStream) error {
			for first := true; ; first = false {
				m, err := s.Recv()
				if err == io.EOF {
					return s.Send(&posencv1.ApplyRopeStreamResponse{Data: []byte(more)})
				}
				if err != nil {
					return err
				}
				if first != (m.GetCall() != nil) || len(m.GetCall().GetQ().GetData()) > 0 {
					return status.Error(codes.InvalidArgument, "the description is not in the first message alone")
				}
				for data := m.GetData(); len(data) > 0; {
					n := 1 + random.IntN(len(data))
					if err := s.Send(&posencv1.ApplyRopeStreamResponse{Data: data[:n]}); err != nil {
						return err
					}
					data = data[n:]
				}
			}
		},
	}
}

func TestAStreamFillsItsResultsHoweverTheServerCuts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	c := dial(t, startFake(t, echoing(random, "")), WithStreamAbove(1))
	empty := Float32(nil, 1, 0, 2, 8)
	for range 20 {
		c.chunkBytes = 4 * (1 + random.IntN(50000))
		q := tensorWith(t, DtypeFloat32, numbers(8*random.IntN(40000)+8), 1, 0, 1, 8)
		q.m.Shape[1] = int64(len(q.Bytes()) / 32)
		want := slices.Clone(q.Bytes())
		for _, pair := range [][2]Tensor{{q, q}, {empty, q}, {{}, q}, {q, empty}} {
			args := ApplyRopeArgs{Rope: Spec(halfSplit), Layout: BSHD, Positions: StartAt(0), Q: pair[0], K: pair[1]}
			last := int64(0)
			gotQ, gotK, err := c.ApplyRope(context.Background(), args, Progress(func(done, total int64) { last = total - done }))
			if err != nil || last != 0 {
				t.Fatal(err, last)
			}
			if !bytes.Equal(gotQ.Bytes(), pair[0].Bytes()) || !bytes.Equal(gotK.Bytes(), pair[1].Bytes()) || gotQ.Given() != pair[0].Given() {
				t.Fatal("the bytes differ")
			}
		}
		args := ApplyRopeArgs{Rope: Spec(halfSplit), Layout: BSHD, Positions: StartAt(0), Q: q}
		if _, _, err := c.ApplyRope(context.Background(), args, Into(q)); err != nil || !bytes.Equal(q.Bytes(), want) {
			t.Fatal("in place", err)
		}
	}
}

func TestAStreamWithTooManyOrTooFewBytesIsAnError(t *testing.T) {
	q := tensorWith(t, DtypeFloat32, numbers(64), 1, 8, 1, 8)
	args := ApplyRopeArgs{Rope: Spec(halfSplit), Layout: BSHD, Positions: StartAt(0), Q: q}
	few := &fake{stream: func(s ropeStream) error {
		return s.Send(&posencv1.ApplyRopeStreamResponse{Data: make([]byte, 7)})
	}}
	for _, server := range []*fake{echoing(rand.New(rand.NewPCG(3, 4)), "x"), few} {
		_, _, err := dial(t, startFake(t, server), WithStreamAbove(1)).ApplyRope(context.Background(), args)
		if e := asError(t, err); e.Code != codes.Internal || !strings.Contains(e.Message, "the server's answer does not fit") {
			t.Error(err)
		}
	}
}

func TestAStreamAnnouncesItsLargestMessage(t *testing.T) {
	got := make(chan []string, 1)
	server := echoing(rand.New(rand.NewPCG(5, 6)), "")
	echo := server.stream
	server.stream = func(s ropeStream) error {
		sent, _ := metadata.FromIncomingContext(s.Context())
		got <- sent.Get(messageBytesKey)
		return echo(s)
	}
	c := dial(t, startFake(t, server), WithStreamAbove(1))
	args := ApplyRopeArgs{Rope: Spec(halfSplit), Layout: BSHD, Positions: StartsAt(make([]int64, 1000)...),
		Q: Float32(make([]float32, 8000), 1000, 1, 1, 8)}
	first := proto.Size(&posencv1.ApplyRopeStreamRequest{Call: described(args)})
	for chunk, want := range map[int]int{4000: 4016, 40: first} {
		c.chunkBytes = chunk
		if _, _, err := c.ApplyRope(context.Background(), args); err != nil {
			t.Fatal(err)
		}
		if announced := <-got; len(announced) != 1 || announced[0] != strconv.Itoa(want) {
			t.Errorf("announced %v; want %d", announced, want)
		}
	}
}

func TestAStreamThatHasNoAnswerYetIsTriedAgain(t *testing.T) {
	q := tensorWith(t, DtypeFloat32, numbers(64), 1, 8, 1, 8)
	args := ApplyRopeArgs{Rope: Spec(halfSplit), Layout: BSHD, Positions: StartAt(0), Q: q}
	for _, test := range []struct {
		failures, calls int
		code            codes.Code
		answers         bool
	}{{2, 3, codes.OK, false}, {9, 4, codes.Unavailable, false}, {9, 1, codes.Unavailable, true}} {
		server := echoing(rand.New(rand.NewPCG(7, 8)), "")
		echo, calls := server.stream, 0
		server.stream = func(s ropeStream) error {
			if calls++; calls > test.failures {
				return echo(s)
			}
			s.Recv()
			if test.answers {
				s.Send(&posencv1.ApplyRopeStreamResponse{Data: []byte("x")})
			}
			return status.Error(codes.Unavailable, "draining")
		}
		_, _, err := dial(t, startFake(t, server), WithStreamAbove(1)).ApplyRope(context.Background(), args)
		if status.Code(err) != test.code || calls != test.calls {
			t.Errorf("%d calls, %v; want %v", calls, err, test)
		}
	}
}

func TestAStreamThatStandsStillOrIsCancelledGivesTheTensorsBack(t *testing.T) {
	still := &fake{stream: func(s ropeStream) error {
		<-s.Context().Done()
		return s.Context().Err()
	}}
	target := startFake(t, still)
	q := make([]float32, 1<<22)
	args := ApplyRopeArgs{Rope: Spec(halfSplit), Layout: BSHD, Positions: StartAt(0), Q: Float32(q, 1, 1<<13, 4, 128)}
	cancelled, cancel := context.WithCancel(context.Background())
	time.AfterFunc(200*time.Millisecond, cancel)
	for _, test := range []struct {
		ctx   context.Context
		code  codes.Code
		cause error
	}{{context.Background(), codes.DeadlineExceeded, nil}, {cancelled, codes.Canceled, context.Canceled}} {
		c := dial(t, target, WithStreamAbove(1), WithTimeout(500*time.Millisecond))
		_, _, err := c.ApplyRope(test.ctx, args)
		for i := range q { // the race detector finds code that still reads it
			q[i] = 1
		}
		if e := asError(t, err); e.Code != test.code || test.cause != nil && !errors.Is(err, test.cause) {
			t.Errorf("got %v", err)
		}
	}
}

// A stream gives the same bytes as the unary call, even if its messages end at other elements. The test streams through
// the client, and through the generated client, with cuts between random elements.
func TestAStreamEqualsTheUnaryCallBitForBit(t *testing.T) {
	address := startServer(t)
	unary, c := dial(t, address), dial(t, address, WithStreamAbove(1))
	random := rand.New(rand.NewPCG(9, 10))
	const batch, tokens, dim = 2, 9, 16
	for _, layout := range []Layout{BSHD, BHSD, SBHD, THD} {
		for _, dtype := range []Dtype{DtypeFloat32, DtypeFloat64, DtypeFloat16, DtypeBFloat16, DtypeFloat8E4M3FN, DtypeFloat8E5M2} {
			shape := func(heads int) []int {
				return map[Layout][]int{BSHD: {batch, tokens, heads, dim}, BHSD: {batch, heads, tokens, dim},
					SBHD: {tokens, batch, heads, dim}, THD: {batch * tokens, heads, dim}}[layout]
			}
			ids := make([]int32, batch*tokens)
			for i := range ids {
				ids[i] = random.Int32N(1 << 20)
			}
			positions := IDs(Int32(ids, batch, tokens))
			if layout == THD {
				positions = IDs(Int32(ids, batch*tokens))
			}
			args := ApplyRopeArgs{Rope: Spec(halfSplit), Layout: layout, Positions: positions, Saturation: SaturationFinite,
				Q: tensorWith(t, dtype, numbers(batch*tokens*3*dim), shape(3)...),
				K: tensorWith(t, dtype, numbers(batch*tokens*dim), shape(1)...)}
			wantQ, wantK, err := unary.ApplyRope(context.Background(), args)
			if err != nil {
				t.Fatal(err)
			}
			c.chunkBytes = 8 * (1 + random.IntN(100))
			q, k, err := c.ApplyRope(context.Background(), args)
			if err != nil || !bytes.Equal(q.Bytes(), wantQ.Bytes()) || !bytes.Equal(k.Bytes(), wantK.Bytes()) {
				t.Fatalf("%v %v in chunks of %d: %v", layout, dtype, c.chunkBytes, err)
			}
			request := described(args)
			joined, err := throughStub(t, c, random, int(elementBytes[dtype]), request, slices.Concat(args.Q.Bytes(), args.K.Bytes()))
			if err != nil || !bytes.Equal(joined, slices.Concat(wantQ.Bytes(), wantK.Bytes())) {
				t.Fatalf("%v %v cut at random: %v", layout, dtype, err)
			}
			move := RepositionArgs{OldRope: args.Rope, Layout: layout, Movement: ShiftBy(-7), Saturation: SaturationFinite, K: args.Q}
			moved, err := unary.Reposition(context.Background(), move)
			if err != nil {
				t.Fatal(err)
			}
			if k, err = c.Reposition(context.Background(), move); err != nil || !bytes.Equal(k.Bytes(), moved.Bytes()) {
				t.Fatalf("%v %v repositioned: %v", layout, dtype, err)
			}
		}
	}
}

func described(args ApplyRopeArgs) *posencv1.ApplyRopeRequest {
	return &posencv1.ApplyRopeRequest{Rope: args.Rope.message, Positions: args.Positions, Layout: args.Layout,
		Saturation: args.Saturation, Q: args.Q.described(), K: args.K.described()}
}

// throughStub sends bytes with the generated client, in messages of random size, and returns the joined answers. All
// messages use the same memory, one after the other.
func throughStub(t *testing.T, c *Client, random *rand.Rand, element int, call *posencv1.ApplyRopeRequest, data []byte) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := c.Stub().ApplyRopeStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		m, piece := &posencv1.ApplyRopeStreamRequest{Call: call}, make([]byte, len(data)/3)
		for {
			n := copy(piece[:element*random.IntN(len(piece)/element)], data)
			m.Data, data = piece[:n], data[n:]
			if s.Send(m) != nil {
				return
			}
			if len(data) == 0 {
				s.CloseSend()
				return
			}
			m = &posencv1.ApplyRopeStreamRequest{}
		}
	}()
	var joined []byte
	for {
		m, err := s.Recv()
		if err == io.EOF {
			return joined, nil
		}
		if err != nil {
			return joined, err
		}
		joined = append(joined, m.GetData()...)
	}
}

func TestAPieceMayBeWrittenOverOnceItIsSent(t *testing.T) {
	c := dial(t, startFake(t, echoing(rand.New(rand.NewPCG(11, 12)), "")))
	q := tensorWith(t, DtypeFloat32, numbers(1<<20), 1, 1<<17, 1, 8)
	call := described(ApplyRopeArgs{Rope: Spec(halfSplit), Layout: BSHD, Positions: StartAt(0), Q: q})
	joined, err := throughStub(t, c, rand.New(rand.NewPCG(13, 14)), 4, call, q.Bytes())
	if err != nil || !bytes.Equal(joined, q.Bytes()) {
		t.Fatal("the bytes differ", err)
	}
}

func TestAStreamThatIsNotAsDescribedIsRefused(t *testing.T) {
	c := dial(t, startServer(t))
	q := tensorWith(t, DtypeFloat32, numbers(64), 1, 8, 1, 8)
	call := described(ApplyRopeArgs{Rope: Spec(halfSplit), Layout: BSHD, Positions: StartAt(0), Q: q})
	withData := proto.CloneOf(call)
	withData.Q.Data = q.Bytes()
	bad := proto.CloneOf(call)
	bad.Layout = 0
	type message = posencv1.ApplyRopeStreamRequest
	for name, test := range map[string]struct {
		reason, field string
		messages      []*message
	}{
		"short":          {"TENSOR_SIZE_MISMATCH", "data", []*message{{Call: call}, {Data: q.Bytes()[:200]}}},
		"long":           {"TENSOR_SIZE_MISMATCH", "data", []*message{{Call: call}, {Data: q.Bytes()}, {Data: q.Bytes()[:4]}}},
		"half element":   {"FIELD_INVALID", "data", []*message{{Call: call}, {Data: q.Bytes()[:6]}, {Data: q.Bytes()[6:]}}},
		"described once": {"FIELD_INVALID", "call", []*message{{Call: call}, {Call: call, Data: q.Bytes()}}},
		"no description": {"FIELD_REQUIRED", "call", []*message{{Data: q.Bytes()}}},
		"data in call":   {"FIELD_INVALID", "q.data", []*message{{Call: withData}}},
		"unary fault":    {"FIELD_REQUIRED", "layout", []*message{{Call: bad}, {Data: q.Bytes()}}},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		s, err := c.Stub().ApplyRopeStream(ctx)
		for _, m := range test.messages {
			if err == nil {
				err = s.Send(m)
			}
		}
		s.CloseSend()
		for err == nil || err == io.EOF {
			if _, err = s.Recv(); err == io.EOF {
				break
			}
		}
		var e *Error
		if !errors.As(err, &e) || e.Code != codes.InvalidArgument || e.Reason != test.reason || e.Field != test.field {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// The caller of the generated stream cancels, stops sending, or never reads.
func TestAStreamThatIsLeftInTheMiddleEndsClearlyAndKeepsNothing(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	admin := listener.Addr().String()
	listener.Close()
	c := dial(t, startServer(t, "--admin", admin), WithTimeout(500*time.Millisecond))
	call := described(ApplyRopeArgs{Rope: Spec(halfSplit), Layout: BSHD, Positions: StartAt(0),
		Q: Tensor{&posencv1.Tensor{Dtype: DtypeFloat32, Shape: []int64{1, 1 << 20, 1, 64}}}}) // 256 MiB
	chunk := &posencv1.ApplyRopeStreamRequest{Data: make([]byte, 1<<20)}
	type stream = grpc.BidiStreamingClient[posencv1.ApplyRopeStreamRequest, posencv1.ApplyRopeStreamResponse]
	for name, test := range map[string]struct {
		code codes.Code
		act  func(s stream, cancel func()) error
	}{
		"cancelled": {codes.Canceled, func(s stream, cancel func()) error {
			s.Send(chunk)
			s.Recv()
			cancel()
			return nil
		}},
		"stalled": {codes.DeadlineExceeded, func(s stream, _ func()) error { return s.Send(chunk) }},
		"not read": {codes.DeadlineExceeded, func(s stream, _ func()) error {
			for range 256 {
				if s.Send(chunk) != nil {
					return nil
				}
			}
			return errors.New("the server took everything in")
		}},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		s, err := c.ApplyRopeStream(ctx)
		if err == nil {
			err = s.Send(&posencv1.ApplyRopeStreamRequest{Call: call})
		}
		if err == nil {
			err = test.act(s, cancel)
		}
		for err == nil {
			_, err = s.Recv()
		}
		if status.Code(err) != test.code {
			t.Errorf("%s: %v", name, err)
		}
		claimed := ""
		for range 100 {
			if claimed = metric(t, admin, "posenc_claimed_bytes"); claimed == "0" {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		if claimed != "0" {
			t.Errorf("%s: the server keeps %s bytes", name, claimed)
		}
	}
}

// metric returns the value of one of the server's metrics, or "" if the server does not have this metric.
func metric(t *testing.T, admin, name string) string {
	t.Helper()
	answer, err := http.Get("http://" + admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
