//go:build !linux

package posenc

import (
	"context"

	"google.golang.org/grpc/codes"
)

type localServer struct{ folder string }

func startLocal(context.Context, []string) (*localServer, error) {
	return nil, newError(codes.Unavailable, "posenc.Local(): posencd is for Linux; use posenc.NewClient with a server on another machine")
}

func (*localServer) whyGone() string { return "" }

func (*localServer) stop() error { return nil }
