// Package request carries out what hosts ask of volumes: reads, writes, edits of the map and
// copies, each a state machine of its own kind, from [Volume.Submit] to the answer. An [Engine] has
// what all of them share.
//
// The files are the stages of a command: submit; lookup, read; write, claim, commit; edit; compare;
// place, copy; settle; complete. Which leaves of maps one needs is in needs. What a request waits for,
// and who wakes it, is in request, wait, given and wake; overdue ends those who wait for what does not
// come; step is the end of each call.
//
// It knows pools and their volumes (package pool), and what is below them; of the directory it
// knows how a volume is described, and nothing that changes it. It knows no recovery and no
// checkpoint: those who change the array say here what they give, and end a step.
//
// # Concurrency
//
// Everything runs with the executor held. There is no goroutine and no wall clock here.
package request
