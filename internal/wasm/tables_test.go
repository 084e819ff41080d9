package wasm

import (
	"bytes"
	"context"
	"testing"

	"github.com/tetratelabs/wazero"
)

// growing is a module with a table without a maximum, and a function that grows it.
var growing = []byte{0, 'a', 's', 'm', 1, 0, 0, 0,
	1, 6, 1, 0x60, 1, 0x7F, 1, 0x7F, // type 0: (i32) -> i32
	3, 2, 1, 0, // function 0 has type 0
	4, 4, 1, 0x70, 0, 1, // a table of function references, one entry
	7, 5, 1, 1, 'g', 0, 0, // export g
	10, 11, 1, 9, 0, 0xD0, 0x70, 0x20, 0, 0xFC, 15, 0, 0x0B} // table.grow 0 (ref.null func) (local.get 0)

// TestTablesAreBounded: a module's table does not grow beyond the bound, and what was bounded is a module still.
func TestTablesAreBounded(t *testing.T) {
	bounded, err := boundTables(growing)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for _, row := range []struct {
		code []byte
		most bool
	}{{growing, false}, {bounded, true}} {
		r := wazero.NewRuntime(ctx)
		m, err := r.Instantiate(ctx, row.code)
		if err != nil {
			t.Fatal(err)
		}
		g := m.ExportedFunction("g")
		if got, err := g.Call(ctx, 100); err != nil || int32(got[0]) != 1 {
			t.Errorf("a hundred entries more: %v, %v", got, err)
		}
		if got, err := g.Call(ctx, maxTable); err != nil || (int32(got[0]) == -1) != row.most {
			t.Errorf("bounded %t: %d entries more: %v, %v", row.most, maxTable, got, err)
		}
		if err := r.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	again, err := boundTables(bounded)
	if err != nil || !bytes.Equal(again, bounded) {
		t.Errorf("bounded twice it is another module: %v", err)
	}
}

// FuzzBoundTables: no module makes it panic, and what it returns has the same sections.
func FuzzBoundTables(f *testing.F) {
	f.Add(growing)
	f.Add(growing[:20])
	f.Add([]byte{0, 'a', 's', 'm', 1, 0, 0, 0, 4, 3, 1, 0x70, 0xFF})
	f.Fuzz(func(t *testing.T, code []byte) {
		bounded, err := boundTables(code)
		if err != nil {
			return
		}
		if again, err := boundTables(bounded); err != nil || !bytes.Equal(again, bounded) {
			t.Errorf("%x is %x, and then %x, %v", code, bounded, again, err)
		}
	})
}
