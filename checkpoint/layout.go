package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
)

// layout is what the file "layout" in a state directory says: which format the directory has and who wrote it.
type layout struct {
	Format int    `json:"format"`
	By     string `json:"by"`
}

// CheckLayout makes sure that the state directory whose layout file is path has a format that this program knows:
// a missing file is written, an older format is taken over, a newer one is refused with the name of its writer.
func CheckLayout(path string, format int, by string) error {
	var have layout
	err := Read(path, 1, &have)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Write(path, 1, layout{Format: format, By: by})
	case err != nil:
		return err
	case have.Format > format:
		return fmt.Errorf("%w: format %d by %s, this is %s with format %d: start that version again, or move the state directory away",
			ErrNewer, have.Format, have.By, by, format)
	case have.Format == format && have.By == by:
		return nil
	}
	return Write(path, 1, layout{Format: format, By: by})
}
