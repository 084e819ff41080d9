// Sieve: a hand goes from old to new blocks and evicts the first that was not referenced since it passed (NSDI 2024).
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/arraysim/arraysim/lab"
	"github.com/arraysim/arraysim/lab/plug"
)

// sieve keeps a ring of slots in the order of insertion; place -1 of the ring is its head, and has the last index.
type sieve struct {
	older, newer []int
	seen         []bool
	hand, head   int
}

func newSieve(c plug.Cache) (plug.Eviction, error) {
	n := c.Blocks
	s := &sieve{make([]int, n+1), make([]int, n+1), make([]bool, n+1), n, n}
	s.older[n], s.newer[n] = n, n
	return s, nil
}

func (s *sieve) Insert(slot int, block uint64) {
	newest := s.older[s.head]
	s.older[slot], s.newer[slot], s.seen[slot] = newest, s.head, false
	s.newer[newest], s.older[s.head] = slot, slot
}
func (s *sieve) Hit(slot int) { s.seen[slot] = true }
func (s *sieve) Remove(slot int) {
	if s.hand == slot {
		s.hand = s.newer[slot]
	}
	s.newer[s.older[slot]], s.older[s.newer[slot]] = s.newer[slot], s.older[slot]
}
func (s *sieve) Victim(pinned func(slot int) bool) int {
	for ; ; s.hand = s.newer[s.hand] {
		if s.hand == s.head {
			continue
		}
		if !s.seen[s.hand] && !pinned(s.hand) {
			return s.hand
		}
		s.seen[s.hand] = s.seen[s.hand] && pinned(s.hand)
	}
}

func main() {
	for _, policy := range []string{"lru", "sieve", "mine"} {
		s := lab.Scenario{
			Until:  5 * time.Second,
			Arrays: []lab.Array{{Profile: "all-flash", Pools: []lab.Pool{{Name: "pool", Mdisks: []lab.Mdisk{{Size: 4 * lab.GiB}}}}, Volumes: []lab.Volume{{Name: "db", Size: lab.GiB, Filled: lab.GiB}}}},
			Hosts:  []lab.Host{{Name: "host", Cache: []lab.Cache{{Volume: "db", Size: 16 * lab.MiB, Eviction: policy}}}},
			Jobs:   []lab.Job{{Name: "load", Volume: "db", IO: 8 * lab.KiB, Hot: &lab.Hot{Reads: 0.6, Span: 16 * lab.MiB}, Span: 512 * lab.MiB, Outstanding: 8}},
		}
		s.Plugged.Eviction = map[string]func(plug.Cache) (plug.Eviction, error){"mine": newSieve}
		res, err := s.Run(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		hits, err := res.Value("cache.db.hit_percent")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%-5s  %.2f %% hits\n", policy, hits)
	}
}
