// Package replay puts traces to use: [Table] runs one through many caches and
// counts what they miss, [Advise] finds the cache that each disk of it should have, [Run] sends its
// requests to a target.
package replay
