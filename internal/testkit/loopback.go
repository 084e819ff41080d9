package testkit

import (
	"fmt"
	"os"
)

// Loopback returns an address of the loopback interface that no other process of tests takes. A port of 127.0.0.1 that a test
// closes, and is to have again, may be somebody else's by then: each connection to 127.0.0.1 takes one.
func Loopback() string {
	pid := os.Getpid() // below 1<<22 (proc_pid_max(5))
	return fmt.Sprintf("127.%d.%d.%d", 64+pid>>16&63, pid>>8&255, pid&255)
}
