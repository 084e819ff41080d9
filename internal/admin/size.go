package admin

import "github.com/arraysim/arraysim/internal/size"

// Size is a number of bytes that people write as 512MiB, 10G or 100MB, and that is a plain number in JSON.
type Size = size.Bytes
