// How a change becomes durable, or is taken back. Each is carried out and committed when those
// before it are durable or have failed, so that no batch carries what another one could not make
// durable.

package directory

import (
	"encoding/json"
	"fmt"

	"github.com/arraysim/arraysim/internal/block"
)

// change has do change the objects when it is its turn, makes that durable and calls done. On an
// error what do has returned takes the change back first.
func (d *Directory) change(do func() (undo func()), done func(error)) {
	var undo func()
	d.meta.Commit(func() []block.KV {
		undo = do()
		return d.encode()
	}, func(err error) {
		if err != nil {
			undo()
		}
		done(err)
	})
}

// swap gives a variable another value and returns what gives it back the one that it had.
func swap[T any](at *T, value T) (undo func()) {
	was := *at
	*at = value
	return func() { *at = was }
}

func (d *Directory) encode() []block.KV {
	if !d.kept {
		return nil
	}
	b, err := json.Marshal(&d.Objects)
	if err != nil {
		panic("array: internal error: " + err.Error())
	}
	return []block.KV{{Key: []byte(key), Value: b}}
}

// Again returns what an entry that is in doubt is now: the objects may have been taken back.
func (d *Directory) Again(e block.KV) []block.KV {
	if string(e.Key) == key {
		return d.encode()
	}
	return []block.KV{e}
}

// TakeBack commits the objects once more after a batch has failed: nobody knows what the store has
// of that batch. then hears why this failed, too, if it did: the next start may find the change
// done or not. It hears of no error where another batch was durable in between: that one had the
// objects without the change, and what fails now says nothing else.
func (d *Directory) TakeBack(then func(again error)) {
	doubt := true
	d.meta.Commit(func() []block.KV {
		doubt = d.meta.InDoubt(key)
		return d.encode()
	}, func(again error) {
		if !doubt {
			again = nil
		}
		then(again)
		d.hooks.Stepped()
	})
}

// MustTakeBack is TakeBack of what hosts rely on. If the next start found less of a volume, what
// they write until then would be gone; if it found more, the space or the files that it needs would
// be others' or gone. So where this fails, too, the array takes no writes until the doubt is
// settled.
func (d *Directory) MustTakeBack(then func(again error)) {
	d.TakeBack(func(again error) {
		if again != nil {
			d.doubt = true
			d.hooks.Doubtful(fmt.Sprintf("the objects could not be written: %v", again))
		}
		then(again)
	})
}

// WhenSettled calls fn when the doubt is settled that MustTakeBack has just told of: the next start
// does not find the change then.
func (d *Directory) WhenSettled(fn func()) { d.settled = append(d.settled, fn) }

// Durable hears that a batch of the meta store is durable. Each has the objects as they are if they
// were in doubt, so that the doubt is settled.
func (d *Directory) Durable() {
	if !d.doubt || d.meta.InDoubt(key) {
		return
	}
	settled := d.settled
	d.doubt, d.settled = false, nil
	d.hooks.Doubtful("")
	for _, fn := range settled {
		fn()
	}
	d.hooks.Stepped()
}

// Doubtful is the error of a change, with what TakeBack has heard.
func Doubtful(err, again error) error {
	if again == nil {
		return err
	}
	return fmt.Errorf("%w; it could not be undone either, so the next start may find it done or not: %w", err, again)
}

// SetBlob keeps a value for the front ends, durably, under a name; nil removes it. On an error the
// value before counts, after a start, too, unless the error says that nobody knows.
func (d *Directory) SetBlob(name string, value []byte, done func(error)) {
	d.blobs = append(d.blobs, blob{name, value})
	d.change(func() (undo func()) {
		d.blobs = d.blobs[1:]
		was := d.Blobs[name]
		d.setBlob(name, value)
		return func() { d.setBlob(name, was) }
	}, func(err error) {
		if err == nil {
			done(nil)
			return
		}
		// Whatever a start finds of it, no volume lacks anything: the array goes on where this
		// fails, too.
		d.TakeBack(func(again error) { done(Doubtful(err, again)) })
	})
}

func (d *Directory) setBlob(name string, value []byte) {
	switch {
	case value == nil:
		delete(d.Blobs, name)
	case d.Blobs == nil:
		d.Blobs = map[string][]byte{name: value}
	default:
		d.Blobs[name] = value
	}
}

// Blob returns what SetBlob was given last, nil if nothing.
func (d *Directory) Blob(name string) []byte {
	for i := len(d.blobs) - 1; i >= 0; i-- {
		if b := &d.blobs[i]; b.name == name {
			return b.value
		}
	}
	return d.Blobs[name]
}
