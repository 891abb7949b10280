// Package reference has the knowledge of the CNI project's own plugins (github.com/containernetworking/plugins), by
// their sources: where host-local keeps addresses, which plugins have nothing to do for some pods, and which need the
// pod's interface at DEL. It runs no plugin and writes no file. Package network calls it, and knows no plugin itself.
package reference
