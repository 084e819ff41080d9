//go:build race

package admin

const underRace = true
