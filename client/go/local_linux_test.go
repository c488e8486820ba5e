package posenc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

// usePosencd makes Local start the binary of the tests.
func usePosencd(t *testing.T) {
	t.Helper()
	binary := os.Getenv("POSENC_POSENCD")
	if binary == "" {
		t.Skip("POSENC_POSENCD does not name a posencd")
	}
	t.Setenv("POSENCD", binary)
}

func startedLocal(t *testing.T, flags ...string) *Client {
	t.Helper()
	c, err := Local(context.Background(), flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func localFolders(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("/dev/shm/posenc-local-*")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// serversAt returns the folders in /proc of the servers that Local started in this folder.
func serversAt(folder string) (found []string) {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		line, _ := os.ReadFile(path) // fails if the process has ended
		if slices.Contains(strings.Split(string(line), "\x00"), "--ready-file="+folder+"/ready") {
			found = append(found, filepath.Dir(path))
		}
	}
	return found
}

func expectRotates(t *testing.T, c *Client) {
	t.Helper()
	values := numbers(4 * 2 * 8)
	q := tensorWith(t, DtypeFloat32, values, 1, 4, 2, 8)
	rope, err := c.Rope(context.Background(), Spec(halfSplit))
	if err == nil {
		err = rope.Apply(context.Background(), BSHD, StartAt(0), q, Tensor{})
	}
	if err != nil {
		t.Fatal(err)
	}
	expectValues(t, q, rotatedAll(values, 8, 10000, func(head int) float64 { return float64(head / 2) }), tolerance(DtypeFloat32))
}

// expectNoNew fails if there is a folder that is not in the list before. Some folders of the list may be gone, because
// a start removes older folders.
func expectNoNew(t *testing.T, before []string) {
	t.Helper()
	for _, folder := range localFolders(t) {
		if !slices.Contains(before, folder) {
			t.Errorf("%s is left", folder)
		}
	}
}

func expectNoLocal(t *testing.T, text string, flags ...string) {
	t.Helper()
	before := localFolders(t)
	c, err := Local(context.Background(), flags...)
	var e *Error
	if !errors.As(err, &e) || e.Code != codes.Unavailable || !regexp.MustCompile(`^posenc.Local\(\): (?s:.*)`+text).MatchString(e.Message) {
		t.Errorf("%v; want %s", err, text)
	}
	if c != nil {
		c.Close()
	}
	expectNoNew(t, before)
}

func TestALocalServerIsPrivateAndLeavesNothing(t *testing.T) {
	usePosencd(t)
	for _, folder := range []string{"HOME", "TMPDIR"} { // nothing is written there
		t.Setenv(folder, "/proc")
	}
	t.Setenv("POSENC_TOKEN_FILE", "/nonexistent") // meant for other servers
	c, other := startedLocal(t, "--threads=1", "--drain-timeout=2s"), startedLocal(t)
	folder := c.local.folder
	if about, err := os.Stat(folder); err != nil || about.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", about, err)
	}
	expectRotates(t, c)
	region := regionOf(t, c, 1<<20)
	if region.Name() == "" || len(serversAt(folder)) != 1 {
		t.Errorf("region %q, servers %v", region.Name(), serversAt(folder))
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) || len(serversAt(folder)) != 0 {
		t.Errorf("%v, servers %v", err, serversAt(folder))
	}
	expectRotates(t, other)
}

// TestLocalServerOfAnotherProcess is run by the next test, as the process that is killed.
func TestLocalServerOfAnotherProcess(t *testing.T) {
	if os.Getenv("POSENC_HOLD_LOCAL") == "" {
		t.Skip("only for another test")
	}
	c := startedLocal(t)
	expectRotates(t, c)
	fmt.Println("folder", c.local.folder)
	time.Sleep(time.Minute)
}

func TestALocalServerEndsWhenItsProcessIsKilled(t *testing.T) {
	usePosencd(t)
	program := exec.Command(os.Args[0], "-test.run=^TestLocalServerOfAnotherProcess$")
	program.Env = append(os.Environ(), "POSENC_HOLD_LOCAL=1")
	output, err := program.StdoutPipe()
	if err == nil {
		err = program.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var folder string
	if _, err := fmt.Fscanf(output, "folder %s\n", &folder); err != nil || len(serversAt(folder)) != 1 {
		t.Errorf("%v; folder %q", err, folder)
	}
	program.Process.Kill()
	program.Wait()
	for end := time.Now().Add(time.Minute); len(serversAt(folder)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the server outlives its parent")
		}
	}
	// The next start removes the folder of the killed process, which may hold regions, but not the folder of a running
	// server.
	c := startedLocal(t)
	for _, each := range []string{folder, c.local.folder} {
		if err := os.Chtimes(each, time.Unix(0, 0), time.Unix(0, 0)); err != nil {
			t.Error(err)
		}
	}
	startedLocal(t)
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	expectRotates(t, c)
}

func TestALocalServerThatIsKilledIsNamed(t *testing.T) {
	usePosencd(t)
	c := startedLocal(t)
	expectRotates(t, c)
	c.local.cmd.Process.Kill()
	_, err := c.Rope(context.Background(), Preset("llama-3.1-8b"))
	if err == nil || !strings.HasSuffix(err.Error(), "posencd was killed by signal 9; call posenc.Local() again") {
		t.Error(err)
	}
}

func TestAPosencdThatCannotStartIsNamed(t *testing.T) {
	usePosencd(t)
	for _, c := range []struct{ what, program, text string }{
		{"not there", "", "no such file or directory; POSENCD must name the server's program"},
		// A file system that is mounted noexec gives the same error.
		{"not executable", " ", "permission denied; it must be executable, .* noexec"},
		{"without its loader", "#!/lib/ld-musl-x86_64.so.1\n", "no such file .* needs glibc, which musl"},
		{"for another machine", "\x7fELF" + strings.Repeat("\x00", 60), "exec format error; is it a program for this machine"},
		{"for a newer glibc", "#!/bin/sh\necho \"libc.so.6: version 'GLIBC_2.99' not found\" >&2\nexit 1\n",
			"ended with code 1: .*GLIBC_2.99.* not found; this system's C library is too old"},
		{"killed at its start", "#!/bin/sh\nkill -9 $$\n", "was killed by signal 9"},
	} {
		t.Run(c.what, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "posencd")
			mode := os.FileMode(0o755)
			if c.program == " " {
				mode = 0o644
			}
			if c.program != "" {
				if err := os.WriteFile(file, []byte(c.program), mode); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("POSENCD", file)
			expectNoLocal(t, c.text)
		})
	}
	expectNoLocal(t, "ended with code 2: .*--threads", "--threads=-1")
	t.Setenv("POSENCD", "")
	t.Setenv("PATH", "")
	expectNoLocal(t, "there is no posencd: pip install posenc-server==")
	if _, err := privateFolder("/nonexistent"); err == nil || !strings.Contains(err.Error(), "/nonexistent: no such file or directory; client and server share memory there: mount a tmpfs") {
		t.Error(err)
	}
}

func TestALocalServerThatIsNotReadyInTimeIsEnded(t *testing.T) {
	usePosencd(t)
	folder := t.TempDir()
	file := filepath.Join(folder, "posencd")
	if err := os.WriteFile(file, []byte("#!/bin/sh\nexec cat\n"), 0o755); err != nil { // cat ends when its input ends
		t.Fatal(err)
	}
	t.Setenv("POSENCD", file)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	before := localFolders(t)
	if _, err := Local(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	expectNoNew(t, before)
}
