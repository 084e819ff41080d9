// Package policy is what an array decides by rules that can be changed: what happens to a write that
// finds its partition full, which dirty data is destaged first and at what rate, and how a copy
// inside a pool is carried out. The rules here and those that somebody plugs in (package plug)
// answer the same questions.
//
// All rules here are values without a state. They belong to the array's executor.
package policy
