//go:build !linux

package posenc

import "math"

// The server runs only on Linux, and memory is shared only on one host.
func newSharedFile(path string, _ int64) ([]byte, error) {
	return nil, wrongArgument("directory", "%s: shared memory is for Linux", path)
}

func unmap([]byte) error { return nil }

// machineMemory returns no limit, because the memory of this system is not known.
func machineMemory() int64 { return math.MaxInt64 }
