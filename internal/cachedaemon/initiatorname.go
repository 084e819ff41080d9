package cachedaemon

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"strings"
)

// initiatorPrefix begins the name of every cache host that is not given one.
const initiatorPrefix = "iqn.2026-01.io.arraysim:hostcache."

// ownInitiatorName names this host as an initiator: always the same on one machine, and another one on each. A name that two
// hosts share lets each take the other's session.
func ownInitiatorName() (string, error) {
	id, err := os.ReadFile("/etc/machine-id")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	return initiatorName(strings.TrimSpace(string(id)), host)
}

// initiatorName makes a name of a machine's id and its host name; one of them is enough. The id itself must not be told
// (machine-id(5)).
func initiatorName(machineID, host string) (string, error) {
	if machineID == "uninitialized" {
		machineID = ""
	}
	if machineID == "" && (host == "" || host == "(none)" || strings.HasPrefix(host, "localhost")) {
		return "", errors.New("nothing identifies this machine: it has no /etc/machine-id and no host name; give it a unique name with --initiator")
	}
	sum := sha256.Sum256([]byte("arraysim initiator\n" + machineID + "\n" + host))
	return initiatorPrefix + hex.EncodeToString(sum[:6]), nil
}
