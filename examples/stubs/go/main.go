// Rotates q with only generated code: go run . ADDRESS
// The generated code is from the Go client's module; protoc-gen-go and
// protoc-gen-go-grpc make it from proto/posenc/v1.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"
	"unsafe"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pb "github.com/posenc/posenc/client/go/posencv1"
)

// The server's default limit; gRPC's is 4 MiB.
const limit = 512 << 20

func main() {
	conn, err := grpc.NewClient(os.Args[1],
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(limit), grpc.MaxCallSendMsgSize(limit)))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	q := make([]float32, 1*1024*32*128) // 16 MiB
	for i := range q {
		q[i] = 1
	}
	request := &pb.ApplyRopeRequest{
		Rope:      &pb.RopeSource{Source: &pb.RopeSource_Preset{Preset: "llama-3.1-8b"}},
		Positions: &pb.Positions{Kind: &pb.Positions_Start{Start: 0}},
		Layout:    pb.Layout_LAYOUT_BSHD,
		Q: &pb.Tensor{
			Dtype: pb.Dtype_DTYPE_FLOAT32,
			Shape: []int64{1, 1024, 32, 128},
			// Views the floats' bytes without a copy. The machine must be little-endian.
			Data: unsafe.Slice((*byte)(unsafe.Pointer(&q[0])), 4*len(q)),
		},
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "posenc-message-bytes", strconv.Itoa(proto.Size(request)))
	answer, err := pb.NewPositionalEncodingServiceClient(conn).ApplyRope(ctx, request)
	if err != nil {
		log.Fatal(err)
	}
	// Copies the bytes, because they may be unaligned for floats.
	rotated := make([]float32, len(q))
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&rotated[0])), 4*len(rotated)), answer.Q.Data)
	fmt.Printf("%d bytes, rotated; at position 0 %g, at position 1 %.6f\n",
		len(answer.Q.Data), rotated[0], rotated[32*128])
}
