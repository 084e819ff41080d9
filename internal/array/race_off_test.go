//go:build !race

package array

const underRace = false
