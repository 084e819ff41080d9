package admin

import (
	"strings"
	"testing"
)

// What a node is told is checked before anything is opened.
func TestNodeConfiguration(t *testing.T) {
	const pools = "\npools:\n  - {name: p, mdisks: [{name: m, size: 1GiB}]}"
	for _, row := range []struct{ name, text, says string }{
		{"a node with an array", "node: {id: 1, secret_file: s}" + pools, ""},
		{"a node that forwards", "node: {id: 2, secret_file: s, forward: 'a:1'}", ""},
		{"no number", "node: {secret_file: s}", "a node is 1 to 250"},
		{"a number that is too high", "node: {id: 251, secret_file: s}", "a node is 1 to 250"},
		{"a name for the terminal", "node: {id: 1, secret_file: s, name: \"\\e[2J\"}", "cannot be printed"},
		{"no secret", "node: {id: 1}", "no secret_file"},
		{"no port", "node: {id: 1, secret_file: s, listen: localhost}", "not a valid address"},
		{"an owner without a port", "node: {id: 1, secret_file: s, forward: a}", "not a valid address"},
		{"an array of its own", "node: {id: 2, secret_file: s, forward: 'a:1'}" + pools, "leave pools and volumes out"},
		{"TCMU", "tcmu: true\nnode: {id: 2, secret_file: s, forward: 'a:1'}", "leave tcmu out"},
		{"an owner that is found in the pool", "store: rados\nrados: {pool: p}\nnode: {id: 2, secret_file: s, forward: 'a:1'}", "found in the pool"},
		{"an address that leads nowhere", "store: rados\nrados: {pool: p}\nnode: {id: 2, secret_file: s, listen: '0.0.0.0:3262'}", "node.address"},
		{"no address for other machines", "store: rados\nrados: {pool: p}\nnode: {id: 2, secret_file: s}", "node.listen"},
		{"an address of this machine alone, written out", "store: rados\nrados: {pool: p}\nnode: {id: 2, secret_file: s, listen: '127.0.0.1:3262'}", ""},
		{"more sessions than the owner has room for", "portal: {sessions: 2049, connections: 4096}\nnode: {id: 2, secret_file: s, forward: 'a:1'}", "2048 sessions"},
		{"a name that is not printed", "node: {id: 2, name: \"a\\x1b\", secret_file: s}", "cannot be printed"},
		{"an address that leads here", "store: rados\nrados: {pool: p}\nnode: {id: 2, secret_file: s, listen: '0.0.0.0:3262', address: 'a:3262'}", ""},
		{"no portal", "tcmu: true\nportal: {listen: none}\nnode: {id: 2, secret_file: s}", "without a portal"},
	} {
		_, err := ParseConfig("f", []byte(row.text))
		if row.says == "" && err != nil || row.says != "" && (err == nil || !strings.Contains(err.Error(), row.says)) {
			t.Errorf("%s: %v, want %q", row.name, err, row.says)
		}
	}
	c, err := ParseConfig("f", []byte("node: {id: 3, secret_file: s}"))
	if err != nil || c.firstPort() != 513 || c.linkAddress() != defaultLink {
		t.Errorf("node 3: port %d, link %s, %v", c.firstPort(), c.linkAddress(), err)
	}
}
