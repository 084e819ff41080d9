// Lists of dirty pages, linked through the pages, oldest first. Its state says on which a page is.

package wcache

import "slices"

// list is a list of pages. The zero value is not one: see newList.
type list struct {
	head, tail uint32
	age        uint32 // of head
}

var newList = list{head: NoPage, tail: NoPage}

// newLists returns an empty list for each of n mdisks.
func newLists(n int) []list { return slices.Repeat([]list{newList}, n) }

func (l *list) empty() bool { return l.head == NoPage }

func (c *Cache) push(l *list, i uint32) {
	p := &c.pages[i]
	p.prev, p.next = l.tail, NoPage
	if l.tail == NoPage {
		l.head, l.age = i, p.age
	} else {
		c.pages[l.tail].next = i
	}
	l.tail = i
}

func (c *Cache) unlink(l *list, i uint32) {
	p := &c.pages[i]
	if p.prev == NoPage {
		if l.head = p.next; l.head != NoPage {
			l.age = c.pages[l.head].age
		}
	} else {
		c.pages[p.prev].next = p.next
	}
	if p.next == NoPage {
		l.tail = p.prev
	} else {
		c.pages[p.next].prev = p.prev
	}
}
