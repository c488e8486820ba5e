package posenc

import (
	"errors"
	"math"
	"path/filepath"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// newSharedFile makes a file of its full size and maps it.
func newSharedFile(path string, bytes int64) ([]byte, error) {
	const flags = unix.O_RDWR | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	file, err := unix.Open(path, flags, 0o600)
	if errors.Is(err, unix.EEXIST) {
		return nil, wrongArgument("name", "%s is there already; choose another one", path)
	}
	if err != nil {
		return nil, wrongArgument("directory", "%s: %v; must be the server's, as this process sees it", path, err)
	}
	defer unix.Close(file)
	// Without it, a full file system would cause a signal when the bytes are used.
	err = unix.Fallocate(file, 0, 0, bytes)
	for errors.Is(err, unix.EINTR) { // Go's own signals
		err = unix.Fallocate(file, 0, 0, bytes)
	}
	// Files in such a directory belong to its group, for example in a volume with an fsGroup.
	var directory unix.Stat_t
	if err == nil {
		err = unix.Stat(filepath.Dir(path), &directory)
	}
	if err == nil && directory.Mode&unix.S_ISGID != 0 {
		err = unix.Fchmod(file, 0o660)
	}
	var memory []byte
	if err == nil {
		memory, err = unix.Mmap(file, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		unix.Unlink(path)
		e := newError(codes.ResourceExhausted, "bytes: no room for %d in %s: %v", bytes, filepath.Dir(path), err)
		e.Field = "bytes"
		return nil, e
	}
	return memory, nil
}

func unmap(memory []byte) error { return unix.Munmap(memory) }

// machineMemory returns the machine's memory in bytes.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return math.MaxInt64
	}
	return int64(info.Totalram) * int64(info.Unit)
}
