package array

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block/blocktest"
)

func TestMain(m *testing.M) { blocktest.Main(m) }
