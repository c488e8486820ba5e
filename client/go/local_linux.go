package posenc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
)

const (
	sharedMemory = "/dev/shm"
	localPrefix  = "posenc-local-"
	// posencd starts within 20 ms, but a machine may be busy.
	longestStart = 30 * time.Second
	longestEnd   = 10 * time.Second
	longestDeath = 500 * time.Millisecond
)

// localServer is a posencd that this process started.
type localServer struct {
	folder string
	cmd    *exec.Cmd
	end    context.CancelFunc // closes the server's standard input; kills the server if that does not end it
	ended  chan struct{}      // closed when the process has ended
}

// startLocal starts the server of Local, and waits until it is ready.
func startLocal(ctx context.Context, flags []string) (*localServer, error) {
	posencd, err := findPosencd()
	if err != nil {
		return nil, err
	}
	removeLeftovers()
	folder, err := privateFolder(sharedMemory)
	if err != nil {
		return nil, err
	}
	s := &localServer{folder: folder, ended: make(chan struct{})}
	if err = s.start(posencd, flags); err == nil {
		err = s.awaitReady(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func localError(format string, args ...any) *Error {
	return newError(codes.Unavailable, "posenc.Local(): "+format, args...)
}

func findPosencd() (string, error) {
	if named := os.Getenv("POSENCD"); named != "" {
		return named, nil
	}
	found, err := exec.LookPath("posencd")
	if err != nil {
		return "", localError("there is no posencd: pip install posenc-server==%s (the wheel is for Linux on x86_64 or aarch64 with glibc 2.36 or newer), or name one by POSENCD", Version)
	}
	return found, nil
}

func privateFolder(parent string) (string, error) {
	folder, err := os.MkdirTemp(parent, localPrefix)
	if err != nil {
		return "", localError("%s: %w; client and server share memory there: mount a tmpfs that this user may write, or use posenc.NewClient with a server that was started by hand", parent, reasonOf(err))
	}
	return folder, nil
}

// reasonOf returns the system's error without the call and the path, because the text of localError names the path.
func reasonOf(err error) error {
	var system syscall.Errno
	if errors.As(err, &system) {
		return system
	}
	return err
}

func (s *localServer) start(posencd string, flags []string) error {
	own := []string{"--exit-with-stdin", "--listen=unix:" + s.folder + "/socket", "--shared-memory-prefix=" + s.folder + "/", "--ready-file=" + s.folder + "/ready"}
	log, err := os.Create(s.folder + "/log")
	if err != nil {
		return localError("%w", err)
	}
	defer log.Close()
	ctx, end := context.WithCancel(context.Background())
	s.end = end
	s.cmd = exec.CommandContext(ctx, posencd, append(own, flags...)...)
	s.cmd.Args[0] = "posencd"
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "POSENC_") })
	s.cmd.Env = append(s.cmd.Env, "POSENC_DRAIN_TIMEOUT=1s", "POSENC_LOG_LEVEL=warning", "POSENC_LOG_FORMAT=text") // flags override these
	// posencd gets a session of its own, so that Control-C at a terminal ends only this process.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// posencd ends when this pipe is closed. When this process ends, the kernel closes the pipe.
	stdin, err := s.cmd.StdinPipe()
	if err == nil {
		s.cmd.Cancel, s.cmd.WaitDelay = stdin.Close, longestEnd
		err = s.cmd.Start()
	}
	if err != nil {
		s.cmd = nil
		return localError("%s: %w; %s", posencd, reasonOf(err), remedyOf(posencd, err))
	}
	go func() {
		_ = s.cmd.Wait() // endOf reports how the process ended
		close(s.ended)
	}()
	return nil
}

func remedyOf(posencd string, err error) string {
	_, missing := os.Stat(posencd)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "it must be executable, on a file system that is not mounted noexec; or name another by POSENCD"
	case errors.Is(err, fs.ErrNotExist) && missing == nil:
		return "the file is there, but not its loader: it needs glibc, which musl systems such as Alpine lack"
	case errors.Is(err, fs.ErrNotExist):
		return "POSENCD must name the server's program, or be unset"
	default:
		return "is it a program for this machine? Name another by POSENCD"
	}
}

func (s *localServer) awaitReady(ctx context.Context) error {
	late := time.After(longestStart)
	for {
		if _, err := os.Stat(s.folder + "/ready"); err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return localError("%s", s.endOf())
		case <-ctx.Done():
			return localError("%w before posencd was ready", ctx.Err())
		case <-late:
			return localError("posencd is not ready after %v: is the machine too busy?", longestStart)
		case <-time.After(time.Millisecond):
		}
	}
}

// endOf returns how the server ended, and the end of its log.
func (s *localServer) endOf() string {
	status := s.cmd.ProcessState.Sys().(syscall.WaitStatus)
	how := fmt.Sprintf("posencd ended with code %d", status.ExitStatus())
	if status.Signaled() {
		how = fmt.Sprintf("posencd was killed by signal %d", status.Signal())
	}
	log, _ := os.ReadFile(s.folder + "/log")
	said := strings.TrimSpace(string(log[max(0, len(log)-2000):]))
	if strings.Contains(said, "GLIBC") {
		said += "; this system's C library is too old for it: use a newer system, or name another posencd by POSENCD"
	}
	if said == "" {
		return how
	}
	return how + ": " + said
}

// whyGone returns a text that says how the server ended, or "" if it still runs after a short wait.
func (s *localServer) whyGone() string {
	select {
	case <-s.ended:
		return "; " + s.endOf() + "; call posenc.Local() again"
	case <-time.After(longestDeath):
		return ""
	}
}

func (s *localServer) stop() error {
	if s.cmd != nil {
		s.end()
		<-s.ended
	}
	return os.RemoveAll(s.folder)
}

// removeLeftovers removes the folders of processes that were killed, and so frees the memory of their regions.
func removeLeftovers() {
	folders, _ := filepath.Glob(filepath.Join(sharedMemory, localPrefix+"*"))
	for _, folder := range folders {
		about, err := os.Lstat(folder)
		if err != nil || !about.IsDir() || about.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
			continue
		}
		// A new folder may belong to a server that is starting.
		if time.Since(about.ModTime()) < longestStart {
			continue
		}
		probe, err := net.Dial("unix", folder+"/socket")
		if err == nil {
			probe.Close()
		} else if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.RemoveAll(folder)
		}
	}
}
