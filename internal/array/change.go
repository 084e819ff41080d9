package array

import (
	"encoding/json"
	"fmt"

	"github.com/arraysim/arraysim/internal/block"
)

// Changes of the objects. Each is carried out and committed when those before it are durable or have
// failed, so that objects is always what the meta store has or is just given, and no batch carries what
// another one could not make durable. What a change is about stays as it was until its batch is durable.

// blobChange is a value for the front ends that is not durable yet.
type blobChange struct {
	name  string
	value []byte
}

// changeObjects has do change the objects when it is its turn, makes that durable and calls done. On an error what do
// has returned takes the change back first.
func (a *Array) changeObjects(do func() (undo func()), done func(error)) {
	var undo func()
	a.meta.Commit(func() []block.KV {
		undo = do()
		return a.encodeObjects()
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

func (a *Array) encodeObjects() []block.KV {
	if !a.payload { // nobody opens a store again that keeps nothing, and arrays of 10,000 volumes are made over it
		return nil
	}
	b, err := json.Marshal(&a.objects)
	if err != nil {
		panic("array: internal error: " + err.Error())
	}
	return []block.KV{{Key: []byte(keyObjects), Value: b}}
}

// entryAgain returns what an entry that is in doubt is now: the objects may have been taken back.
func (a *Array) entryAgain(e block.KV) []block.KV {
	if string(e.Key) == keyObjects {
		return a.encodeObjects()
	}
	return []block.KV{e}
}

// takeBack commits the objects once more after a batch has failed: nobody knows what the store has of that batch. then
// hears why this failed, too, if it did: the next start may find the change done or not.
func (a *Array) takeBack(then func(again error)) {
	a.meta.Commit(a.encodeObjects, func(again error) {
		then(again)
		a.endStep()
	})
}

// mustTakeBack is takeBack of what hosts rely on. If the next start found less of a volume, what they write until then
// would be gone; if it found more, the space or the files that it needs would be others' or gone. So where this fails,
// too, the array takes no more changes.
func (a *Array) mustTakeBack(then func(again error)) {
	a.takeBack(func(again error) {
		if again != nil {
			a.breakDown(fmt.Sprintf("the objects could not be written: %v", again))
		}
		then(again)
	})
}

// doubtful is the error of a change, with what takeBack has heard.
func doubtful(err, again error) error {
	if again == nil {
		return err
	}
	return fmt.Errorf("%w; nor could it be taken back, so the next start may find it done or not: %w", err, again)
}

// SetBlob keeps a value for the front ends, durably, under a name; nil removes it. On an error the value before counts,
// after a start, too, unless the error says that nobody knows.
func (a *Array) SetBlob(name string, value []byte, done func(error)) {
	a.blobs = append(a.blobs, blobChange{name, value})
	a.changeObjects(func() (undo func()) {
		a.blobs = a.blobs[1:]
		was := a.objects.Blobs[name]
		a.setBlob(name, value)
		return func() { a.setBlob(name, was) }
	}, func(err error) {
		if err == nil {
			done(nil)
			return
		}
		// Whatever a start finds of it, no volume lacks anything: the array goes on where this fails, too.
		a.takeBack(func(again error) { done(doubtful(err, again)) })
	})
}

func (a *Array) setBlob(name string, value []byte) {
	switch {
	case value == nil:
		delete(a.objects.Blobs, name)
	case a.objects.Blobs == nil:
		a.objects.Blobs = map[string][]byte{name: value}
	default:
		a.objects.Blobs[name] = value
	}
}

// Blob returns what SetBlob was given last, nil if nothing.
func (a *Array) Blob(name string) []byte {
	for i := len(a.blobs) - 1; i >= 0; i-- {
		if b := &a.blobs[i]; b.name == name {
			return b.value
		}
	}
	return a.objects.Blobs[name]
}
