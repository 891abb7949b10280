package settings

import (
	"io"

	"github.com/podd-project/podd/cmd/podd/tomlconfig"
)

// configHeader is the beginning of the output of `podd config default`. contrib/podd.toml is that output.
const configHeader = `# Configuration of podd, with every key at its default.
#
# podd reads /etc/podd/podd.toml and then /etc/podd/podd.toml.d/*.toml, in the order of their names. Keys of a later
# file override those of an earlier one; tables are merged, arrays are replaced. Flags override files. An unknown key
# is an error. podd config dump prints the effective configuration, with the file or flag that set each key.

`

// WriteDefault writes a file with every key, its meaning and its default.
func WriteDefault(w io.Writer) error {
	if _, err := io.WriteString(w, configHeader); err != nil {
		return err
	}
	c := Default()
	return tomlconfig.New(&c).Document(w)
}
