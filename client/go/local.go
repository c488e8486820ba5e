package posenc

import (
	"context"
	"errors"
)

// Local starts posencd, and makes a client of it; the client's Close ends the server, too.
//
// flags are more of posencd's, such as "--threads=1". posencd is the file that the variable POSENCD names, else the first
// on PATH. It does not get the variables POSENC_..., which are meant for other servers and clients. It listens on a unix
// socket in a folder of /dev/shm that only this user may enter, and shares memory there ([Client.SharedRegion]).
//
// Each call starts a server of its own. It also ends when this process is killed: it reads a pipe that this process
// alone holds, and the kernel closes that at any end.
//
// The error has the code Unavailable if the server cannot be started, and its text has the remedy. ctx bounds the start.
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
