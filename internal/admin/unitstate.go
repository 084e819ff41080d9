package admin

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/scsi"
)

// unitBlobs is what the names of all units' states begin with.
const unitBlobs = "admin.unit."

// stateBlob is the name under which the array keeps what the SCSI layer saves of a
// volume's unit: persistent reservations, mode pages, an erasure in progress.
func stateBlob(id uint32) string { return fmt.Sprint(unitBlobs, id) }

// unitOptions are those of a volume's unit, with the state of its life before.
func (x *exports) unitOptions(v *array.Volume) (scsi.UnitOptions, error) {
	s := x.spec(v)
	state, err := scsi.ParseUnitState(x.array.Blob(stateBlob(v.ID())))
	if err != nil {
		return scsi.UnitOptions{}, fmt.Errorf("volume %q: the saved state of its unit is damaged: %w", v.Name(), err)
	}
	return scsi.UnitOptions{
		Removable: s.Removable, WriteProtect: s.WriteProtect, State: state,
		Save: func(b []byte, done func(error)) { x.array.SetBlob(stateBlob(v.ID()), b, done) },
	}, nil
}

// dropStates removes what is kept of the units of volumes that are gone. A volume ends before that
// does, so that a crash between the two, or an error, leaves it; a number never comes back.
func (x *exports) dropStates(log *slog.Logger) {
	there := map[string]bool{}
	for _, v := range x.array.Volumes() {
		there[stateBlob(v.ID())] = true
	}
	for _, name := range x.array.BlobNames() {
		if !strings.HasPrefix(name, unitBlobs) || there[name] {
			continue
		}
		x.array.SetBlob(name, nil, func(err error) {
			if err != nil { // the next start tries again
				log.Warn("the saved state of a deleted volume's unit cannot be removed", "name", name, "error", err)
			}
		})
	}
}
