package posenc

import (
	"context"
	"errors"
)

// Local starts a server, posencd, and returns its client. The client's Close ends the server, too.
//
// flags are additional flags of posencd, such as "--threads=1". posencd is the file that the environment variable
// POSENCD names, or else the first posencd on PATH. The server does not get the variables POSENC_..., which are meant
// for other servers and clients. The server listens on a unix socket in a folder of /dev/shm that only this user may
// enter, and shares memory there ([Client.SharedRegion]).
//
// Each call starts another server. The server also ends when this process is killed: it reads a pipe that only this
// process has open, and the kernel closes the pipe when this process ends.
//
// If the server cannot be started, the error has the code Unavailable, and its text says what to do. ctx bounds the
// time of the start.
func Local(ctx context.Context, flags ...string) (*Client, error) {
	server, err := startLocal(ctx, flags)
	if err != nil {
		return nil, err
	}
	c, err := NewClient("unix:" + server.folder + "/socket")
	if err != nil {
		return nil, errors.Join(err, server.stop())
	}
	c.local = server
	return c, nil
}
