package block

import (
	"iter"
	"maps"
)

// Left returns how much one of several users may still take of what they share, of which there is most. own is what it has, all
// what all have, itself included. It may have as much as it leaves to the others: alone it gets half. So whoever comes finds
// something as long as there is anything, and the more have come the less each may have, without anybody counting them. It is below
// 0 for one that has more than that by now. Units are the caller's.
func Left(own, all, most int) int {
	return min((most-(all-own)+1)/2-own, most-all)
}

// Shares counts what users have of what they share, by user. The zero value: nobody has anything. Units are the caller's, and so is
// the lock.
type Shares[User comparable] struct {
	all int
	of  map[User]int // those who have nothing are not in it
}

// All returns what all users have.
func (s *Shares[User]) All() int { return s.all }

// Of returns what a user has.
func (s *Shares[User]) Of(u User) int { return s.of[u] }

// Each returns the users who have anything, in no order, with what they have.
func (s *Shares[User]) Each() iter.Seq2[User, int] { return maps.All(s.of) }

// Left is Left of a user, where there is most.
func (s *Shares[User]) Left(u User, most int) int { return Left(s.of[u], s.all, most) }

// Add counts that a user has n more, or less where n is negative.
func (s *Shares[User]) Add(u User, n int) {
	if n == 0 {
		return
	}
	if s.of == nil {
		s.of = map[User]int{}
	}
	s.all += n
	if s.of[u] += n; s.of[u] == 0 {
		delete(s.of, u)
	}
}
