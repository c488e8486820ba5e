// ApplyRope as one would write it with grpc-go: a baseline of the benchmark.
// float32, half-split pairs, BSHD, positions from a start; nothing else.
//
//	posenc-bench-go UNIX_PATH READY_FILE
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"math"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	v1 "posenc/bench/posencv1"
)

// rotate rotates data in place: rows of heads heads of dim channels, the first
// row at position start.
func rotate(data []byte, heads, dim int, start int64, theta float64) {
	half := dim / 2
	frequencies := make([]float64, half)
	for i := range frequencies {
		frequencies[i] = math.Pow(theta, -2*float64(i)/float64(dim))
	}
	cos, sin := make([]float32, half), make([]float32, half)
	for position := start; len(data) > 0; position++ {
		for i, w := range frequencies {
			s, c := math.Sincos(float64(position) * w)
			sin[i], cos[i] = float32(s), float32(c)
		}
		for h := 0; h < heads; h++ {
			xs, ys := data[:half*4], data[half*4:dim*4]
			for i := range half {
				x := math.Float32frombits(binary.LittleEndian.Uint32(xs[i*4:]))
				y := math.Float32frombits(binary.LittleEndian.Uint32(ys[i*4:]))
				binary.LittleEndian.PutUint32(xs[i*4:], math.Float32bits(x*cos[i]-y*sin[i]))
				binary.LittleEndian.PutUint32(ys[i*4:], math.Float32bits(x*sin[i]+y*cos[i]))
			}
			data = data[dim*4:]
		}
	}
}

type server struct {
	v1.UnimplementedPositionalEncodingServiceServer
}

func (server) ApplyRope(_ context.Context, request *v1.ApplyRopeRequest) (*v1.ApplyRopeResponse, error) {
	q, spec := request.GetQ(), request.GetRope().GetSpec()
	start, plain := request.GetPositions().GetKind().(*v1.Positions_Start)
	shape := q.GetShape()
	if !plain || len(shape) != 4 || q.GetDtype() != v1.Dtype_DTYPE_FLOAT32 ||
		spec.GetPairing() != v1.Pairing_PAIRING_HALF_SPLIT {
		return nil, status.Error(codes.Unimplemented, "not the benchmark's call")
	}
	theta := 10000.0
	if spec.RopeTheta != nil {
		theta = *spec.RopeTheta
	}
	rotate(q.Data, int(shape[2]), int(shape[3]), start.Start, theta)
	return &v1.ApplyRopeResponse{Q: q}, nil
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: posenc-bench-go UNIX_PATH READY_FILE")
	}
	path, ready := os.Args[1], os.Args[2]
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	unix, err := net.Listen("unix", path)
	if err != nil {
		log.Fatal(err)
	}
	// Windows larger than any message, so that none waits for an update.
	const window = 256 << 20
	s := grpc.NewServer(
		grpc.MaxRecvMsgSize(1<<30), grpc.MaxSendMsgSize(1<<30),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window))
	v1.RegisterPositionalEncodingServiceServer(s, server{})
	go func() { log.Fatal(s.Serve(unix)) }()
	text := fmt.Sprintf("%s\nunix:%s\n", tcp.Addr(), path)
	if err := os.WriteFile(ready+".new", []byte(text), 0o600); err != nil {
		log.Fatal(err)
	}
	if err := os.Rename(ready+".new", ready); err != nil {
		log.Fatal(err)
	}
	log.Fatal(s.Serve(tcp))
}
