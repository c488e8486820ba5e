package posenc

import (
	"context"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/posenc/posenc/client/go/internal/elements"
	"github.com/posenc/posenc/client/go/posencv1"
)

// startServer starts posencd, the binary that POSENC_POSENCD names, and returns
// its address.
func startServer(t *testing.T, flags ...string) string {
	t.Helper()
	binary := os.Getenv("POSENC_POSENCD")
	if binary == "" {
		t.Skip("POSENC_POSENCD does not name a posencd")
	}
	ready := filepath.Join(t.TempDir(), "ready")
	flags = append([]string{"--listen", "127.0.0.1:0", "--ready-file", ready}, flags...)
	server := exec.Command(binary, flags...)
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	t.Cleanup(func() { server.Process.Kill() })
	// The file appears when the server is ready; a loaded machine may need a minute.
	for range 6000 {
		if text, err := os.ReadFile(ready); err == nil && strings.HasSuffix(string(text), "\n") {
			return strings.Fields(string(text))[0]
		}
		select {
		case err := <-ended:
			t.Fatalf("posencd ended: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatal("posencd is not ready")
	return ""
}

// fake is a server inside the test, for behaviour that posencd does not have.
type fake struct {
	posencv1.UnimplementedPositionalEncodingServiceServer
	info   func(context.Context) (*posencv1.GetServerInfoResponse, error)
	apply  func(context.Context, *posencv1.ApplyRopeRequest) (*posencv1.ApplyRopeResponse, error)
	stream func(ropeStream) error
}

func (f *fake) GetServerInfo(ctx context.Context, _ *posencv1.GetServerInfoRequest) (*posencv1.GetServerInfoResponse, error) {
	if f.info == nil {
		return &posencv1.GetServerInfoResponse{Version: "9.8.7"}, nil
	}
	return f.info(ctx)
}

func (f *fake) ApplyRope(ctx context.Context, r *posencv1.ApplyRopeRequest) (*posencv1.ApplyRopeResponse, error) {
	if f.apply == nil {
		return f.UnimplementedPositionalEncodingServiceServer.ApplyRope(ctx, r)
	}
	return f.apply(ctx, r)
}

func (f *fake) ApplyRopeStream(s ropeStream) error { return f.stream(s) }

func startFake(t *testing.T, f *fake, options ...grpc.ServerOption) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(append(options, grpc.MaxRecvMsgSize(1<<30))...)
	posencv1.RegisterPositionalEncodingServiceServer(server, f)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func dial(t *testing.T, target string, options ...DialOption) *Client {
	t.Helper()
	c, err := NewClient(target, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// numbers returns multiples of 1/64 in [-2, 2), which all floating types except FP8 hold exactly.
func numbers(count int) []float64 {
	values := make([]float64, count)
	state := uint32(1)
	for i := range values {
		state = state*1664525 + 1013904223 // Numerical Recipes' generator
		values[i] = float64(int32(state)>>24) / 64
	}
	return values
}

// tensorWith returns a tensor of these values. For 16-bit types it cuts off low bits, which are 0 in the values of
// numbers().
func tensorWith(t *testing.T, dtype Dtype, values []float64, shape ...int) Tensor {
	t.Helper()
	switch dtype {
	case DtypeFloat32, DtypeBFloat16:
		wide, narrow := make([]float32, len(values)), make([]uint16, len(values))
		for i, v := range values {
			wide[i], narrow[i] = float32(v), uint16(math.Float32bits(float32(v))>>16)
		}
		if dtype == DtypeBFloat16 {
			return BFloat16(narrow, shape...)
		}
		return Float32(wide, shape...)
	case DtypeFloat16:
		bits := make([]uint16, len(values))
		for i, v := range values {
			fraction, exponent := math.Frexp(math.Abs(v))
			if v != 0 {
				bits[i] = uint16(exponent+14)<<10 | uint16(math.Ldexp(fraction, 11))&1023
			}
			if v < 0 {
				bits[i] |= 1 << 15
			}
		}
		return Float16(bits, shape...)
	case DtypeFloat8E4M3FN, DtypeFloat8E5M2:
		bits := make([]uint8, len(values))
		for i, v := range values {
			bits[i] = nearestByte(dtype, v)
		}
		return Bytes(dtype, bits, shape...)
	default:
		return Float64(append([]float64(nil), values...), shape...)
	}
}

// nearestByte tries all FP8 numbers, and returns the bits of the one nearest to v.
func nearestByte(dtype Dtype, v float64) uint8 {
	best, distance := uint8(0), math.Inf(1)
	for code := range 256 {
		d := math.Abs(elements.Value(dtype, []byte{uint8(code)}) - v)
		if d < distance || d == distance && code%2 == 0 {
			best, distance = uint8(code), d
		}
	}
	return best
}

// rotatedHead rotates a head of half-split pairs by position * theta^(-2i/d). This is the formula of RopeSpec, computed
// in float64.
func rotatedHead(head []float64, position, theta float64) []float64 {
	half := len(head) / 2
	out := make([]float64, len(head))
	for i := range half {
		angle := position * math.Pow(theta, -2*float64(i)/float64(len(head)))
		sin, cos := math.Sincos(angle)
		out[i] = head[i]*cos - head[i+half]*sin
		out[i+half] = head[i]*sin + head[i+half]*cos
	}
	return out
}

// rotatedAll rotates every head of a tensor. positionOf returns the position of the head with this index in memory.
func rotatedAll(values []float64, dim int, theta float64, positionOf func(head int) float64) []float64 {
	var out []float64
	for at := 0; at < len(values); at += dim {
		out = append(out, rotatedHead(values[at:at+dim], positionOf(at/dim), theta)...)
	}
	return out
}

// tolerance returns the largest allowed error of rotated numbers(), which stay below 4: half a step of the type, plus
// the error of float32's arithmetic. The error of the arithmetic is four times 2^-24 of the rotated pair's length,
// which is at most 4 here (proto/testdata/README.md). In float64 the expected angles of rotatedHead are less exact than
// the server's angles: their error is up to 2^-52 times the largest position, 2^12.
func tolerance(dtype Dtype) float64 {
	arithmetic := 4 * math.Ldexp(1, -24) * 4
	switch dtype {
	case DtypeFloat16:
		return math.Ldexp(1, -10) + arithmetic
	case DtypeBFloat16:
		return math.Ldexp(1, -7) + arithmetic
	case DtypeFloat8E4M3FN:
		return math.Ldexp(1, -3) + arithmetic
	case DtypeFloat8E5M2:
		return math.Ldexp(1, -2) + arithmetic
	case DtypeFloat64:
		return 4 * math.Ldexp(1, 12-51)
	default:
		return arithmetic
	}
}

func expectValues(t *testing.T, got Tensor, want []float64, within float64) {
	t.Helper()
	values := elements.Values(got.Dtype(), got.Bytes())
	if len(values) != len(want) {
		t.Fatalf("%d values; want %d", len(values), len(want))
	}
	for i := range want {
		if !(math.Abs(values[i]-want[i]) <= within) {
			t.Fatalf("value %d is %v; want %v within %v", i, values[i], want[i], within)
		}
	}
}

var halfSplit = &posencv1.RopeSpec{Pairing: HalfSplit}
