//go:build race

package array

// underRace shortens what the race detector makes ten times longer: the core has one
// thread, so that what it would find shows in few runs.
const underRace = true
