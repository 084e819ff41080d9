package main

import "github.com/arraysim/arraysim/lab/plug"

// sieve has a hand that goes from old to new blocks and evicts the first that was not referenced since it passed
// (NSDI 2024). The hand is -1 where it begins again with the oldest.
type sieve struct {
	queue *plug.Order
	seen  []bool
	hand  int
}

func newSieve(c plug.Cache) (plug.Eviction, error) {
	return &sieve{plug.NewOrder(c.Blocks), make([]bool, c.Blocks), -1}, nil
}

func (s *sieve) Insert(slot int, block uint64) { s.queue.Push(slot) }
func (s *sieve) Hit(slot int)                  { s.seen[slot] = true }
func (s *sieve) Remove(slot int) {
	if s.hand == slot {
		s.hand = s.queue.Newer(slot)
	}
	s.queue.Remove(slot)
	s.seen[slot] = false
}
func (s *sieve) Victim(pinned func(slot int) bool) int {
	for ; ; s.hand = s.queue.Newer(s.hand) {
		if s.hand < 0 {
			s.hand = s.queue.Oldest()
		}
		if !s.seen[s.hand] && !pinned(s.hand) {
			return s.hand
		}
		s.seen[s.hand] = s.seen[s.hand] && pinned(s.hand)
	}
}
