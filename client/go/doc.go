// Package posenc calls a posenc server, which computes positional encodings: it rotates queries and keys (RoPE), moves
// cached keys to other positions, and builds tables, biases and position ids.
//
//	c, err := posenc.Dial("localhost:50051")
//	rope, err := c.Rope(ctx, posenc.ConfigFile("config.json"))
//	err = rope.Apply(ctx, posenc.BSHD, posenc.StartAt(0),
//		posenc.Float32(q, 1, 1024, 32, 128), posenc.Float32(k, 1, 1024, 8, 128))
//
// # Memory
//
// A [Tensor] views the caller's memory. Tensors of 64 KiB and more are sent from there without a copy, and results are
// copied once, from what the connection received to the caller's outputs. No call returns, not even after a deadline or
// a cancellation, before the connection has released the tensors: they may be changed at once. A peer that reads no
// bytes can delay that by the time of [WithStuckTimeout]; then its connection is closed. During a call other code must
// not write to its tensors, or read its outputs.
//
// If a call ends with an error, its outputs may hold a part of the result. In place, a part of the tensor may then be
// rotated and the rest not, but only if the tensor was so large that it went through a stream.
//
// # Deadlines
//
// A call whose context has no deadline gets 60 s ([WithTimeout]). For a stream, 60 s is instead the longest time
// without any progress.
//
// # Errors
//
// Every error of a call is an [*Error] for errors.As. Branch on its Reason.
package posenc
