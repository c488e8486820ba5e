package posenc

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"syscall"

	"google.golang.org/grpc/codes"
)

// newSharedFile makes a file of its full size and maps it.
func newSharedFile(path string, bytes int64) (memory []byte, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, wrongArgument("name", "%s is there already; choose another one", path)
	}
	if err != nil {
		return nil, wrongArgument("directory", "%w; must be the server's, as this process sees it", err)
	}
	defer file.Close()
	// Without Fallocate, a full file system would cause a signal when the bytes are used.
	for err = syscall.EINTR; err == syscall.EINTR; { // Go's own signals interrupt it
		err = syscall.Fallocate(int(file.Fd()), 0, 0, bytes)
	}
	// In a directory with the set-group-ID bit, files belong to the group of the directory. An example is a Kubernetes
	// volume with an fsGroup.
	directory := filepath.Dir(path)
	if of, failed := os.Stat(directory); failed == nil && of.Mode()&os.ModeSetgid != 0 {
		err = errors.Join(err, file.Chmod(0o660))
	}
	if err == nil {
		memory, err = syscall.Mmap(int(file.Fd()), 0, int(bytes), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	}
	if err != nil {
		e := newError(codes.ResourceExhausted, "bytes: no room for %d in %s: %w", bytes, directory, errors.Join(err, os.Remove(path)))
		e.Field = "bytes"
		return nil, e
	}
	return memory, nil
}

func unmap(memory []byte) error { return syscall.Munmap(memory) }

// machineMemory returns the machine's memory in bytes.
func machineMemory() int64 {
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		return math.MaxInt64
	}
	return int64(info.Totalram) * int64(info.Unit)
}
