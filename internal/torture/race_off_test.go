//go:build !race

package torture

const underRace = false
