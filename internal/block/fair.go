package block

// Left returns how much one of several users may still take of what they share, of which there is most. own is what it has, all
// what all have, itself included. It may have as much as it leaves to the others: alone it gets half. So whoever comes finds
// something as long as there is anything, and the more have come the less each may have, without anybody counting them. It is below
// 0 for one that has more than that by now. Units are the caller's.
func Left(own, all, most int) int {
	return min((most-(all-own)+1)/2-own, most-all)
}
