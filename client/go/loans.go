package posenc

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc/mem"
)

// Smaller tensors are copied, which costs less than to wait for their return.
const lendFrom = 64 << 10

// loans counts the memory that a call has lent to its connection. It is a
// buffer pool: gRPC gives a buffer back to its pool with the last reference.
type loans struct {
	count    atomic.Int64 // loans + 1 until close
	returned chan struct{}
}

func newLoans() *loans {
	l := &loans{returned: make(chan struct{})}
	l.count.Store(1)
	return l
}

func (l *loans) lend(memory []byte) mem.Buffer {
	l.count.Add(1)
	memory = memory[:len(memory):len(memory)]
	return mem.NewBuffer(&memory, l)
}

// Get is part of mem.BufferPool. It is never called.
func (l *loans) Get(length int) *[]byte {
	memory := make([]byte, length)
	return &memory
}

// Put is part of mem.BufferPool.
func (l *loans) Put(*[]byte) {
	if l.count.Add(-1) == 0 {
		close(l.returned)
	}
}

// close ends the lending.
func (l *loans) close() { l.Put(nil) }

// await waits, after close, until all memory has come back.
func (l *loans) await(patience time.Duration) bool {
	select {
	case <-l.returned:
		return true
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-l.returned:
		return true
	case <-timer.C:
		return false
	}
}
