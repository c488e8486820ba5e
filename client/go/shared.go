package posenc

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/posenc/posenc/client/go/posencv1"
)

// SharedRegion is memory that a server on this host also maps. Calls send only the places of tensors in the region.
type SharedRegion struct {
	name string // of the file; empty if no memory is shared
	path string

	memory []byte // nil after Close
}

type regionOptions struct{ name, directory string }

// RegionOption is an option of a SharedRegion.
type RegionOption func(*regionOptions)

// RegionName names the region's file. The default is the server's prefix and random letters.
func RegionName(name string) RegionOption { return func(o *regionOptions) { o.name = name } }

// RegionDirectory is the path of the server's directory as this process sees it, if it differs from the server's path.
func RegionDirectory(path string) RegionOption { return func(o *regionOptions) { o.directory = path } }

var fileName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,255}$`)

// SharedRegion makes a region of `bytes` bytes. The caller must close it. If the server shares no memory with this
// client, the region is ordinary memory, and calls send its bytes.
func (c *Client) SharedRegion(ctx context.Context, bytes int64, options ...RegionOption) (*SharedRegion, error) {
	if memory := machineMemory(); bytes <= 0 || bytes > memory {
		return nil, wrongArgument("bytes", "is %d; must be 1 to %d, this machine's memory", bytes, memory)
	}
	server, err := c.GetServerInfo(ctx)
	if err != nil {
		return nil, err
	}
	info := server.GetSharedMemory()
	if info == nil {
		return &SharedRegion{memory: newBytes(int(bytes))}, nil
	}
	if most := info.GetMaxBytes(); most > 0 && bytes > most {
		return nil, wrongArgument("bytes", "is %d; the server maps at most %d", bytes, most)
	}
	o := collect(&regionOptions{info.GetPrefix() + rand.Text(), info.GetDirectory()}, options)
	if !fileName.MatchString(o.name) || o.name == "." || o.name == ".." || !strings.HasPrefix(o.name, info.GetPrefix()) {
		return nil, wrongArgument("name", "is %q; must be 1 to 255 letters, digits, '.', '_' and '-', not '.' or '..', and begin with %q",
			o.name, info.GetPrefix())
	}
	region := &SharedRegion{name: o.name, path: filepath.Join(o.directory, o.name)}
	if region.memory, err = newSharedFile(region.path, bytes); err != nil {
		return nil, err
	}
	return region, nil
}

// Name returns the name of the region's file, or "" if the server shares no memory with the client.
func (r *SharedRegion) Name() string { return r.name }

// Tensor views the region's bytes from offset on. Calls send only the tensor's place. If Into names the tensor, the
// server writes the result to it. If Float32 or a similar function makes a tensor from the region's memory, calls send
// the tensor as bytes.
func (r *SharedRegion) Tensor(dtype Dtype, offset int64, shape ...int) (Tensor, error) {
	if r.memory == nil {
		return Tensor{}, wrongArgument("region", "is closed; make another one")
	}
	element := elementBytes[dtype]
	if element == 0 {
		return Tensor{}, wrongArgument("dtype", "is %d, which this client does not know", int32(dtype))
	}
	if offset < 0 || offset%element != 0 {
		return Tensor{}, wrongArgument("offset", "is %d; must be a multiple of %d, 0 or more", offset, element)
	}
	tensor := Bytes(dtype, nil, shape...)
	size := sizeOf(tensor.m)
	if size < 0 || size > int64(len(r.memory))-offset {
		return Tensor{}, wrongArgument("shape", "%v of %v at offset %d does not fit %d bytes", shape, dtype, offset, len(r.memory))
	}
	tensor.m.Data = r.memory[offset : offset+size : offset+size]
	if r.name != "" && size > 0 {
		tensor.m.Shared = &posencv1.SharedMemory{Name: r.name, Offset: offset}
	}
	return tensor, nil
}

// Close removes the file and unmaps the memory. After Close, access to a slice of this memory crashes the program. No
// call with tensors of the region may be running.
func (r *SharedRegion) Close() error {
	memory := r.memory
	if r.memory = nil; memory == nil || r.path == "" {
		return nil
	}
	err := unmap(memory)
	if failed := os.Remove(r.path); !errors.Is(failed, fs.ErrNotExist) {
		err = errors.Join(err, failed)
	}
	return err
}
