package testkit

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// leakWait is how long what ends behind a test may take; it is waited for only when something is left.
const leakWait = 60 * time.Second

// Main runs the tests of a package and fails when goroutines or descriptors are left behind by them. Their temporary folders lie
// in one that the next process removes where this one is killed. It is for a TestMain.
func Main(m *testing.M) {
	flag.Parse()
	temp, err := processDir(os.TempDir())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv("TMPDIR", temp)
	code := run(m)
	os.RemoveAll(temp)
	os.Exit(code)
}

func run(m *testing.M) (code int) {
	goroutines, files := runtime.NumGoroutine(), descriptors()
	code = m.Run()
	if f := flag.Lookup("test.fuzz"); code != 0 || f != nil && f.Value.String() != "" {
		return code
	}
	var why string
	for end := time.Now().Add(leakWait); ; time.Sleep(20 * time.Millisecond) {
		// Connections that are kept for the next request are nobody's leak.
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		if why = left(goroutines, files); why == "" || time.Now().After(end) {
			break
		}
	}
	if why != "" {
		fmt.Fprintln(os.Stderr, "left behind by the tests:", why)
		code = 1
	}
	return code
}

// library lists functions of libraries whose goroutines nobody can end: Pebble leaves its log's writer behind when a store
// cannot be opened.
var library = []string{"pebble/record.(*LogWriter).flushLoop(0x"}

// left describes what there is now and was not before.
func left(goroutines int, files map[string]int) string {
	var out []string
	if n := runtime.NumGoroutine(); n > goroutines {
		buf := make([]byte, 1<<20)
		stacks := string(buf[:runtime.Stack(buf, true)])
		for _, fn := range library {
			n -= strings.Count(stacks, fn)
		}
		if n > goroutines {
			out = append(out, fmt.Sprintf("%d goroutines\n%s", n-goroutines, stacks))
		}
	}
	for name, n := range descriptors() {
		if n > files[name] {
			out = append(out, fmt.Sprintf("%d descriptors of %s", n-files[name], name))
		}
	}
	return strings.Join(out, "; ")
}

// descriptors counts open files by name, sockets together; those of the runtime's poller do not count.
func descriptors() map[string]int {
	out := map[string]int{}
	list, _ := filepath.Glob("/proc/self/fd/*")
	for _, p := range list {
		name, err := os.Readlink(p)
		if err != nil || strings.HasPrefix(name, "anon_inode:[event") || strings.HasPrefix(name, "/proc/") || strings.HasPrefix(name, "pipe:") {
			continue
		}
		if strings.HasPrefix(name, "socket:") {
			name = "sockets"
		}
		out[name]++
	}
	return out
}
