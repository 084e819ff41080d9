// Package link carries SCSI commands from a node that forwards to the node that has the array. Hosts log in at either;
// a [Client] makes the I_T nexuses of a forwarding node's sessions at the owner, over one TCP connection, the link, and a
// [Server] there submits what comes to the owner's [scsi.Target]s. So reservations, unit attentions, LUN masking, offloads and
// counters have one owner, whichever node a command came by.
//
// # Shape
//
//	portal --> Client --> queue --> writer ==== link ====> reader --> scsi.Nexus.Submit     Server
//	             ^                                                         |
//	             +------- reader <==================== writer <-- queue <--+ Done
//
// A command goes over the link as a whole: CDB, then all of its Data-Out, in the order of arrival. Its result comes back as
// a whole, too, in any order. Nobody waits for the link with an executor held.
//
// # What a broken link does to commands
//
// A command that was not sent in full cannot have been carried out: it ends with NOT READY, ASYMMETRIC ACCESS STATE
// TRANSITION, and so does whatever comes while there is no link, but for what a device server says in that state
// (transition.go). One that was sent may have been carried out, may be carried out now, or never. It is not answered before
// that has an end, for a host that is told may write the same blocks by another path. It has when the owner has welcomed this
// node again, before which it ends all that is left of the former link, or when [holdTime] has passed since the end of the link
// without a word from it: each command carries the owner's own clock, as the node has heard it last, and the owner begins none
// for which that is older than [freshTime]. Then the command ends with ABORTED COMMAND, LOGICAL UNIT COMMUNICATION FAILURE, and
// is not repeated here.
//
// What a node says is not all that a host goes by: it tries another path as well when its session here ends, or the whole node
// does. So what was not sent is taken back then, what was sent in part is revoked, and the owner lets no more than [creditBytes]
// be on their way: an owner that runs has read them before a host has found another path, and one that does not run finds them
// too old.
//
// # Trust
//
// Both ends prove by TLS 1.3 that they have one secret (secure.go). A node that has it may speak for any initiator. What it
// sends is bounded all the same: by the window that the owner announces, by the length of messages, by the number of nexuses.
package link

import (
	"crypto/rand"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/arraysim/arraysim/internal/scsi"
)

// Node is one node of those that show the same array.
type Node struct {
	ID   uint16 // 1 to MaxNode
	Name string // for people; at most 64 bytes
	// Ports is how many target ports the node has, 1 to MaxPorts.
	Ports int
}

// Bounds of nodes. Relative target port identifiers have 16 bits, and each node has as many as a byte counts.
const (
	MaxNode  = 250
	MaxPorts = 16
	maxName  = 64

	portsOfNode = 256
)

// FirstPort is the relative target port identifier of a node's first target port; the others follow. It is the number of the
// port's group, too, and the portal group tag.
func FirstPort(node uint16) uint16 { return (node-1)*portsOfNode + 1 }

// AccessPorts are a node's target ports as a scsi.Target is told of them.
func (n Node) AccessPorts(s scsi.AccessState) []scsi.Port {
	var out []scsi.Port
	for i := range n.Ports {
		id := FirstPort(n.ID) + uint16(i)
		out = append(out, scsi.Port{ID: id, Group: id, State: s, Transits: true})
	}
	return out
}

// Check says what is wrong with a description of a node.
func (n Node) Check() error {
	switch {
	case n.ID < 1 || n.ID > MaxNode:
		return fmt.Errorf("node %d: a node is 1 to %d", n.ID, MaxNode)
	case n.Ports < 1 || n.Ports > MaxPorts:
		return fmt.Errorf("node %d has %d target ports; it has 1 to %d", n.ID, n.Ports, MaxPorts)
	case len(n.Name) > maxName:
		return fmt.Errorf("node %d: its name has %d bytes, at most %d", n.ID, len(n.Name), maxName)
	case !utf8.ValidString(n.Name) || strings.ContainsFunc(n.Name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("node %d: its name has a character that cannot be printed", n.ID)
	}
	return nil
}

// Times of the link. Each is measured by one end's own clock.
const (
	pingTime   = 200 * time.Millisecond // both ends say something at least that often
	silentTime = 5 * time.Second        // a link that brings nothing for that long is broken
	// freshTime is how old the owner's clock may be that a command carries.
	freshTime = time.Second
	// holdTime is for how long a command that may have been carried out is held from when its link is found broken, up to silentTime
	// behind the owner's last word, or from when the owner says that it is busy: longer than the owner needs to find the link
	// broken (silentTime) and to give up an mdisk that does not answer (5 s).
	holdTime = 12 * time.Second
	// awayTime is for how long the ports of a node stay what they were behind the end of its link: one that links again at
	// once disturbs nobody else.
	awayTime = 3 * time.Second
	// retryTime is the wait before a node links again, which doubles up to retryMost while links end soon.
	retryTime = 250 * time.Millisecond
	retryMost = 4 * time.Second
	// admitTime bounds how long a node is told to wait in one connection, killTime how long the end of links that were cut off
	// is waited for.
	admitTime = time.Minute
	killTime  = 5 * time.Second
	// maxPause bounds for how long an owner that is about to leave can have hosts wait: Linux aborts a command behind 30 s.
	maxPause = 25 * time.Second
	// handshakeTime bounds TLS and greeting, writeTime one write of at most chunkLen bytes.
	handshakeTime = 5 * time.Second
	writeTime     = 10 * time.Second
)

// Bounds of what one peer can make the other hold.
const (
	protocolVersion = 3

	windowCommands = 1024
	windowBytes    = 128 << 20 // of a link, at most
	leastWindow    = 8 << 20   // and at least
	budgetBytes    = 512 << 20 // of which the windows of all links are taken, but for the least
	maxTransfer    = 64 << 20  // Data-Out or Data-In of one command, each
	maxPauses      = 16        // that a node has not answered
	maxManages     = 4096      // task management functions in progress
	maxStrangers   = 16        // connections that have not proved that they have the secret, or not said who they are
	maxTargets     = 16
	chunkLen       = 256 << 10

	// creditBytes is how much of commands, with their data, may be on its way without the owner having read it. It is more than a
	// chunk and a piece, so that neither end waits for the other.
	creditBytes = 512 << 10
	creditStep  = creditBytes / 4
	pieceLen    = 64 << 10
	// signBytes are what a node that waits for credits has of them for signs of life, one byte each:
	// for more than ten minutes.
	signBytes = 4 << 10

	maxArray = 64 // bytes of the name of an array
)

// MaxNexuses is how many I_T nexuses a node can have at the owner. A session beyond them ends.
const MaxNexuses = 2048

// Bounds of what one session can have another one wait for.
const (
	leastShare = 32   // of the window, in commands
	maxQueued  = 4096 // commands of a session that wait at the node; more end with TASK SET FULL
)

// incarnation tells a process from all others.
type incarnation [16]byte

func newIncarnation() (i incarnation) {
	rand.Read(i[:]) // never fails (crypto/rand)
	return i
}

// Peer describes the node at the other end.
type Peer struct {
	Node
	Address string
	Linked  bool
	// StandsBy: the node takes the array where its owner leaves it.
	StandsBy bool
	// Sessions is how many I_T nexuses of its hosts are open here, Commands how many commands have ended, both of a node
	// that forwards to this one.
	Sessions int
	Commands uint64
}
