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
	a.commitMeta(func() []block.KV {
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

// takeBack commits the objects once more after a batch has failed. Nobody knows what the store has of that
// batch. If the next start found less of a volume, what hosts write until then would be gone; if it found
// more, the space or the files that it needs would be others' or gone. So where this fails, too, the
// array takes no more changes.
func (a *Array) takeBack(then func()) {
	a.commitMeta(a.encodeObjects, func(err error) {
		if err != nil {
			a.breakDown(fmt.Sprintf("the objects could not be written: %v", err))
		}
		then()
		a.endStep()
	})
}

// SetBlob keeps a value for the front ends, durably, under a name; nil removes it. On an error the value before counts.
func (a *Array) SetBlob(name string, value []byte, done func(error)) {
	a.blobs = append(a.blobs, blobChange{name, value})
	a.changeObjects(func() (undo func()) {
		a.blobs = a.blobs[1:]
		was := a.objects.Blobs[name]
		a.setBlob(name, value)
		return func() { a.setBlob(name, was) }
	}, done)
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
