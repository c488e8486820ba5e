// Command drive runs the client for client/go/run: it replays conformance
// vectors and error cases, measures, and moves tensors between files.
package main

import (
	"fmt"
	"os"
)

var tasks = map[string]struct {
	usage string
	run   func(args []string) error
}{
	"conformance": {"TARGET DIR", conformance},
	"errors":      {"TABLE ENVFILE", replayErrors},
	"bench":       {"TARGET CASE", bench},
	"hop":         {"TARGET IN OUT SHIFT", hop},
	"zip":         {"MODULE VERSION DIR LICENSE OUT", zipModule},
}

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("drive: needs a task"))
	}
	task, known := tasks[os.Args[1]]
	if !known {
		fail(fmt.Errorf("drive: no task %q", os.Args[1]))
	}
	if err := task.run(os.Args[2:]); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
