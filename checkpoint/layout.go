package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
)

// layout is the content of the file "layout" in a state directory: the directory's format and the version that wrote
// it.
type layout struct {
	Format int    `json:"format"`
	By     string `json:"by"`
}

// CheckLayout checks that this program knows the format of the state directory whose layout file is path: it writes a
// missing file, adopts an older format, and refuses a newer one with an error that names its writer.
func CheckLayout(path string, format int, by string) error {
	var have layout
	err := Read(path, 1, &have)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Write(path, 1, layout{Format: format, By: by})
	case err != nil:
		return err
	case have.Format > format:
		return fmt.Errorf("%w: format %d by %s, this is %s with format %d: "+
			"start that version again, or move the state directory away", ErrNewer, have.Format, have.By, by, format)
	case have.Format == format && have.By == by:
		return nil
	}
	return Write(path, 1, layout{Format: format, By: by})
}
