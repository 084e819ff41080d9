//go:build !race

package iscsi

const raceEnabled = false
