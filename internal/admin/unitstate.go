package admin

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/scsi"
)

// stateBlob is the name under which the array keeps what the SCSI layer saves of a
// volume's unit: reservations with APTPL, mode pages, an erasure in progress.
func stateBlob(id uint32) string { return fmt.Sprintf("admin.unit.%d", id) }

// unitOptions are those of a volume's unit, with the state of its life before.
func (x *exports) unitOptions(v *array.Volume) (scsi.UnitOptions, error) {
	s := x.spec(v)
	state, err := scsi.ParseUnitState(x.array.Blob(stateBlob(v.ID())))
	if err != nil {
		return scsi.UnitOptions{}, fmt.Errorf("volume %q: what the array keeps of its unit is damaged: %w", v.Name(), err)
	}
	return scsi.UnitOptions{
		Removable: s.Removable, WriteProtect: s.WriteProtect, State: state,
		Save: func(b []byte, done func(error)) { x.array.SetBlob(stateBlob(v.ID()), b, done) },
	}, nil
}
