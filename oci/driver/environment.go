package driver

import "os"

// Environment is the part of the daemon's environment that runtimes, shims and monitors get: where programs, the time
// zone and the system bus are. The rest may hold credentials, and hooks inherit it.
func Environment() []string {
	var env []string
	for _, key := range []string{"PATH", "TZ", "XDG_RUNTIME_DIR", "DBUS_SYSTEM_BUS_ADDRESS"} {
		if v, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+v)
		}
	}
	return env
}
