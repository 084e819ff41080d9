package main

import (
	"fmt"
	"os"

	"github.com/arraysim/arraysim/internal/iscsi"
)

// secretHelp is the paragraph in the help of commands that log in to a LUN.
const secretHelp = `For CHAP, name the user in the address and a file with the secret, which others must not be able to
read; or set ` + iscsi.EnvUser + ` and ` + iscsi.EnvSecret + `, as for libiscsi's tools. For
a target that has to prove itself, add &mutual_user=USER&mutual_secret_file=FILE to the address; or
set ` + iscsi.EnvMutualUser + ` and ` + iscsi.EnvMutualSecret + `.`

// warnOfSecret says that an address among the arguments has a secret in it, which still works.
func warnOfSecret(flag, address string) {
	if iscsi.ShowsSecret(address) {
		fmt.Fprintf(os.Stderr, "arraysim: warning: the list of processes shows the secret in %s to every user of this machine; "+
			"set %s instead, or add ?secret_file=FILE to the address\n", flag, iscsi.EnvSecret)
	}
}
