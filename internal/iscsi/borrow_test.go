package iscsi

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/scsi"
)

// TestBorrowedData: the small data of a command stays where it was received, untouched by all that
// comes while the command lasts, and commands never keep more than one memory beside the reader's.
func TestBorrowedData(t *testing.T) {
	const commands, rounds = 100, 6
	for _, digest := range []string{"None", "CRC32C"} {
		for _, size := range []int{512, 4 << 10, smallCommand, smallCommand + 512} {
			t.Run(fmt.Sprintf("digest %s, %d bytes", digest, size), func(t *testing.T) {
				r := newRig(t, nil)
				tasks := map[uint64]*scsi.Task{} // by tag; with the executor held
				r.withFake(func(f *fakeTarget) {
					f.seen = func(task *scsi.Task) { tasks[task.Tag] = task }
				})
				c := r.login(func(cfg *ClientConfig) { cfg.Keys = map[string]string{keyHeaderDigest: digest, keyDataDigest: digest} })
				borrowed, most := 0, 0
				for round := range rounds {
					sent := map[uint64]int{}
					for i := range commands {
						hdr, _ := c.CommandHeader(0, cdb10(opStuck, 0, 0), size, 0)
						sent[uint64(bhs(hdr[:]).itt())] = round + i
						if err := c.Send(hdr, nil, pattern(size, round+i)); err != nil {
							t.Fatal(err)
						}
					}
					r.awaitStuck(commands)
					r.withFake(func(f *fakeTarget) {
						memories := map[*receiveMemory]bool{}
						for tag, seed := range sent {
							task := tasks[tag]
							if !bytes.Equal(bytes.Join(task.DataOut, nil), pattern(size, seed)) {
								t.Errorf("the data of command %d has changed", tag)
							}
							if cmd := task.Ctx.(*command); cmd.lent != nil {
								memories[cmd.lent] = true
								borrowed++
							}
						}
						most = max(most, len(memories))
						clear(tasks)
						for n := range f.nexuses {
							for i := range n.stuck { // the last first
								f.end(n.stuck[len(n.stuck)-1-i])
							}
							n.stuck = nil
						}
					})
					for range commands {
						if pdu, err := c.Receive(); err != nil || pdu.Header[0] != opResponse {
							t.Fatal(pdu, err)
						}
					}
				}
				if most > 1 {
					t.Errorf("commands keep %d memories", most)
				}
				if small := size <= smallCommand; small != (borrowed > 0) {
					t.Errorf("%d of %d commands used their data in place", borrowed, rounds*commands)
				}
			})
		}
	}
}

// TestBorrowedDigest: data that is borrowed before its digest is here is never used when that is
// wrong; the session ends, what other commands borrowed stays as it was until they end, and all
// that was borrowed is given back.
func TestBorrowedDigest(t *testing.T) {
	const size = 4 << 10
	for _, late := range []bool{false, true} { // the digest comes on its own
		t.Run(fmt.Sprintf("late %v", late), func(t *testing.T) {
			r := newRig(t, nil)
			var tasks []*scsi.Task // with the executor held
			r.withFake(func(f *fakeTarget) {
				f.seen = func(task *scsi.Task) { tasks = append(tasks, task) }
			})
			c := r.login(func(cfg *ClientConfig) { cfg.Keys = map[string]string{keyDataDigest: digestCRC32C} })
			first, _ := c.CommandHeader(0, cdb10(opStuck, 0, 0), size, 0)
			if err := c.Send(first, nil, pattern(size, 1)); err != nil {
				t.Fatal(err)
			}
			r.awaitStuck(1)
			came := r.portal.Sessions()[0].ReceivedBytes
			var lent *receiveMemory
			r.withFake(func(*fakeTarget) { lent = tasks[0].Ctx.(*command).lent })
			if lent == nil || lent.users.Load() != 2 {
				t.Fatal("the first command's data is not borrowed")
			}
			hdr, _ := c.CommandHeader(0, cdb10(opWrite10, 0, size/fakeBlock), size, 0)
			pdu := appendPDU(nil, hdr[:], nil, pattern(size, 2), false, true)
			digest := pdu[len(pdu)-digestLen:]
			if late {
				if _, err := c.nc.Write(pdu[:len(pdu)-digestLen]); err != nil {
					t.Fatal(err)
				}
				if !poll(func() bool { return lent.users.Load() == 3 }) {
					t.Fatal("the second command's data is not borrowed")
				}
				pdu = digest
			}
			digest[0]++
			r.withFake(func(*fakeTarget) { // the first command ends when this does
				if _, err := c.nc.Write(pdu); err != nil {
					t.Error(err)
				}
				if !poll(func() bool { return r.portal.Sessions()[0].ReceivedBytes == came+bhsLen+size+digestLen }) {
					t.Error("the data does not come")
				}
				if !bytes.Equal(bytes.Join(tasks[0].DataOut, nil), pattern(size, 1)) {
					t.Error("the data of the first command has changed")
				}
			})
			if got, err := c.Receive(); err != nil || got.Header[0] != opReject || got.Header[offResponse] != rejectDataDigest {
				t.Fatal(got, err)
			}
			if !poll(func() bool { return len(r.portal.Sessions()) == 0 }) {
				t.Fatal("the session never ends")
			}
			if !poll(func() bool { return lent.users.Load() == 1 }) { // its reader's
				t.Errorf("%d use the memory", lent.users.Load())
			}
			r.withFake(func(*fakeTarget) {
				if len(tasks) != 1 {
					t.Error("the second command came to the target")
				}
			})
			r.eventually("it is counted", func(*fakeTarget) bool { return r.errors(ErrDataDigest) == 1 })
		})
	}
}
