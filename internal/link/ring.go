package link

// ring is a queue. The zero value is empty.
type ring[T any] struct {
	items   []T // of a power of two, or nil
	head, n int
}

func (r *ring[T]) len() int { return r.n }

func (r *ring[T]) push(v T) {
	if r.n == len(r.items) {
		items := make([]T, max(2*len(r.items), 16))
		for i := range r.n {
			items[i] = r.items[(r.head+i)&(len(r.items)-1)]
		}
		r.items, r.head = items, 0
	}
	r.items[(r.head+r.n)&(len(r.items)-1)] = v
	r.n++
}

// first returns the oldest one. Preconditions: there is one.
func (r *ring[T]) first() *T { return &r.items[r.head] }

// pop takes the oldest one away. Preconditions: there is one.
func (r *ring[T]) pop() {
	var none T
	r.items[r.head] = none
	r.head = (r.head + 1) & (len(r.items) - 1)
	r.n--
}
