// Package config defines the error that the Config types of podd's packages return for a wrong key.
//
// A package validates its own keys, but knows neither the section that its Config is in nor which file set a key:
// cmd/podd adds both. Every package with a Config may import it. It imports nothing of podd.
package config

import "fmt"

// FieldError says what is wrong with one key.
type FieldError struct {
	// Key is the key's name in the configuration file, without its section.
	Key string
	Err error
}

// Errorf returns a FieldError for key. Format and args are those of fmt.Errorf.
func Errorf(key, format string, args ...any) error {
	return &FieldError{Key: key, Err: fmt.Errorf(format, args...)}
}

func (e *FieldError) Error() string { return e.Key + ": " + e.Err.Error() }

// Unwrap returns the error without the key.
func (e *FieldError) Unwrap() error { return e.Err }
