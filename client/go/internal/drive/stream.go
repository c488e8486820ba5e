package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	posenc "github.com/posenc/posenc/client/go"
	"github.com/posenc/posenc/client/go/internal/elements"
	"github.com/posenc/posenc/client/go/posencv1"
)

// applyByStream sends the tensors as a stream, and compares the result with the
// unary answer.
func applyByStream(ctx context.Context, c *posenc.Client, request *posencv1.ApplyRopeRequest, sent, answer []posenc.Tensor) error {
	call := proto.CloneOf(request)
	withoutElements(call.GetQ(), call.GetK())
	s, err := c.Stub().ApplyRopeStream(ctx)
	return compare(s, err, sent, answer, func(data []byte, first bool) *posencv1.ApplyRopeStreamRequest {
		if first {
			return &posencv1.ApplyRopeStreamRequest{Call: call, Data: data}
		}
		return &posencv1.ApplyRopeStreamRequest{Data: data}
	}, (*posencv1.ApplyRopeStreamResponse).GetData)
}

func repositionByStream(ctx context.Context, c *posenc.Client, request *posencv1.RepositionRequest, sent, answer []posenc.Tensor) error {
	call := proto.CloneOf(request)
	withoutElements(call.GetK())
	s, err := c.Stub().RepositionStream(ctx)
	return compare(s, err, sent, answer, func(data []byte, first bool) *posencv1.RepositionStreamRequest {
		if first {
			return &posencv1.RepositionStreamRequest{Call: call, Data: data}
		}
		return &posencv1.RepositionStreamRequest{Data: data}
	}, (*posencv1.RepositionStreamResponse).GetData)
}

func withoutElements(tensors ...*posencv1.Tensor) {
	for _, tensor := range tensors {
		if tensor != nil {
			tensor.Values, tensor.Data = nil, nil
		}
	}
}

// compare sends the bytes of tensors in messages that end at random places
// between elements, and compares the joined answers with the tensors' bytes.
func compare[Q, A any](s grpc.BidiStreamingClient[Q, A], err error, sent, answer []posenc.Tensor,
	message func(data []byte, first bool) *Q, dataOf func(*A) []byte) error {
	if err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	var data, want, got []byte
	element := 1
	for i, tensor := range sent {
		data, want = append(data, tensor.Bytes()...), append(want, answer[i].Bytes()...)
		if tensor.Given() {
			element = max(element, elements.Size(tensor.Dtype()))
		}
	}
	random := rand.New(rand.NewPCG(45, uint64(len(data))))
	go func() {
		for first := true; first || len(data) > 0; first = false {
			n := element * random.IntN(len(data)/element+1)
			if s.Send(message(data[:n], first)) != nil {
				return // Recv gives the error
			}
			data = data[n:]
		}
		s.CloseSend()
	}()
	for {
		m, err := s.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("stream: %w", err)
		}
		got = append(got, dataOf(m)...)
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("stream: the bytes differ from those of the unary answer")
	}
	return nil
}
